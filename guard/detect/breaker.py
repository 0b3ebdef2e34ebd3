"""When a detector that keeps failing is left alone: a circuit breaker without a clock.

After so many failures in a row the detector is not asked for a pause; what would have been asked is
``unjudged`` at once, and the policy says what follows. When the pause is over a single window is
asked: its answer ends the matter, its failure begins another pause, and so does its silence.
"""

from __future__ import annotations

from typing import Literal

from guard.forks import Lock

Change = Literal["", "opened", "closed"]


class Breaker:
    """Counts the failures of one detector. Times are seconds of any clock that only goes forward.

    ``failures`` in a row open it, None never does; ``pause`` is how long it then stays so. Safe to
    use from several threads.
    """

    def __init__(self, failures: int | None, pause: float) -> None:
        self.pause = pause
        self._most = failures
        self._lock = Lock()
        self._failed = 0  # in a row
        self._rests_until: float | None = None  # None while closed
        self._round = 0  # outcomes of what was asked in an earlier one say nothing any more

    @property
    def open(self) -> bool:
        """Whether the detector is left alone, but for one window a pause."""
        return self._rests_until is not None

    def current(self, ticket: int) -> bool:
        """Whether nothing has opened since ``ticket`` was given."""
        return ticket == self._round

    def ask(self, now: float) -> int | None:
        """Return a ticket to ask the detector with; None where it is not to be asked."""
        with self._lock:
            if self._rests_until is not None:
                if now < self._rests_until:
                    return None
                self._rest(now)
            return self._round

    def done(self, ticket: int, *, well: bool, now: float) -> Change:
        """Take the outcome of what was asked with ``ticket``; return what changed by it."""
        with self._lock:
            if ticket != self._round or self._most is None:
                return ""
            if well:
                change: Change = "closed" if self.open else ""
                self._failed, self._rests_until = 0, None
                return change
            self._failed += 1
            if self.open:
                self._rest(now)
            elif self._failed >= self._most:
                self._rest(now)
                return "opened"
            return ""

    def _rest(self, now: float) -> None:
        self._round += 1
        self._rests_until = now + self.pause


class Breakers:
    """The breakers of one guard, one for each set of limits.

    A call with a shorter time limit of its own so takes the detector from nobody else.
    """

    # More sets of limits than a guard has in earnest; the one used longest ago gives way.
    MOST = 64

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[tuple[float | None, int | None, float], Breaker] = {}

    def of(self, timeout_ms: float | None, failures: int | None, pause_ms: float) -> Breaker:
        """Return the breaker for these limits, as a policy has them."""
        key = (timeout_ms, failures, pause_ms)
        with self._lock:
            breaker = self._known.pop(key, None) or Breaker(failures, pause_ms / 1000)
            self._known[key] = breaker
            if len(self._known) > self.MOST:
                del self._known[next(iter(self._known))]
            return breaker
