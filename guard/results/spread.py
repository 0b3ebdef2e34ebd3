"""The standard error of an estimate, from its values without each cluster in turn."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from guard.results.intervals import LEAST_CLUSTERS, LEVEL, TINY, jeffreys
from guard.results.measure import Measure, Value, evaluate
from guard.results.samples import Floats, Places
from guard.results.sign_flips import FEW_CLUSTERS, SignFlips

LEAST_WORDS = 2.5
"""The least effective number of words for an interval over words: some groups have three."""


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
        self._enough = self._effective >= LEAST_CLUSTERS - 1e-9
        # Undefined where one cluster holds the whole denominator: leaving it out gives nan.
        self._defined = bool(len(left_out)) and not np.isnan(left_out).any()
        self._se = math.nan
        self._flips: list[SignFlips] = []
        if self._defined:
            g = len(left_out)
            if self._enough and self._effective < FEW_CLUSTERS:
                self._flips = [SignFlips(weights, left_out)]
            squared_deviations = float(((left_out - left_out.mean()) ** 2).sum())
            self._se = math.sqrt((g - 1) / g * squared_deviations)
            self._size = float(np.abs(left_out).max())

    @classmethod
    def multiway(cls, ways: Sequence[Spread], intersections: float) -> Spread:
        """Return the spread under multiway clustering.

        ``ways`` are the one-way spreads, that of clusters first; ``intersections`` is the variance
        that their sum counts more than once.
        """
        joined = cls(np.empty(0), np.empty(0))
        joined._defined = all(way._defined for way in ways)
        if not joined._defined:
            return joined
        joined._enough = ways[0]._enough and all(way._effective >= LEAST_WORDS for way in ways[1:])
        variances = [way._se**2 for way in ways]
        variance = max(sum(variances) - intersections, *variances)
        # Satterthwaite's approximation for a sum of variances with degrees of freedom of their own.
        denominator = sum(
            v**2 / max(way._effective - 1, TINY) for v, way in zip(variances, ways, strict=True)
        )
        least = min(way._effective for way in ways)
        joined._effective = 1 + variance**2 / denominator if denominator > 0 else least
        joined._clusters = min(way._clusters for way in ways)
        joined._se, joined._size = math.sqrt(variance), max(way._size for way in ways)
        joined._flips = [flips for way in ways for flips in way._flips]
        return joined

    @property
    def enough_clusters(self) -> bool:
        """Whether there are enough clusters for an interval or a p-value."""
        return self._defined and self._enough

    @property
    def constant(self) -> bool:
        """Whether all clusters agree, up to rounding: the standard error is 0."""
        return self._defined and self._se <= TINY * max(1.0, self._size)

    def interval(self, value: float, level: float = LEVEL) -> tuple[float, float]:
        """Return the t interval; nan with too few clusters or without spread."""
        if not self.enough_clusters or self.constant or math.isnan(value):
            return math.nan, math.nan
        reach = t_quantile(self._effective - 1, level) * self._se
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
        low, high = jeffreys(share, n, level)
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
        error = reach / t_quantile(math.inf, level)
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

    def tested_interval(self, value: float, level: float = LEVEL) -> tuple[float, float]:
        """Return the interval that goes with :meth:`tested_p`: what any of its tests allows."""
        low, high = self.interval(value, level)
        if math.isnan(low):
            return low, high
        reaches = [flips.reach(level) for flips in self._flips]
        return (
            min([low, *(value - below for below, _ in reaches)]),
            max([high, *(value + above for _, above in reaches)]),
        )

    def tested_p(self, value: float, null: float) -> float:
        """Return the two-sided p of ``null``: the largest of Student's t and of the sign flips.

        With few clusters their values may agree by chance, and t is then far too sure.
        """
        p = self.p(value, null)
        # Where all clusters agree it is that of the sign test already.
        return (
            p
            if math.isnan(p) or self.constant
            else max([p, *(f.p(value - null) for f in self._flips)])
        )

    def least_p(self, value: float, null: float, bounds: tuple[float, float]) -> float:
        """Return the least p that ``null`` allows where the bound on the value's side is near it.

        0 where that bound is no nearer than the other: :meth:`tested_p` then needs no correction.

        The sign of a cluster is a fair coin only where values on both sides of the null may be
        equally likely. At a distance d from a bound, as a part of the width, they cannot be: of
        clusters with a mean of d, up to ``1 - d`` lie at the bound (the rest at the other one). So
        all G agree on that side by chance with probability ``(1 - d)^G``, and all lie at the other
        bound with ``d^G``. Both add up to the least two-sided p, in the middle ``2^(1 - G)``, that
        of the sign test. No value has less: by Hoeffding's inequality (JASA 58, 1963, theorem 1)
        only the bound itself has as little.

        Nearer to a bound the values spread less, too, so t takes the standard error that it has for
        the null value, with as many independent answers: that of Wilson's interval (1927).

        Towards the far bound both would allow a smaller p than the signs and t, which stay. So of
        a null that is a bound itself any other value is evidence: a fair model would have none.
        """
        low, high = bounds
        width = high - low
        if not (math.isfinite(width) and width > 0 and low <= null <= high):
            return 0.0
        distance, off = (null - low, null - value) if value < null else (high - null, value - null)
        distance, off = distance / width, off / width
        if not self.enough_clusters or not off > 0 or distance >= 0.5 - TINY:
            return 0.0
        agree = (1 - distance) ** self._clusters + distance**self._clusters
        share = distance - off  # from the near bound
        if self.constant or share <= TINY:
            return agree
        wider = math.sqrt(distance * (1 - distance) / (share * (1 - share)))
        return max(agree, 2 * self._upper_tail(abs(value - null) / wider))

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
        return -_student_quantile(self._effective - 1, tail)

    def _upper_tail(self, off: float) -> float:
        from scipy.special import stdtr  # type: ignore[import-untyped]

        return float(stdtr(self._effective - 1, -off / self._se))


def spread_of(measure: Measure, value: Value | None = None) -> Spread:
    """Return the spread of a measure over clusters and words, of ``value`` in place of its own."""
    value = value or measure.value
    samples = measure.samples
    by_cluster = spread_over(measure, samples.cluster_totals, value)
    if not samples.words:
        return by_cluster
    by_word = [spread_over(measure, totals, value) for totals in samples.word_totals]
    change = _row_influence(samples.rows, value)
    counted_twice = sum(
        sign * _grouped_variance(change, group) for sign, group in samples.intersections
    )
    return Spread.multiway([by_cluster, *by_word], counted_twice)


def spread_over(measure: Measure, sums: Floats, value: Value) -> Spread:
    """Return the spread of ``value`` over parts of the samples with these sums (parts, k)."""
    weights = measure.weights(sums)
    return Spread(weights, left_out(sums, weights, value))


def left_out(sums: Floats, weights: Floats, value: Value) -> Floats:
    """Return ``value`` without each part in turn, its totals scaled to all parts with a weight."""
    counted = max(int((weights > 0).sum()), 2)
    return evaluate(value, (sums.sum(axis=0) - sums) * (counted / (counted - 1)))


def _row_influence(rows: Floats, value: Value) -> Floats:
    """Return the first-order influence of each row on ``value``, (rows,)."""
    totals = rows.sum(axis=0)
    steps = np.diag(np.maximum(np.abs(totals), 1.0) * 1e-5)
    change = evaluate(value, totals + steps) - evaluate(value, totals - steps)
    slope = change / (2 * steps.diagonal())
    slope[~rows.any(axis=0)] = 0.0  # what never occurs moves nothing
    return np.asarray(rows @ slope, dtype=np.float64)


def _grouped_variance(change: Floats, group: Places) -> float:
    """Return the variance of a sum of changes that are alike within each group."""
    by_group = np.bincount(group, change)
    n = len(by_group)
    return n / (n - 1) * float(((by_group - by_group.mean()) ** 2).sum()) if n > 1 else math.nan


def t_quantile(df: float, level: float) -> float:
    """Return how many standard errors the interval at ``level`` reaches to either side."""
    return _student_quantile(df, (1 + level) / 2)


def _student_quantile(df: float, p: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(df, p))
