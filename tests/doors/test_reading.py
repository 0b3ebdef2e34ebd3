"""Reading on while a verdict is out: what it gains, and that it changes nothing else."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.core import Guard
from guard.detect.protocol import Window
from guard.doors import chat, reading
from guard.errors import UsageError
from guard.policy import Policy
from tests.doors import replay as r
from tests.doors.replay import Outcome, Replay, arun
from tests.doors.test_promises import KINDS, TRIGGER, Watch, choices_, chunkings, chunks
from tests.scripted import Scripted

few = settings(max_examples=40, deadline=None)


@pytest.fixture(autouse=True, scope="module")
def at_once() -> Iterator[None]:
    """Have every verdict be a late one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "PATIENCE", 0.0)
        yield


class Slow:
    """A detector's ``before`` that holds verdicts back until ``may`` is true, or for a while."""

    def __init__(self, may: Callable[[], bool]) -> None:
        self.may = may
        self.in_time: list[bool] = []

    def __call__(self, window: Window) -> None:
        for _ in range(500):
            if self.may():
                break
            threading.Event().wait(0.01)
        self.in_time.append(self.may())


async def guarded(replay: Replay, texts: list[str], s: Any) -> Any:
    return await r.astream(replay, [r.chunk_of(r.Said(0, "content", t)) for t in texts], s)


# What it gains.


def test_a_provider_of_the_same_process_goes_on_while_a_verdict_is_out(replay: Replay) -> None:
    # The verdict on the first sentence comes once the source was asked for the end of the second.
    slow = Slow(lambda: replay.pulled >= 6)
    session = r.session(Policy(), Scripted("$none", slow))

    async def run() -> Outcome:
        stream = await guarded(replay, ["One", " is. ", "Two", " is", ". ", "Three"], session)
        return await r.adrain(stream)

    outcome = arun(run())
    assert slow.in_time[0]
    assert "".join(outcome.texts.values()) == "One is. Two is. Three"


def test_what_was_read_meanwhile_is_judged_together(replay: Replay) -> None:
    # Two later sentences are asked about at a time: neither verdict comes before both are out.
    asked: list[str] = []
    slow = Slow(lambda: replay.pulled >= 3 and (len(asked) == 1 or len(asked) >= 3))

    def before(window: Window) -> None:
        asked.append(window.text)
        slow(window)

    session = r.session(Policy(), Scripted("$none", before))

    async def run() -> Outcome:
        return await r.adrain(await guarded(replay, ["One. ", "Two. ", "Three."], session))

    assert "".join(arun(run()).texts.values()) == "One. Two. Three."
    assert slow.in_time == [True, True, True]


def test_text_from_anywhere_is_read_on_as_well() -> None:
    read: list[str] = []
    slow = Slow(lambda: len(read) == 3)

    async def source() -> AsyncIterator[str]:
        for text in ("One. ", "Two. ", "Three."):
            read.append(text)
            yield text
            await asyncio.sleep(0)

    async def run() -> list[str]:
        guard = Guard(Policy(), detector=Scripted("$none", slow))
        return [text async for text in guard.astream(source())]

    assert "".join(asyncio.run(run())) == "One. Two. Three."
    assert slow.in_time[0]


