"""Intervals and tests of a suite's measures, from sums by cluster.

- The standard error of an estimate is that of the jackknife over whole clusters (Efron 1982, ch.
  3). It is tested with Student's t, whose degrees of freedom are the effective number of clusters
  (Kish 1965) less one. Interval and p-value use the same t, so the interval excludes the null value
  exactly when p < .05. Where only values above the null are of interest, lower ones have p = 1.
- With fewer than :data:`FEW_CLUSTERS` clusters the test also flips their signs (see
  :class:`SignFlips`): p is the larger one, and the interval holds what either test allows.
- Where a suite has several words for a group, answers are alike within clusters and within words.
  The variance is the multiway one: the one-way variances, less those of pairwise intersections,
  plus that of the triple one (Cameron, Gelbach and Miller 2011), and at least the largest one-way
  variance. Degrees of freedom follow Satterthwaite (1946). Intervals are conservative where words
  have no effect.
- An untested estimate between bounds, such as a share, has Jeffreys' interval, for the number of
  independent answers that gives the same standard error. A share that needs an interval however few
  its answers has Clopper and Pearson's for that number (Korn and Graubard 1998), which is exact
  where answers are independent.
- The interval of a difference between two kinds of answers combines those of both shares (Newcombe
  1998, method 10), and its p-value inverts that interval: if one kind is rare, its share is 0 or 1
  by chance, and a t interval would have no width.
- A change between arms is one estimate over both, so what the arms share cancels.

``tests/suites/calibration.py`` measures the error rates for one arm on fair models; its table is
``benchmarks/calibration.md``. Changes between arms are not in it.

With fewer than :data:`LEAST_CLUSTERS`, or where all clusters agree, there is no interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import combinations
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from guard.results.conclusions import FAMILIES
from guard.results.estimate import Estimate
from guard.results.intervals import LEAST_CLUSTERS as LEAST_CLUSTERS
from guard.results.intervals import LEVEL, exact, false_discovery
from guard.results.measure import Floats, Measure, column, ratio, share

Key = tuple[str, tuple[tuple[str, str], ...]]
T = TypeVar("T", bound=Hashable)
LEAST_WORDS = 2.5
"""The least effective number of words for an interval over words: some groups have three."""
TINY = 1e-12
"""Smaller differences are rounding errors."""
FEW_CLUSTERS = 30
"""With fewer clusters, counted by Kish's effective number, a test also flips their signs."""
MOST_ENUMERATED = 14
"""Up to so many clusters all flips are enumerated, otherwise :data:`DRAWS` are drawn."""
DRAWS = 9_999
_SEED = 17
_HALVINGS = 40
"""Bisection steps, for a p-value to 1e-12."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The guarded arm's value less the plain one's, with interval, p and corrected ``q``."""

    value: float
    low: float
    high: float
    p: float
    q: float = math.nan


@dataclass(frozen=True, slots=True)
class Line:
    """One measure in both arms; ``guarded`` and ``effect`` are None where there is one arm."""

    measure: Measure
    plain: Estimate
    guarded: Estimate | None = None
    effect: Effect | None = None


def key_of(measure: Measure) -> Key:
    """Return the key of a measure, the same in both arms."""
    return measure.name, tuple(sorted(measure.axis.items()))


def estimate(plain: Sequence[Measure], guarded: Sequence[Measure] | None = None) -> list[Line]:
    """Return the estimate of every measure of ``plain`` and, if given, of ``guarded``.

    Raises ValueError where the arms do not have the same measures.
    """
    other: dict[Key, Measure] = {} if guarded is None else {key_of(m): m for m in guarded}
    if guarded is not None and set(other) != {key_of(m) for m in plain}:
        raise ValueError("The arms have different measures.")
    summed = _Sums()
    return _corrected([_line(m, other.get(key_of(m)), summed) for m in plain])


