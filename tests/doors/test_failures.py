"""What can go wrong beside the text, on every door of the table: the detector, the provider, the
reader. Afterwards no task, thread or descriptor is left, and nothing is collected with a warning.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from guard.core import Guard
from guard.policy import Policy
from guard.verdict import Channel, Window
from tests.doors import replay as r
from tests.doors.table import CHAT, KNOWN, TABLE, AsyncRow, Row, World, arun, guard_of
from tests.scripted import Scripted, failing

# LiteLLM's own, when it counts a response: it puts the usage of a chat into it.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")

TEXT = "All is well. And so it goes on. " * 12
ROWS = [*TABLE, Row("chat over a socket", CHAT, KNOWN)]
QUICK = ("chat", "chat over a socket", "responses", "messages")
# Where there are two modes: every door once, chat in process and over a socket.
QUICK_MODES = {
    *(("chat", True), ("chat over a socket", False), ("text", True)),
    *(("responses", False), ("messages", True)),
}
OTHER = pytest.mark.slow("the other sources and modes, several rounds of streams for each fault")


def of_rows(*modes: bool) -> pytest.MarkDecorator:
    """Every row in these modes that LiteLLM has a call for; all but the quick ones are slow."""

    def is_quick(row: Row, asynchronous: bool) -> bool:
        return row.name in QUICK if len(modes) == 1 else (row.name, asynchronous) in QUICK_MODES

    return pytest.mark.parametrize(
        ("row", "asynchronous"),
        [
            pytest.param(
                row,
                asynchronous,
                id=f"{row.name}-{'async' if asynchronous else 'sync'}",
                marks=() if is_quick(row, asynchronous) else OTHER,
            )
            for row in ROWS
            for asynchronous in modes
            if asynchronous or not isinstance(row, AsyncRow)
        ],
    )


REPLAYED = "responses replayed"  # the provider has finished before its first event comes
# Pools of others, which grow and keep what they have.
_POOLS = ("litellm", "asyncio_", "AnyIO")


# What is left behind.


@pytest.fixture(scope="module", autouse=True)
def frozen() -> Iterator[None]:
    """Have a collection look at what the tests leave, not at all that LiteLLM has imported."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class Held(NamedTuple):
    """What a process holds."""

    tasks: frozenset[str]
    threads: int
    descriptors: int

    def within(self, other: Held) -> bool:
        return (
            self.tasks <= other.tasks
            and self.threads <= other.threads
            and self.descriptors <= other.descriptors
        )


def held() -> Held:
    try:
        running = asyncio.all_tasks() - {asyncio.current_task()}
    except RuntimeError:
        running = set()
    threads = [t for t in threading.enumerate() if not t.name.startswith(_POOLS)]
    tasks = frozenset(str(getattr(t.get_coro(), "__qualname__", t)) for t in running if t)
    return Held(tasks, len(threads), len(os.listdir("/proc/self/fd")))


@contextmanager
def quietly(what: str) -> Iterator[None]:
    """Nothing that is collected says that it should have been closed or awaited."""
    said: list[str] = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda u: said.append(repr(u.exc_value))
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
            gc.collect()
    finally:
        sys.unraisablehook = hook
    kinds = (ResourceWarning, RuntimeWarning)
    said += [str(w.message) for w in caught if issubclass(w.category, kinds)]
    assert said == [], what


def until(true: Callable[[], bool]) -> None:
    for _ in range(500):
        if true():
            return
        time.sleep(0.01)


async def auntil(true: Callable[[], bool]) -> None:
    for _ in range(500):
        if true():
            return
        await asyncio.sleep(0.01)


# The reader.


def read(row: Row, world: World, guard: Guard, **more: Any) -> r.Outcome:
    try:
        stream = row.stream(world, guard, **more)
    except Exception as error:
        return r.Outcome(error=error)
    return row.drained(stream)


async def aread(row: Row, world: World, guard: Guard, **more: Any) -> r.Outcome:
    try:
        stream = await row.astream(world, guard, **more)
    except Exception as error:
        return r.Outcome(error=error)
    return await row.adrained(stream)


class Fault(NamedTuple):
    """Something that goes wrong, and what is then read."""

    name: str
    guard: Guard
    prepare: Callable[[], None]
    check: Callable[[r.Outcome], None]
    more: dict[str, Any]


def play(row: Row, world: World, text: str = TEXT, **fields: Any) -> None:
    row.play(world, [[("content", 0, text)]], ([9], 0))
    for name, value in fields.items():
        setattr(world.provider.script, name, value)


ROUNDS = 3


