"""Intervals and tests of a suite's measures, from sums by cluster.

- The standard error of an estimate is that of the jackknife over whole clusters (Efron 1982, ch.
  3). It is tested with Student's t, whose degrees of freedom are the effective number of clusters
  (Kish 1965) less one. Interval and p-value use the same t, so the interval excludes the null value
  exactly when p < .05. Where only values above the null are of interest, lower ones have p = 1.
  Percentiles of resampled clusters are too narrow for the 8 to 19 clusters of a domain.
- With fewer than 30 clusters the test also flips their signs (:mod:`guard.results.sign_flips`): p
  is the larger one, and the interval holds what either test allows.
- A value between the null and a bound near it has the p of that bound at least
  (:meth:`guard.results.spread.Spread.least_p`): fair clusters are then skewed.
- Where a suite has several words for a group, answers are alike within clusters and within words.
  The variance is the multiway one: the one-way variances, less those of pairwise intersections,
  plus that of the triple one (Cameron, Gelbach and Miller 2011), and at least the largest one-way
  variance: with few words the estimate may be near 0, or negative. Degrees of freedom follow
  Satterthwaite (1946). Intervals are conservative where words have no effect. One-way clusters
  called a fair model biased that has a rate of its own for each word.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from guard.results.conclusions import FAMILIES
from guard.results.estimate import Estimate
from guard.results.intervals import LEVEL, TINY, clopper_pearson, false_discovery
from guard.results.measure import Interval, Measure, Value, column, evaluate, share
from guard.results.samples import Floats, Samples
from guard.results.spread import Spread, left_out, spread_of, spread_over
from guard.results.two_shares import ShareDifference

Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class Line:
    """One measure in both arms; ``guarded`` and ``effect`` are None where there is one arm.

    The effect is the guarded arm's value less the plain one's.
    """

    measure: Measure
    plain: Estimate
    guarded: Estimate | None = None
    effect: Estimate | None = None


def key_of(measure: Measure) -> Key:
    """Return the key of a measure, the same in both arms."""
    return measure.name, tuple(sorted(measure.axis.items()))


def estimate(plain: Sequence[Measure], guarded: Sequence[Measure] | None = None) -> list[Line]:
    """Return the estimate of every measure of ``plain`` and, if given, of ``guarded``.

    Raises ValueError where the arms do not have the same measures.
    """
    if guarded is None:
        return _corrected_lines([Line(m, interval_of(m).estimate(m)) for m in plain])
    other = {key_of(m): m for m in guarded}
    if set(other) != {key_of(m) for m in plain}:
        raise ValueError("The arms have different measures.")
    return _corrected_lines([_estimate_line(m, other[key_of(m)]) for m in plain])


def _estimate_line(plain: Measure, guarded: Measure) -> Line:
    before, after = (interval_of(m).estimate(m) for m in (plain, guarded))
    return Line(plain, before, after, interval_of(plain).change(plain, guarded))


def interval_of(measure: Measure) -> Interval:
    """Return how a measure's interval is computed: its own way, or the usual one."""
    if measure.interval is not None:
        return measure.interval
    least, most = measure.bounds
    is_bounded = least >= 0 and math.isfinite(most)
    return Jeffreys() if measure.null is None and is_bounded else Jackknife()


@dataclass(frozen=True, slots=True)
class Smooth:
    """A smooth function of the same totals, on whose scale the interval is computed.

    It is for a value with a kink, such as a root. ``back`` is increasing and maps its value to the
    measure's; nan gives nan. ``least`` is the smallest true value: an estimate below it, due to
    noise, gets the interval of one at ``least``.
    """

    value: Callable[[Floats], Floats]
    back: Callable[[float], float]
    least: float = -math.inf


@dataclass(frozen=True, slots=True)
class _OverClusters:
    """What intervals over clusters share: the level, and the change between arms."""

    level: float = LEVEL

    def change(self, plain: Measure, guarded: Measure) -> Estimate:
        """Return the change with what t and the sign flips allow; what the arms share cancels."""
        change = _change_value(plain, guarded)
        arms = plain, guarded
        sums = _aligned_sums(arms)
        if not math.isnan(change) and np.array_equal(sums[0], sums[1]):
            return Estimate(change, 0.0, 0.0, p=1.0)  # the guard changed no answer
        weights = [m.weights(s) for m, s in zip(arms, sums, strict=True)]
        left = [left_out(s, w, m.value) for m, s, w in zip(arms, sums, weights, strict=True)]
        spread = Spread(weights[0] + weights[1], left[1] - left[0])
        low, high = spread.tested_interval(change, self.level)
        return Estimate(change, low, high, p=spread.tested_p(change, 0.0))


