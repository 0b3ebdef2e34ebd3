"""Confidence intervals, 95 % unless stated otherwise, and the correction of several tests.

``scipy.stats`` (``binomtest``, ``false_discovery_control``) and statsmodels
(``proportion_confint``) have some of them, too, and tests compare the digits. But importing these
takes a second, for which every command would wait; importing ``scipy.special`` does not.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from guard.results.estimate import UNDEFINED, Estimate

LEVEL = 0.95
ALPHA = 0.05
"""A test is significant if its p-value, or q where several are corrected, is below this."""
LEAST_CLUSTERS = 6
"""With fewer clusters there is no interval; unequal ones count by Kish's effective number."""
TINY = 1e-12
"""Smaller differences are rounding errors."""


def clopper_pearson(count: float, n: float, level: float = LEVEL) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of ``count`` in ``n`` trials (Biometrika 26, 1934).

    It equals ``scipy.stats.binomtest(count, n).proportion_ci(level)``.
    """
    from scipy.special import betaincinv  # type: ignore[import-untyped]

    tail = (1 - level) / 2
    low = float(betaincinv(count, n - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, n - count, 1 - tail)) if count < n else 1.0
    return low, high


def jeffreys(share: float, n: float, level: float = LEVEL) -> tuple[float, float]:
    """Return Jeffreys' interval of a ``share`` of ``n`` trials (Brown, Cai and DasGupta 2001).

    Of a share of 0 or 1 the interval ends there; Jeffreys' own would exclude it.
    """
    from scipy.special import betaincinv

    a, b, tail = n * share + 0.5, n * (1 - share) + 0.5, (1 - level) / 2
    low = float(betaincinv(a, b, tail)) if share > 0 else 0.0
    high = float(betaincinv(a, b, 1 - tail)) if share < 1 else 1.0
    return low, high


def false_discovery(p: ArrayLike) -> NDArray[np.float64]:
    """Return the p-values (n,) corrected by Benjamini and Hochberg (1995).

    A test without a p-value, nan, stays nan and is not counted.
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values)[: int(np.sum(~np.isnan(values)))]  # nan sorts last
    ranked = values[order] * len(order) / np.arange(1, len(order) + 1)
    q = np.full(len(values), np.nan)
    q[order] = np.minimum(np.minimum.accumulate(ranked[::-1])[::-1], 1.0)
    return q


def p_text(value: float) -> str:
    """Return a p-value as it is printed."""
    if math.isnan(value):
        return "–"
    if ALPHA - 0.0005 <= value < ALPHA:
        return "<.05"  # rounding would print a significant value as one that is not
    return "<.001" if value < 0.001 else f"{value:.3f}"


def clustered_share(
    x: float, xx: float, y: float, yy: float, xy: float, level: float = LEVEL
) -> tuple[float, float]:
    """Return the interval of the share ``y / x`` of clustered elements, from sums over clusters.

    A cluster has x elements, y of them marked; the arguments are the sums over clusters of x, x²,
    y, y² and x·y, which a database can compute. nan for fewer than six clusters, counted by Kish's
    effective number (Σx)² / Σx².

    The variance is that of a ratio (Cochran 1977, section 6.4). The effective sample size that
    follows from it takes the place of n in an interval for independent elements: the method of
    Korn and Graubard (Survey Methodology 24, 1998), here with the Jeffreys interval (Brown, Cai and
    DasGupta 2001; Franco, Little, Louis and Slud 2019 compare such intervals). If all clusters have
    the same share, each counts as one element: the data do not show how alike its elements are.
    """
    if not xx or x**2 / xx < LEAST_CLUSTERS - 1e-9:
        return math.nan, math.nan
    return jeffreys(y / x, effective(x, xx, y, yy, xy, level), level)


