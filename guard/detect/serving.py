"""Runs a detector for a response: time limits, failures, and off the event loop.

The gate has no clock; time limits are kept here. A judge never raises for what a detector does: an
error, a result that is no score, or a verdict that is late becomes ``unjudged``, and the policy
says what follows. So does what the breaker keeps from a detector that has failed too often.

A verdict's limit counts from when a worker begins its call. Before that it waits for its turn,
which has a limit of its own: a busy guard is no detector that fails, and opens no breaker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import NamedTuple

from guard.detect import loop_bridge
from guard.detect.answers import Timed, timed
from guard.detect.breaker import Breakers
from guard.detect.protocol import Detector, DetectorSession, Window
from guard.detect.script import wordless
from guard.detect.workers import FAILED, Asked, ResponseQueue, Workers, as_worker, on_worker
from guard.errors import ConfigError
from guard.policy import Policy, unjudged_verdict
from guard.verdict import BIAS_TYPES, Scores, Verdict

_log = logging.getLogger("guard")


class _Ticket(NamedTuple):
    """A window that a worker was given, and the breaker's ticket for it."""

    number: int
    asked: Asked


class _Wait(NamedTuple):
    """For how many seconds to wait before looking again; None until there is a result."""

    seconds: float | None


_NOTHING = Timed(Scores(0.0, "social"), 0.0)  # said, so nothing biased
# Seconds after which a window that waits for its turn looks for threads that hang.
_LOOK = 1.0


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
        self._session: DetectorSession = detector.snapshot()
        self._limit = _seconds(policy.timeout_ms)
        self._queue = ResponseQueue(detector, self._session, self._limit)

    def judge(self, windows: Sequence[Window]) -> list[Verdict]:
        """Return one verdict a window, in order; waits for them."""
        if self._goes_ahead(windows):
            return [*self.judge(windows[:1]), *self.judge(windows[1:])]
        if on_worker() or (self._limit is None and self._queue.size == 1):
            return [self._finding(self._alone(w)) for w in windows]
        several = self._submit(windows)
        try:
            return [self._finding(self._wait(one)) for one in several]
        finally:
            self._cancel(several)

    async def ajudge(self, windows: Sequence[Window]) -> list[Verdict]:
        """Return one verdict a window, in order, without blocking the event loop."""
        if self._goes_ahead(windows):
            return [*await self.ajudge(windows[:1]), *await self.ajudge(windows[1:])]
        several = self._submit(windows)
        try:
            return [self._finding(await self._await(one)) for one in several]
        finally:
            self._cancel(several)

    def _cancel(self, several: list[_Ticket | Timed]) -> None:
        for one in several:
            if isinstance(one, _Ticket):
                self._workers.cancel(one.asked)

    def _goes_ahead(self, windows: Sequence[Window]) -> bool:
        """Whether the first of ``windows`` is to be tried before the others."""
        return len(windows) > 1 and self._breaker.open

    def _alone(self, window: Window) -> Timed:
        if wordless(window.text):
            return _NOTHING
        number = self._breaker.ask(time.monotonic())
        if number is None:
            return FAILED
        with as_worker():
            answer = timed(self._session, window)
        return self._noted(number, answer)

    def _submit(self, windows: Sequence[Window]) -> list[_Ticket | Timed]:
        return [self._ticket(window) for window in windows]

    def _ticket(self, window: Window) -> _Ticket | Timed:
        if wordless(window.text):
            return _NOTHING
        number = self._breaker.ask(time.monotonic())
        if number is None:
            return FAILED
        return _Ticket(number, self._workers.submit(self._queue, window))

    def _wait(self, one: _Ticket | Timed) -> Timed:
        since = time.monotonic()
        while not isinstance(one, Timed):
            next_look = self._look(one, since)
            if isinstance(next_look, Timed):
                return next_look
            with contextlib.suppress(FutureTimeoutError):
                return self._noted(one.number, one.asked.future.result(next_look.seconds))
        return one

    async def _await(self, one: _Ticket | Timed) -> Timed:
        if isinstance(one, Timed):
            return one
        since, bridge = time.monotonic(), loop_bridge.Bridge(one.asked.future)
        while True:
            next_look = self._look(one, since)
            if isinstance(next_look, Timed):
                return next_look
            with contextlib.suppress(asyncio.TimeoutError):
                return self._noted(one.number, await bridge.result(next_look.seconds))

    def _look(self, one: _Ticket, since: float) -> _Wait | Timed:
        """Return how long to wait for a window asked for since then, or what to give up with."""
        if one.asked.future.done():
            return _Wait(None)
        now, limit, began = time.monotonic(), self._limit, one.asked.began
        if limit is not None and not self._breaker.current(one.number):
            # Others have failed since: what hangs with them is not waited for once more.
            return self._late(one, waited=now - (one.asked.since if began is None else began))
        if began is not None:
            left = None if limit is None else began + limit - now
            return _Wait(left) if left is None or left > 0 else self._late(one)
        waited, turn = now - since, _seconds(self.policy.queue_ms)
        look = _LOOK if limit is None else min(_LOOK, limit)
        hung = waited >= look and not self._workers.replace_hung()
        if hung and limit is not None and waited >= limit:
            return self._late(one)  # all threads hang: it will have no turn
        if turn is not None and waited >= turn:
            return self._overloaded(one, waited)
        return _Wait(look if turn is None else min(look, turn - waited))

    def _noted(self, ticket: int, timed: Timed) -> Timed:
        if timed is FAILED:
            return timed  # the process ends: the detector was not asked
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

    def _late(self, one: _Ticket, waited: float | None = None) -> Timed:
        """Give up a window at its limit, or before that where ``waited`` (seconds) says so."""
        limit = self.policy.timeout_ms or 0.0
        self._workers.cancel(one.asked)
        self._workers.replace_hung()
        if waited is None:
            _log.error("detector %s gave no verdict within %g ms", self._name, limit)
        return self._noted(one.number, Timed(None, limit if waited is None else waited * 1000))

    def _overloaded(self, one: _Ticket, waited: float) -> Timed:
        # The breaker is told nothing: the detector has not been asked.
        self._workers.cancel(one.asked)
        if self._workers.overloaded():
            _log.error(
                "detector %s is overloaded: a segment waited %g ms for its turn (queue_ms %g); "
                "said once until nothing waits",
                self._name,
                round(waited * 1000),
                self.policy.queue_ms,
            )
        return Timed(None, waited * 1000, "overload")

    def _finding(self, timed: Timed) -> Verdict:
        version = self._session.index_version
        scores, elapsed, reason = timed
        if scores is None:
            return unjudged_verdict(
                reason, detector=self._name, index_version=version, elapsed_ms=elapsed
            )
        return self.policy.verdict(
            scores,
            self._points,
            detector=self._name,
            index_version=version,
            elapsed_ms=elapsed,
        )


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
