"""Tests of one measure over pairs: the same items, or clusters, answered on two sides.

**Did anything change?** A paired permutation test. Under the null hypothesis the two sides of a
pair are exchangeable, so swapping them gives the null distribution of any difference (Fisher 1935,
chapter 3). For a share of answers that are 0 or 1 this is McNemar's exact test (McNemar 1947).
Pairs that changed in the same way are interchangeable, so the number of swaps of each kind, a
binomial variable, determines the distribution. It is enumerated where there are few combinations,
and otherwise sampled, with 1 added above and below (Phipson and Smyth 2010).

**Is it worse by more than the tolerance?** A test over whole clusters, as for every interval of an
audit (:mod:`guard.results.jackknife`). A measure is worse where it is further from its ideal::

    |new - ideal| > |base - ideal| + tolerance

Upwards this means new - base > tolerance and new + base > 2 ideal + tolerance; downwards the same
with the signs turned. Each part is a one-sided test, and both must reject (intersection-union test,
Berger 1982), so the side of the ideal on which the base lies need not be known. The absolute value
has a kink at the ideal, where a t is not valid; neither part has one.

An axis regresses where both questions are answered with yes: the permutation guards against a t
over few clusters, the t knows that items of one template change together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.results.conclusions import ALPHA
from guard.results.intervals import LEVEL
from guard.results.samples import Floats, cluster_sums, positions
from guard.results.spread import Spread
from guard.results.two_shares import ShareDifference

MOST_ENUMERATED = 100_000
"""Up to this many combinations of swaps are enumerated, each weighted by its probability."""
DRAWS = 9_999
"""Otherwise this many are sampled: the least p-value is 1 / 10,000."""
_SEED = 17
_AT_ONCE = 2_000_000
"""Binomial draws held in memory at a time."""
_ROUNDING = 1e-12
POWER = 0.8
UNKNOWN = math.nan
"""The ideal of an axis of another harness before its direction is known."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What a measure should be: its ``ideal``, and the ``bounds`` of its scale.

    With ``above`` only values above the ideal are worse than it. On a scale without an end the
    ideal may be infinite: higher, or lower, is always better.
    """

    ideal: float
    bounds: tuple[float, float] = (-math.inf, math.inf)
    above: bool = False

    def distance(self, value: Floats | float) -> Floats:
        """Return how far a value is from the ideal, up to a constant if that is infinite."""
        value = np.asarray(value, dtype=np.float64)
        if math.isinf(self.ideal):
            return value if self.ideal < 0 else -value
        apart = value - self.ideal
        return np.maximum(apart, 0.0) if self.above else np.abs(apart)

    def ways_of_worsening(self) -> list[list[Inequality]]:
        """Return the ways of getting worse, each as the inequalities that must all hold."""
        least, most = self.bounds
        if self.above:
            return [[_INCREASE, Inequality(0, 1, self.ideal)]]
        if self.ideal <= least:
            return [[_INCREASE]]
        if self.ideal >= most:
            return [[_DECREASE]]
        twice = 2 * self.ideal
        return [[_INCREASE, Inequality(1, 1, twice)], [_DECREASE, Inequality(-1, -1, -twice)]]


class Inequality(NamedTuple):
    """The inequality ``base * b + new * n - less > tolerance`` for the values b and n."""

    base: int
    new: int
    less: float


_INCREASE, _DECREASE = Inequality(-1, 1, 0.0), Inequality(1, -1, 0.0)


class PermutationTest(NamedTuple):
    """Two-sided p of any change, one-sided p of a worsening, and the name of the method."""

    p_change: float
    p_worse: float
    method: str


class Pairs:
    """The rows of both sides, pair by pair, with tests and intervals of one measure.

    ``base`` and ``new`` have shape (pairs, k), in the same order. ``value`` maps totals (..., k) to
    the measure (...), and must not depend on their scale. ``clusters`` names each pair's cluster
    (pairs,). ``n`` maps totals to the measure's denominator, as in :class:`guard.suites.Measure`;
    None counts pairs.
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
        self.base, self.new = (float(self._evaluate(t)) for t in self._totals)
        names, cluster_of_pair = positions(clusters)
        self.clusters = len(names)
        self._sums = [cluster_sums(rows, cluster_of_pair, len(names)) for rows in self._rows]
        # A cluster's weight is its denominator of the measure, or its number of pairs.
        self._weights = np.bincount(cluster_of_pair, minlength=len(names)).astype(np.float64)
        if n is not None:
            over = [np.nan_to_num(np.asarray(n(sums), dtype=np.float64)) for sums in self._sums]
            self._weights = over[0] + over[1]

    @property
    def difference(self) -> float:
        """New less base."""
        return self.new - self.base

    @property
    def worse(self) -> float:
        """By how much new is further from the ideal than base; below 0 where it is nearer."""
        return float(self._aim.distance(self.new) - self._aim.distance(self.base))

    @cached_property
    def changed(self) -> NDArray[np.bool_]:
        """Which pairs differ (pairs,)."""
        return np.asarray((np.abs(self._rows[0] - self._rows[1]) > _ROUNDING).any(axis=1))

    @cached_property
    def values(self) -> tuple[Floats, Floats]:
        """The measure of each pair by itself, on both sides (pairs,); nan where undefined."""
        base, new = self._rows
        return self._evaluate(base), self._evaluate(new)

    @cached_property
    def moves(self) -> Floats:
        """By how much the change of each pair alone makes the base worse (pairs,)."""
        base, new = self._rows
        alone = self._evaluate(self._totals[0] - base + new)
        return np.asarray(
            self._aim.distance(alone) - self._aim.distance(self.base), dtype=np.float64
        )

    def permutation_test(self) -> PermutationTest:
        """Return the p-values of the paired permutation test; nan where a side has no value."""
        if math.isnan(self.worse):
            return PermutationTest(math.nan, math.nan, "")
        if not self.changed.any():
            return PermutationTest(1.0, 1.0, "no change")
        kinds = _ChangeKinds(self._rows[0][self.changed], self._rows[1][self.changed])
        fixed = self._rows[0][~self.changed].sum(axis=0)
        change = worse = 0.0
        for times, weight in kinds.ways():
            base, new = (self._evaluate(fixed + part) for part in kinds.totals(times))
            apart = np.abs(new - base)
            off = self._aim.distance(new) - self._aim.distance(base)
            # Undefined values count as the most extreme ones, which makes the p-value conservative.
            apart, off = (np.where(np.isnan(x), np.inf, x) for x in (apart, off))
            change += float(weight[apart >= abs(self.difference) - _ROUNDING].sum())
            worse += float(weight[off >= self.worse - _ROUNDING].sum())
        if kinds.enumerated:
            method = "exact McNemar" if self._is_binary else "exact permutation"
            return PermutationTest(min(change, 1.0), min(worse, 1.0), method)
        p_values = [(count + 1) / (DRAWS + 1) for count in (change, worse)]
        return PermutationTest(p_values[0], p_values[1], f"permutation, {DRAWS:,} draws")

    def p_beyond_tolerance(self, tolerance: float) -> float:
        """Return the p of "worse by ``tolerance`` at most"; nan with too few clusters."""
        if math.isnan(self.worse):
            return math.nan
        ways = [
            [self._p_above(part, tolerance) for part in way]
            for way in self._aim.ways_of_worsening()
        ]
        if any(math.isnan(p) for way in ways for p in way):
            return math.nan
        return min(max(way) for way in ways)

    @cached_property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the difference; 0 where nothing changed."""
        return self._limits(_INCREASE, LEVEL)

    @cached_property
    def at_most(self) -> float:
        """The upper limit of the worsening (one-sided, 95 %); nan with too few clusters."""
        level = 1 - 2 * ALPHA
        ways = [
            [self._limits(part, level)[1] for part in way] for way in self._aim.ways_of_worsening()
        ]
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
    def enough_clusters(self) -> bool:
        """Whether there are enough clusters for intervals and tests of the difference."""
        return self._difference_spread.enough_clusters

    def detectable(self, tolerance: float, alpha: float) -> float:
        """Return the least worsening that a test at ``alpha`` detects with a power of 0.8.

        It is the d that solves ``d = tolerance + z sqrt(v + u (d - w))``, where v is the variance
        of the difference, w the worsening seen, u the move of a single pair, and z the sum of the
        quantiles of ``alpha`` and of the power: a larger change has more variance too. Nan with too
        few clusters.
        """
        if not self.enough_clusters or math.isnan(self.worse):
            return math.nan
        z = self._quantiles(alpha)
        v, u = self._difference_spread.error**2, self._move_per_pair
        half = tolerance + z * z * u / 2
        constant = tolerance**2 - z * z * (v - u * max(self.worse, 0.0))
        return half + math.sqrt(max(half**2 - constant, 0.0))

    def sample_size_factor(self, tolerance: float, alpha: float) -> float:
        """Return by which factor more pairs would decide the axis with a power of 0.8.

        It assumes that the difference stays the same. Inf where it equals the tolerance, nan with
        too few clusters.
        """
        worse = max(self.worse, 0.0)
        room = abs(worse - tolerance)
        if not self.enough_clusters or math.isnan(room):
            return math.nan
        if math.isfinite(self._unseen):
            part = min(tolerance / self._reach, 1.0) if self._reach else 1.0
            needed = math.log(ALPHA) / math.log1p(-part) if 0 < part < 1 else 1.0
            return max(needed / len(self.changed), 1.0) if part else math.inf
        if room <= _ROUNDING:
            return math.inf
        z = self._quantiles(alpha if worse > tolerance else ALPHA)
        return max((z * self._difference_spread.error / room) ** 2, 1.0)

    def _quantiles(self, alpha: float) -> float:
        return self._difference_spread.quantile(alpha) + self._difference_spread.quantile(1 - POWER)

    def _p_above(self, part: Inequality, tolerance: float) -> float:
        spread = self._spread(part)
        if self._is_proportion and part in (_INCREASE, _DECREASE) and not spread.constant:
            return self._share_difference(part).p_above(tolerance)
        return spread.p_above(self._part_value(part), tolerance)

    def _limits(self, part: Inequality, level: float) -> tuple[float, float]:
        value, spread = self._part_value(part), self._spread(part)
        if not spread.enough_clusters or math.isnan(value):
            return math.nan, math.nan
        if spread.constant or (part in (_INCREASE, _DECREASE) and not self.changed.any()):
            return value, value
        if self._is_proportion and part in (_INCREASE, _DECREASE):
            return self._share_difference(part).interval(level)
        return spread.interval(value, level)

    def _part_value(self, part: Inequality) -> float:
        return part.base * self.base + part.new * self.new - part.less

    def _spread(self, part: Inequality) -> Spread:
        base, new = self._leave_one_out
        return Spread(self._weights, part.base * base + part.new * new)

    @cached_property
    def _difference_spread(self) -> Spread:
        return self._spread(_INCREASE)

    def _share_difference(self, part: Inequality) -> ShareDifference:
        """Return the difference as two shares: the gains of clusters, less their losses."""
        base, new = (sums[:, 0] for sums in self._sums)
        gained, lost, size = (
            np.maximum(new - base, 0),
            np.maximum(base - new, 0),
            self._sums[0][:, 1],
        )
        if part == _DECREASE:
            gained, lost = lost, gained
        return ShareDifference(np.stack([gained, size, lost, size], axis=1))

    @cached_property
    def _leave_one_out(self) -> tuple[Floats, Floats]:
        base, new = (
            self._evaluate(t - sums) for t, sums in zip(self._totals, self._sums, strict=True)
        )
        return base, new

    @cached_property
    def _move_per_pair(self) -> float:
        """By how much one more changed pair moves the value, times the design effect."""
        pairs = len(self._rows[0])
        moves = np.abs(np.nan_to_num(self.moves[self.changed]))
        if not moves.any():
            width = self._aim.bounds[1] - self._aim.bounds[0]
            return width / pairs if math.isfinite(width) else 0.0
        design_effect = self._difference_spread.error**2 / float((moves**2).sum())
        return float(moves.mean()) * max(design_effect, 1.0)

    def _evaluate(self, totals: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self._value(totals), dtype=np.float64)

    @cached_property
    def _is_proportion(self) -> bool:
        """Whether the value is a mean of numbers from 0 to 1 over the same pairs on both sides."""
        if self._aim.bounds != (0.0, 1.0) or any(rows.shape[1] != 2 for rows in self._rows):
            return False
        if not all(bool((rows[:, 1] == 1).all()) for rows in self._rows):
            return False
        means = [float(rows[:, 0].mean()) for rows in self._rows if len(rows)]
        return bool(np.allclose(means, (self.base, self.new)[: len(means)], rtol=0, atol=1e-9))

    @property
    def _is_binary(self) -> bool:
        return self._is_proportion and all(bool(np.isin(r[:, 0], (0, 1)).all()) for r in self._rows)


class _ChangeKinds:
    """Changed pairs grouped by kind: pairs of one kind have the same two rows, in either order."""

    def __init__(self, base: Floats, new: Floats) -> None:
        first = np.argmax(np.abs(new - base) > _ROUNDING, axis=1)[:, None]
        up = np.take_along_axis(new - base, first, axis=1) > 0
        both = np.hstack([np.where(up, base, new), np.where(up, new, base)])
        kinds, count = np.unique(both, axis=0, return_counts=True)
        self._low, self._high = np.hsplit(kinds, 2)
        self._count = count.astype(np.int64)
        self._counts = math.prod(int(n) + 1 for n in count)

    @property
    def enumerated(self) -> bool:
        """Whether all combinations are enumerated; otherwise they are sampled."""
        return self._counts <= MOST_ENUMERATED

    def ways(self) -> Iterator[tuple[NDArray[np.int64], Floats]]:
        """Yield combinations: how many pairs of each kind have the higher row on the new side.

        Yields counts (ways, kinds) with their weights (ways,): probabilities where all are
        enumerated, 1 where they are sampled.
        """
        if self.enumerated:
            shape = tuple(int(n) + 1 for n in self._count)
            times = np.stack(np.unravel_index(np.arange(self._counts), shape), axis=-1)
            yield times, np.exp(_log_choices(self._count, times).sum(axis=1))
            return
        rng = np.random.default_rng(_SEED)
        left = DRAWS
        while left:
            size = min(left, max(1, _AT_ONCE // len(self._count)))
            yield rng.binomial(self._count, 0.5, (size, len(self._count))), np.ones(size)
            left -= size

    def totals(self, times: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Return the totals of base and of new in each combination, both (ways, k)."""
        others = self._count - times
        return others @ self._high + times @ self._low, times @ self._high + others @ self._low


def _log_choices(count: NDArray[np.int64], times: NDArray[np.int64]) -> Floats:
    """Return log P(X = ``times``) for X binomial with ``count`` trials and p = 1/2."""
    from scipy.special import gammaln  # type: ignore[import-untyped]

    ways = gammaln(count + 1) - gammaln(times + 1) - gammaln(count - times + 1)
    return np.asarray(ways - count * math.log(2))