def survive(row: Row, world: World, asynchronous: bool, faults: list[Fault]) -> None:
    """Meet each fault twice, and find all as it was after an undisturbed call.

    A client that lost a connection may keep one more of them, once; what leaks grows each time.
    So after growth the same is met again: it is a leak where no round leaves all as it was.
    """
    healthy = guard_of(Policy(), Scripted("$none"))

    def settled(fault: Fault, rounds: list[tuple[Held, Held]]) -> bool:
        before, after = rounds[-1]
        assert after.within(before) or len(rounds) < ROUNDS, (fault.name, rounds)
        return after.within(before)

    def run() -> None:
        for fault in faults:
            fault.guard.check("Fine.")  # its threads are there, and a connection that is kept
            rounds: list[tuple[Held, Held]] = []
            while not rounds or not settled(fault, rounds):
                play(row, world)
                assert read(row, world, healthy).texts == {Channel(): TEXT}
                before = held()
                with quietly(fault.name):
                    for _ in range(2):
                        fault.prepare()
                        fault.check(read(row, world, fault.guard, **fault.more))
                        gc.collect()
                until(lambda before=before: held().within(before))
                rounds.append((before, held()))

    async def arun_() -> None:
        for fault in faults:
            await asyncio.to_thread(fault.guard.check, "Fine.")
            rounds: list[tuple[Held, Held]] = []
            while not rounds or not settled(fault, rounds):
                play(row, world)
                assert (await aread(row, world, healthy)).texts == {Channel(): TEXT}
                before = held()
                with quietly(fault.name):
                    for _ in range(2):
                        fault.prepare()
                        fault.check(await aread(row, world, fault.guard, **fault.more))
                        gc.collect()
                        await asyncio.sleep(0)
                await auntil(lambda before=before: held().within(before))
                rounds.append((before, held()))

    arun(arun_()) if asynchronous else run()


# The detector.


@of_rows(False, True)
def test_a_detector_that_fails(row: Row, world: World, asynchronous: bool) -> None:
    threads: set[int] = set()
    release = threading.Event()

    def note(window: Window) -> None:
        threads.add(threading.get_ident())

    def slow(window: Window) -> None:
        note(window)
        time.sleep(0.01)

    def hang(window: Window) -> None:
        if window.text != "Fine.":
            release.wait(30)

    def crash(window: Window) -> None:
        if window.text != "Fine.":
            failing(window)

    def closed(outcome: r.Outcome) -> None:
        release.set()
        assert outcome.error is None
        assert outcome.texts == {Channel(): Policy().failure_message}
        assert outcome.ends == {0: "content_filter"}

    def complete(outcome: r.Outcome) -> None:
        release.set()
        assert outcome.error is None
        assert outcome.texts == {Channel(): TEXT}

    def again() -> None:
        release.clear()
        play(row, world)

    in_time = Policy(timeout_ms=50)
    opened = Policy(timeout_ms=50, failure="open", breaker_failures=1)
    faults = [
        Fault("crash", guard_of(Policy(), Scripted("$none", crash)), again, closed, {}),
        Fault("slow", guard_of(Policy(), Scripted("$none", slow)), again, complete, {}),
        Fault("hang", guard_of(in_time, Scripted("$none", hang)), again, closed, {}),
        Fault("hang, open", guard_of(opened, Scripted("$none", hang)), again, complete, {}),
    ]
    survive(row, world, asynchronous, faults)
    # An event loop waits for no inference: that is done elsewhere.
    assert threads
    assert threading.get_ident() not in threads


@of_rows(False, True)
def test_the_provider_continues_during_a_verdict(
    row: Row, world: World, asynchronous: bool
) -> None:
    # What it says meanwhile waits in the socket: a slow verdict adds nothing to a later one.
    if not row.source.wire or row.name == REPLAYED:
        pytest.skip("the provider is no process of its own")
    sent: list[bool] = []

    def wait(window: Window) -> None:
        if window.text != "Fine.":
            sent.append(world.provider.last.over.wait(10))

    guard = guard_of(Policy(timeout_ms=None), Scripted("$none", wait))
    play(row, world)
    outcome = arun(aread(row, world, guard)) if asynchronous else read(row, world, guard)
    assert outcome.texts == {Channel(): TEXT}
    assert sent
    assert all(sent)


# The provider.


