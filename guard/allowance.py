"""What calls to models may cost: counted before each is sent, so that no limit is exceeded."""

from __future__ import annotations

import math


class Allowance:
    """The number of calls and their price in US dollars; without limits it only counts.

    A call is counted, and the most that it may cost reserved, before it is sent: the limits hold
    with any number of calls at once. Not thread-safe.
    """

    def __init__(self, max_calls: int | None = None, max_cost: float | None = None) -> None:
        self.max_calls, self.max_cost = max_calls, max_cost
        self.in_flight = 0
        self.calls = 0
        self.cost = 0.0
        self._reserved = 0.0

    def fits(self, most: float) -> bool:
        """Return whether a call that may cost ``most`` is within the limits."""
        if self.max_calls is not None and self.calls >= self.max_calls:
            return False
        return self.max_cost is None or self.cost + self._reserved + most <= self.max_cost

    def reserve(self, most: float) -> None:
        """Count a call that may cost ``most``."""
        self.calls += 1
        self.in_flight += 1
        self._reserved += most

    def settle(self, most: float, spent: float) -> None:
        """Record what a call cost for which ``most`` was reserved; nan: that is not known."""
        self.in_flight -= 1
        # Sums of floats leave a remainder.
        self._reserved = self._reserved - most if self.in_flight else 0.0
        self.cost += 0.0 if math.isnan(spent) else spent
