"""Intervals, effects and tests over the measures of a suite, from sums by cluster.

Percentile intervals redraw clusters with replacement (Efron and Tibshirani 1993, ch. 13). A change
between arms is computed from the same draws for both, so what the arms share cancels. Its p-value
exchanges the arms within clusters at random (approximate randomization: Noreen 1989, ch. 2): were
the guard without effect, either arm could have been the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from guard.suites import Measure
from guard.suites.contract import Floats

LEVEL = 0.95
DRAWS = 2000
# Numbers held at a time: draws times clusters.
_CELLS = 4_000_000
# Differences that rounding alone makes.
_TINY = 1e-12

Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measure with its interval, over ``n``; nan where it is not defined.

    ``p`` is of the suite's own test, ``q`` the same corrected over the suite's measures.
    """

    value: float
    low: float
    high: float
    n: float
    p: float = math.nan
    q: float = math.nan


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


def estimate(
    plain: Sequence[Measure],
    guarded: Sequence[Measure] | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 17,
) -> list[Line]:
    """Return every measure of ``plain`` with its interval, beside that of ``guarded``.

    ``draws=0`` leaves intervals and the p-values of effects nan. Measures over the same clusters
    are redrawn together. Raises ValueError where the arms do not have the same measures.
    """
    other: dict[Key, Measure] = {} if guarded is None else {key_of(m): m for m in guarded}
    if guarded is not None and set(other) != {key_of(m) for m in plain}:
        raise ValueError("The arms have different measures.")
    pairs = [_Pair(m, other.get(key_of(m))) for m in plain]
    groups: dict[tuple[str, ...], list[_Pair]] = {}
    for pair in pairs:
        groups.setdefault(pair.clusters, []).append(pair)
    for clusters, members in groups.items():
        if draws and clusters:
            _redraw(members, len(clusters), draws, seed)
            if guarded is not None:
                _exchange(members, len(clusters), draws, seed + 1)
    lines = [pair.line() for pair in pairs]
    return _corrected(lines)


class _Pair:
    """One measure in both arms: sums by cluster, and what the draws gave."""

    def __init__(self, plain: Measure, guarded: Measure | None) -> None:
        self.plain, self.guarded = plain, guarded
        arms = [plain] if guarded is None else [plain, guarded]
        names = sorted({c for m in arms for c in m.clusters})
        self.clusters = tuple(names)
        place = {name: i for i, name in enumerate(names)}
        self.sums = [_sums(m, place) for m in arms]  # (clusters, k) each
        self.drawn: list[list[Floats]] = [[] for _ in arms]
        self.beyond = 0  # exchanges with a change at least as large
        self.exchanges = 0

    @property
    def values(self) -> list[float]:
        """The measure's value in each arm."""
        return [_scalar(self.plain.value(s.sum(axis=0))) for s in self.sums]

    def line(self) -> Line:
        arms = [
            self._estimate(m, s, d)
            for m, s, d in zip([self.plain, self.guarded], self.sums, self._joined(), strict=False)
            if m is not None
        ]
        if len(arms) == 1:
            return Line(self.plain, arms[0])
        change = arms[1].value - arms[0].value
        drawn = self._joined()
        low = high = p = math.nan
        if not math.isnan(change):
            low, high = interval(drawn[1] - drawn[0])
        if not math.isnan(change) and self.exchanges:
            p = (1 + self.beyond) / (1 + self.exchanges)
        return Line(self.plain, arms[0], arms[1], Effect(change, low, high, p))

    def _joined(self) -> list[Floats]:
        return [np.concatenate(d) if d else np.zeros(0) for d in self.drawn]

    def _estimate(self, measure: Measure, sums: Floats, drawn: Floats) -> Estimate:
        totals = sums.sum(axis=0)
        value = _scalar(measure.value(totals))
        low, high = interval(drawn) if not math.isnan(value) else (math.nan, math.nan)
        return Estimate(value, low, high, _scalar(measure.n(totals)), measure.p)


def interval(drawn: Floats, level: float = LEVEL) -> tuple[float, float]:
    """Return the percentile interval of the defined draws, nan where there is none."""
    defined = drawn[~np.isnan(drawn)]
    if not len(defined):
        return math.nan, math.nan
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _sums(measure: Measure, place: Mapping[str, int]) -> Floats:
    """Return the sums of the measure's rows by cluster: (clusters, k)."""
    rows = np.asarray(measure.rows, dtype=np.float64)
    sums = np.zeros((len(place), rows.shape[1]))
    np.add.at(sums, [place[c] for c in measure.clusters], rows)
    return sums


