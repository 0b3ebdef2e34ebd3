"""Runs a detector for a response: time limits, failures, and off the event loop.

The only room with clocks. A judge never raises for what a detector does: an error, a result that
is no score, or a verdict that is late becomes ``unjudged``, and the policy says what follows.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import NamedTuple

from guard.detect.protocol import Detector, Session, Window
from guard.detect.workers import Workers, on_worker
from guard.errors import ConfigError
from guard.policy import Policy, unjudged_verdict
from guard.verdict import BIAS_TYPES, Scores, Verdict

_log = logging.getLogger("guard")


class _Timed(NamedTuple):
    """Scores, None where the detector failed or was late, and the milliseconds they took."""

    scores: Scores | None
    elapsed_ms: float


class Judge:
    """Turns windows into verdicts with one detector, one index version and one policy.

    Raises ConfigError where the detector has no threshold for a bias type.
    """

    def __init__(self, detector: Detector, policy: Policy, workers: Workers | None = None) -> None:
        self.policy = policy
        self._name = detector.name
        self._points = detector.operating_points
        self._workers = Workers() if workers is None else workers
        try:
            for bias_type in BIAS_TYPES:
                policy.threshold_for(bias_type, self._points)
        except KeyError as error:
            raise ConfigError(
                f"Detector {self._name} has no threshold {error} at the operating point "
                f"{policy.operating_point!r}; set threshold, or thresholds for every type."
            ) from None
        self._session: Session = detector.snapshot()

    def judge(self, windows: Sequence[Window]) -> list[Verdict]:
        """Return one verdict a window, in order; waits for them."""
        if self.policy.timeout_ms is None or on_worker():
            return [self._finding(_timed(self._session, w)) for w in windows]
        return [self._finding(self._wait(f)) for f in self._submit(windows)]

    async def ajudge(self, windows: Sequence[Window]) -> list[Verdict]:
        """Return one verdict a window, in order, without blocking the event loop."""
        futures = self._submit(windows)
        try:
            return [self._finding(await self._await(f)) for f in futures]
        finally:
            for future in futures:
                future.cancel()

    def _submit(self, windows: Sequence[Window]) -> list[Future[_Timed]]:
        return [self._workers.submit(partial(_timed, self._session, w)) for w in windows]

    def _wait(self, future: Future[_Timed]) -> _Timed:
        try:
            return future.result(_seconds(self.policy))
        except FutureTimeoutError:
            return self._late(future)

    async def _await(self, future: Future[_Timed]) -> _Timed:
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), _seconds(self.policy))
        except asyncio.TimeoutError:
            return self._late(future)

    def _late(self, future: Future[_Timed]) -> _Timed:
        limit = self.policy.timeout_ms or 0.0
        if not future.cancel() and not future.done():
            self._workers.replace()  # its thread hangs; others go on
        _log.error("detector %s gave no verdict within %g ms", self._name, limit)
        return _Timed(None, limit)

    def _finding(self, timed: _Timed) -> Verdict:
        version = self._session.index_version
        scores, elapsed = timed
        if scores is None:
            return unjudged_verdict(
                "failure", detector=self._name, index_version=version, elapsed_ms=elapsed
            )
        return self.policy.verdict(
            scores,
            self._points,
            detector=self._name,
            index_version=version,
            elapsed_ms=elapsed,
        )


def _timed(session: Session, window: Window) -> _Timed:
    begin = time.perf_counter()
    scores: Scores | None = None
    try:
        (given,) = session.score([window])
    except Exception as error:
        # The error's own text may quote the passage: only its type is logged.
        _log.error("detector failed with %s", type(error).__name__)
    else:
        if _is_score(given):
            scores = given
        else:
            _log.error("detector gave %s, which is no score", type(given).__name__)
    return _Timed(scores, (time.perf_counter() - begin) * 1000)


def _is_score(given: object) -> bool:
    """Whether a detector's answer can be judged by: nan would pass for harmless."""
    return (
        isinstance(given, Scores)
        and math.isfinite(given.score)
        and 0 <= given.score <= 1
        and given.bias_type in BIAS_TYPES
    )


def _seconds(policy: Policy) -> float | None:
    return None if policy.timeout_ms is None else policy.timeout_ms / 1000
