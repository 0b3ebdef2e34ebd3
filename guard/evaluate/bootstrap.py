"""Percentile bootstrap over units (Efron and Tibshirani 1993, ch. 13).

A bootstrap sample is a row of counts: how often each unit was drawn. Variants of one unit (the two
sentences of a pair, the variants of an item) are drawn together, because their errors are not
independent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from guard.evaluate import metrics
from guard.evaluate.columns import Columns, Floats
from guard.intervals import exact, percentile

# Bootstrap samples in memory at a time: 64 rows of 20,000 texts take 10 MB.
_ROWS = 64
# Measures that are proportions of n texts or pairs.
_SHARES = frozenset(
    "accuracy precision false_positive_rate false_negative_rate cs as group pair_order overall "
    "usable".split()
)


class Figure(NamedTuple):
    """A measure with its 95 % interval, over n texts or pairs; nan if it is not defined."""

    value: float
    low: float
    high: float
    n: int


def figures(c: Columns, *, draws: int, seed: int) -> dict[str, Figure]:
    """Return every measure with its interval; ``draws=0`` leaves the intervals nan.

    Samples in which a measure is not defined are left out of its interval. The interval of ``ece``
    uses the bins of the original sample; as for every absolute error, it is biased upwards. A
    proportion of exactly 0 or 1 gets the exact binomial interval, because its bootstrap interval is
    empty; so does the false positive rate if all texts are harmless and each is a unit.
    """
    values, over = metrics.point(c), metrics.denominators(c)
    redrawn = resampled(c, draws=draws, seed=seed) if draws else {}
    found = {}
    for name in metrics.MEASURES:
        value, n = values[name], over[name]
        low, high = percentile(redrawn.get(name, np.zeros(0)))
        at_the_end = name in _SHARES and value in (0.0, 1.0)
        if draws and (at_the_end or (name == "false_positive_rate" and n and _harmless_singles(c))):
            low, high = exact(round(value * n), n)
        found[name] = Figure(value, low, high, n)
    return found


def _harmless_singles(c: Columns) -> bool:
    return not c.label.any() and c.units == len(c.label)


def resampled(c: Columns, *, draws: int, seed: int) -> dict[str, Floats]:
    """Return every measure of ``draws`` bootstrap samples, each of shape (draws,)."""
    rng = np.random.default_rng(seed)
    blocks = []
    for begin in range(0, draws, _ROWS):
        rows = min(_ROWS, draws - begin)
        picks = rng.integers(0, c.units, size=(rows, c.units))
        # One bincount for all rows: each row's units get different numbers.
        offset = np.arange(rows)[:, None] * c.units
        counts = np.bincount((picks + offset).ravel(), minlength=rows * c.units)
        blocks.append(metrics.weighted(c, counts.reshape(rows, c.units).astype(float)))
    return {name: np.concatenate([b[name] for b in blocks]) for name in metrics.MEASURES}
