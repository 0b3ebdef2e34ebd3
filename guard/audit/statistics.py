"""Intervals and tests over the measures of a suite, from sums by cluster: one engine for both.

The standard error of a figure is the jackknife's over whole clusters (Efron 1982, ch. 3), its law
Student's t with the clusters' effective number (Kish 1965) less one for degrees of freedom. A
figure's p-value is of the same t, so an interval leaves out the null value exactly when p < .05. Of
a figure of which only more than that value is something found, less has p = 1, whatever its
interval, which says what was seen. A figure that is not tested and lies between bounds, as shares
do, has Jeffreys' interval, of the number of independent answers that would give the same standard
error; a share of answers that must have one of however few has Clopper and Pearson's of that number
(Korn and Graubard 1998), which is exact where answers are independent. The interval of a
difference between the shares of two kinds of answers joins those of both (Newcombe 1998, method
10), and its p-value is of that interval: where one kind is rare, its share is 0 or 1 by chance and
a t knows of no spread. A change between arms is one figure of both, so what the arms share cancels.

``tests/suites/calibration.py`` measures how often the figures of one arm are wrong on models that
are fair; its table is ``benchmarks/calibration.md``. Changes between arms are not in it.

Below :data:`LEAST_CLUSTERS`, or where no cluster differs from another, there is no interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from guard.audit.spread import LEAST_CLUSTERS as LEAST_CLUSTERS
from guard.audit.spread import ShareDifference, Spread
from guard.intervals import exact
from guard.suites import Estimate, Measure
from guard.suites.conclusions import corrected
from guard.suites.contract import Floats

Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class Effect:
    """What the guard changes: guarded minus plain, with interval, p and corrected ``q``."""

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
    """Return what names a measure in both arms."""
    return measure.name, tuple(sorted(measure.axis.items()))


def estimate(plain: Sequence[Measure], guarded: Sequence[Measure] | None = None) -> list[Line]:
    """Return every measure of ``plain`` with its interval, beside that of ``guarded``.

    Raises ValueError where the arms do not have the same measures.
    """
    other: dict[Key, Measure] = {} if guarded is None else {key_of(m): m for m in guarded}
    if guarded is not None and set(other) != {key_of(m) for m in plain}:
        raise ValueError("The arms have different measures.")
    summed = _Sums()
    return _corrected([_line(m, other.get(key_of(m)), summed) for m in plain])


class _Sums:
    """Sums by cluster of both arms; measures of the same rows come one after the other."""

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
    if not plain.interval or plain.smooth is not None:  # arms that say no more than their values
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
    # What is tested has the interval that goes with its test; a difference has no such law.
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

    It is the share that came to count less the share that no longer does. Of few changes, all one
    way, a t knows of no spread the other way.
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
    columns = [np.bincount(at, rows[:, k], len(place)) for k in range(rows.shape[1])]
    return np.stack(columns, axis=-1).astype(np.float64)


def _weights(measure: Measure, sums: Floats) -> Floats:
    """Return how much each cluster weighs: what the measure is over there, (clusters,)."""
    return np.nan_to_num(np.asarray(measure.n(sums), dtype=np.float64))


def _left_out(measure: Measure, sums: Floats) -> Floats:
    """Return the measure without each cluster in turn, as if there were as many as before."""
    told = max(int((_weights(measure, sums) > 0).sum()), 2)
    totals = (sums.sum(axis=0) - sums) * (told / (told - 1))
    return _values(measure, totals, smooth=True)


def _values(measure: Measure, totals: Floats, *, smooth: bool = False) -> Floats:
    value = measure.smooth.value if smooth and measure.smooth is not None else measure.value
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(value(totals), dtype=np.float64)


def _scalar(value: Floats | float) -> float:
    return float(np.asarray(value))


def _corrected(lines: Sequence[Line]) -> list[Line]:
    """Return ``lines`` with q: own tests by arm, effects apart, each over all of the suite's.

    What the suite has corrected itself keeps its q.
    """
    plain = _own([line.plain for line in lines])
    guarded = _own([line.guarded for line in lines])
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


def _own(found: Sequence[Estimate | None]) -> list[float]:
    """Return the q of an arm's estimates, nan where there is none."""
    given = [math.nan if e is None else e.q for e in found]
    p = [math.nan if e is None or not math.isnan(e.q) else e.p for e in found]
    return [q if math.isnan(own) else own for q, own in zip(false_discovery(p), given, strict=True)]


def false_discovery(p: Sequence[float]) -> list[float]:
    """Return p-values corrected by Benjamini and Hochberg (1995); nan stays nan, uncounted."""
    given: NDArray[np.float64] = np.asarray(p, dtype=np.float64)
    tested = ~np.isnan(given)
    found = np.full(len(given), np.nan)
    found[tested] = corrected(given[tested])
    return [float(q) for q in found]
