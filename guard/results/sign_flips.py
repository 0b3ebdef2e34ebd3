"""The test that flips the signs of clusters, for few of them."""

from __future__ import annotations

import math
from functools import cached_property, lru_cache

import numpy as np

from guard.results.intervals import TINY
from guard.results.samples import Floats

FEW_CLUSTERS = 30
"""With fewer clusters, counted by Kish's effective number, a test also flips their signs."""
MOST_ENUMERATED = 14
"""Up to so many clusters all flips are enumerated, otherwise :data:`DRAWS` are drawn."""
DRAWS = 9_999
_SEED = 17


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
        flipped = _flipped_clusters(len(self._weights))
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
        size, observed = len(above), self._observed
        # The fewest flips with p >= 1 - level.
        least = max(math.ceil((1 - level) * (size + observed) - 1e-9) - observed, 1)
        return float(above[-least]) + self._rounding, float(below[-least]) + self._rounding


@lru_cache(maxsize=32)
def _flipped_clusters(clusters: int) -> Floats:
    """Return which clusters are flipped (flips, clusters); the first flip flips none.

    Enumerated flips leave the last cluster: flipping all others is the same in a two-sided test.
    """
    if clusters <= MOST_ENUMERATED:
        bits = np.arange(2 ** (clusters - 1))[:, None] >> np.arange(clusters)
        return (bits & 1).astype(np.float64)
    rng = np.random.default_rng(_SEED)
    return rng.integers(0, 2, (DRAWS, clusters)).astype(np.float64)
