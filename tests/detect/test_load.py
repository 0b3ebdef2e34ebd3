"""Many responses at once: waiting for a turn is no failure; and text that costs much is bounded."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard import Guard
from guard.detect.normalise import undo_disguises
from guard.detect.script import has_no_word
from guard.detect.serving import WindowJudge
from guard.detect.workers import Workers
from guard.policy import DEFAULT_POINTS, Policy
from guard.verdict import GuardTrail, Scores, Verdict, Window
from tests.rows import examples, rows
from tests.scripted import Scripted

ANSWERS, SENTENCES = 30, 64


def answer(number: int) -> str:
    return "".join(f"Answer {number} says sentence {i}. " for i in range(SENTENCES))


class Batched:
    """Takes a while for each call, however many windows it has; notes them."""

    name, operating_points, index_version = "batched-1", DEFAULT_POINTS, ""

    def __init__(self, seconds: float, batch: int) -> None:
        self.seconds, self.batch = seconds, batch
        self.seen: list[str] = []

    def snapshot(self) -> Batched:
        return self

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        time.sleep(self.seconds)
        self.seen += [w.text for w in windows]
        return [Scores(0.1, "social") for _ in windows]


@pytest.fixture
def two_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def loaded(batch: int, seconds: float) -> tuple[Any, list[str]]:
    """Return a detector that takes so long for a call, and the texts it has seen."""
    if batch > 1:
        detector = Batched(seconds, batch)
        return detector, detector.seen
    seen: list[str] = []

    def before(window: Window) -> None:
        time.sleep(seconds)
        seen.append(window.text)

    return Scripted(before=before), seen


# As 25 ms against the default 5,000 ms, scaled to a test's time: all of it takes several limits.
SECONDS, LIMIT = 0.005, 2000.0


@pytest.mark.parametrize("batch", [1, 8])
def test_a_busy_guard_cuts_nobody_and_serves_a_small_stream_in_its_turn(
    batch: int, two_workers: None, caplog: pytest.LogCaptureFixture
) -> None:
    seconds = SECONDS * batch
    detector, seen = loaded(batch, seconds)
    guard = Guard(detector=detector, timeout_ms=LIMIT, breaker_failures=1)
    trails: list[GuardTrail] = []
    small: list[tuple[int, int]] = []  # windows seen before and after it was served

    async def whole(number: int) -> None:
        async def source() -> AsyncIterator[str]:
            yield answer(number)

        stream = guard.astream(source())
        assert "".join([text async for text in stream]) == answer(number)
        trails.append(stream.guard)

    def whole_here(number: int) -> None:
        stream = guard.stream([answer(number)])
        assert "".join(stream) == answer(number)
        trails.append(stream.guard)

    async def stream_beside() -> None:
        await asyncio.sleep(0.2)
        before = len(seen)

        async def source() -> AsyncIterator[str]:
            yield "The small one speaks. "
            yield "It ends."

        assert "".join([text async for text in guard.astream(source())])
        small.append((before, len(seen)))

    async def main() -> float:
        begin = time.monotonic()
        await asyncio.gather(
            *(whole(number) for number in range(ANSWERS // 2)),
            *(asyncio.to_thread(whole_here, number) for number in range(ANSWERS // 2, ANSWERS)),
            stream_beside(),
        )
        return time.monotonic() - begin

    took = asyncio.run(main())
    assert took * 1000 > 2 * LIMIT  # or nothing was put to the test
    assert [d for trail in trails for d in trail if d.action != "pass"] == []
    assert [len(trail) for trail in trails] == [SENTENCES] * ANSWERS
    assert not guard._breakers.of(LIMIT, 1, guard.policy.breaker_pause_ms).open
    assert caplog.records == []
    # Two turns: at each, every other response is served a window, and what runs ends.
    ((before, after),) = small
    assert after - before <= 2 * (ANSWERS + 2 * batch) + 4


class Held:
    """A detector that waits until it is let go, but for windows that say ``quick``."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.begun = threading.Semaphore(0)
        self.seen: list[str] = []
        self.detector = Scripted(before=self._meet)

    def _meet(self, window: Window) -> None:
        self.begun.release()
        self.seen.append(window.text)
        if "quick" not in window.text:
            self.go.wait(60)

    def occupy(self, workers: Workers, timeout_ms: float | None = None) -> WindowJudge:
        """Have both workers busy, with what has no limit unless one is given."""
        judge = WindowJudge(self.detector, Policy(timeout_ms=timeout_ms), workers)
        for number in range(2):
            judge._workers.submit(judge._queue, Window(f"long {number}"))
            assert self.begun.acquire(timeout=60)
        return judge