def _redraw(pairs: Sequence[_Pair], clusters: int, draws: int, seed: int) -> None:
    """Add the values of redrawn clusters; every pair and both arms have the same draws."""
    wide = np.concatenate([s for pair in pairs for s in pair.sums], axis=1)
    rng = np.random.default_rng(seed)
    for rows in _blocks(draws, clusters):
        picks = rng.integers(0, clusters, size=(rows, clusters))
        offset = np.arange(rows)[:, None] * clusters
        counts = np.bincount((picks + offset).ravel(), minlength=rows * clusters)
        totals = counts.reshape(rows, clusters).astype(np.float64) @ wide
        begin = 0
        for pair in pairs:
            for arm, sums in enumerate(pair.sums):
                end = begin + sums.shape[1]
                pair.drawn[arm].append(_values(pair.plain, totals[:, begin:end]))
                begin = end


def _exchange(pairs: Sequence[_Pair], clusters: int, draws: int, seed: int) -> None:
    """Count exchanges of the arms within clusters that change as much as the arms differ."""
    wide = np.concatenate([pair.sums[1] - pair.sums[0] for pair in pairs], axis=1)
    found = [values[1] - values[0] for values in (pair.values for pair in pairs)]
    rng = np.random.default_rng(seed)
    for rows in _blocks(draws, clusters):
        swapped = rng.integers(0, 2, size=(rows, clusters)).astype(np.float64)
        moved = swapped @ wide
        begin = 0
        for pair, change in zip(pairs, found, strict=True):
            end = begin + pair.sums[0].shape[1]
            mine = moved[:, begin:end]
            begin = end
            plain, guarded = (s.sum(axis=0) for s in pair.sums)
            redone = _values(pair.plain, guarded - mine) - _values(pair.plain, plain + mine)
            defined = ~np.isnan(redone)
            pair.exchanges += int(defined.sum())
            pair.beyond += int((np.abs(redone[defined]) >= abs(change) - _TINY).sum())


def _values(measure: Measure, totals: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(measure.value(totals), dtype=np.float64)


def _scalar(value: Floats | float) -> float:
    return float(np.asarray(value))


def _blocks(draws: int, clusters: int) -> Iterator[int]:
    step = max(1, min(draws, _CELLS // max(clusters, 1)))
    for begin in range(0, draws, step):
        yield min(step, draws - begin)


def _corrected(lines: Sequence[Line]) -> list[Line]:
    """Return ``lines`` with q: own tests by arm, effects apart, each over all of the suite's."""
    plain = false_discovery([line.plain.p for line in lines])
    guarded = false_discovery([line.guarded.p if line.guarded else math.nan for line in lines])
    effect = false_discovery([line.effect.p if line.effect else math.nan for line in lines])
    return [
        Line(
            line.measure,
            _with_q(line.plain, q_plain),
            _with_q(line.guarded, q_guarded) if line.guarded else None,
            Effect(e.value, e.low, e.high, e.p, q_effect) if (e := line.effect) else None,
        )
        for line, q_plain, q_guarded, q_effect in zip(lines, plain, guarded, effect, strict=True)
    ]


def _with_q(e: Estimate, q: float) -> Estimate:
    return Estimate(e.value, e.low, e.high, e.n, e.p, q)


def false_discovery(p: Sequence[float]) -> list[float]:
    """Return p-values corrected by Benjamini and Hochberg (1995); nan stays nan, uncounted."""
    from statsmodels.stats.multitest import multipletests

    given: NDArray[np.float64] = np.asarray(p, dtype=np.float64)
    tested = ~np.isnan(given)
    corrected = np.full(len(given), np.nan)
    if tested.any():
        corrected[tested] = multipletests(given[tested], method="fdr_bh")[1]
    return [float(q) for q in corrected]


def detectable(n: int, *, share: float = 0.5, alpha: float = 0.05, power: float = 0.8) -> float:
    """Return the smallest change of a share that two audits of ``n`` samples each can tell.

    d = (z(1 - alpha/2) + z(power)) sqrt(2 share (1 - share) / n), for independent samples (Fleiss,
    Levin and Paik 2003, eq. 4.14 solved for the difference, with the variance of ``share``, widest
    at .5). nan for n = 0; never above 1.
    """
    if n < 1:
        return math.nan
    from statistics import NormalDist

    normal = NormalDist()
    reach = normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(power)
    return min(1.0, reach * math.sqrt(2 * share * (1 - share) / n))
