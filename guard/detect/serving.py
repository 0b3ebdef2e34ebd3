"""Runs a detector for a response: time limits, failures, and off the event loop.

The only room with clocks. A judge never raises for what a detector does: an error, a result that
is no score, or a verdict that is late becomes ``unjudged``, and the policy says what follows. So
does what the breaker keeps from a detector that has failed too often.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import NamedTuple

from guard.detect import handover
from guard.detect.answers import Timed, timed
from guard.detect.batching import Batches, batch_size
from guard.detect.breaker import Breakers
from guard.detect.protocol import Detector, Session, Window
from guard.detect.workers import Workers, on_worker
from guard.errors import ConfigError
from guard.policy import Policy, unjudged_verdict
from guard.verdict import BIAS_TYPES, Verdict

_log = logging.getLogger("guard")


class _Asked(NamedTuple):
    """A window that a worker was given, and the breaker's ticket for it."""

    ticket: int
    future: Future[Timed]


_REFUSED = Timed(None, 0.0)  # the breaker lets nothing through


class Judge:
    """Turns windows into verdicts with one detector, one index version and one policy.

    Raises ConfigError where the detector has no threshold for a bias type, or no batch it can have.
    """

    def __init__(
        self,
        detector: Detector,
        policy: Policy,
        workers: Workers | None = None,
        breakers: Breakers | None = None,
        batches: Batches | None = None,
    ) -> None:
        self.policy = policy
        self._name = detector.name
        self._points = detector.operating_points
        self._workers = Workers() if workers is None else workers
        self._breaker = (Breakers() if breakers is None else breakers).of(
            policy.timeout_ms, policy.breaker_failures, policy.breaker_pause_ms
        )
        try:
            for bias_type in BIAS_TYPES:
                policy.threshold_for(bias_type, self._points)
        except KeyError as error:
            raise ConfigError(
                f"Detector {self._name} has no threshold {error} at the operating point "
                f"{policy.operating_point!r}; set threshold, or thresholds for every type."
            ) from None
        self._detector = detector
        self._size = batch_size(detector)
        self._batches = Batches() if batches is None else batches
        self._session: Session = detector.snapshot()

    def judge(self, windows: Sequence[Window]) -> list[Verdict]:
        """Return one verdict a window, in order; waits for them."""
        if self._goes_ahead(windows):
            return [*self.judge(windows[:1]), *self.judge(windows[1:])]
        if on_worker() or (self.policy.timeout_ms is None and self._size == 1):
            return [self._finding(self._alone(w)) for w in windows]
        return [self._finding(self._wait(asked)) for asked in self._submit(windows)]

    async def ajudge(self, windows: Sequence[Window]) -> list[Verdict]:
        """Return one verdict a window, in order, without blocking the event loop."""
        if self._goes_ahead(windows):
            return [*await self.ajudge(windows[:1]), *await self.ajudge(windows[1:])]
        several = self._submit(windows)
        try:
            return [self._finding(await self._await(asked)) for asked in several]
        finally:
            for asked in several:
                if asked is not None:
                    asked.future.cancel()

    def _goes_ahead(self, windows: Sequence[Window]) -> bool:
        """Whether the first of ``windows`` is to be tried before the others."""
        return len(windows) > 1 and self._breaker.open

    def _alone(self, window: Window) -> Timed:
        ticket = self._breaker.ask(time.monotonic())
        return _REFUSED if ticket is None else self._noted(ticket, timed(self._session, window))

    def _submit(self, windows: Sequence[Window]) -> list[_Asked | None]:
        tickets = [self._breaker.ask(time.monotonic()) for _ in windows]
        return [
            None if ticket is None else _Asked(ticket, self._scored(window))
            for ticket, window in zip(tickets, windows, strict=True)
        ]

    def _scored(self, window: Window) -> Future[Timed]:
        if self._size == 1:
            return self._workers.submit(partial(timed, self._session, window))
        return self._batches.submit(
            self._workers, self._detector, self._size, self._session, window
        )

    def _wait(self, asked: _Asked | None) -> Timed:
        if asked is None:
            return _REFUSED
        try:
            timed = asked.future.result(self._seconds(asked))
        except FutureTimeoutError:
            timed = self._late(asked.future)
        return self._noted(asked.ticket, timed)

    async def _await(self, asked: _Asked | None) -> Timed:
        if asked is None:
            return _REFUSED
        if asked.future.done():
            return self._noted(asked.ticket, asked.future.result())
        try:
            timed = await handover.result(asked.future, self._seconds(asked))
        except asyncio.TimeoutError:
            timed = self._late(asked.future)
        return self._noted(asked.ticket, timed)

    def _seconds(self, asked: _Asked) -> float | None:
        limit = self.policy.timeout_ms
        if limit is None:
            return None
        # Others have failed since: what hangs with them is not waited for once more.
        return limit / 1000 if self._breaker.current(asked.ticket) else 0.0

    def _noted(self, ticket: int, timed: Timed) -> Timed:
        breaker = self._breaker
        well = timed.scores is not None
        change = breaker.done(ticket, well=well, now=time.monotonic())
        if change == "opened":
            most, pause = self.policy.breaker_failures, breaker.pause
            _log.error(
                "detector %s failed %d times in a row: not asked for %g s", self._name, most, pause
            )
        elif change == "closed":
            _log.warning("detector %s judges again", self._name)
        return timed

    def _late(self, future: Future[Timed]) -> Timed:
        limit = self.policy.timeout_ms or 0.0
        future.cancel()
        # A thread that hangs is replaced; it may have begun a while after it was asked.
        self._workers.relieve(limit / 2000)
        _log.error("detector %s gave no verdict within %g ms", self._name, limit)
        return Timed(None, limit)

    def _finding(self, timed: Timed) -> Verdict:
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
