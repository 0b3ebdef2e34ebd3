"""Tests of one measure over pairs: the same items, or clusters, answered on two sides.

Whether anything changed is asked exactly. If nothing did, what a pair has on one side it could have
on the other, so exchanging the sides of each pair gives the law of any difference (Fisher 1935,
chapter 3). Of a share of answers that are 0 or 1 that is McNemar's exact test (McNemar 1947).
Pairs that changed in the same way are interchangeable: the law follows from how many of each kind
are exchanged, which is binomial. It is counted where there are few such counts, and drawn
otherwise, with 1 added above and below (Phipson and Smyth 2010).

Whether a measure is worse by more than a tolerance is asked of whole clusters, as every interval
of an audit is: :mod:`guard.audit.spread`. A measure is worse where it is further from its ideal::

    |new - ideal| > |base - ideal| + tolerance

so upwards, for one, where new - base > tolerance and new + base > 2 ideal + tolerance. Each part is
a one-sided test, and both must hold (Berger 1982); which side of the ideal the base is on need not
be known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.audit.spread import Spread, TwoShares
from guard.intervals import LEVEL
from guard.suites.conclusions import ALPHA
from guard.suites.contract import Floats

MOST_COUNTED = 100_000
"""So many ways of exchanging are counted, each weighed by its chance."""
DRAWN = 9_999
"""Where there are more, so many are drawn: the least p-value is 1 / 10,000."""
_SEED = 17
_AT_ONCE = 2_000_000
"""So many binomial draws are held at a time."""
_ROUNDING = 1e-12
POWER = 0.8


@dataclass(frozen=True, slots=True)
class Aim:
    """What a measure should be: its ``ideal``, and the least and the most that it can be.

    ``above`` says that less than the ideal is as good as the ideal. Of a scale without an end the
    ideal is infinite.
    """

    ideal: float
    bounds: tuple[float, float] = (-math.inf, math.inf)
    above: bool = False

    def off(self, value: Floats | float) -> Floats:
        """Return how far off the ideal a value is."""
        value = np.asarray(value, dtype=np.float64)
        if math.isinf(self.ideal):  # only differences count, and these are the value's own
            return value if self.ideal < 0 else -value
        apart = value - self.ideal
        return np.maximum(apart, 0.0) if self.above else np.abs(apart)

    def parts(self) -> list[list[Part]]:
        """Return the ways of getting worse, each as the parts that must all hold."""
        least, most = self.bounds
        if self.above:
            return [[_CHANGE, Part(0, 1, self.ideal)]]
        if self.ideal <= least:
            return [[_CHANGE]]
        if self.ideal >= most:
            return [[_BACK]]
        twice = 2 * self.ideal
        return [[_CHANGE, Part(1, 1, twice)], [_BACK, Part(-1, -1, -twice)]]


class Part(NamedTuple):
    """What must exceed the tolerance: ``base`` x base + ``new`` x new - ``less``."""

    base: int
    new: int
    less: float


_CHANGE, _BACK = Part(-1, 1, 0.0), Part(1, -1, 0.0)


class Exchanged(NamedTuple):
    """The p-values of exchanging the sides: of any change, of a worsening; and how."""

    p_change: float
    p_worse: float
    method: str


class Pairs:
    """The rows of both sides, pair by pair, and what follows from their sums.

    ``base`` and ``new`` have shape (pairs, k), in the same order; ``value`` takes totals of shape
    (..., k) and returns (...); it must not depend on their scale. ``clusters`` names each pair's
    cluster (pairs,). ``n`` says what the value is over in a row, as :class:`guard.suites.Measure`
    has it; None counts pairs.
    """

    def __init__(
        self,
        base: Floats,
        new: Floats,
        clusters: Sequence[str],
        value: Callable[[Floats], Floats],
        aim: Aim,
        n: Callable[[Floats], Floats] | None = None,
    ) -> None:
        self._rows = (base, new)
        self._value = value
        self._aim = aim
        self._totals = (base.sum(axis=0), new.sum(axis=0))
        self.base, self.new = (float(self._of(t)) for t in self._totals)
        names = {name: at for at, name in enumerate(dict.fromkeys(clusters))}
        at = np.fromiter((names[c] for c in clusters), np.int64, len(clusters))
        self.clusters = len(names)
        self._sums = [_by_cluster(rows, at, len(names)) for rows in self._rows]
        # How much each cluster weighs: what the value is over there, or how many pairs it has.
        self._weights = np.bincount(at, minlength=len(names)).astype(np.float64)
        if n is not None:
            over = [np.nan_to_num(np.asarray(n(sums), dtype=np.float64)) for sums in self._sums]
            self._weights = over[0] + over[1]

    @property
    def difference(self) -> float:
        """New less base."""
        return self.new - self.base

    @property
    def worse(self) -> float:
        """By how much new is further off the ideal than base."""
        return float(self._aim.off(self.new) - self._aim.off(self.base))

    @cached_property
    def changed(self) -> NDArray[np.bool_]:
        """Which pairs differ (pairs,)."""
        return np.asarray((np.abs(self._rows[0] - self._rows[1]) > _ROUNDING).any(axis=1))

    @cached_property
    def moves(self) -> Floats:
        """By how much each pair alone, changed as it did, makes the base worse (pairs,)."""
        base, new = self._rows
        alone = self._of(self._totals[0] - base + new)
        return np.asarray(self._aim.off(alone) - self._aim.off(self.base), dtype=np.float64)

    def exchanged(self) -> Exchanged:
        """Return the p-values of exchanging the sides of the pairs that changed."""
        if math.isnan(self.worse):
            return Exchanged(math.nan, math.nan, "")
        if not self.changed.any():
            return Exchanged(1.0, 1.0, "no change")
        kinds = _Kinds(self._rows[0][self.changed], self._rows[1][self.changed])
        fixed = self._rows[0][~self.changed].sum(axis=0)
        change = worse = 0.0
        for times, weight in kinds.ways():
            base, new = (self._of(fixed + part) for part in kinds.totals(times))
            apart = np.abs(new - base)
            off = self._aim.off(new) - self._aim.off(base)
            # Where a side has no value the way counts as the most extreme: that is the safe side.
            apart, off = (np.where(np.isnan(x), np.inf, x) for x in (apart, off))
            change += float(weight[apart >= abs(self.difference) - _ROUNDING].sum())
            worse += float(weight[off >= self.worse - _ROUNDING].sum())
        if kinds.counted:
            method = "exact McNemar" if self._is_binary else "exact permutation"
            return Exchanged(min(change, 1.0), min(worse, 1.0), method)
        drawn = [(count + 1) / (DRAWN + 1) for count in (change, worse)]
        return Exchanged(drawn[0], drawn[1], f"permutation, {DRAWN:,} draws")

    def p_beyond(self, tolerance: float) -> float:
        """Return the p-value of being worse by ``tolerance`` at most; nan with too few clusters."""
        if math.isnan(self.worse):
            return math.nan
        ways = [[self._p_above(part, tolerance) for part in way] for way in self._aim.parts()]
        if any(math.isnan(p) for way in ways for p in way):
            return math.nan
        return min(max(way) for way in ways)

    @cached_property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the difference; 0 where nothing changed."""
        return self._limits(_CHANGE, LEVEL)

    @cached_property
    def at_most(self) -> float:
        """The most by which it may be worse (one-sided, 95 %); nan with too few clusters."""
        level = 1 - 2 * ALPHA
        ways = [[self._limits(part, level)[1] for part in way] for way in self._aim.parts()]
        if math.isnan(self.worse) or any(math.isnan(limit) for way in ways for limit in way):
            return math.nan
        return max(self._unseen, *(min(way) for way in ways))

    @cached_property
    def _unseen(self) -> float:
        """By how much it may be worse although no pair changed; -inf where some did.

        Of n pairs none of which changed at most a share of 1 - .05^(1/n) would (one-sided, 95 %;
        Clopper and Pearson 1934), each from one end of the scale to the ideal at worst.
        """
        if self.changed.any() or not math.isfinite(self._reach):
            return -math.inf
        pairs = len(self.changed)
        return self._reach * (1 - ALPHA ** (1 / pairs)) if pairs else math.inf

    @property
    def _reach(self) -> float:
        return max((abs(b - self._aim.ideal) for b in self._aim.bounds), default=math.inf)

    @property
    def enough(self) -> bool:
        """Whether there are clusters enough to say how far the difference may be off."""
        return self._change.enough

    def detectable(self, tolerance: float, alpha: float) -> float:
        """Return the least worsening that a test at ``alpha`` finds in four of five comparisons.

        Nan with too few clusters. With v the variance of the difference, w what it is worse by, u
        what one pair moves and z the sum of the quantiles of ``alpha`` and of the power, it is the
        d of ``d = tolerance + z sqrt(v + u (d - w))``: what changes more has more variance too.
        """
        if not self.enough or math.isnan(self.worse):
            return math.nan
        z = self._quantiles(alpha)
        v, u = self._change.error**2, self._unit
        half = tolerance + z * z * u / 2
        rest = tolerance**2 - z * z * (v - u * max(self.worse, 0.0))
        return half + math.sqrt(max(half**2 - rest, 0.0))

    def factor(self, tolerance: float, alpha: float) -> float:
        """Return how many times as many pairs would decide it in four of five comparisons.

        That is if the difference stays what it is. Inf where it lies at the tolerance itself, nan
        with too few clusters.
        """
        worse = max(self.worse, 0.0)
        room = abs(worse - tolerance)
        if not self.enough or math.isnan(room):
            return math.nan
        if math.isfinite(self._unseen):
            part = min(tolerance / self._reach, 1.0) if self._reach else 1.0
            needed = math.log(ALPHA) / math.log1p(-part) if 0 < part < 1 else 1.0
            return max(needed / len(self.changed), 1.0) if part else math.inf
        if room <= _ROUNDING:
            return math.inf
        z = self._quantiles(alpha if worse > tolerance else ALPHA)
        return max((z * self._change.error / room) ** 2, 1.0)

    def _quantiles(self, alpha: float) -> float:
        return self._change.quantile(alpha) + self._change.quantile(1 - POWER)

    def _p_above(self, part: Part, tolerance: float) -> float:
        spread = self._spread(part)
        if self._is_share and part in (_CHANGE, _BACK) and not spread.still:
            return self._shares(part).p_above(tolerance)
        return spread.p_above(self._at(part), tolerance)

    def _limits(self, part: Part, level: float) -> tuple[float, float]:
        value, spread = self._at(part), self._spread(part)
        if not spread.enough or math.isnan(value):
            return math.nan, math.nan
        if spread.still or (part in (_CHANGE, _BACK) and not self.changed.any()):
            return value, value
        if self._is_share and part in (_CHANGE, _BACK):
            return self._shares(part).interval(level)
        return spread.interval(value, level)

    def _at(self, part: Part) -> float:
        return part.base * self.base + part.new * self.new - part.less

    def _spread(self, part: Part) -> Spread:
        base, new = self._left_out
        return Spread(self._weights, part.base * base + part.new * new)

    @cached_property
    def _change(self) -> Spread:
        return self._spread(_CHANGE)

    def _shares(self, part: Part) -> TwoShares:
        """Return the share that came to count less the one that no longer does, by cluster."""
        base, new = (sums[:, 0] for sums in self._sums)
        came, went, of = np.maximum(new - base, 0), np.maximum(base - new, 0), self._sums[0][:, 1]
        if part == _BACK:
            came, went = went, came
        return TwoShares(np.stack([came, of, went, of], axis=1))

    @cached_property
    def _left_out(self) -> tuple[Floats, Floats]:
        base, new = (self._of(t - sums) for t, sums in zip(self._totals, self._sums, strict=True))
        return base, new

    @cached_property
    def _unit(self) -> float:
        """By how much one more pair that changes moves the value, its cluster with it."""
        pairs = len(self._rows[0])
        moves = np.abs(np.nan_to_num(self.moves[self.changed]))
        if not moves.any():
            width = self._aim.bounds[1] - self._aim.bounds[0]
            return width / pairs if math.isfinite(width) else 0.0
        alike = self._change.error**2 / float((moves**2).sum())
        return float(moves.mean()) * max(alike, 1.0)

    def _of(self, totals: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self._value(totals), dtype=np.float64)

    @cached_property
    def _is_share(self) -> bool:
        """Whether the value is the mean of numbers from 0 to 1, of the same pairs on each side."""
        if self._aim.bounds != (0.0, 1.0) or any(rows.shape[1] != 2 for rows in self._rows):
            return False
        if not all(bool((rows[:, 1] == 1).all()) for rows in self._rows):
            return False
        means = [float(rows[:, 0].mean()) for rows in self._rows if len(rows)]
        return bool(np.allclose(means, (self.base, self.new)[: len(means)], rtol=0, atol=1e-9))

    @property
    def _is_binary(self) -> bool:
        return self._is_share and all(bool(np.isin(r[:, 0], (0, 1)).all()) for r in self._rows)


