"""Runs a detector for a response: time limits, failures, and off the event loop.

The only room with clocks. A judge never raises for what a detector does: an error or a verdict
that is late becomes ``unjudged``, and the policy says what follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import cache
from typing import TypeAlias

from guard.detect.protocol import Detector, Session, Window
from guard.policy import Policy, unjudged_verdict
from guard.verdict import Scores, Verdict

_log = logging.getLogger("guard")

# Scores and the milliseconds they took; None where the detector failed or was late.
_Timed: TypeAlias = tuple[Scores, float] | None


@cache
def _executor() -> ThreadPoolExecutor:
    # Detectors run one window a thread; more threads than cores would only take turns.
    return ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="guard-judge")


if hasattr(os, "register_at_fork"):
    # A forked child inherits the pool but none of its threads.
    os.register_at_fork(after_in_child=_executor.cache_clear)


class Judge:
    """Turns windows into verdicts with one detector, one index version and one policy."""

    def __init__(self, detector: Detector, policy: Policy) -> None:
        self.policy = policy
        self._name = detector.name
        self._points = detector.operating_points
        self._session: Session = detector.snapshot()

    def judge(self, windows: Sequence[Window]) -> list[Verdict]:
        """Return one verdict a window, in order; waits for them."""
        if self.policy.timeout_ms is None:
            return [self._finding(_timed(self._session, w)) for w in windows]
        futures = [_executor().submit(_timed, self._session, w) for w in windows]
        return [self._finding(self._wait(f)) for f in futures]

    async def ajudge(self, windows: Sequence[Window]) -> list[Verdict]:
        """Return one verdict a window, in order, without blocking the event loop."""
        futures = [_executor().submit(_timed, self._session, w) for w in windows]
        seconds = _seconds(self.policy)
        verdicts: list[Verdict] = []
        timed: _Timed
        try:
            for future in futures:
                timed = None
                with contextlib.suppress(asyncio.TimeoutError):
                    timed = await asyncio.wait_for(asyncio.wrap_future(future), seconds)
                verdicts.append(self._finding(timed))
        finally:
            for future in futures:
                future.cancel()
        return verdicts

    def _wait(self, future: Future[_Timed]) -> _Timed:
        seconds = _seconds(self.policy)
        try:
            return future.result(seconds)
        except FutureTimeoutError:
            future.cancel()
            _log.error("detector %s gave no verdict within %s s", self._name, seconds)
            return None

    def _finding(self, timed: _Timed) -> Verdict:
        version = self._session.index_version
        if timed is None:
            elapsed = self.policy.timeout_ms or 0.0
            return unjudged_verdict(
                "failure", detector=self._name, index_version=version, elapsed_ms=elapsed
            )
        scores, elapsed = timed
        return self.policy.verdict(
            scores,
            self._points,
            detector=self._name,
            index_version=version,
            elapsed_ms=elapsed,
        )


def _timed(session: Session, window: Window) -> _Timed:
    begin = time.perf_counter()
    try:
        (scores,) = session.score([window])
    except Exception as error:
        # The error's own text may quote the passage: only its type is logged.
        _log.error("detector failed with %s", type(error).__name__)
        return None
    return scores, (time.perf_counter() - begin) * 1000


def _seconds(policy: Policy) -> float | None:
    return None if policy.timeout_ms is None else policy.timeout_ms / 1000
