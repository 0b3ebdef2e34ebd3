"""Runs a detector for a response, with time limits and off the event loop.

The gate has no clock; time limits are enforced here. A judge does not raise a detector's errors: an
exception, an invalid score or a late verdict becomes ``unjudged``, and the policy decides what
follows. So do windows that an open breaker skips.

A verdict's time limit starts when a worker begins its call. The wait before that has a limit of its
own (``queue_ms``): overload is no failure of the detector and does not open the breaker.
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
from guard.detect.breaker import Breakers
from guard.detect.protocol import Detector, DetectorSession, Window
from guard.detect.scoring import Timed, timed_score
from guard.detect.script import has_no_word
from guard.detect.workers import (
    FAILED,
    ResponseQueue,
    ScoreRequest,
    Workers,
    as_worker,
    on_worker,
)
from guard.errors import ConfigError
from guard.policy import Points, Policy, unjudged_verdict
from guard.verdict import BIAS_TYPES, Scores, Verdict

_log = logging.getLogger("guard")


class _Ticket(NamedTuple):
    """A window handed to a worker, and the breaker's ticket for it."""

    number: int
    request: ScoreRequest


class _Wait(NamedTuple):
    """Seconds to wait before checking again; None: until there is a result."""

    seconds: float | None


_NOTHING = Timed(Scores(0.0, "social"), 0.0)  # for a text without words
# Seconds after which a window that waits for its turn checks for hung threads.
_LOOK = 1.0


class WindowJudge:
    """Turns windows into verdicts with one detector, one index version and one policy.

    Raises ConfigError if the detector has no threshold for a bias type, an invalid ``batch``,
    ``thresholds`` that are invalid or do not allow one of the policy's, or reads only some
    languages where the policy has every language judged.
    """

    def __init__(
        self,
        detector: Detector,
        policy: Policy,
        workers: Workers | None = None,
        breakers: Breakers | None = None,
    ) -> None:
        self.policy = policy
        detector = _every_language_reader(detector, policy)
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
        _check_thresholds(detector, policy, self._points)
        self._session: DetectorSession = detector.snapshot()
        self._limit = _in_seconds(policy.timeout_ms)
        self._queue = ResponseQueue(detector, self._session, self._limit)

    def judge(self, windows: Sequence[Window]) -> list[Verdict]:
        """Return one verdict for each window, in order."""
        if self._needs_probe(windows):
            return [*self.judge(windows[:1]), *self.judge(windows[1:])]
        if on_worker() or (self._limit is None and self._queue.size == 1):
            return [self._finding(self._judge_alone(w)) for w in windows]
        several = self._submit_windows(windows)
        try:
            return [self._finding(self._wait_for(one)) for one in several]
        finally:
            self._cancel_all(several)

    async def ajudge(self, windows: Sequence[Window]) -> list[Verdict]:
        """Return one verdict for each window, in order, without blocking the event loop."""
        if self._needs_probe(windows):
            return [*await self.ajudge(windows[:1]), *await self.ajudge(windows[1:])]
        several = self._submit_windows(windows)
        try:
            return [self._finding(await self._await_ticket(one)) for one in several]
        finally:
            self._cancel_all(several)

    def _cancel_all(self, several: list[_Ticket | Timed]) -> None:
        for ticket in several:
            if isinstance(ticket, _Ticket):
                self._workers.cancel(ticket.request)

    def _needs_probe(self, windows: Sequence[Window]) -> bool:
        """Whether the first of ``windows`` must be judged alone, as the breaker's probe."""
        return len(windows) > 1 and self._breaker.open

    def _judge_alone(self, window: Window) -> Timed:
        if has_no_word(window.text):
            return _NOTHING
        number = self._breaker.ask(time.monotonic())
        if number is None:
            return FAILED
        with as_worker():
            answer = timed_score(self._session, window)
        return self._recorded(number, answer)

    def _submit_windows(self, windows: Sequence[Window]) -> list[_Ticket | Timed]:
        return [self._make_ticket(window) for window in windows]

    def _make_ticket(self, window: Window) -> _Ticket | Timed:
        if has_no_word(window.text):
            return _NOTHING
        number = self._breaker.ask(time.monotonic())
        if number is None:
            return FAILED
        return _Ticket(number, self._workers.submit(self._queue, window))

    def _wait_for(self, ticket: _Ticket | Timed) -> Timed:
        since = time.monotonic()
        while not isinstance(ticket, Timed):
            next_look = self._look(ticket, since)
            if isinstance(next_look, Timed):
                return next_look
            with contextlib.suppress(FutureTimeoutError):
                return self._recorded(
                    ticket.number, ticket.request.future.result(next_look.seconds)
                )
        return ticket

    async def _await_ticket(self, ticket: _Ticket | Timed) -> Timed:
        if isinstance(ticket, Timed):
            return ticket
        since, bridge = time.monotonic(), loop_bridge.Bridge(ticket.request.future)
        while True:
            next_look = self._look(ticket, since)
            if isinstance(next_look, Timed):
                return next_look
            with contextlib.suppress(asyncio.TimeoutError):
                return self._recorded(ticket.number, await bridge.result(next_look.seconds))

    def _look(self, ticket: _Ticket, since: float) -> _Wait | Timed:
        """Return how long to wait for a window requested at ``since``, or why to give up."""
        if ticket.request.future.done():
            return _Wait(None)
        now, limit, began = time.monotonic(), self._limit, ticket.request.began
        if limit is not None and not self._breaker.current(ticket.number):
            # The breaker has opened since: do not wait for this window as well.
            return self._late(
                ticket, waited=now - (ticket.request.since if began is None else began)
            )
        if began is not None:
            left = None if limit is None else began + limit - now
            return _Wait(left) if left is None or left > 0 else self._late(ticket)
        waited, turn = now - since, _in_seconds(self.policy.queue_ms)
        look = _LOOK if limit is None else min(_LOOK, limit)
        hung = waited >= look and not self._workers.replace_hung()
        if hung and limit is not None and waited >= limit:
            return self._late(ticket)  # all threads hang: its turn will not come
        if turn is not None and waited >= turn:
            return self._overloaded(ticket, waited)
        return _Wait(look if turn is None else min(look, turn - waited))

    def _recorded(self, ticket: int, outcome: Timed) -> Timed:
        """Record an outcome with the breaker; return it."""
        if outcome is FAILED:
            return outcome  # the process ends: the detector was not called
        breaker = self._breaker
        well = outcome.scores is not None
        change = breaker.done(ticket, well=well, now=time.monotonic())
        if change == "opened":
            most, pause = self.policy.breaker_failures, breaker.pause
            _log.error(
                "detector %s failed %d times in a row: skipped for %g s", self._name, most, pause
            )
        elif change == "closed":
            _log.warning("detector %s works again", self._name)
        return outcome

    def _late(self, ticket: _Ticket, waited: float | None = None) -> Timed:
        """Give up on a window at its time limit, or earlier, after ``waited`` seconds."""
        limit = self.policy.timeout_ms or 0.0
        self._workers.cancel(ticket.request)
        self._workers.replace_hung()
        if waited is None:
            _log.error("detector %s gave no verdict within timeout_ms (%g ms)", self._name, limit)
        return self._recorded(
            ticket.number, Timed(None, limit if waited is None else waited * 1000)
        )

    def _overloaded(self, ticket: _Ticket, waited: float) -> Timed:
        # Not recorded with the breaker: the detector was not called.
        self._workers.cancel(ticket.request)
        if self._workers.overloaded():
            _log.error(
                "detector %s is overloaded: a segment waited %g ms for its turn (queue_ms %g); "
                "logged once until the queue is empty",
                self._name,
                round(waited * 1000),
                self.policy.queue_ms,
            )
        return Timed(None, waited * 1000, "overload")

    def _finding(self, outcome: Timed) -> Verdict:
        version = self._session.index_version
        scores, elapsed, reason = outcome
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