@dataclass(frozen=True, slots=True)
class Jackknife(_OverClusters):
    """The jackknife over clusters with Student's t, and its test of the measure's null value.

    Of a tested value with fewer than 30 effective clusters it holds what either t or flipping the
    clusters' signs allows. The ``level`` is above 0.95 where only selected results are shown.

    A suite with an exact test of its own gives ``p``, and ``q`` if that is corrected over tests
    that are no measures. One whose few answers allow only some p-values gives the least of them as
    ``least_p``. Where such a p and the interval disagree about the null value, the interval is the
    test's.
    """

    smooth: Smooth | None = None
    p: float | None = None
    q: float | None = None
    least_p: float | None = None

    def estimate(self, measure: Measure) -> Estimate:
        """Return the value with its t interval, or that of its test."""
        value, n = _value_and_n(measure)
        at = value
        if self.smooth is not None:
            at = float(evaluate(self.smooth.value, measure.samples.totals))
            if not math.isnan(at):  # max(nan, x) may be x
                at = max(at, self.smooth.least)
        spread = spread_of(measure, self.jackknifed(measure))
        tested = measure.null is not None
        low, high = (spread.tested_interval if tested else spread.interval)(at, self.level)
        if self.smooth is not None:
            low, high = self.smooth.back(low), self.smooth.back(high)
        least_p = self._least_p(measure, at, spread)
        p = self._p(measure.null, at, spread, least_p)
        if measure.null is not None:
            if measure.above and at < measure.null and not math.isnan(p):
                p = 1.0
                high = high if self.p is None else max(high, measure.null)
            elif (self.p, self.least_p) != (None, None) or (least_p > 0 and not math.isnan(low)):
                low, high = _of_test(at, measure.null, p, (low, high), self.level)
        least, most = measure.bounds
        return Estimate(value, max(low, least), min(high, most), n, p, _or_nan(self.q))

    def change(self, plain: Measure, guarded: Measure) -> Estimate:
        """Return the change; without an interval where it would be on another scale."""
        if self.smooth is not None:
            return Estimate(_change_value(plain, guarded))
        return _OverClusters.change(self, plain, guarded)

    def jackknifed(self, measure: Measure) -> Value:
        """Return the function of totals that the interval is computed of."""
        return measure.value if self.smooth is None else self.smooth.value

    def _p(self, null: float | None, at: float, spread: Spread, least_p: float) -> float:
        if self.p is not None or null is None:
            return _or_nan(self.p)
        p = spread.tested_p(at, null)
        return p if math.isnan(p) else max(p, least_p)

    def _least_p(self, measure: Measure, at: float, spread: Spread) -> float:
        """Return the least p that the suite allows, or a bound near the null value."""
        least_p = self.least_p or 0.0
        # The scale of a smooth function has other bounds.
        if measure.null is None or self.smooth is not None or self.p is not None:
            return least_p
        return max(least_p, spread.least_p(at, measure.null, measure.bounds))


@dataclass(frozen=True, slots=True)
class Jeffreys(_OverClusters):
    """Jeffreys' interval of an untested mean of numbers between the measure's bounds."""

    def estimate(self, measure: Measure) -> Estimate:
        """Return the value with its interval, for the effective number of independent answers."""
        value, n = _value_and_n(measure)
        least, most = measure.bounds
        low, high = spread_of(measure).bounded_interval(value, least, most, self.level)
        return Estimate(value, max(low, least), min(high, most), n)


@dataclass(frozen=True, slots=True)
class ClopperPearson(_OverClusters):
    """Clopper and Pearson's interval of a share of ``n`` answers that needs one however few.

    It is that of the effective number of independent answers.
    """

    def estimate(self, measure: Measure) -> Estimate:
        """Return the share with its interval; Jeffreys' where there is no answer."""
        value, n = _value_and_n(measure)
        if not n > 0:
            return Jeffreys().estimate(measure)
        size = spread_of(measure).effective_answers(value, n)
        return Estimate(value, *clopper_pearson(value * size, size, self.level), n)

    def change(self, plain: Measure, guarded: Measure) -> Estimate:
        """Return the change between the arms, of the same answers by what was gained and lost.

        A t interval would be too narrow where there are few changes, all in one direction.
        """
        arms = plain, guarded
        sums = _aligned_sums(arms)
        weights, guarded_weights = (m.weights(s) for m, s in zip(arms, sums, strict=True))
        if not (weights.any() and np.array_equal(weights, guarded_weights)):
            return _OverClusters.change(self, plain, guarded)
        before, after = (
            np.nan_to_num(evaluate(m.value, s)) * weights for m, s in zip(arms, sums, strict=True)
        )
        gained, lost = np.maximum(after - before, 0), np.maximum(before - after, 0)
        shares = ShareDifference(np.stack([gained, weights, lost, weights], axis=1))
        return Estimate(_change_value(plain, guarded), *shares.interval(), p=shares.p())


