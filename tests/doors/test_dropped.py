"""A stream that its reader drops is ended, but not in the garbage collection that finds it."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextvars import Context, ContextVar, copy_context
from typing import Any

import pytest

from guard import Guard, background
from guard.background import ending
from guard.policy import Policy
from guard.verdict import Decision, GuardTrail, Window
from tests.doors import replay as r
from tests.doors.table import TABLE, AsyncRow, Row, World, arun, guard_of
from tests.provider import Provider, Script
from tests.rows import rows
from tests.scripted import Scripted

SAID = "All is well. " * 40
OURS = "guard-ending"  # the thread
WHOSE: ContextVar[str] = ContextVar("whose", default="nobody's")


class Ends:
    """A recorder that sets a context variable, as LiteLLM's reports do."""

    def __init__(self) -> None:
        self.ends: list[tuple[str, str, str]] = []

    def decided(self, session: Any, trail: GuardTrail, decision: Decision, text: str) -> None:
        pass

    def ended(self, session: Any, trail: GuardTrail, outcome: str) -> None:
        self.ends.append((outcome, threading.current_thread().name, WHOSE.get()))
        WHOSE.set("the recorder's")


class Cycle:
    def __init__(self, inside: Any) -> None:
        self.inside, self.own = inside, self


def collect_in_a_cycle(streams: list[Any]) -> None:
    """Have the garbage collector find what ``streams`` has; no context variable changes by it."""
    Cycle(streams.pop())
    before = dict(copy_context())
    gc.collect()
    assert dict(copy_context()) == before


def strangers() -> Context:
    """Return the context of a task that has nothing to do with the stream."""
    context = Context()
    context.run(WHOSE.set, "a stranger's")
    return context


def recorded(policy: Policy | None = None, **detector: Any) -> tuple[Guard, list[Any]]:
    guard, ends = guard_of(policy or Policy(), Scripted(**detector)), Ends()
    guard.recorder = ends
    return guard, ends.ends


def policy_of(row: Row) -> Policy:
    """Have LiteLLM's own records wait for the end, too, where the door can."""
    return Policy(litellm_records="raw" if "messages" in row.name else "guarded")


def check_the_end(ends: list[tuple[str, str, str]]) -> None:
    ((outcome, thread, whose),) = ends
    # A provider may send its whole answer in the first piece.
    assert outcome in ("left", "completed")
    assert (thread, whose) == (OURS, "nobody's")


@rows("row", [row for row in TABLE if not isinstance(row, AsyncRow)])
def test_a_dropped_stream_ends_once_elsewhere(world: World, row: Row) -> None:
    guard, ends = recorded(policy_of(row))
    row.play(world, [[("content", 0, SAID)]], ([5], 0))
    streams = [row.stream(world, guard)]
    next(streams[0])
    strangers().run(collect_in_a_cycle, streams)
    assert ending.flush()
    check_the_end(ends)


@rows("row", TABLE)
def test_a_dropped_async_stream_ends_once_elsewhere(world: World, row: Row) -> None:
    guard, ends = recorded(policy_of(row))
    row.play(world, [[("content", 0, SAID)]], ([5], 0))

    async def main() -> None:
        streams = [await row.astream(world, guard)]
        await anext(streams[0])
        strangers().run(collect_in_a_cycle, streams)
        assert await asyncio.to_thread(ending.flush)

    arun(main())
    check_the_end(ends)


class Source:
    """A source of text that notes who closes it, and sets a context variable then."""

    def __init__(self) -> None:
        self.closed: list[str] = []

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return "All is well. "

    def close(self) -> None:
        self.closed.append(threading.current_thread().name)
        WHOSE.set("the source's")


class AsyncSource(Source):
    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        return "All is well. "

    async def aclose(self) -> None:
        self.close()


def test_dropped_text_is_closed_elsewhere() -> None:
    guard, ends = recorded()
    source = Source()
    streams = [guard.stream(source)]
    next(streams[0])
    strangers().run(collect_in_a_cycle, streams)
    assert ending.flush()
    assert ends == [("left", OURS, "nobody's")]
    assert source.closed == [OURS]


def test_dropped_async_text_is_closed_on_its_loop() -> None:
    guard, ends = recorded()
    source = AsyncSource()

    async def main() -> None:
        streams = [guard.astream(source)]
        await anext(streams[0])
        strangers().run(collect_in_a_cycle, streams)
        assert await asyncio.to_thread(ending.flush)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(main())
    assert ends == [("left", OURS, "nobody's")]
    assert source.closed == [threading.main_thread().name]


def test_text_dropped_after_its_loop_is_still_recorded() -> None:
    guard, ends = recorded()
    streams = []

    async def main() -> None:
        streams.append(guard.astream(AsyncSource()))
        await anext(streams[0])

    asyncio.run(main())
    streams.clear()
    assert ending.flush()
    assert ends == [("left", OURS, "nobody's")]


