"""A circuit breaker for a detector that keeps failing. It has no clock of its own.

After N failures in a row, calls are skipped for a pause; the windows are ``unjudged`` at once, and
the policy decides what follows. After the pause one window is sent as a probe. If it is answered
the breaker closes; if it fails, or gets no answer, another pause begins.
Why: docs/decisions/breaker-probes.md.
"""

from __future__ import annotations

from typing import Literal

from guard.forks import Lock

Change = Literal["", "opened", "closed"]


class Breaker:
    """Counts the failures of one detector. Times are seconds of any monotonic clock. Thread-safe.

    ``failures`` in a row open it (None: never); ``pause`` is the time between two probes then.
    """

    def __init__(self, failures: int | None, pause: float) -> None:
        self.pause = pause
        self._most = failures
        self._lock = Lock()
        self._failed = 0  # in a row
        self._paused_until: float | None = None  # None while closed
        self._round = 0  # grows with each pause; outcomes of earlier rounds are ignored

    @property
    def open(self) -> bool:
        """Whether calls are skipped, except one probe per pause."""
        return self._paused_until is not None

    def current(self, ticket: int) -> bool:
        """Whether no pause has begun since ``ticket`` was issued."""
        return ticket == self._round

    def ask(self, now: float) -> int | None:
        """Return a ticket for one call of the detector; None if the call must be skipped."""
        with self._lock:
            if self._paused_until is not None:
                if now < self._paused_until:
                    return None
                self._begin_pause(now)
            return self._round

    def done(self, ticket: int, *, well: bool, now: float) -> Change:
        """Record the outcome of the call with ``ticket``; return the change of state."""
        with self._lock:
            if ticket != self._round or self._most is None:
                return ""
            if well:
                change: Change = "closed" if self.open else ""
                self._failed, self._paused_until = 0, None
                return change
            self._failed += 1
            if self.open:
                self._begin_pause(now)
            elif self._failed >= self._most:
                self._begin_pause(now)
                return "opened"
            return ""

    def _begin_pause(self, now: float) -> None:
        self._round += 1
        self._paused_until = now + self.pause


class Breakers:
    """The breakers of one guard, one for each set of limits.

    So a call with a shorter time limit cannot open the breaker of other calls.
    """

    # Upper bound of the sets of limits; the least recently used one is dropped.
    MOST = 64

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[tuple[float | None, int | None, float], Breaker] = {}

    def of(self, timeout_ms: float | None, failures: int | None, pause_ms: float) -> Breaker:
        """Return the breaker for a policy's limits."""
        key = (timeout_ms, failures, pause_ms)
        with self._lock:
            breaker = self._known.pop(key, None) or Breaker(failures, pause_ms / 1000)
            self._known[key] = breaker
            if len(self._known) > self.MOST:
                del self._known[next(iter(self._known))]
            return breaker