class _Sums:
    """Sums by cluster of both arms, kept for the next measure, which often has the same rows."""

    def __init__(self) -> None:
        self._key: tuple[int, ...] = ()
        self._last: list[Floats] = []
        self._ways: dict[int, MultiwayClusters] = {}

    def ways_of(self, measure: Measure) -> MultiwayClusters:
        """Return the clusters and words of a measure that :meth:`of` was last called with."""
        if id(measure.rows) not in self._ways:
            self._ways[id(measure.rows)] = MultiwayClusters(measure)
        return self._ways[id(measure.rows)]

    def of(self, arms: Sequence[Measure]) -> list[Floats]:
        """Return (clusters, k) for each arm, over the clusters of both."""
        key = tuple(part for m in arms for part in (id(m.rows), id(m.clusters), id(m.words)))
        if key != self._key:
            self._ways = {}
            names = sorted({c for m in arms for c in m.clusters})
            place = {name: i for i, name in enumerate(names)}
            self._key, self._last = key, [_sums(m, place) for m in arms]
        return self._last


def _line(plain: Measure, guarded: Measure | None, summed: _Sums) -> Line:
    arms = [plain] if guarded is None else [plain, guarded]
    sums = summed.of(arms)
    one = _estimate(plain, sums[0], summed)
    if guarded is None:
        return Line(plain, one)
    two = _estimate(guarded, sums[1], summed)
    change = two.value - one.value
    if not plain.interval or plain.smooth is not None:  # a change without an interval
        return Line(plain, one, two, Effect(change, math.nan, math.nan, math.nan))
    of, of_guarded = (_weights(m, s) for m, s in zip(arms, sums, strict=True))
    if plain.exact and of.any() and np.array_equal(of, of_guarded):
        return Line(plain, one, two, Effect(change, *_exchanged(plain, guarded, of, sums)))
    left = [_left_out(m, s) for m, s in zip(arms, sums, strict=True)]
    found = Spread(of + of_guarded, left[1] - left[0])
    low, high = found.tested_interval(change, plain.level)
    p = found.tested_p(change, 0.0)
    if not math.isnan(change) and np.array_equal(sums[0], sums[1]):
        low, high, p = 0.0, 0.0, 1.0  # the guard changed no answer
    return Line(plain, one, two, Effect(change, low, high, p))


def _estimate(measure: Measure, sums: Floats, summed: _Sums) -> Estimate:
    totals = sums.sum(axis=0)
    value, n = _scalar(_values(measure, totals)), _scalar(measure.n(totals))
    if not measure.interval:
        return Estimate(value, math.nan, math.nan, n, _or_nan(measure.p))
    if measure.two_shares:
        two = ShareDifference(sums)
        (low, high), p = two.interval(), two.p()
        return Estimate(value, low, high, n, _or_nan(measure.p) if measure.null is None else p)
    found = Spread(_weights(measure, sums), _left_out(measure, sums))
    if measure.words:
        found = summed.ways_of(measure).spread(measure, found)
    if measure.exact and n > 0:
        size = found.effective_answers(value, n)
        return Estimate(value, *exact(value * size, size), n, _or_nan(measure.p))
    at = value
    if measure.smooth is not None:
        at = _scalar(measure.smooth.value(totals))
        if not math.isnan(at):  # max(nan, x) may be x
            at = max(at, measure.smooth.least)
    least, most = measure.bounds
    # A tested estimate has the interval that goes with its test.
    untested = measure.null is None and measure.smooth is None
    if untested and least >= 0 and math.isfinite(most):
        low, high = found.bounded_interval(at, least, most)
    elif untested or measure.null is None:
        low, high = found.interval(at, measure.level)
    else:
        low, high = found.tested_interval(at, measure.level)
    if measure.smooth is not None:
        low, high = measure.smooth.back(low), measure.smooth.back(high)
    if measure.null is None or measure.p is not None:
        p = _or_nan(measure.p)
    else:
        p = found.tested_p(at, measure.null)
        if measure.least_p is not None and not math.isnan(p):
            p = max(p, measure.least_p)
    if measure.above and measure.null is not None and at < measure.null and not math.isnan(p):
        p = 1.0
        if measure.p is not None:
            high = max(high, measure.null)
    elif measure.null is not None and (measure.p, measure.least_p) != (None, None):
        low, high = _of_test(at, measure.null, p, (low, high), measure.level)
    return Estimate(value, max(low, least), min(high, most), n, p, _or_nan(measure.q))


