"""Change points of a series of estimates, each with its own standard error.

A change of the mean is tested by the likelihood ratio of normal variables with known variances
(Hawkins, JASA 72, 1977; Sen and Srivastava, Annals of Statistics 3, 1975). With weights
``w = 1 / error²``, W their sum and W_k that of the first k, it is for a change after point k::

    R_k = (mean after k - mean up to k)² / (1 / W_k + 1 / (W - W_k))

and the test statistic is the largest R_k. Its null distribution depends on the weights alone, so
the p-value is simulated, with 1 added above and below (Phipson and Smyth 2010), and the simulation
stops once enough draws are as extreme (Besag and Clifford, Biometrika 78, 1991). Where the p-value
is too small to simulate, the Bonferroni bound over the n - 1 single tests stands in for it.

The tests of all series are corrected together by Benjamini and Hochberg (1995). A series with a
change is split there and its parts are tested again (binary segmentation: Scott and Knott,
Biometrics 30, 1974). Their level is 5 % times the share of series that were significant (Benjamini
and Bogomolov, JRSS B 76, 2014), halved with every split. So at most 5 % of reports show a change
where nothing changes, and a series with one true change is given a second about as rarely.

The place of a change has a 95 % confidence set: the points with ``R_k >= max R - c``, where
``(1 - exp(-c / 2))² = 0.95`` (Hansen, Econometrica 68, 2000, theorem 2 and table 1).

For runs of the same items the tests are conservative: the errors include the sampling of items, but
what the items have in common cancels in every R_k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from guard.results.conclusions import ALPHA
from guard.results.intervals import false_discovery
from guard.results.samples import Floats

DRAWS = 9_999
LEAST = 2
"""The least number of points of a tested series."""
NORMAL_95 = 1.959964
"""Half width of a normal 95 % interval, in standard errors."""
_SEED = 17
_AT_ONCE = 1_000
_ENOUGH = 200
_REACH = -2 * math.log(1 - math.sqrt(0.95))


@dataclass(frozen=True, slots=True)
class Change:
    """A change of level; ``at`` is the index of the first point after it.

    ``first`` to ``last`` is the 95 % confidence set of ``at``. ``before`` and ``after`` are the
    weighted means of the points up to the neighbouring changes, ``error`` is the standard error of
    their difference. ``p`` is that of the test that found the change.
    """

    at: int
    first: int
    last: int
    before: float
    after: float
    error: float
    p: float

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of ``after`` less ``before``."""
        difference, reach = self.after - self.before, NORMAL_95 * self.error
        return difference - reach, difference + reach


@dataclass(frozen=True, slots=True)
class SeriesChanges:
    """The changes of a series, and ``q``: the p-value of "no change", corrected over all series.

    ``q`` is nan where the series has fewer points than :data:`LEAST`.
    """

    q: float
    changes: tuple[Change, ...] = ()


def changes(series: Sequence[tuple[Floats, Floats]]) -> list[SeriesChanges]:
    """Return the changes of each series, given as values (n,) in order and errors (n,) above 0.

    Raises ValueError where an error is not above 0, or a number is not finite.
    """
    candidates = [_Series(*one) for one in series]
    first_cuts = [one.cut(0, one.size) for one in candidates]
    q = false_discovery([math.nan if cut is None else cut.p for cut in first_cuts]).tolist()
    tested = sum(not math.isnan(one) for one in q)
    level = ALPHA * sum(one < ALPHA for one in q) / max(tested, 1)
    return [
        SeriesChanges(
            one_q, tuple(one.as_changes(one.cuts(cut, level))) if cut and one_q < ALPHA else ()
        )
        for one, cut, one_q in zip(candidates, first_cuts, q, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Cut:
    """The most likely change within the points ``begin`` to ``end``: before point ``at``."""

    begin: int
    end: int
    at: int
    p: float


class _Series:
    def __init__(self, values: Floats, errors: Floats) -> None:
        values, errors = np.asarray(values, np.float64), np.asarray(errors, np.float64)
        if not (np.isfinite(values).all() and np.isfinite(errors).all() and (errors > 0).all()):
            raise ValueError("Values and errors must be finite, and errors above 0.")
        self.size = len(values)
        self._values, self._weights = values, errors**-2.0

    def cut(self, begin: int, end: int) -> _Cut | None:
        """Return the best cut of ``begin`` to ``end`` with its p-value; None for too few points."""
        if end - begin < LEAST:
            return None
        ratios = self._ratios(begin, end)
        best = int(ratios.argmax())
        return _Cut(begin, end, begin + best + 1, _p(self._weights[begin:end], ratios[best]))

    def cuts(self, whole: _Cut, level: float) -> list[_Cut]:
        """Return ``whole`` and the significant cuts on either side of it, in order."""
        cuts = [whole]
        for begin, end in ((whole.begin, whole.at), (whole.at, whole.end)):
            part = self.cut(begin, end)
            if part is not None and part.p <= level / 2:
                cuts += self.cuts(part, level / 2)
        return sorted(cuts, key=lambda cut: cut.at)

    def as_changes(self, cuts: Sequence[_Cut]) -> list[Change]:
        """Return each cut as a change, its place estimated again between its neighbours."""
        changes: list[Change] = []
        ends = [*(cut.at for cut in cuts[1:]), self.size]
        begin = 0
        for cut, end in zip(cuts, ends, strict=True):
            ratios = self._ratios(begin, end)
            at = begin + int(ratios.argmax()) + 1
            within = begin + 1 + np.flatnonzero(ratios >= ratios.max() - _REACH)
            before, weight_before = self._mean(begin, at)
            after, weight_after = self._mean(at, end)
            error = math.sqrt(1 / weight_before + 1 / weight_after)
            changes.append(Change(at, int(within[0]), int(within[-1]), before, after, error, cut.p))
            begin = at
        return changes

    def _ratios(self, begin: int, end: int) -> Floats:
        """Return R_k for each point of ``begin`` to ``end`` but the last."""
        values, weights = self._values[begin:end], self._weights[begin:end]
        # Centred, because a large common level would cost floating-point precision.
        return _ratios(weights, (weights * (values - values.mean())).cumsum())

    def _mean(self, begin: int, end: int) -> tuple[float, float]:
        weights = self._weights[begin:end]
        return float(np.average(self._values[begin:end], weights=weights)), float(weights.sum())


def _ratios(weights: Floats, sums: Floats) -> Floats:
    """Return R_k (..., n - 1) from the cumulated weighted values (..., n)."""
    upto = weights.cumsum()
    whole, upto = upto[-1], upto[:-1]
    apart = sums[..., :-1] - sums[..., -1:] * (upto / whole)
    return np.asarray(apart**2 * (whole / (upto * (whole - upto))), dtype=np.float64)


def _p(weights: Floats, ratio: float) -> float:
    """Return the p-value of the largest ratio, for a series with these weights."""
    from scipy.special import erfc  # type: ignore[import-untyped]

    bound = float((len(weights) - 1) * erfc(math.sqrt(ratio / 2)))
    if bound < 1 / (DRAWS + 1):
        return bound
    rng = np.random.default_rng(_SEED)
    draws = beyond = 0
    while draws < DRAWS and beyond < _ENOUGH:
        size = min(_AT_ONCE, DRAWS - draws)
        noise = rng.standard_normal((size, len(weights))) * np.sqrt(weights)
        beyond += int((_ratios(weights, noise.cumsum(axis=1)).max(axis=1) >= ratio).sum())
        draws += size
    return (1 + beyond) / (1 + draws)
