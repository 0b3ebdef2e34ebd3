"""Confidence intervals for evaluation, training and audits; 95 % unless stated otherwise."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
LEAST_CLUSTERS = 6
"""Fewer clusters (of equal size, or as many as weigh so much) have no interval."""


def exact(count: float, n: float, level: float = LEVEL) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of ``count`` in ``n`` trials (Biometrika 26, 1934).

    It equals ``scipy.stats.binomtest(count, n).proportion_ci(level)``; importing ``scipy.stats``
    takes a second.
    """
    from scipy.special import betaincinv  # type: ignore[import-untyped]

    tail = (1 - level) / 2
    low = float(betaincinv(count, n - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, n - count, 1 - tail)) if count < n else 1.0
    return low, high


def of_clusters(
    x: float, xx: float, y: float, yy: float, xy: float, level: float = LEVEL
) -> tuple[float, float]:
    """Return the interval of the share ``y / x`` of what comes in clusters, from their sums.

    A cluster has ``x`` elements, ``y`` of them marked; given are the sums over clusters of x, x²,
    y, y² and x·y, so that a database can make them. nan where there are fewer than six clusters
    that weigh as much as theirs do.

    The variance is that of a ratio of means (Cochran 1977, section 6.4; Kish's weighing for the
    number of clusters). It gives the number of independent elements that would say as much, which
    takes the place of n in Jeffreys' interval (Korn and Graubard 1998, with the Jeffreys interval
    of Brown, Cai and DasGupta 2001; compared by Franco, Little, Louis and Slud 2019). Where every
    cluster says the same each counts as one element: nothing tells how alike its elements are.
    """
    clusters = x**2 / xx if xx else 0.0
    if clusters < LEAST_CLUSTERS - 1e-9:
        return math.nan, math.nan
    from scipy.special import betaincinv, stdtrit

    share = y / x
    off = max(yy - 2 * share * xy + share**2 * xx, 0.0)
    tail = (1 - level) / 2
    n = clusters
    if 0 < share < 1 and off > 0:
        variance = clusters / (clusters - 1) * off / x**2
        wider = stdtrit(clusters - 1, 1 - tail) / stdtrit(math.inf, 1 - tail)
        n = min(max(share * (1 - share) / (variance * wider**2), clusters), x)
    a, b = n * share + 0.5, n * (1 - share) + 0.5
    low = float(betaincinv(a, b, tail)) if share > 0 else 0.0
    high = float(betaincinv(a, b, 1 - tail)) if share < 1 else 1.0
    return low, high


def percentile(samples: NDArray[np.float64]) -> tuple[float, float]:
    """Return the percentile interval of bootstrap samples, ignoring nan; nan if none is left.

    Efron and Tibshirani 1993, chapter 13.
    """
    defined = samples[~np.isnan(samples)]
    if not len(defined):
        return math.nan, math.nan
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