@rows("kind", ["chat", "whole chat", "text"])
def test_a_reading_coroutine_that_is_discarded_awaits_nothing(world: World, kind: str) -> None:
    waiting, go = threading.Event(), threading.Event()

    def hold(window: Window) -> None:
        waiting.set()
        go.wait(30)

    guard, ends = recorded(before=hold)
    row = TABLE[0]
    row.play(world, [[("content", 0, SAID)]], ([5], 0))

    async def main() -> None:
        if kind == "whole chat":
            reading = row.awhole(world, guard)
        else:
            text = kind == "text"
            stream = guard.astream(AsyncSource()) if text else await row.astream(world, guard)
            reading = stream.__anext__()
        steps = reading.__await__()
        while not waiting.is_set():  # drives it by hand: a task would be cancelled, not discarded
            future = steps.send(None)
            if future is not None:
                future._asyncio_future_blocking = False
            await asyncio.sleep(0.01)
        steps.close()
        assert await asyncio.to_thread(ending.flush)

    try:
        arun(main())
    finally:
        go.set()
    assert ends == [("left", OURS, "nobody's")]


@rows("raised", [SystemExit, KeyboardInterrupt, ValueError, GeneratorExit])
def test_a_source_that_fails_to_close_ends_no_other(raised: type[BaseException]) -> None:
    class Failing(Source):
        def close(self) -> None:
            raise raised

    guard, ends = recorded()
    good = Source()
    for source in (Failing(), good):
        streams = [guard.stream(source)]
        next(streams[0])
        streams.clear()
    assert ending.flush()
    assert good.closed == [OURS]
    assert len(ends) == 2


def test_a_source_that_blocks_holds_up_no_later_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    go, blocked = threading.Event(), threading.Event()

    class Blocking(Source):
        def close(self) -> None:
            blocked.set()
            go.wait(60)

    monkeypatch.setattr(background, "_END_S", 0.05)
    guard, _ends = recorded()
    good = Source()
    try:
        streams = [guard.stream(Blocking())]
        next(streams[0])
        streams.clear()
        assert blocked.wait(10)
        time.sleep(0.1)
        streams = [guard.stream(good)]
        next(streams[0])
        streams.clear()
        assert ending.flush()
        assert good.closed == [OURS]
    finally:
        go.set()


def test_a_stream_that_is_still_open_at_exit_is_ended() -> None:
    code = """
from guard import Guard, background
from tests.scripted import Scripted

class Source:
    def __iter__(self): return self
    def __next__(self): return "All is well. "
    def close(self): print("closed", flush=True)

class Ends:
    def decided(self, *facts): pass
    def ended(self, session, trail, outcome): print(outcome, flush=True)

guard = Guard(detector=Scripted())
guard.recorder = Ends()
stream = guard.stream(Source())
next(stream)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert sorted(ran.stdout.split()) == ["closed", "left"]
    assert ran.stderr == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_does_not_end_what_its_parent_reads(provider: Provider) -> None:
    guard, ends = recorded()
    provider.script = Script([SAID], 0.0)
    call = {"model": "openai/x", "messages": r.MESSAGES, "api_base": provider.openai}
    streams = [guard.completion(**call, api_key="k", stream=True)]
    text = next(streams[0]).choices[0].delta.content or ""
    if not (child := os.fork()):
        streams.clear()
        gc.collect()
        os._exit(0 if ending.flush() and not ends else 1)
    assert os.waitpid(child, 0)[1] == 0
    text += "".join(chunk.choices[0].delta.content or "" for chunk in streams[0])
    assert text == SAID
    assert [outcome for outcome, *_ in ends] == ["completed"]


def test_what_has_ended_is_not_handed_over(world: World) -> None:
    guard, ends = recorded()
    row = TABLE[0]
    row.play(world, [[("content", 0, "All is well.")]], ([5], 0))
    for stream in (row.stream(world, guard), guard.stream(["All is well."])):
        list(stream)
        assert stream._has_ended()
    assert [(outcome, thread) for outcome, thread, _ in ends] == [
        ("completed", threading.current_thread().name)
    ] * 2


@pytest.mark.slow("100,000 streams, dropped in cycles while others are read", limit_s=1800)
def test_very_many_dropped_streams_leave_nothing(world: World) -> None:
    guard, ends = recorded()
    row = TABLE[0]
    row.play(world, [[("content", 0, "All is well. And so on. ")]], ([5], 0))
    before = WHOSE.get()
    for number in range(100_000):
        stream = row.stream(world, guard) if number % 50 == 0 else guard.stream(Source())
        next(stream)
        Cycle(stream)
    del stream
    gc.collect()
    assert ending.flush(60)
    assert [end for end in ends if end[1:] != (OURS, "nobody's")] == []
    assert len(ends) == 100_000
    assert WHOSE.get() == before
    names = [thread.name for thread in threading.enumerate()]
    assert names.count(OURS) == 1
    assert sum(name.startswith("guard") for name in names) <= 2 + (os.cpu_count() or 1)