class _Kinds:
    """Pairs that changed, by kind: those with the same two rows, whichever side has which."""

    def __init__(self, base: Floats, new: Floats) -> None:
        first = np.argmax(np.abs(new - base) > _ROUNDING, axis=1)[:, None]
        up = np.take_along_axis(new - base, first, axis=1) > 0
        both = np.hstack([np.where(up, base, new), np.where(up, new, base)])
        kinds, count = np.unique(both, axis=0, return_counts=True)
        self._low, self._high = np.hsplit(kinds, 2)
        self._count = count.astype(np.int64)
        self._counts = math.prod(int(n) + 1 for n in count)

    @property
    def counted(self) -> bool:
        """Whether every way is counted; some are drawn otherwise."""
        return self._counts <= MOST_COUNTED

    def ways(self) -> Iterator[tuple[NDArray[np.int64], Floats]]:
        """Yield how many of each kind have the higher row on the new side, and the chance of it.

        Arrays are (ways, kinds) and (ways,). Of ways that are drawn each weighs 1.
        """
        if self.counted:
            shape = tuple(int(n) + 1 for n in self._count)
            times = np.stack(np.unravel_index(np.arange(self._counts), shape), axis=-1)
            yield times, np.exp(_log_choices(self._count, times).sum(axis=1))
            return
        rng = np.random.default_rng(_SEED)
        left = DRAWN
        while left:
            size = min(left, max(1, _AT_ONCE // len(self._count)))
            yield rng.binomial(self._count, 0.5, (size, len(self._count))), np.ones(size)
            left -= size

    def totals(self, times: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Return the sums of the rows of base and of new, (ways, k)."""
        others = self._count - times
        return others @ self._high + times @ self._low, times @ self._high + others @ self._low


def _log_choices(count: NDArray[np.int64], times: NDArray[np.int64]) -> Floats:
    """Return the logarithm of the binomial chance of ``times`` of ``count`` fair coins."""
    from scipy.special import gammaln  # type: ignore[import-untyped]

    ways = gammaln(count + 1) - gammaln(times + 1) - gammaln(count - times + 1)
    return np.asarray(ways - count * math.log(2))


def _by_cluster(rows: Floats, at: NDArray[np.int64], clusters: int) -> Floats:
    """Return the sums of ``rows`` by cluster, (clusters, k); ``at`` says which each is of."""
    sums = [np.bincount(at, column, clusters) for column in rows.T]
    return np.stack(sums, axis=-1).astype(np.float64)
