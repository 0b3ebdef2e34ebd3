"""Sums, intervals and p-values over clusters: jackknife t, and intervals of proportions.

:mod:`guard.audit.statistics` says which of them an estimate gets, with the sources.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from guard.intervals import LEAST_CLUSTERS, LEVEL
from guard.suites.contract import Floats
from guard.suites.reading import ratio

TINY = 1e-12
"""Smaller differences are rounding errors."""
_HALVINGS = 40
"""Bisection steps, for a p-value to 1e-12."""


def positions(names: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the distinct names in order of appearance, and each name's index among them."""
    place = {name: at for at, name in enumerate(dict.fromkeys(names))}
    return list(place), np.fromiter((place[name] for name in names), np.int64, len(names))


def cluster_sums(rows: Floats, cluster: NDArray[np.int64], size: int) -> Floats:
    """Return the sums of ``rows`` (r, k) by their ``cluster`` (r,), as (size, k)."""
    sums = [np.bincount(cluster, column, size) for column in rows.T]
    return np.stack(sums, axis=-1).astype(np.float64)


class Spread:
    """The cluster jackknife of an estimate: its standard error and degrees of freedom.

    ``weights`` (clusters,) are the clusters' sizes; those of size 0 are ignored. ``left_out``
    (clusters,) is the estimate without each cluster. The effective number of clusters is
    ``sum(w)² / sum(w²)``, one more than the degrees of freedom.
    """

    def __init__(self, weights: Floats, left_out: Floats) -> None:
        counted = weights > 0
        weights, left_out = weights[counted], left_out[counted]
        squares = float((weights**2).sum())
        self._effective = float(weights.sum()) ** 2 / squares if squares else 0.0
        self._clusters = len(weights)
        # Undefined where one cluster holds the whole denominator: leaving it out gives nan.
        self._defined = bool(len(left_out)) and not np.isnan(left_out).any()
        self._se = math.nan
        if self._defined:
            g = len(left_out)
            squared_deviations = float(((left_out - left_out.mean()) ** 2).sum())
            self._se = math.sqrt((g - 1) / g * squared_deviations)
            self._size = float(np.abs(left_out).max())

    @property
    def enough_clusters(self) -> bool:
        """Whether there are enough clusters for an interval or a p-value."""
        return self._defined and self._effective >= LEAST_CLUSTERS - 1e-9

    @property
    def constant(self) -> bool:
        """Whether all clusters agree, up to rounding: the standard error is 0."""
        return self._defined and self._se <= TINY * max(1.0, self._size)

    def interval(self, value: float, level: float = LEVEL) -> tuple[float, float]:
        """Return the t interval; nan with too few clusters or without spread."""
        if not self.enough_clusters or self.constant or math.isnan(value):
            return math.nan, math.nan
        reach = _quantile(self._effective - 1, level) * self._se
        return value - reach, value + reach

    def bounded_interval(
        self, value: float, least: float, most: float, level: float = LEVEL
    ) -> tuple[float, float]:
        """Return Jeffreys' interval of a mean that lies between ``least`` and ``most``.

        The mean is scaled to a proportion, with the number of independent answers that gives the
        half width of the t interval. The t interval itself covers too little near the bounds, where
        the standard error may be near 0 by chance (Brown, Cai and DasGupta 2001; for clusters
        Franco, Little, Louis and Slud 2019). At a bound the correlation within clusters is unknown,
        so each cluster counts as one answer.
        """
        low, high = self.interval(value, level)
        width = most - least
        share = (value - least) / width if width else math.nan
        if self.enough_clusters and self.constant and min(share, 1 - share) <= TINY:
            share, n = float(round(share)), self._effective
        elif math.isnan(low) or not 0 < share < 1:
            return low, high
        else:
            n = self._effective_answers(share, (high - low) / (2 * width), level)
        from scipy.special import betaincinv  # type: ignore[import-untyped]

        a, b = n * share + 0.5, n * (1 - share) + 0.5
        tail = (1 - level) / 2
        # At a bound the interval ends there; Jeffreys' own would exclude the estimate.
        low = float(betaincinv(a, b, tail)) if share > 0 else 0.0
        high = float(betaincinv(a, b, 1 - tail)) if share < 1 else 1.0
        return least + width * low, least + width * high

    def effective_answers(self, share: float, n: float) -> float:
        """Return the effective number of independent answers of the ``n`` clustered ones.

        Where the correlation within clusters is unknown, each cluster counts as one answer.
        """
        if self._effective > n - 1e-9:
            return n  # each cluster is one answer
        low, high = self.interval(share)
        if math.isnan(low) or not 0 < share < 1:
            return min(self._effective, n)
        return min(self._effective_answers(share, (high - low) / 2, LEVEL), n)

    def _effective_answers(self, share: float, reach: float, level: float) -> float:
        """Return how many independent answers would give the half width ``reach`` at ``level``."""
        error = reach / _quantile(math.inf, level)
        # At worst all answers of a cluster are equal: one answer a cluster.
        return max(share * (1 - share) / error**2, self._effective)

    def p(self, value: float, null: float) -> float:
        """Return the two-sided p of the null hypothesis that the estimate is ``null``.

        Where all clusters agree, it is that of the sign test: all on one side by chance.
        """
        if not self.enough_clusters or math.isnan(value):
            return math.nan
        off = abs(value - null)
        if self.constant:
            return 1.0 if off <= 1e3 * TINY else 2.0 ** (1 - self._clusters)
        return 2 * self._upper_tail(off)

    def p_above(self, value: float, most: float) -> float:
        """Return the one-sided p of the null hypothesis that the estimate is at most ``most``."""
        if not self.enough_clusters or math.isnan(value):
            return math.nan
        off = value - most
        if self.constant:
            return 1.0 if off <= 1e3 * TINY else 2.0**-self._clusters
        return self._upper_tail(off)

    @property
    def error(self) -> float:
        """The standard error."""
        return self._se

    def quantile(self, tail: float) -> float:
        """Return the upper ``tail`` quantile of t, in standard errors."""
        return -_student(self._effective - 1, tail)

    def _upper_tail(self, off: float) -> float:
        from scipy.special import stdtr

        return float(stdtr(self._effective - 1, -off / self._se))


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

    def _combined(self, one: float, two: float) -> float:
        return math.sqrt(max(one**2 + two**2 - 2 * self._correlation * one * two, 0.0))

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


def _quantile(df: float, level: float) -> float:
    return _student(df, (1 + level) / 2)


def _student(df: float, p: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(df, p))
