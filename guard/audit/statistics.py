"""Intervals and tests of a suite's measures, from sums by cluster.

- The standard error of an estimate is that of the jackknife over whole clusters (Efron 1982, ch.
  3). It is tested with Student's t, whose degrees of freedom are the effective number of clusters
  (Kish 1965) less one. Interval and p-value use the same t, so the interval excludes the null value
  exactly when p < .05. Where only values above the null are of interest, lower ones have p = 1.
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from guard.audit.spread import ShareDifference, Spread, cluster_sums
from guard.intervals import LEAST_CLUSTERS as LEAST_CLUSTERS
from guard.intervals import exact
from guard.suites import Estimate, Measure
from guard.suites.conclusions import corrected
from guard.suites.contract import Floats

Key = tuple[str, tuple[tuple[str, str], ...]]


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

    def of(self, arms: Sequence[Measure]) -> list[Floats]:
        """Return (clusters, k) for each arm, over the clusters of both."""
        key = tuple(part for m in arms for part in (id(m.rows), id(m.clusters)))
        if key != self._key:
            names = sorted({c for m in arms for c in m.clusters})
            place = {name: i for i, name in enumerate(names)}
            self._key, self._last = key, [_sums(m, place) for m in arms]
        return self._last


def _line(plain: Measure, guarded: Measure | None, summed: _Sums) -> Line:
    arms = [plain] if guarded is None else [plain, guarded]
    sums = summed.of(arms)
    one = _estimate(plain, sums[0])
    if guarded is None:
        return Line(plain, one)
    two = _estimate(guarded, sums[1])
    change = two.value - one.value
    if not plain.interval or plain.smooth is not None:  # a change without an interval
        return Line(plain, one, two, Effect(change, math.nan, math.nan, math.nan))
    of, of_guarded = (_weights(m, s) for m, s in zip(arms, sums, strict=True))
    if plain.exact and of.any() and np.array_equal(of, of_guarded):
        return Line(plain, one, two, Effect(change, *_exchanged(plain, guarded, of, sums)))
    left = [_left_out(m, s) for m, s in zip(arms, sums, strict=True)]
    found = Spread(of + of_guarded, left[1] - left[0])
    low, high = found.interval(change, plain.level)
    p = found.p(change, 0.0)
    if not math.isnan(change) and np.array_equal(sums[0], sums[1]):
        low, high, p = 0.0, 0.0, 1.0  # the guard changed no answer
    return Line(plain, one, two, Effect(change, low, high, p))


def _estimate(measure: Measure, sums: Floats) -> Estimate:
    totals = sums.sum(axis=0)
    value, n = _scalar(_values(measure, totals)), _scalar(measure.n(totals))
    if not measure.interval:
        return Estimate(value, math.nan, math.nan, n, _or_nan(measure.p))
    if measure.two_shares:
        two = ShareDifference(sums)
        (low, high), p = two.interval(), two.p()
        return Estimate(value, low, high, n, _or_nan(measure.p) if measure.null is None else p)
    found = Spread(_weights(measure, sums), _left_out(measure, sums))
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
    else:
        low, high = found.interval(at, measure.level)
    if measure.smooth is not None:
        low, high = measure.smooth.back(low), measure.smooth.back(high)
    p = _or_nan(measure.p) if measure.null is None else found.p(at, measure.null)
    if measure.above and measure.null is not None and at < measure.null and not math.isnan(p):
        p = 1.0
    return Estimate(value, max(low, least), min(high, most), n, p, _or_nan(measure.q))


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

    Estimates with a q of the suite's own keep it.
    """
    plain = _corrected_arm([line.plain for line in lines])
    guarded = _corrected_arm([line.guarded for line in lines])
    effect = false_discovery([line.effect.p if line.effect else math.nan for line in lines])
    return [
        Line(
            line.measure,
            replace(line.plain, q=q_plain),
            replace(line.guarded, q=q_guarded) if line.guarded else None,
            replace(line.effect, q=q_effect) if line.effect else None,
        )
        for line, q_plain, q_guarded, q_effect in zip(lines, plain, guarded, effect, strict=True)
    ]


def _corrected_arm(found: Sequence[Estimate | None]) -> list[float]:
    """Return the q of an arm's estimates, nan for untested ones."""
    given = [math.nan if e is None else e.q for e in found]
    p = [math.nan if e is None or not math.isnan(e.q) else e.p for e in found]
    return [q if math.isnan(own) else own for q, own in zip(false_discovery(p), given, strict=True)]


def false_discovery(p: Sequence[float]) -> list[float]:
    """Return p-values corrected by Benjamini and Hochberg (1995); nan is ignored and stays nan."""
    given: NDArray[np.float64] = np.asarray(p, dtype=np.float64)
    tested = ~np.isnan(given)
    found = np.full(len(given), np.nan)
    found[tested] = corrected(given[tested])
    return [float(q) for q in found]
