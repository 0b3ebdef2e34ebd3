"""How well scores are probabilities: the reliability diagram and the calibration error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from guard.intervals import percentile
from guard.train.calibrate import Bools, Floats, Judged, equal_weights


class Bin(NamedTuple):
    """Texts of like score: their weight, mean score and share of biased ones."""

    weight: float
    score: float
    biased: float


def reliability(scores: Floats, biased: Bools, weights: Floats, bins: int = 10) -> list[Bin]:
    """Return the reliability diagram in bins of equal weight, lowest scores first.

    Equal scores share a bin. Texts of no weight alone make none.
    """
    _, place = np.unique(scores, return_inverse=True)
    mass = np.bincount(place, weights)
    middle = (np.cumsum(mass) - mass / 2) / mass.sum()
    bin_of = np.minimum((middle * bins).astype(int), bins - 1)[place]
    found = []
    for b in np.unique(bin_of[weights > 0]):
        w = weights * (bin_of == b)
        total = float(w.sum())
        found.append(Bin(total, float(w @ scores) / total, float(w @ biased) / total))
    return found


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return the expected calibration error (Guo et al. 2017, equation 5)."""
    return sum(b.weight * abs(b.biased - b.score) for b in bins) / sum(b.weight for b in bins)


def calibration_interval(
    texts: Judged, scores: Floats, draws: int = 500, seed: int = 0
) -> tuple[float, float]:
    """Return the 95 % interval of the error by redrawing texts within each pool."""
    rng = np.random.default_rng(seed)
    pools = [np.flatnonzero(texts.pool == p) for p in np.unique(texts.pool)]
    found = []
    for _ in range(draws):
        ids = np.concatenate([rng.choice(p, len(p)) for p in pools])
        drawn = texts.where(ids)
        bins = reliability(scores[ids], drawn.biased, equal_weights(drawn))
        found.append(calibration_error(bins))
    return percentile(np.array(found))
