"""Windows of concurrent responses share calls, and each verdict goes to its own response."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard import Guard
from guard.detect.serving import WindowJudge
from guard.detect.workers import Workers
from guard.errors import ConfigError
from guard.policy import DEFAULT_POINTS, Policy
from guard.verdict import Scores, Window
from tests.rows import examples
from tests.scripted import Scripted


class Many:
    """Scores a window by the number in its text, many in a call; notes the calls."""

    name = "many-1"
    operating_points = DEFAULT_POINTS

    def __init__(self, batch: object = 8, takes: float = 0.0) -> None:
        self.batch = batch
        self.index_version = "a"
        self.takes = takes  # seconds of a call
        self.calls: list[tuple[str, list[str]]] = []
        self._lock = threading.Lock()

    def snapshot(self) -> Bound:
        return Bound(self, self.index_version)


class Bound:
    def __init__(self, detector: Many, index_version: str) -> None:
        self._detector = detector
        self.index_version = index_version

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        detector = self._detector
        with detector._lock:
            detector.calls.append((self.index_version, [w.text for w in windows]))
        time.sleep(detector.takes)
        if any("poison" in w.text for w in windows):
            raise RuntimeError
        scores = [Scores(int(w.text.split()[0]) / 1000, "social") for w in windows]
        return (
            scores[:-1] if len(windows) > 1 and any("short" in w.text for w in windows) else scores
        )


marks = st.sampled_from(["", "", "", "", "poison", "short"])
response = st.tuples(st.sampled_from("ab"), st.lists(st.tuples(st.integers(0, 3), marks)))


@examples(60)
@given(st.lists(response, min_size=1, max_size=12), st.integers(2, 5), st.booleans())
def test_verdicts_go_to_their_own_responses(
    responses: list[tuple[str, list[tuple[int, str]]]], batch: int, threaded: bool
) -> None:
    detector = Many(batch)
    workers = Workers()
    judges = []
    for version, _ in responses:
        detector.index_version = version
        # Whether the breaker has opened before a window is taken is a matter of time.
        judges.append(WindowJudge(detector, Policy(breaker_failures=None), workers))
    numbers = iter(range(1000))
    asked = [[(n, mark, next(numbers)) for n, mark in said] for _, said in responses]

    def window(mark: str, number: int) -> Window:
        return Window(f"{number} {mark}")

    async def read(one: int) -> list[float]:
        scores = []
        for turns, mark, number in asked[one]:
            for _ in range(turns):
                await asyncio.sleep(0)
            (verdict,) = await judges[one].ajudge([window(mark, number)])
            assert verdict.index_version == responses[one][0]
            scores.append(verdict.score if not verdict.unjudged else -1)
        return scores

    def read_here(one: int) -> list[float]:
        verdicts = judges[one].judge([window(mark, number) for _, mark, number in asked[one]])
        return [v.score if not v.unjudged else -1 for v in verdicts]

    async def all_of_them() -> list[list[float]]:
        ones = range(len(responses))
        if threaded:
            return await asyncio.gather(*(asyncio.to_thread(read_here, one) for one in ones))
        return await asyncio.gather(*(read(one) for one in ones))

    expected = [[-1 if m == "poison" else number / 1000 for _, m, number in a] for a in asked]
    assert asyncio.run(all_of_them()) == expected
    for _, texts in detector.calls:
        assert len(texts) <= batch
    for version, texts in detector.calls:  # a response keeps the index it began with
        for text in texts:
            owner = next(
                i for i, a in enumerate(asked) if int(text.split()[0]) in [n for *_, n in a]
            )
            assert responses[owner][0] == version
    assert not workers._pool.queues  # nothing is left of what was asked
    assert not workers._pool.gathering


async def test_a_hundred_streams_need_few_calls() -> None:
    detector = Many(batch=32, takes=0.02)
    guard = Guard(detector=detector)

    async def source(stream: int) -> AsyncIterator[str]:
        for sentence in range(5):
            await asyncio.sleep(0)
            yield f"{stream} says something, {sentence} times. "

    async def read(stream: int) -> str:
        return "".join([text async for text in guard.astream(source(stream))])

    out = await asyncio.gather(*(read(stream) for stream in range(100)))
    for stream, text in enumerate(out):
        assert text == "".join(f"{stream} says something, {n} times. " for n in range(5))
    windows = sum(len(texts) for _, texts in detector.calls)
    assert windows == 500
    assert len(detector.calls) <= windows / 5


async def test_a_lone_window_is_not_kept_waiting_for_others() -> None:
    detector = Many(batch=1000)
    (verdict,) = await asyncio.wait_for(WindowJudge(detector, Policy()).ajudge([Window("7")]), 60)
    assert verdict.score == 0.007


async def test_what_nobody_waits_for_is_not_asked() -> None:
    detector = Many(batch=2, takes=0.2)
    workers = Workers()
    judge = WindowJudge(detector, Policy(), workers)
    tasks = [asyncio.create_task(judge.ajudge([Window(str(n))])) for n in range(40)]
    await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    (verdict,) = await judge.ajudge([Window("99")])
    assert verdict.score == 0.099
    assert sum(len(texts) for _, texts in detector.calls) < 40
    assert not workers._pool.queues
    assert not workers._pool.gathering


def test_a_late_call_fails_closed_for_all_in_it_and_for_nobody_else() -> None:
    detector = Many(batch=4, takes=1.0)
    judge = WindowJudge(detector, Policy(timeout_ms=50, breaker_failures=None))
    late = judge.judge([Window(str(n)) for n in range(4)])
    assert [v.unjudged for v in late] == ["failure"] * 4
    detector.takes = 0.0
    patient = WindowJudge(detector, Policy())
    assert [v.score for v in patient.judge([Window("5")])] == [0.005]


@pytest.mark.parametrize("batch", [0, -1, 2.5, "many", True])
def test_a_batch_that_is_none_is_refused(batch: object) -> None:
    with pytest.raises(ConfigError, match="has the batch"):
        Guard(detector=Many(batch)).check("1 word")


@pytest.mark.parametrize("most", [0, -1, 2.5, "many", True])
def test_a_concurrency_that_is_none_is_refused(most: object) -> None:
    detector = Many()
    detector.concurrency = most  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="has the concurrency"):
        Guard(detector=detector).check("1 word")


@pytest.mark.parametrize("most", [1, 24])
def test_a_detector_that_waits_has_as_many_calls_at_a_time_as_it_says(most: int) -> None:
    barrier = threading.Barrier(most)

    class Waiting(Scripted):
        concurrency = most

    # Each call waits for all the others, so that fewer threads would never end.
    detector, workers = Waiting(before=lambda window: barrier.wait(60) and None), Workers()
    judge = WindowJudge(detector, Policy(timeout_ms=60_000), workers=workers)
    found = judge.judge([Window(str(n)) for n in range(2 * most)])
    assert [verdict.unjudged for verdict in found] == [None] * 2 * most
    assert sum(t.name == "guard-judge" for t in workers._pool.threads) == most


@pytest.mark.parametrize("thresholds", [{"age": 0.5}, 0.5, (0.9, 0.1), (0.1,), ("low", "high")])
def test_thresholds_that_are_no_limits_are_refused(thresholds: object) -> None:
    detector = Many()
    detector.thresholds = thresholds  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="has the thresholds"):
        Guard(detector=detector).check("1 word")


def test_without_a_batch_every_call_has_one_window() -> None:
    detector = Many()
    del detector.batch
    WindowJudge(detector, Policy()).judge([Window(str(n)) for n in range(20)])
    assert [len(texts) for _, texts in detector.calls] == [1] * 20
