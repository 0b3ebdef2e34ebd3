"""Confidence intervals for evaluation, training and audits; 95 % unless stated otherwise."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95


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


def percentile(samples: NDArray[np.float64]) -> tuple[float, float]:
    """Return the percentile interval of bootstrap samples, ignoring nan; nan if none is left.

    Efron and Tibshirani 1993, chapter 13.
    """
    defined = samples[~np.isnan(samples)]
    if not len(defined):
        return math.nan, math.nan
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