def effective(x: float, xx: float, y: float, yy: float, xy: float, level: float = LEVEL) -> float:
    """Return the effective sample size of the share ``y / x`` of clustered elements.

    It is p (1 - p) / variance, times (z / t)² for the degrees of freedom of the variance. Korn and
    Graubard have the t quantile of n - 1 in place of z. The arguments and sources are those of
    :func:`clustered_share`. With fewer than six clusters, and if all have the same share, each
    cluster counts as one element; the result lies between the number of clusters and of elements.
    """
    clusters, share = x**2 / xx, y / x
    off = max(yy - 2 * share * xy + share**2 * xx, 0.0)
    if clusters < LEAST_CLUSTERS - 1e-9 or not (0 < share < 1 and off > 0):
        return clusters
    from scipy.special import stdtrit

    tail = (1 - level) / 2
    variance = clusters / (clusters - 1) * off / x**2
    wider = stdtrit(clusters - 1, 1 - tail) / stdtrit(math.inf, 1 - tail)
    return float(min(max(share * (1 - share) / (variance * wider**2), clusters), x))


def union_of_bootstraps(value: float, low: float, high: float) -> tuple[float, float]:
    """Return what the percentile and the basic bootstrap interval hold between them, from 0 up.

    ``low`` and ``high`` are the percentiles of the samples; the basic interval is that of Davison
    and Hinkley 1997, equation 5.6. It is for a measure that lies above the truth, and its samples
    above it, by amounts that are not the same: either interval alone covers too rarely.
    """
    return max(0.0, min(low, 2 * value - high)), max(high, 2 * value - low)


def weighted(
    count: float, n: float, variance: float, heaviest: float, df: float, level: float = LEVEL
) -> Estimate:
    """Return the share ``count / n`` of a weighted sample: both are sums of weights.

    ``variance`` is that of ``count - n * share``, ``heaviest`` the largest weight that one more
    marked element could have, ``df`` the degrees of freedom of the variance.

    Clopper and Pearson's interval adds one element to the side that it bounds. Here that element
    has the largest weight, so that a heavy stratum in which nothing was found has a limit, too (Fay
    and Feuer, Statistics in Medicine 16, 1997, for sums of weighted Poisson counts: their gamma
    distribution is a beta distribution here, as a share is at most 1). The variance gives the
    effective sample size, reduced for few degrees of freedom as in :func:`effective`. With equal
    weights and ``count`` 0 or ``n`` the interval is Clopper and Pearson's, else at most a little
    wider.
    """
    from scipy.special import betaincinv, stdtrit

    tail = (1 - level) / 2
    wider = float(stdtrit(max(df, 1.0), 1 - tail) / stdtrit(math.inf, 1 - tail))

    def upper(marked: float) -> float:
        if marked >= n:
            return 1.0
        mean = (marked + heaviest) / (n + heaviest)
        spread = variance * wider**2 + heaviest**2 * (1 - mean)
        size = mean * (1 - mean) * (n + heaviest) ** 2 / spread
        return float(betaincinv(size * mean, size * (1 - mean), 1 - tail))

    return Estimate(count / n, 1 - upper(n - count), upper(count))


def share_of_totals(a: Estimate, b: Estimate) -> Estimate:
    """Return ``a / (a + b)`` of two independent estimates of totals; nan if both are 0.

    The interval holds every share r for which the interval of ``a (1 - r) - b r`` contains 0. That
    one follows from the intervals of a and b, which may be asymmetric (MOVER: Zou and Donner,
    Statistics in Medicine 27, 2008). With the ratio R = r / (1 - r) it is the equation whose closed
    form is equation 9 of Donner and Zou (Statistical Methods in Medical Research 21, 2012).
    """
    if not a.value + b.value:
        return UNDEFINED
    share = a.value / (a.value + b.value)

    def end(a_end: float, b_end: float, bound: float) -> float:
        inside, outside = share, bound
        for _ in range(60):
            r = (inside + outside) / 2
            margin = math.hypot((1 - r) * (a_end - a.value), r * (b_end - b.value))
            contains = abs(a.value * (1 - r) - b.value * r) <= margin
            inside, outside = (r, outside) if contains else (inside, r)
        return inside

    return Estimate(share, end(a.low, b.high, 0.0), end(a.high, b.low, 1.0))


def percentile(samples: NDArray[np.float64]) -> tuple[float, float]:
    """Return the percentile interval of bootstrap samples, ignoring nan; nan if none is left.

    Efron and Tibshirani 1993, chapter 13.
    """
    defined = samples[~np.isnan(samples)]
    if not len(defined):
        return math.nan, math.nan
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