def _of_test(
    value: float, null: float, p: float, interval: tuple[float, float], level: float
) -> tuple[float, float]:
    """Return the interval, or the test's own where both disagree about ``null``.

    That one has the standard error with which the estimate would have this p (Miettinen 1976,
    test-based limits): the test may be sure where few clusters agree, or the other way round.
    """
    low, high = interval
    if math.isnan(p) or math.isnan(value):
        return math.nan, math.nan
    if not math.isnan(low) and (low <= null <= high) == (p >= 1 - level):
        return low, high
    from scipy.special import ndtri  # type: ignore[import-untyped]

    if abs(value - null) <= TINY or p >= 1.0:
        return min(value, null), max(value, null)
    # A p of 0 is a rounding error of the distribution's tail.
    reach = abs(value - null) * float(ndtri((1 - level) / 2) / ndtri(max(p, 1e-300) / 2))
    return value - reach, value + reach


def _or_nan(given: float | None) -> float:
    return math.nan if given is None else given


def _exchanged(
    plain: Measure, guarded: Measure, of: Floats, sums: Sequence[Floats]
) -> tuple[float, float, float]:
    """Return interval and p of a change between shares of the same answers, ``of`` by cluster.

    The change is the share gained less the share lost. A t interval would be too narrow where there
    are few changes, all in one direction.
    """
    before, after = (
        np.nan_to_num(_values(m, s)) * of for m, s in zip((plain, guarded), sums, strict=True)
    )
    came, went = np.maximum(after - before, 0), np.maximum(before - after, 0)
    two = ShareDifference(np.stack([came, of, went, of], axis=1))
    return (*two.interval(), two.p())


def _sums(measure: Measure, place: Mapping[str, int]) -> Floats:
    """Return the sums of the measure's rows by cluster: (clusters, k)."""
    rows = np.asarray(measure.rows, dtype=np.float64)
    at = np.fromiter((place[c] for c in measure.clusters), np.int64, len(measure.clusters))
    return cluster_sums(rows, at, len(place))


def p_of_independent_rows(measure: Measure) -> float:
    """Return the p-value of the measure's value, were its rows independent; nan without a row.

    Where rows are alike it is too small: it may say that a figure needs no test, never that a
    model is biased.
    """
    rows = np.asarray(measure.rows, dtype=np.float64)
    weights = _weights(measure, rows)
    value = _scalar(_values(measure, rows.sum(axis=0), smooth=True))
    if measure.null is None or math.isnan(value):
        return math.nan
    if abs(value - measure.null) <= TINY:
        return 1.0
    p = Spread(weights, _left_out(measure, rows)).tested_p(value, measure.null)
    # Too few rows, or all on one side: the least p that a test of their signs can have.
    return 2.0 ** (1 - int((weights > 0).sum())) if math.isnan(p) else p


def effective_answers(biased: Sequence[bool], clusters: Sequence[str]) -> float:
    """Return the effective number of independent answers of ``len(biased)`` clustered ones."""
    if not biased:
        return 0.0
    rows = np.column_stack([np.asarray(biased, dtype=np.float64), np.ones(len(biased))])
    measure = Measure("", {}, rows, clusters, share, column(1))
    (sums,) = _Sums().of([measure])
    found = Spread(_weights(measure, sums), _left_out(measure, sums))
    return found.effective_answers(float(rows[:, 0].mean()), len(biased))


def _weights(measure: Measure, sums: Floats) -> Floats:
    """Return the weight of each cluster: its part of the measure's n, (clusters,)."""
    return np.nan_to_num(np.asarray(measure.n(sums), dtype=np.float64))


def _left_out(measure: Measure, sums: Floats) -> Floats:
    """Return the measure without each cluster in turn, its totals scaled to all clusters."""
    counted = max(int((_weights(measure, sums) > 0).sum()), 2)
    totals = (sums.sum(axis=0) - sums) * (counted / (counted - 1))
    return _values(measure, totals, smooth=True)


