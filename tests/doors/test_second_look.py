"""A second look at every kind of stream: a provider that says nothing does not hold a finding."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from guard.core import Guard
from guard.doors import chat
from guard.doors.context import guarded
from guard.policy import Policy
from guard.verdict import Channel
from tests.doors import replay as r
from tests.doors.replay import Replay, Said, chunk_of
from tests.doors.test_closing import assert_left, call, over, transport, wires
from tests.provider import Provider, Script
from tests.rows import rows
from tests.scripted import Scripted

__all__ = ["transport"]

REFUTED = "^(?!.*NO).*BIAS"  # a BIAS without a NO
MESSAGE = "stopped"
STALLS = Script([["All is well.", " BIAS is.", " It", " was so."]], stall_after=3)
WAITS = {"message": MESSAGE, "second_look_ms": 20.0}


def terminating() -> Any:
    return r.session(Policy(**WAITS), Scripted(REFUTED))


@wires
def test_an_idle_provider_is_left(provider: Provider, wire: str) -> None:
    provider.script = STALLS
    outcome = r.drain(chat.completion(terminating(), (), call(provider, wire)))
    assert outcome.texts == {Channel(): f"All is well. {MESSAGE}"}
    assert outcome.finish == {0: "content_filter"}
    assert outcome.trail.decisions[-1].verdict.second_score is None
    assert_left(provider.last, 3)


@wires
def test_an_idle_provider_is_left_async(provider: Provider, wire: str, transport: str) -> None:
    provider.script = STALLS

    async def run() -> None:
        outcome = await r.adrain(await chat.acompletion(terminating(), (), call(provider, wire)))
        assert outcome.texts == {Channel(): f"All is well. {MESSAGE}"}
        assert await over(provider.last)

    r.arun(run())
    assert_left(provider.last, 3)


@wires
def test_a_finding_that_is_taken_back_in_time_goes_out(provider: Provider, wire: str) -> None:
    texts = ["All is well.", " BIAS is.", " NO", ", it is not.", " So"]
    provider.script = Script([texts], interval=0.01)
    session = r.session(Policy(second_look_ms=None), Scripted(REFUTED))
    outcome = r.drain(chat.completion(session, (), call(provider, wire)))
    assert outcome.texts == {Channel(): "".join(texts)}
    assert provider.last.finished

    async def run() -> None:
        session = r.session(Policy(second_look_ms=60_000), Scripted(REFUTED))
        outcome = await r.adrain(await chat.acompletion(session, (), call(provider, wire)))
        assert outcome.texts == {Channel(): "".join(texts)}

    r.arun(run())


def test_a_reader_that_is_cancelled_in_the_wait_leaves_the_provider(provider: Provider) -> None:
    provider.script = STALLS
    session = r.session(Policy(second_look_ms=60_000), Scripted(REFUTED))

    async def run() -> None:
        stream = await chat.acompletion(session, (), call(provider, "openai"))
        await anext(stream)

        async def rest() -> None:
            async for _ in stream:
                pass

        reading = asyncio.ensure_future(rest())
        while not stream._waits.under_way:
            await asyncio.sleep(0.01)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await over(provider.last)

    r.arun(run())
    assert_left(provider.last, 3)


def test_a_stream_that_is_closed_in_the_wait_leaves_the_provider(provider: Provider) -> None:
    provider.script = STALLS
    session = r.session(Policy(second_look_ms=600_000), Scripted(REFUTED))
    stream = chat.completion(session, (), call(provider, "openai"))
    reader = threading.Thread(target=r.drain, args=(stream,))
    reader.start()
    while not stream._waits.under_way:
        reader.join(0.01)
    stream.close()
    assert_left(provider.last, 3)
    reader.join(5)
    assert not reader.is_alive()


class Idle:
    """A source of text that waits in the middle until it is told to go on."""

    def __init__(self, before: list[str], after: list[str]) -> None:
        self.before, self.after = before, after
        self.go_on, self.closed = threading.Event(), threading.Event()
        self.inside: list[bool] = []

    async def __aiter__(self) -> AsyncIterator[str]:
        try:
            for text in self.before:
                yield text
            while not self.go_on.is_set():
                await asyncio.sleep(0.005)
            self.inside.append(guarded())
            for text in self.after:
                yield text
        finally:
            self.closed.set()


def idle() -> Idle:
    return Idle(["Fine. ", "BIAS is. ", "It"], [" was. ", "So on."])


def test_plain_text_is_given_up_on_between_two_of_its_chunks() -> None:
    threads: set[int] = set()

    def source() -> Iterator[str]:
        yield from ["Fine. ", "BIAS is. "]
        for text in ["NO", ", it", " is", " not. "]:
            threads.add(threading.get_ident())
            time.sleep(0.05)
            yield text

    stream = Guard(Policy(**WAITS), detector=Scripted(REFUTED)).stream(source())
    assert list(stream) == ["Fine. ", MESSAGE]
    assert threads == {threading.get_ident()}  # the source may belong to its thread


def test_async_plain_text_goes_on_behind_a_wait_that_was_given_up() -> None:
    source = idle()
    guard = Guard(Policy(action="flag", **WAITS), detector=Scripted(REFUTED))

    async def run() -> list[str]:
        stream = guard.astream(source)
        out = [await anext(stream), await anext(stream)]
        source.go_on.set()
        out += [text async for text in stream]
        assert [d.action for d in stream.guard] == ["pass", "flag", "pass", "pass"]
        return out

    assert asyncio.run(run()) == ["Fine. ", "BIAS is. ", "It", " was. ", "So on."]
    assert source.closed.is_set()
    assert source.inside == [False]  # what the source calls is guarded as before


def test_an_async_source_is_closed_at_once() -> None:
    source = idle()
    guard = Guard(Policy(**WAITS), detector=Scripted(REFUTED))

    async def run() -> list[str]:
        out = [text async for text in guard.astream(source)]
        assert source.closed.is_set()
        return out

    assert asyncio.run(run()) == ["Fine. ", MESSAGE]


def test_the_error_of_a_late_call_is_the_readers() -> None:
    async def fails() -> AsyncIterator[str]:
        yield "Fine. "
        yield "BIAS is. "
        await go_on.wait()
        raise ConnectionError("gone")

    go_on = asyncio.Event()
    guard = Guard(Policy(action="flag", **WAITS), detector=Scripted(REFUTED))

    async def run() -> None:
        stream = guard.astream(fails())
        assert [await anext(stream), await anext(stream)] == ["Fine. ", "BIAS is. "]
        go_on.set()
        with pytest.raises(ConnectionError, match="gone"):
            await anext(stream)

    asyncio.run(run())


def test_a_late_call_stays_in_the_task_and_the_context_of_its_reader() -> None:
    async def source() -> AsyncIterator[str]:
        token = NAMED.set("source")
        with anyio.CancelScope():  # must be left by the task that entered it
            yield "BIAS is. "
            await asyncio.sleep(0.1)
            yield "NO"
            await asyncio.sleep(0)
            yield ", no. "
        NAMED.reset(token)
        yield "So."

    async def run(**policy: Any) -> list[str]:
        guard = Guard(Policy(action="flag", **policy), detector=Scripted(REFUTED))
        return [text async for text in guard.astream(source())]

    assert asyncio.run(run(**WAITS)) == ["BIAS is. ", "NO", ", no. ", "So."]
    assert asyncio.run(run()) == ["BIAS is. ", "NO", ", no. ", "So."]


def test_a_watched_stream_waits_in_no_thread() -> None:
    threads: set[int] = set()

    def source() -> Iterator[str]:
        for text in ["Fine. ", "BIAS is. ", "It", " was. "]:
            threads.add(threading.get_ident())
            yield text

    guard = Guard(Policy(hold="none", second_look_ms=0.001), detector=Scripted(REFUTED))
    assert list(guard.stream(source())) == ["Fine. ", "BIAS is. ", "It", " was. "]
    assert threads == {threading.get_ident()}


NAMED: ContextVar[str] = ContextVar("named", default="")


@rows("asynchronous", [False, True])
def test_a_late_call_is_the_doors_own_in_the_readers_context(
    replay: Replay, asynchronous: bool
) -> None:
    go_on = threading.Event()
    seen: list[tuple[bool, str]] = []

    def source() -> Iterator[Any]:
        yield chunk_of(Said(0, "content", "Fine. "))
        yield chunk_of(Said(0, "content", "BIAS is. "))
        go_on.wait(0.2)
        seen.append((guarded(), NAMED.get()))
        yield chunk_of(Said(0, "content", "It was. "))
        seen.append((guarded(), NAMED.get()))
        yield chunk_of(finish="stop")

    replay.source = source
    NAMED.set("reader")
    session = r.session(Policy(action="flag", **WAITS), Scripted(REFUTED))
    if asynchronous:

        async def run() -> r.Outcome:
            return await r.adrain(await chat.acompletion(session, (), {**r.CALL, "stream": True}))

        outcome = r.arun(run())
    else:
        outcome = r.drain(chat.completion(session, (), {**r.CALL, "stream": True}))
    assert outcome.texts == {Channel(): "Fine. BIAS is. It was. "}
    assert seen == [(True, "reader"), (True, "reader")]
    assert replay.closed


def test_a_custom_providers_generator_is_closed_once_it_answers(replay: Replay) -> None:
    go_on, ended = threading.Event(), threading.Event()

    def source() -> Iterator[Any]:
        yield chunk_of(Said(0, "content", "BIAS is. "))
        go_on.wait(30)
        try:
            yield chunk_of(Said(0, "content", "It was. "))
        finally:
            ended.set()

    replay.source = source
    outcome = r.drain(chat.completion(terminating(), (), {**r.CALL, "stream": True}))
    assert outcome.texts == {Channel(): MESSAGE}
    go_on.set()
    assert ended.wait(5)