@pytest.fixture
def held(two_workers: None) -> Iterator[Held]:
    one = Held()
    yield one
    one.go.set()


def test_responses_take_turns(held: Held) -> None:
    workers = Workers()
    held.occupy(workers, timeout_ms=1)
    queues = [WindowJudge(held.detector, Policy(), workers)._queue for _ in range(3)]
    asked = [workers.submit(queues[0], Window(f"quick a{number}")) for number in range(4)] + [
        workers.submit(queue, Window(f"quick {name}0"))
        for name, queue in zip("bc", queues[1:], strict=True)
    ]
    asked.append(workers.submit(queues[2], Window("quick c1")))
    time.sleep(0.01)  # both are late
    workers.replace_hung()  # two more threads; one is enough to see the order, two all but keep it
    for one in asked:
        one.future.result(60)
    order = [text.removeprefix("quick ") for text in held.seen[2:]]
    places = {name: order.index(name) for name in order}
    assert places["b0"] < places["a2"]
    assert places["c0"] < places["a2"]
    assert places["c1"] < places["a3"]


Ask = Callable[[WindowJudge, list[Window]], list[str]]


def ask(judge: WindowJudge, windows: list[Window]) -> list[str]:
    return [v.unjudged for v in judge.judge(windows)]


def aask(judge: WindowJudge, windows: list[Window]) -> list[str]:
    return [v.unjudged for v in asyncio.run(judge.ajudge(windows))]


both = pytest.mark.parametrize("ask", [ask, aask], ids=["sync", "async"])


@both
def test_what_waits_too_long_is_unjudged_by_overload_and_said_once(
    ask: Ask, held: Held, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "guard")
    workers = Workers()
    policy = Policy(queue_ms=20, timeout_ms=60_000, breaker_failures=1)
    held.occupy(workers)
    judge = WindowJudge(held.detector, policy, workers)
    assert ask(judge, [Window("quick one"), Window("quick two")]) == ["overload"] * 2
    assert ask(judge, [Window("quick three")]) == ["overload"]
    assert [r.message.partition(":")[0] for r in caplog.records] == [
        "detector scripted-1 is overloaded"
    ]
    assert not judge._breaker.open
    held.go.set()
    patient = WindowJudge(held.detector, Policy(queue_ms=None), workers)
    assert ask(patient, [Window("quick four")]) == [None]
    assert held.seen[2:] == ["quick four"]  # what was given up is not judged after all
    # Another overload is said anew.
    held.go.clear()
    held.occupy(workers)
    assert ask(judge, [Window("quick five")]) == ["overload"]
    assert len(caplog.records) == 2


@pytest.mark.parametrize(("failure", "shown"), [("closed", "overloaded"), ("open", "quick. ")])
def test_the_failure_policy_applies_to_overload(held: Held, failure: Any, shown: str) -> None:
    guard = Guard(
        detector=held.detector, queue_ms=20, failure=failure, failure_message="overloaded"
    )
    held.occupy(guard._workers)
    stream = guard.stream(["quick. "])
    assert "".join(stream) == shown
    assert [d.verdict.unjudged for d in stream.guard] == ["overload"]
    assert guard.check("quick.").unjudged == "overload"


@both
def test_threads_that_hang_for_nobody_are_replaced_for_those_who_wait(ask: Ask, held: Held) -> None:
    workers = Workers()
    judge = WindowJudge(held.detector, Policy(timeout_ms=30, breaker_failures=None), workers)
    for _ in range(2):  # whoever asked has gone
        workers.submit(judge._queue, Window("hangs"))
        assert held.begun.acquire(timeout=60)
    assert ask(judge, [Window("quick")]) == [None]