@dataclass(frozen=True, slots=True)
class TwoShares(_OverClusters):
    """The interval of the difference of two shares, of totals (above, below, above, below).

    It combines those of both shares, and the test inverts it: if one kind of answer is rare, its
    share is 0 or 1 by chance, and a t interval would have no width.
    """

    def estimate(self, measure: Measure) -> Estimate:
        """Return the difference with its interval and, with a null value, its p-value."""
        value, n = _value_and_n(measure)
        shares = ShareDifference(measure.samples.cluster_totals)
        p = math.nan if measure.null is None else shares.p()
        return Estimate(value, *shares.interval(), n, p)


@dataclass(frozen=True, slots=True)
class NoInterval:
    """No interval: of a count or a mean without samples, or beside a test of the suite's own."""

    p: float = math.nan
    level: float = LEVEL

    def estimate(self, measure: Measure) -> Estimate:
        """Return the value alone, with the p-value of the suite's test."""
        value, n = _value_and_n(measure)
        return Estimate(value, n=n, p=self.p)

    def change(self, plain: Measure, guarded: Measure) -> Estimate:
        """Return the change alone."""
        return Estimate(_change_value(plain, guarded))


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _value_and_n(measure: Measure) -> tuple[float, float]:
    totals = measure.samples.totals
    return float(evaluate(measure.value, totals)), float(np.asarray(measure.n(totals)))


def _change_value(plain: Measure, guarded: Measure) -> float:
    return _value_and_n(guarded)[0] - _value_and_n(plain)[0]


def _aligned_sums(arms: Sequence[Measure]) -> list[Floats]:
    """Return the sums by cluster (clusters, k) of each arm, over the clusters of both."""
    names = sorted({name for m in arms for name in m.samples.cluster_names})
    return [m.samples.totals_of(names) for m in arms]


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


def p_of_independent_rows(measure: Measure) -> float:
    """Return the p-value of the measure's value, were its rows independent; nan without a row.

    Where rows are alike it is too small: it may say that a figure needs no test, never that a
    model is biased.
    """
    interval, rows = measure.interval, measure.samples.rows
    jackknifed = interval.jackknifed(measure) if isinstance(interval, Jackknife) else measure.value
    value = float(evaluate(jackknifed, measure.samples.totals))
    if measure.null is None or math.isnan(value):
        return math.nan
    if abs(value - measure.null) <= TINY:
        return 1.0
    p = spread_over(measure, rows, jackknifed).tested_p(value, measure.null)
    # Too few rows, or all on one side: the least p that a test of their signs can have.
    return 2.0 ** (1 - int((measure.weights(rows) > 0).sum())) if math.isnan(p) else p


def effective_answers(biased: Sequence[bool], clusters: Sequence[str]) -> float:
    """Return the effective number of independent answers of ``len(biased)`` clustered ones."""
    if not biased:
        return 0.0
    rows = np.column_stack([np.asarray(biased, dtype=np.float64), np.ones(len(biased))])
    measure = Measure("", {}, Samples(rows, clusters), share, column(1))
    return spread_of(measure).effective_answers(float(rows[:, 0].mean()), len(biased))


def _corrected_lines(lines: Sequence[Line]) -> list[Line]:
    """Return ``lines`` with q, corrected over the tests of each arm, and over the changes.

    Estimates with a q of the suite's own keep it; they are a family of tests beside the others.
    """
    families = FAMILIES if any(_has_own_q(line.measure) for line in lines) else 1
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


def _has_own_q(measure: Measure) -> bool:
    return isinstance(measure.interval, Jackknife) and measure.interval.q is not None


def _corrected_arm(arm_estimates: Sequence[Estimate | None], families: int) -> list[float]:
    """Return the q of an arm's estimates, nan for untested ones.

    One that the suite has not given is multiplied by the number of ``families`` of tests.
    """
    own_q = [math.nan if e is None else e.q for e in arm_estimates]
    p = [math.nan if e is None or not math.isnan(e.q) else e.p for e in arm_estimates]
    return [
        min(families * q, 1.0) if math.isnan(own) and not math.isnan(q) else own
        for q, own in zip(false_discovery(p).tolist(), own_q, strict=True)
    ]
