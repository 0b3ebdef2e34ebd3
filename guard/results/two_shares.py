"""The difference of two shares of clustered answers."""

from __future__ import annotations

import math
from collections.abc import Callable

from guard.results.intervals import LEVEL, TINY
from guard.results.measure import ratio
from guard.results.samples import Floats
from guard.results.spread import Spread

_HALVINGS = 40
"""Bisection steps, for a p-value to 1e-12."""


class ShareDifference:
    """The difference of two shares, with their correlation within clusters (Zou 2007).

    ``sums`` (clusters, 4) has numerator and denominator of the first share, then of the second.
    """

    def __init__(self, sums: Floats) -> None:
        tops, bottoms = sums[:, ::2], sums[:, 1::2]
        self._shares = shares = ratio(tops.sum(axis=0), bottoms.sum(axis=0))
        left = ratio(tops.sum(axis=0) - tops, bottoms.sum(axis=0) - bottoms)
        self._spreads = [Spread(bottoms[:, k], left[:, k]) for k in (0, 1)]
        off = left - shares
        size = math.sqrt((off**2).sum(axis=0).prod())
        self._correlation = float(off.prod(axis=1).sum()) / size if size > 0 else 0.0
        self.value = float(shares[0] - shares[1])

    def _combined(self, first: float, second: float) -> float:
        return math.sqrt(max(first**2 + second**2 - 2 * self._correlation * first * second, 0.0))

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the interval combined from those of both shares (Newcombe 1998, method 10)."""
        a, b = map(float, self._shares)
        (a_low, a_high), (b_low, b_high) = (
            spread.bounded_interval(x, 0.0, 1.0, level)
            for spread, x in zip(self._spreads, (a, b), strict=True)
        )
        apart = self.value
        return (
            apart - self._combined(a - a_low, b_high - b),
            apart + self._combined(a_high - a, b - b_low),
        )

    def p(self) -> float:
        """Return the two-sided p of no difference: 1 less the least level of intervals with 0."""
        if math.isnan(self.interval()[0]):
            return math.nan
        if abs(self.value) <= TINY:
            return 1.0

        def holds(level: float) -> bool:
            low, high = self.interval(level)
            return low <= 0 <= high

        return 1 - _least_level(holds)

    def p_above(self, most: float) -> float:
        """Return the one-sided p of a difference of at most ``most``; 1/2 where it is observed."""
        if math.isnan(self.interval()[0]):
            return math.nan
        if self.value <= most:
            return 0.5
        return (1 - _least_level(lambda level: self.interval(level)[0] <= most)) / 2


def _least_level(holds: Callable[[float], bool]) -> float:
    """Return the least confidence level for which ``holds`` is true, by bisection."""
    least, most = 1e-6, 1.0
    for _ in range(_HALVINGS):
        level = (least + most) / 2
        if holds(level):
            most = level
        else:
            least = level
    return most