@of_rows(False, True)
def test_a_provider_that_fails(row: Row, world: World, asynchronous: bool) -> None:
    guard = guard_of(Policy(), Scripted("$none"))
    wide = "Ça va bien, señor. 你好。 Привет 🙂 всем. " * 3

    def complete(text: str) -> Callable[[r.Outcome], None]:
        def check(outcome: r.Outcome) -> None:
            assert outcome.error is None
            assert outcome.texts == {Channel(): text}

        return check

    # What a provider fails with, LiteLLM logs here, and ends its stream as if that were all.
    untold = row.name == "messages from chat" and not asynchronous

    def part(outcome: r.Outcome) -> None:
        assert (outcome.error is None) == untold
        assert TEXT.startswith(outcome.texts.get(Channel(), ""))
        if row.name != REPLAYED:
            assert outcome.texts[Channel()].startswith("All is well.")

    def playing(text: str = TEXT, **fields: Any) -> Callable[[], None]:
        return lambda: play(row, world, text, **fields)

    def source(change: Callable[[list[Any]], Iterator[Any]]) -> Callable[[], None]:
        def prepare() -> None:
            play(row, world)
            chunks = list(world.replay.source())
            world.replay.source = lambda: change([c.model_copy(deep=True) for c in chunks])

        return prepare

    def breaking(chunks: list[Any]) -> Iterator[Any]:
        yield from chunks[:5]
        raise ConnectionError("the provider left")

    def emptied(chunks: list[Any]) -> Iterator[Any]:
        for chunk in chunks:
            yield r.chunk_of(r.Said(0, "content", ""))
            yield chunk

    def twice(chunks: list[Any]) -> Iterator[Any]:
        yield from chunks
        yield chunks[-1].model_copy(deep=True)

    deltas = [piece for at in range(0, len(TEXT), 9) for piece in (TEXT[at : at + 9], "")]
    if row.wire:
        faults = [
            Fault("empty chunks", guard, playing(choices=[deltas]), complete(TEXT), {}),
            Fault("finishes twice", guard, playing(finish_twice=True), complete(TEXT), {}),
            Fault("split characters", guard, playing(wide, split=True), complete(wide), {}),
        ]
        if row.name != REPLAYED:
            faults += [
                Fault("stalls", guard, playing(stall_after=5), part, {"timeout": 0.5}),
                Fault("disconnects", guard, playing(drop_after=5), part, {}),
            ]
    else:
        faults = [
            Fault("disconnects", guard, source(breaking), part, {}),
            Fault("empty chunks", guard, source(emptied), complete(TEXT), {}),
            Fault("finishes twice", guard, source(twice), complete(TEXT), {}),
        ]
    survive(row, world, asynchronous, faults)


# The reader.


class Left(Exception):
    """The reader's own."""


def by_break(stream: Any) -> None:
    for _ in stream:
        break


def by_error(stream: Any) -> None:
    try:
        for _ in stream:
            raise Left
    except Left:
        pass


def by_dropping(stream: Any) -> None:
    next(stream)


async def aby_break(stream: Any) -> None:
    async for _ in stream:
        break


async def aby_error(stream: Any) -> None:
    try:
        async for _ in stream:
            raise Left
    except Left:
        pass


async def aby_dropping(stream: Any) -> None:
    await anext(stream)


async def aby_cancelling(stream: Any) -> None:
    await anext(stream)

    async def rest() -> None:
        async for _ in stream:
            pass

    task = asyncio.create_task(rest())
    await asyncio.sleep(0.03)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def aby_cancelling_a_verdict(stream: Any) -> None:
    task = asyncio.create_task(anext(stream))
    while not stream._session.judge._session._detector.calls:
        if task.done():  # events without text wait for no verdict
            task = asyncio.create_task(anext(stream))
        await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def stops(row: Row, world: World) -> bool:
    """Whether the provider was told to stop; nothing is to be told where it had finished."""
    if row.name == REPLAYED:
        return True
    if not row.wire:
        return world.replay.closed
    return world.provider.last.disconnected


@of_rows(False)
def test_a_reader_who_leaves(row: Row, world: World, asynchronous: bool) -> None:
    guard = guard_of(Policy(), Scripted("$none"))
    for leave in (by_break, by_error, by_dropping):
        grown = 0  # a leak grows each time; what others open meanwhile does not
        play(row, world)
        assert read(row, world, guard).texts == {Channel(): TEXT}
        for _ in range(2):
            before = held()
            with quietly(leave.__name__):
                play(row, world, interval=0.02 if row.name != REPLAYED else 0)
                leave(row.stream(world, guard))
                gc.collect()
                until(lambda: stops(row, world))
            assert stops(row, world), leave.__name__
            until(lambda before=before: held().within(before))
            grown += not held().within(before)
            if not grown:
                break
        assert grown < 2, (leave.__name__, held(), before)


@of_rows(True)
def test_an_asynchronous_reader_who_leaves(row: Row, world: World, asynchronous: bool) -> None:
    async def run() -> None:
        guard = guard_of(Policy(), Scripted("$none"))
        slow = guard_of(Policy(), Scripted("$none", lambda _: time.sleep(0.1)))
        await asyncio.to_thread(slow.check, "Fine.")
        for leave in (
            aby_break,
            aby_error,
            aby_dropping,
            aby_cancelling,
            aby_cancelling_a_verdict,
        ):
            judging = slow if leave is aby_cancelling_a_verdict else guard
            play(row, world)
            assert (await aread(row, world, guard)).texts == {Channel(): TEXT}
            grown = 0
            for _ in range(2):
                judging.detector.calls = 0  # type: ignore[attr-defined]
                before = held()
                with quietly(leave.__name__):
                    play(row, world, interval=0.02 if row.name != REPLAYED else 0)
                    await leave(await row.astream(world, judging))
                    gc.collect()
                    await auntil(lambda: stops(row, world))
                assert stops(row, world), leave.__name__
                await auntil(lambda before=before: held().within(before))
                grown += not held().within(before)
                if not grown:
                    break
            assert grown < 2, (leave.__name__, held(), before)

    arun(run())
