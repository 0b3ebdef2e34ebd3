"""Figures that validation and evaluation share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def auroc(scores: Array, labels: Array) -> float:
    """Return the area under the ROC curve, nan if one class is absent.

    The Mann-Whitney statistic with mid-ranks for ties.
    """
    positive = int(labels.sum())
    negative = len(labels) - positive
    if not positive or not negative:
        return float("nan")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    total = float(ranks[labels > 0].sum())
    return (total - positive * (positive + 1) / 2) / (positive * negative)