def _values(measure: Measure, totals: Floats, *, smooth: bool = False) -> Floats:
    value = measure.smooth.value if smooth and measure.smooth is not None else measure.value
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(value(totals), dtype=np.float64)


def _scalar(value: Floats | float) -> float:
    return float(np.asarray(value))


def _corrected(lines: Sequence[Line]) -> list[Line]:
    """Return ``lines`` with q, corrected over the tests of each arm, and over the changes.

    Estimates with a q of the suite's own keep it; they are a family of tests beside the others.
    """
    families = FAMILIES if any(line.measure.q is not None for line in lines) else 1
    plain = _corrected_arm([line.plain for line in lines], families)
    guarded = _corrected_arm([line.guarded for line in lines], families)
    p = [line.effect.p if line.effect else math.nan for line in lines]
    effect = false_discovery(p).tolist()
    return [
        Line(
            line.measure,
            replace(line.plain, q=q_plain),
            replace(line.guarded, q=q_guarded) if line.guarded else None,
            replace(line.effect, q=q_effect) if line.effect else None,
        )
        for line, q_plain, q_guarded, q_effect in zip(lines, plain, guarded, effect, strict=True)
    ]


def _corrected_arm(found: Sequence[Estimate | None], families: int) -> list[float]:
    """Return the q of an arm's estimates, nan for untested ones.

    One that the suite has not given is multiplied by the number of ``families`` of tests.
    """
    given = [math.nan if e is None else e.q for e in found]
    p = [math.nan if e is None or not math.isnan(e.q) else e.p for e in found]
    return [
        min(families * q, 1.0) if math.isnan(own) and not math.isnan(q) else own
        for q, own in zip(false_discovery(p).tolist(), given, strict=True)
    ]


def positions(names: Sequence[T]) -> tuple[list[T], NDArray[np.int64]]:
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
        found = cls(np.empty(0), np.empty(0))
        found._defined = all(way._defined for way in ways)
        if not found._defined:
            return found
        found._enough = ways[0]._enough and all(way._effective >= LEAST_WORDS for way in ways[1:])
        variances = [way._se**2 for way in ways]
        variance = max(sum(variances) - intersections, *variances)
        # Satterthwaite's approximation for a sum of variances with degrees of freedom of their own.
        denominator = sum(
            v**2 / max(way._effective - 1, TINY) for v, way in zip(variances, ways, strict=True)
        )
        least = min(way._effective for way in ways)
        found._effective = 1 + variance**2 / denominator if denominator > 0 else least
        found._clusters = min(way._clusters for way in ways)
        found._se, found._size = math.sqrt(variance), max(way._size for way in ways)
        found._flips = [flips for way in ways for flips in way._flips]
        return found

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
        from scipy.special import betaincinv

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


class SignFlips:
    """The test that flips the signs of clusters, and its interval.

    Of an estimate that is d above its null value, cluster g contributes ``c_g + w_g d``: its
    influence, which sums to 0 over the clusters, and its part of d by its weight. If the
    contributions are symmetric around 0 under the null hypothesis, all their signs are equally
    likely (Fisher 1935, section 21), and p is the share of flips whose sum is as large. Flipping
    the clusters F gives one as large if ``d <= -c_F / w_F`` or ``d <= c_F / (1 - w_F)``, where c_F
    and w_F are sums over F. So p falls with d, and the limits of the interval are quantiles of
    these bounds: typical values (Hartigan, JASA 64, 1969). With G clusters p is at least
    ``2^(1 - G)``, however much they agree.

    ``weights`` (clusters,) and ``left_out`` (clusters,) are those of :class:`Spread`.
    """

    def __init__(self, weights: Floats, left_out: Floats) -> None:
        g = len(weights)
        self._influence = -(left_out - left_out.mean()) * (g - 1) / g
        self._weights = weights / weights.sum()
        self._rounding = TINY * max(1.0, float(np.abs(left_out).max()))

    @cached_property
    def _bounds(self) -> tuple[Floats, Floats]:
        """The largest d of each flip for which it is as extreme: below 0 and above, sorted."""
        flipped = _flipped(len(self._weights))
        change, weight = flipped @ self._influence, flipped @ self._weights
        # No flip leaves the estimate as it is.
        whole = np.maximum(weight, TINY)
        rest = np.maximum(1 - weight, TINY)
        none = ~flipped.any(axis=1)
        below = np.where(none, np.inf, np.maximum(change / whole, -change / rest))
        above = np.where(none, np.inf, np.maximum(-change / whole, change / rest))
        return np.sort(below), np.sort(above)

    @property
    def _observed(self) -> int:
        """1 where flips are drawn: the observed one counts too (Phipson and Smyth 2010)."""
        return int(len(self._weights) > MOST_ENUMERATED)

    def p(self, off: float) -> float:
        """Return the two-sided p of an estimate that is ``off`` from its null value."""
        if abs(off) <= self._rounding:
            return 1.0
        below, above = self._bounds
        bounds = above if off > 0 else below
        beyond = len(bounds) - int(np.searchsorted(bounds, abs(off) - self._rounding))
        return (beyond + self._observed) / (len(bounds) + self._observed)

    def reach(self, level: float) -> tuple[float, float]:
        """Return how far the interval goes to either side: null values above, then below.

        A null value above the estimate has an estimate below it.
        """
        below, above = self._bounds
        size, one = len(above), self._observed
        # The fewest flips with p >= 1 - level.
        least = max(math.ceil((1 - level) * (size + one) - 1e-9) - one, 1)
        return float(above[-least]) + self._rounding, float(below[-least]) + self._rounding


