"""Judging with a detector that fails, hangs and recovers."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from guard.detect.serving import WindowJudge
from guard.policy import Policy
from guard.verdict import Scores, Verdict, Window
from tests.scripted import Scripted

WINDOW = Window("All is well.")
Ask = Callable[[WindowJudge, list[Window]], list[Verdict]]


def ask(judge: WindowJudge, windows: list[Window]) -> list[Verdict]:
    return judge.judge(windows)


def aask(judge: WindowJudge, windows: list[Window]) -> list[Verdict]:
    return asyncio.run(judge.ajudge(windows))


both = pytest.mark.parametrize("ask", [ask, aask], ids=["sync", "async"])


class Ill(Scripted):
    """Fails, or hangs until ``release`` is set, while ``ill``."""

    def __init__(self, *, hangs: bool = False) -> None:
        super().__init__(before=self._meet)
        self.ill = True
        self.hangs = hangs
        self.release = threading.Event()

    def _meet(self, window: Window) -> None:
        if self.ill and self.hangs:
            self.release.wait(30)
        elif self.ill:
            raise RuntimeError("ill")


@pytest.fixture
def hanging() -> Iterator[Ill]:
    detector = Ill(hangs=True)
    yield detector
    detector.release.set()


def failures(verdicts: list[Verdict]) -> list[bool]:
    return [v.unjudged == "failure" for v in verdicts]


@both
@pytest.mark.parametrize("timeout_ms", [5000, None])
def test_after_failures_in_a_row_the_detector_is_left_alone(
    ask: Ask, timeout_ms: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    detector = Ill()
    policy = Policy(timeout_ms=timeout_ms, breaker_failures=3, breaker_pause_ms=600_000)
    judge = WindowJudge(detector, policy)
    for _ in range(3):
        assert failures(ask(judge, [WINDOW])) == [True]
    assert detector.calls == 3
    detector.ill = False
    assert failures(ask(judge, [WINDOW] * 4)) == [True] * 4
    assert detector.calls == 3
    said = [r.message for r in caplog.records if "in a row" in r.message]
    assert said == ["detector scripted-1 failed 3 times in a row: skipped for 600 s"]


@both
def test_after_the_pause_one_window_is_tried_and_the_others_follow(
    ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "guard")
    detector = Ill()
    judge = WindowJudge(detector, Policy(breaker_failures=1, breaker_pause_ms=1))
    assert failures(ask(judge, [WINDOW])) == [True]
    time.sleep(0.005)
    assert failures(ask(judge, [WINDOW])) == [True]
    detector.ill = False
    time.sleep(0.005)
    assert failures(ask(judge, [WINDOW] * 4)) == [False] * 4
    assert caplog.records[-1].message == "detector scripted-1 works again"


@both
def test_a_hanging_detector_holds_up_a_batch_for_a_few_windows_only(ask: Ask, hanging: Ill) -> None:
    policy = Policy(timeout_ms=30, breaker_failures=2, breaker_pause_ms=600_000)
    judge = WindowJudge(hanging, policy)
    many = 8 * (os.cpu_count() or 1)
    assert failures(ask(judge, [WINDOW] * many)) == [True] * many
    # Each limit that is waited out has others take the place of the threads that hang.
    assert hanging.calls < many


@both
@pytest.mark.parametrize("error", [SystemExit, asyncio.CancelledError, GeneratorExit])
def test_whatever_a_detector_raises_is_a_failed_verdict(
    ask: Ask, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def leave(window: Window) -> None:
        raise error(f"secret: {window.text}")

    detector = Scripted(before=leave)
    judge = WindowJudge(detector, Policy(breaker_failures=2, breaker_pause_ms=600_000))
    for _ in range(3):
        assert failures(ask(judge, [WINDOW])) == [True]
    assert detector.calls == 2
    said = [record.message for record in caplog.records]
    assert said[:2] == [f"detector failed with {error.__name__}"] * 2
    assert "secret" not in caplog.text


@both
@pytest.mark.parametrize(
    "scores",
    [
        *(Scores(score, "age") for score in (-0.01, 1.01, -math.inf, math.nan)),
        Scores(0.0, "height"),  # type: ignore[arg-type]
        Scores(unjudged="language", score=2.0, bias_type="age"),
        None,
        0.0,
    ],
    ids=str,
)
def test_what_is_no_score_is_a_failed_verdict(ask: Ask, scores: Any) -> None:
    detector = Scripted()
    detector.score = lambda window: scores  # type: ignore[method-assign]
    assert failures(ask(WindowJudge(detector, Policy()), [WINDOW])) == [True]


def test_a_cancellation_inside_a_detector_is_its_own_on_the_callers_thread_too() -> None:
    def cancelled(window: Window) -> None:
        raise asyncio.CancelledError

    judge = WindowJudge(Scripted(before=cancelled), Policy(timeout_ms=None))
    assert failures(judge.judge([WINDOW])) == [True]


@both
def test_a_window_given_up_early_is_recorded_with_the_time_it_had(ask: Ask, hanging: Ill) -> None:
    def fail_or_hang(window: Window) -> None:
        if window.text == "Fails.":
            raise RuntimeError
        hanging.release.wait(30)

    limit = 600_000
    policy = Policy(timeout_ms=limit, breaker_failures=1, breaker_pause_ms=600_000)
    judge = WindowJudge(Scripted(before=fail_or_hang), policy)
    verdicts = ask(judge, [Window("Fails."), WINDOW])
    assert failures(verdicts) == [True, True]
    assert all(v.elapsed_ms < limit for v in verdicts)


@both
def test_a_detector_that_hung_on_every_thread_is_asked_again(ask: Ask, hanging: Ill) -> None:
    judge = WindowJudge(hanging, Policy(timeout_ms=30, breaker_failures=None))
    for _ in range(4):
        ask(judge, [WINDOW] * 4)
    hanging.ill = False
    healthy = WindowJudge(hanging, Policy(timeout_ms=5000), judge._workers)
    assert failures(ask(healthy, [WINDOW] * 2)) == [False] * 2


def test_consumers_that_leave_while_the_detector_hangs_take_no_thread_with_them(
    hanging: Ill,
) -> None:
    judge = WindowJudge(hanging, Policy(timeout_ms=30, breaker_failures=None))

    async def leave() -> None:
        task = asyncio.create_task(judge.ajudge([WINDOW]))
        while not hanging.calls and not task.done():  # at its limit threads are replaced
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def run() -> list[Verdict]:
        for _ in range(8):
            hanging.calls = 0
            await leave()
            await judge.ajudge([WINDOW])
        hanging.ill = False
        return await WindowJudge(hanging, Policy(), judge._workers).ajudge([WINDOW])

    assert failures(asyncio.run(run())) == [False]


@both
def test_threads_that_were_replaced_end(ask: Ask, hanging: Ill) -> None:
    before = threads()
    judge = WindowJudge(hanging, Policy(timeout_ms=30, breaker_failures=None))
    for _ in range(4):
        ask(judge, [WINDOW] * 4)
    hanging.release.set()
    hanging.ill = False
    settled = WindowJudge(hanging, Policy(timeout_ms=5000), judge._workers)
    assert failures(ask(settled, [WINDOW])) == [False]
    assert wait_for(lambda: len(threads() - before) == (os.cpu_count() or 1))
    del judge, settled
    assert wait_for(lambda: threads() <= before)


def wait_for(true: Callable[[], bool]) -> bool:
    return any(true() or time.sleep(0.01) for _ in range(1000))


def threads() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name == "guard-judge"}