def test_a_quick_verdict_is_not_read_past(replay: Replay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PATIENCE", 30.0)
    most: list[int] = []
    session = r.session(Policy(), Scripted("$none", lambda w: most.append(replay.pulled)))

    async def run() -> Outcome:
        return await r.adrain(await guarded(replay, ["One. T", "wo. T", "hree."], session))

    arun(run())
    assert most[0] == 1


# What it does not change.


# An error ends all choices, wherever the others are by then.
answers = st.one_of(
    st.tuples(choices_(most=3, kinds=KINDS), st.sampled_from(["terminate", "redact", "flag"])),
    st.tuples(choices_(kinds=KINDS), st.just("raise")),
)


@given(answers, chunkings)
@few
def test_nothing_goes_out_unjudged_and_the_answer_is_the_same(
    replay: Replay, answer: Any, chunking: Any
) -> None:
    choices, action = answer
    watch = Watch()
    session = r.session(Policy(action=action), Scripted(TRIGGER, watch))
    sent = chunks(choices, chunking)

    async def run() -> Outcome:
        stream = await r.astream(replay, sent, session)

        class Seen:
            guard = stream.guard

            async def __aiter__(self) -> AsyncIterator[Any]:
                async for chunk in stream:
                    watch.seen.append(chunk)
                    yield chunk

        return await r.adrain(Seen())

    outcome = arun(run())
    plain = r.streamed(replay, sent, r.session(Policy(action=action), Scripted(TRIGGER)))
    assert watch.leaks == set()
    assert outcome.comparable == plain.comparable
    assert replay.closed


@pytest.mark.parametrize("hold", ["sentence", "association", "none"])
@pytest.mark.parametrize("size", [1, 7, 100])
def test_it_reads_on_as_far_as_promised_and_no_further(
    replay: Replay, hold: str, size: int
) -> None:
    policy = Policy(hold=hold)
    text = "All is well, or so they say. " * 60
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    read: list[int] = []
    full = Slow(lambda: replay.pulled * size >= policy.most_held)

    def before(window: Window) -> None:
        if not read:
            full(window)
            threading.Event().wait(0.05)  # it would go on now, if it went on
        read.append(replay.pulled * size)

    session = r.session(policy, Scripted("$none", before))

    async def run() -> Outcome:
        return await r.adrain(await guarded(replay, pieces, session))

    assert "".join(arun(run()).texts.values()) == text
    assert full.in_time
    assert all(full.in_time)
    assert read[0] < policy.most_held + 2 * size


# How it ends.


class Endless:
    """A source that gives ``first`` and then waits; knows whether it was cancelled and closed."""

    def __init__(self, first: Sequence[str]) -> None:
        self.waits = threading.Event()
        self.ended = False
        self.asked = 0
        self._first = first

    async def astreaming(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        try:
            for text in self._first:
                self.asked += 1
                yield r.chunk_of(r.Said(0, "content", text))
            self.asked += 1
            self.waits.set()
            await asyncio.sleep(30)
        finally:
            self.ended = True


@pytest.fixture
def endless(replay: Replay, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Endless]:
    def make(*first: str) -> Endless:
        source = Endless(first)
        monkeypatch.setattr(replay, "astreaming", source.astreaming)
        return source

    return make


def opened(detector: Scripted, **policy: Any) -> Coroutine[Any, Any, Any]:
    session = r.session(Policy(**policy), detector)
    return chat.acompletion(session, (), {**r.CALL, "stream": True})


def tasks() -> set[Any]:
    return asyncio.all_tasks() - {asyncio.current_task()}


def test_a_stop_ends_the_read_that_is_under_way(endless: Callable[..., Endless]) -> None:
    source = endless(f"This {TRIGGER} is bad. ", "More")
    detector = Scripted(TRIGGER, lambda w: source.waits.wait(5) or None)

    async def run() -> Outcome:
        before = tasks()
        outcome = await r.adrain(await opened(detector))
        assert source.ended
        assert {t for t in tasks() - before if "_next" in repr(t)} == set()
        return outcome

    outcome = arun(run())
    assert outcome.ends == {0: "content_filter"}
    assert source.asked == 3


def test_a_verdict_is_not_kept_waiting_by_a_provider_that_stalls(
    endless: Callable[..., Endless],
) -> None:
    source = endless("All is well. ", "More")
    detector = Scripted("$none", lambda w: source.waits.wait(5) or None)

    async def run() -> str:
        stream = await opened(detector)
        first = await asyncio.wait_for(anext(stream), 5)
        await stream.aclose()
        assert source.ended
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        return str(first.choices[0].delta.content)

    assert arun(run()) == "All is well. "


@pytest.mark.parametrize("how", ["cancelled", "dropped", "closed at once"])
def test_a_reader_who_leaves_ends_the_read(endless: Callable[..., Endless], how: str) -> None:
    source = endless("All is well. ", "More")
    detector = Scripted("$none", lambda w: source.waits.wait(5) or None)

    async def run() -> None:
        stream = await opened(detector)
        await anext(stream)
        if how == "cancelled":
            reading = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.01)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
        elif how == "closed at once":
            stream.close()
        del stream
        gc.collect()
        for _ in range(200):
            if source.ended:
                break
            await asyncio.sleep(0.01)
        assert source.ended

    arun(run())


def test_a_reader_who_is_cancelled_during_a_verdict_ends_the_read(
    endless: Callable[..., Endless],
) -> None:
    source = endless("All is well. ", "More")
    release = threading.Event()
    detector = Scripted("$none", lambda w: release.wait(5) or None)

    async def run() -> None:
        stream = await opened(detector)
        reader = asyncio.ensure_future(anext(stream))
        while not source.waits.is_set():
            await asyncio.sleep(0.01)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        release.set()
        assert source.ended

    arun(run())


@pytest.mark.parametrize("error", [ConnectionResetError("the line broke"), UsageError("no text")])
def test_an_error_read_meanwhile_comes_after_what_was_said_before_it(
    replay: Replay, error: Exception
) -> None:
    slow = Slow(lambda: replay.closed)

    def source() -> Iterator[Any]:
        yield r.chunk_of(r.Said(0, "content", "One. "))
        yield r.chunk_of(r.Said(0, "content", "Two"))
        raise error

    async def run() -> Outcome:
        replay.source = source
        return await r.adrain(await opened(Scripted("$none", slow)))

    outcome = arun(run())
    assert slow.in_time[0]
    assert "".join(outcome.texts.values()) == "One. Two"
    assert outcome.error is not None


def test_output_that_is_no_text_is_told_after_what_was_said_before_it() -> None:
    read: list[Any] = []
    slow = Slow(lambda: len(read) == 2)

    async def source() -> AsyncIterator[Any]:
        for text in ("One. ", 2):
            read.append(text)
            yield text

    async def run() -> list[str]:
        stream = Guard(Policy(), detector=Scripted("$none", slow)).astream(source())
        out = [await anext(stream)]
        with pytest.raises(UsageError, match="must be a string"):
            await anext(stream)
        return out

    assert asyncio.run(run()) == ["One. "]
    assert slow.in_time == [True]