@both
def test_when_all_threads_hang_and_no_more_are_begun_a_verdict_is_late_as_ever(
    ask: Ask, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("guard.detect.workers.MOST_REPLACED", 0)
    judge = WindowJudge(held.detector, Policy(timeout_ms=30, breaker_failures=3, queue_ms=None))
    assert ask(judge, [Window(f"hangs {n}") for n in range(4)]) == ["failure"] * 4
    assert judge._breaker.open


@both
def test_what_nobody_waits_for_leaves_its_queue_while_all_threads_hang(
    ask: Ask, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("guard.detect.workers.MOST_REPLACED", 0)
    workers = Workers()
    held.occupy(workers, timeout_ms=5)
    for _ in range(5):
        judge = WindowJudge(held.detector, Policy(timeout_ms=5, breaker_failures=None), workers)
        assert ask(judge, [Window("one"), Window("two")]) == ["failure"] * 2
        assert not judge._queue.waiting
    assert not workers._pool.queues
    assert workers._pool.wakeups.empty()
    held.go.set()
    patient = WindowJudge(held.detector, Policy(), workers)
    assert ask(patient, [Window("three"), Window("four")]) == [None, None]
    assert held.seen[2:] == ["three", "four"]


def test_calls_without_a_limit_are_never_more_than_the_threads(
    two_workers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("guard.detect.serving._LOOK", 0.01)
    lock, running, most = threading.Lock(), 0, 0

    def before(window: Window) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.1)  # ten looks of those who wait
        with lock:
            running -= 1

    judge = WindowJudge(Scripted(before=before), Policy(timeout_ms=None))

    async def main() -> list[list[Verdict]]:  # each waits for its own turn, and looks meanwhile
        return await asyncio.gather(*(judge.ajudge([Window(str(n))]) for n in range(8)))

    assert [v.unjudged for (v,) in asyncio.run(main())] == [None] * 8
    assert most == 2


SILENT = [
    "." * 2_000,
    "? " * 1_000,
    "!" * 2_000,
    ".\n" * 1_000,
    "- \n\n" * 500,
    "|\n" * 1_000,
]
SILENT += ["-" * 2_000, "=\n" * 1_000, "…" * 2_000, "。" * 2_000, "```\n" + "}\n" * 1_000]


@rows("text", SILENT)
def test_text_that_says_nothing_asks_the_detector_nothing(text: str) -> None:
    detector = Scripted()
    guard = Guard(detector=detector)
    assert not guard.check(text).biased
    assert "".join(guard.stream([text])) == text
    assert detector.calls == 0
    assert guard.check(text + " BIAS").biased


@pytest.mark.parametrize(
    "text", ["1234567890" * 500, "😀" * 5_000, "aGVsbG8/d29" * 450, "4 0 " * 1250]
)
def test_text_without_sentences_costs_no_more_calls_than_prose(text: str) -> None:
    prose = "The garden was quiet in the morning, and so was the street before it. " * 72
    calls = []
    for said in (prose, text):
        detector = Scripted()
        Guard(detector=detector).check(said[:5000])
        calls.append(detector.calls)
    assert calls[1] <= calls[0]


KNOWN = frozenset({"women", "hill", "all", "ill", "lol"})
marks = st.text(st.sampled_from(".,;:?…'\"!¡-_=+*#@$|/\\()[]{}<>~^%& \n1·•—0aé😀３ⓐ\u0301\u200b"))


@examples(500)
@given(st.one_of(marks, st.text()), st.characters(categories=["L", "N", "M", "So", "Cf", "Co"]))
def test_what_goes_unjudged_holds_no_letter_however_it_is_read(text: str, more: str) -> None:
    if has_no_word(text):
        read = undo_disguises(text, KNOWN.__contains__).text
        assert not any(char.isalnum() for char in read)
        # Letters can be drawn of several kinds of signs, and of a sign beside a letter.
        assert len({char for char in text if char in "!¡-_=+*#@$|/\\()[]{}<>~^%&·•—"}) <= 1
    assert not has_no_word(text + more)
    assert not has_no_word(more + text)


@rows("text", ["|-|", "@!!", "w0men", "1", "4 0", "(_)|", "😀", "$|", "I"])
def test_what_may_be_read_as_a_word_is_judged(text: str) -> None:
    detector = Scripted()
    Guard(detector=detector).check(text)
    assert detector.calls == 1
