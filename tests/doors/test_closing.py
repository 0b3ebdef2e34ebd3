"""Promise 8 at the socket: a stopped or abandoned stream is seen as a disconnect."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import litellm
import pytest

from guard.doors import chat
from guard.doors.litellm import closing
from guard.doors.session import DoorSession
from guard.policy import Policy
from tests.doors import replay as r
from tests.doors.replay import Replay
from tests.doors.versions import MID_STREAM
from tests.provider import Provider, Script, Served
from tests.scripted import Scripted

INTERVAL = 0.15
# The finding is made at the fourth chunk, and stands at the fifth, which ends the next sentence.
# One more may be on its way by then.
MOST = 6
BIASED = ["All is well.", " And BI", "AS is.", " It is.", *[" more"] * 100]
HARMLESS = ["All is well.", *[" more"] * 100]

Call = dict[str, Any]


def call(provider: Provider, wire: str) -> Call:
    model, base = {
        "openai": ("openai/x", provider.openai),
        "anthropic": ("anthropic/claude-x", provider.anthropic),
    }[wire]
    # Retries would show up as further requests.
    return {
        "model": model,
        "api_base": base,
        "api_key": "k",
        "messages": r.MESSAGES,
        "stream": True,
        "num_retries": 0,
        "max_retries": 0,
    }


@pytest.fixture
def judged() -> DoorSession:
    return r.session(Policy(), Scripted())


@pytest.fixture(params=["aiohttp", "httpx"])
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(litellm, "disable_aiohttp_transport", request.param == "httpx")
    asyncio.run(r.forget_clients())
    yield request.param
    asyncio.run(r.forget_clients())


wires = pytest.mark.parametrize("wire", ["openai", "anthropic"])
OTHER_TRANSPORT = pytest.mark.slow("the other transport of each, with waits at a socket")


async def over(served: Served) -> bool:
    return await asyncio.to_thread(served.over.wait, 5)


def assert_left(served: Served, most: int) -> None:
    """The client was seen to leave after at most ``most`` chunks."""
    assert served.over.wait(5)
    assert served.disconnected
    assert served.sent <= most


# The guard stops.


@wires
def test_a_termination_is_seen_at_the_socket(
    provider: Provider, judged: DoorSession, wire: str
) -> None:
    provider.script = Script([BIASED], INTERVAL)
    outcome = r.drain(chat.completion(judged, (), call(provider, wire)))
    assert_left(provider.last, MOST)
    assert outcome.finish == {0: "content_filter"}
    assert "BIAS" not in r.serialised(*outcome.chunks)
    assert len(provider.served) == 1


@wires
def test_a_termination_is_seen_at_the_socket_async(
    provider: Provider, judged: DoorSession, wire: str, transport: str
) -> None:
    provider.script = Script([BIASED], INTERVAL)

    async def run() -> None:
        outcome = await r.adrain(await chat.acompletion(judged, (), call(provider, wire)))
        assert outcome.finish == {0: "content_filter"}
        assert await over(provider.last)

    r.arun(run())
    assert_left(provider.last, MOST)
    assert len(provider.served) == 1


@pytest.mark.parametrize("scope", ["choice", "response"])
def test_a_choice_ends_alone_or_with_all(provider: Provider, scope: str) -> None:
    long = ["Fine. ", *["more. "] * 12]
    provider.script = Script([["All is well. ", "BIAS is. ", "It is. "], long], 0.02)
    s = r.session(Policy(scope=scope), Scripted())
    outcome = r.drain(chat.completion(s, (), {**call(provider, "openai"), "n": 2}))
    assert provider.last.over.wait(5)
    assert provider.last.disconnected == (scope == "response")
    assert outcome.finish.get(0) == "content_filter"
    if scope == "choice":
        assert outcome.texts[r.Channel(1)] == "".join(long)


def test_when_every_choice_has_ended_the_provider_is_stopped(provider: Provider) -> None:
    provider.script = Script([BIASED, ["Well. ", *BIASED[1:]]], INTERVAL / 2)
    s = r.session(Policy(), Scripted())
    outcome = r.drain(chat.completion(s, (), {**call(provider, "openai"), "n": 2}))
    assert outcome.ends == {0: "content_filter", 1: "content_filter"}
    assert_left(provider.last, 10)


def test_a_choice_that_has_not_begun_is_waited_for(provider: Provider, judged: DoorSession) -> None:
    later = [{"content": ""}] * 4
    provider.script = Script([["BIAS is.", " x"], [*later, "Fine."]], 0.02)
    outcome = r.drain(chat.completion(judged, (), {**call(provider, "openai"), "n": 2}))
    assert outcome.ends == {0: "content_filter"}
    assert outcome.texts[r.Channel(1)] == "Fine."
    assert provider.last.over.wait(5)
    assert provider.last.finished


def test_a_finish_reason_that_is_another_choices_ends_no_segment(
    provider: Provider, judged: DoorSession
) -> None:
    # LiteLLM puts the second choice's finish reason on the first.
    provider.script = Script([["All BI", "AS", " is."], ["Fine."]], finish_early=True)
    outcome = r.drain(chat.completion(judged, (), {**call(provider, "openai"), "n": 2}))
    assert outcome.texts == {r.Channel(0): judged.policy.message, r.Channel(1): "Fine."}


def test_a_stopped_stream_is_never_pulled_again(provider: Provider, judged: DoorSession) -> None:
    provider.script = Script([BIASED], INTERVAL)
    stream = chat.completion(judged, (), call(provider, "openai"))
    r.drain(stream)
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(stream)
    assert len(provider.served) == 1


@wires
def test_a_stopped_async_stream_is_never_pulled_again(
    provider: Provider, judged: DoorSession, wire: str
) -> None:
    provider.script = Script([BIASED], INTERVAL)

    async def run() -> None:
        stream = await chat.acompletion(judged, (), call(provider, wire))
        await r.adrain(stream)
        for _ in range(3):
            with pytest.raises(StopAsyncIteration):
                await anext(stream)

    r.arun(run())
    assert len(provider.served) == 1


# The consumer stops.


def leave_by_close(stream: Any) -> None:
    stream.close()
    stream.close()
    with pytest.raises(StopIteration):
        next(stream)


def leave_by_with(stream: Any) -> None:
    with stream:
        pass


def leave_by_collection(stream: Any) -> None:
    del stream
    gc.collect()


@wires
@pytest.mark.parametrize("leave", [leave_by_close, leave_by_with, leave_by_collection])
def test_an_abandoned_stream_is_closed(
    provider: Provider, judged: DoorSession, wire: str, leave: Callable[[Any], None]
) -> None:
    provider.script = Script([HARMLESS], INTERVAL)
    streams = [chat.completion(judged, (), call(provider, wire))]
    next(streams[0])
    sent = provider.last.sent
    leave(streams.pop())
    assert_left(provider.last, sent + 1)


@wires
def test_a_stream_never_read_is_closed(provider: Provider, judged: DoorSession, wire: str) -> None:
    provider.script = Script([HARMLESS], INTERVAL)
    stream = chat.completion(judged, (), call(provider, wire))
    sent = provider.last.sent
    stream.close()
    assert_left(provider.last, sent + 1)


async def aleave_by_aclose(stream: Any) -> None:
    await stream.aclose()
    await stream.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def aleave_by_close(stream: Any) -> None:
    stream.close()
    await asyncio.sleep(0)


async def aleave_by_with(stream: Any) -> None:
    async with stream:
        pass


async def aleave_by_collection(stream: Any) -> None:
    del stream
    gc.collect()
    await asyncio.sleep(0)


async def aleave_by_cancellation(stream: Any) -> None:
    async def read() -> None:
        async for _ in stream:
            pass

    task = asyncio.create_task(read())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


LEAVES = [
    aleave_by_aclose,
    aleave_by_close,
    aleave_by_with,
    aleave_by_collection,
    aleave_by_cancellation,
]


@pytest.mark.parametrize(
    ("leave", "wire", "transport"),
    [
        # Each way to leave on both wires, in turns over both transports.
        pytest.param(
            *(leave, wire, transport),
            id=f"{leave.__name__}-{wire}-{transport}",
            marks=() if (n + w + t) % 2 == 0 else OTHER_TRANSPORT,
        )
        for n, leave in enumerate(LEAVES)
        for w, wire in enumerate(["openai", "anthropic"])
        for t, transport in enumerate(["aiohttp", "httpx"])
    ],
    indirect=["transport"],
)
def test_an_abandoned_async_stream_is_closed(
    provider: Provider, judged: DoorSession, leave: Callable[[Any], Any], wire: str, transport: str
) -> None:
    provider.script = Script([HARMLESS], INTERVAL)
    sent = []

    async def run() -> None:
        streams = [await chat.acompletion(judged, (), call(provider, wire))]
        await anext(streams[0])
        sent.append(provider.last.sent)
        await leave(streams.pop())
        assert await over(provider.last)

    r.arun(run())
    assert_left(provider.last, sent[0] + 1)


def test_an_interrupt_while_judging_closes(provider: Provider) -> None:
    def interrupt(window: object) -> None:
        raise KeyboardInterrupt

    provider.script = Script([HARMLESS], INTERVAL)
    s = r.session(Policy(timeout_ms=None), Scripted(before=interrupt))
    stream = chat.completion(s, (), call(provider, "openai"))
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    assert_left(provider.last, 3)
    with pytest.raises(StopIteration):
        next(stream)


def test_a_stalled_read_is_woken_by_close(provider: Provider, judged: DoorSession) -> None:
    provider.script = Script([HARMLESS], stall_after=3)
    stream = chat.completion(judged, (), call(provider, "openai"))
    read: list[Any] = []
    reader = threading.Thread(target=lambda: read.extend(stream))
    reader.start()
    assert provider.last.began.wait(5)
    while provider.last.sent < 3:
        time.sleep(0.01)
    stream.close()
    reader.join(5)
    assert not reader.is_alive()
    assert_left(provider.last, 3)


def test_a_sync_stream_read_asynchronously_is_closed(
    provider: Provider, judged: DoorSession
) -> None:
    provider.script = Script([BIASED], INTERVAL)

    async def run() -> None:
        # LiteLLM itself cannot read Anthropic's sync stream asynchronously.
        stream = chat.completion(judged, (), call(provider, "openai"))
        outcome = await r.adrain(stream)
        assert outcome.finish == {0: "content_filter"}
        assert await over(provider.last)

    r.arun(run())
    assert_left(provider.last, MOST)


# The provider ends.


@wires
def test_a_complete_stream_is_not_left_early(
    provider: Provider, judged: DoorSession, wire: str
) -> None:
    provider.script = Script([["All is well. ", "Really."]])
    for _ in range(2):
        stream = chat.completion(judged, (), call(provider, wire))
        assert r.drain(stream).texts == {r.Channel(): "All is well. Really."}
        # The reader may be at the end before the provider has noted it.
        assert provider.last.over.wait(5)
        stream.close()
    assert [s.finished for s in provider.served] == [True, True]


# Where LiteLLM keeps it: not over httpx, and with OpenAI's client, which leaves at ``[DONE]``, only
# where the body's end came along with that.
def test_a_complete_stream_keeps_its_connection(provider: Provider, judged: DoorSession) -> None:
    provider.script = Script([["All is well. ", "Really."]])

    async def run() -> None:
        for _ in range(2):
            stream = await chat.acompletion(judged, (), call(provider, "anthropic"))
            assert (await r.adrain(stream)).texts == {r.Channel(): "All is well. Really."}
            assert await over(provider.last)
            await stream.aclose()

    r.arun(run())
    assert [s.finished for s in provider.served] == [True, True]
    assert len({s.client for s in provider.served}) == 1


@pytest.mark.parametrize("fault", ["drop_after", "error_after"])
def test_an_error_comes_after_the_text_that_may_go_out(
    provider: Provider, judged: DoorSession, fault: str
) -> None:
    provider.script = Script([["All is well. ", "Half a sent", "ence"]], **{fault: 2})
    stream = chat.completion(judged, (), call(provider, "openai"))
    outcome = r.drain(stream)
    assert outcome.texts == {r.Channel(): "All is well. Half a sent"}
    assert isinstance(outcome.error, MID_STREAM)
    if MID_STREAM is litellm.exceptions.MidStreamFallbackError:
        assert outcome.error.generated_content == "All is well. Half a sent"
    with pytest.raises(StopIteration):
        next(stream)
    assert len(provider.served) == 1


@pytest.mark.parametrize("fault", ["drop_after", "error_after"])
def test_an_error_carries_no_text_that_was_held_back(provider: Provider, fault: str) -> None:
    provider.script = Script(
        [["All is well. ", "BIAS is", "x"], ["Fine", " too", "x"]], **{fault: 4}
    )
    s = r.session(Policy(), Scripted())
    outcome = r.drain(chat.completion(s, (), {**call(provider, "openai"), "n": 2}))
    error = outcome.error
    assert isinstance(error, MID_STREAM)
    assert "BIAS" not in f"{error}{error!r}{error.__dict__}{error.__cause__}{error.args}"
    assert outcome.ends == {0: "content_filter"}


def test_an_error_that_quotes_the_held_chunk_does_not_leak(provider: Provider) -> None:
    # LiteLLM gives up on a model that says the same a hundred times, and says what. What an error
    # quotes is judged, so its message goes as a whole.
    provider.script = Script([["Fine.", *[" BIAS"] * 120]])
    s = r.session(Policy(action="redact"), Scripted())
    stream = chat.completion(s, (), call(provider, "openai"))
    seen: list[Any] = []
    with pytest.raises(Exception, match="the message is left out") as caught:
        seen.extend(stream)
    assert "BIAS" not in f"{caught.value}{caught.value!r}{vars(caught.value)}"
    shown = "".join(traceback.format_exception(caught.value))
    assert "BIAS" not in shown
    assert "BIAS" not in r.serialised(*seen)
    assert provider.last.over.wait(5)


def test_a_stop_takes_the_place_of_the_providers_error(
    provider: Provider, judged: DoorSession
) -> None:
    provider.script = Script([["All is well. ", "BIAS is", "x"]], drop_after=2)
    outcome = r.drain(chat.completion(judged, (), call(provider, "openai")))
    assert outcome.error is None
    assert outcome.ends == {0: "content_filter"}


# Other kinds of stream.


def test_a_custom_providers_generator_is_closed(replay: Replay, judged: DoorSession) -> None:
    sent = [r.chunk_of(r.Said(0, "content", t)) for t in BIASED]
    r.streamed(replay, sent, judged)
    assert replay.closed
    assert replay.pulled <= 5
    stream = r.stream(replay, sent, judged)
    next(stream)
    stream.close()
    assert replay.closed


def test_a_custom_providers_async_generator_is_closed(replay: Replay, judged: DoorSession) -> None:
    sent = [r.chunk_of(r.Said(0, "content", t)) for t in BIASED]
    r.astreamed(replay, sent, judged)
    assert replay.closed
    assert replay.pulled <= 5


def test_a_mock_response_is_stopped(judged: DoorSession) -> None:
    kwargs = {
        "model": "openai/x",
        "messages": r.MESSAGES,
        "stream": True,
        "mock_response": "".join(BIASED),
    }
    outcome = r.drain(chat.completion(judged, (), kwargs))
    assert outcome.ends == {0: "content_filter"}

    async def run() -> None:
        outcome = await r.adrain(await chat.acompletion(judged, (), kwargs))
        assert outcome.ends == {0: "content_filter"}

    r.arun(run())


def test_closing_something_else_does_nothing() -> None:
    closing.close(object())
    closing.close(None)
    asyncio.run(closing.aclose(object()))


def test_what_cannot_be_closed_is_said() -> None:
    assert any(t.closes for t in closing.TRANSPORTS)
    assert all(t.note for t in closing.TRANSPORTS)
    assert len({t.name for t in closing.TRANSPORTS}) == len(closing.TRANSPORTS)