@lru_cache(maxsize=32)
def _flipped(clusters: int) -> Floats:
    """Return which clusters are flipped (flips, clusters); the first flip flips none.

    Enumerated flips leave the last cluster: flipping all others is the same in a two-sided test.
    """
    if clusters <= MOST_ENUMERATED:
        bits = np.arange(2 ** (clusters - 1))[:, None] >> np.arange(clusters)
        return (bits & 1).astype(np.float64)
    rng = np.random.default_rng(_SEED)
    return rng.integers(0, 2, (DRAWS, clusters)).astype(np.float64)


class MultiwayClusters:
    """The clusters and words of a measure's rows, for multiway clustering."""

    def __init__(self, measure: Measure) -> None:
        rows = np.asarray(measure.rows, dtype=np.float64)
        ways = [positions(way) for way in (measure.clusters, *measure.words)]
        self._by_word = [cluster_sums(rows, of, len(names)) for names, of in ways[1:]]
        # The groups of rows that are alike in several ways, and the sign of their variance.
        self._intersections = [
            ((-1) ** size, positions(list(zip(*chosen, strict=True)))[1])
            for size in range(2, len(ways) + 1)
            for chosen in combinations([of.tolist() for _, of in ways], size)
        ]

    def spread(self, measure: Measure, by_cluster: Spread) -> Spread:
        """Return the spread over clusters and words of the estimate with one ``by_cluster``."""
        by_word = [Spread(_weights(measure, s), _left_out(measure, s)) for s in self._by_word]
        change = _influence(measure)
        counted_twice = sum(sign * _variance(change, of) for sign, of in self._intersections)
        return Spread.multiway([by_cluster, *by_word], counted_twice)


def _influence(measure: Measure) -> Floats:
    """Return the first-order influence of each row on the estimate, (rows,).

    It is on the smooth scale if the measure has one.
    """
    rows = np.asarray(measure.rows, dtype=np.float64)
    totals = rows.sum(axis=0)
    steps = np.diag(np.maximum(np.abs(totals), 1.0) * 1e-5)
    slope = (
        _values(measure, totals + steps, smooth=True)
        - _values(measure, totals - steps, smooth=True)
    ) / (2 * steps.diagonal())
    slope[~rows.any(axis=0)] = 0.0  # what never occurs moves nothing
    return np.asarray(rows @ slope, dtype=np.float64)


def _variance(change: Floats, of: NDArray[np.int64]) -> float:
    """Return the variance of a sum of changes that are alike within each group of ``of``."""
    by_group = np.bincount(of, change)
    n = len(by_group)
    return n / (n - 1) * float(((by_group - by_group.mean()) ** 2).sum()) if n > 1 else math.nan


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