def _every_language_reader(detector: Detector, policy: Policy) -> Detector:
    """Return the detector that judges what the policy wants judged.

    Raises ConfigError if that is text in every language and the detector reads only some.
    """
    if policy.language != "judge":
        return detector
    every_language: Detector | None = getattr(detector, "every_language", None)
    if every_language is not None:
        return every_language
    if languages := getattr(detector, "languages", ()):
        raise ConfigError(
            f"language='judge' needs a detector that reads other languages, and {detector.name} "
            f"reads {', '.join(languages)} only; use a cascade whose second detector reads them "
            "(cascade:encoder,judge:MODEL), or language='stop'."
        )
    return detector


def _check_thresholds(detector: Detector, policy: Policy, points: Points) -> None:
    allowed = getattr(detector, "thresholds", (0.0, 1.0))
    if not _are_limits(allowed):
        raise ConfigError(
            f"Detector {detector.name} has the thresholds {allowed!r}; they must be the lowest and "
            "the highest that it takes, or be left out."
        )
    low, high = allowed
    for bias_type in BIAS_TYPES:
        threshold = policy.threshold_for(bias_type, points)
        # At 0 everything is biased, whoever judges.
        if threshold and not low <= threshold <= high:
            raise ConfigError(
                f"Detector {detector.name} takes thresholds from {low:g} to {high:g}, and 0; that "
                f"of {bias_type} is {threshold:g}: set another one, or detector='encoder'."
            )


def _are_limits(value: object) -> bool:
    """Whether a value is two numbers, the lower one first."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        return False
    return all(isinstance(x, (int, float)) for x in value) and value[0] <= value[1]


def _in_seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
