"""Percentile bootstrap over units (Efron and Tibshirani 1993, ch. 13).

A bootstrap sample is a row of counts: how often each unit was drawn. Every measure of
:mod:`guard.evaluate.metrics` is computed from the counts of many samples at once, so that a
thousand samples of ten thousand texts take about a second. Variants of one unit (the two sentences
of a pair, the variants of an item) are drawn together, because their errors are not independent.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from guard.evaluate import metrics
from guard.evaluate.columns import Columns, Floats
from guard.intervals import exact, percentile

# Bootstrap samples in memory at a time: 64 rows of 20,000 texts take 10 MB.
_ROWS = 64
# Measures that are proportions of n texts or pairs.
_SHARES = frozenset("accuracy precision alarm miss cs as group pair_order overall usable".split())

_Scalar = TypeVar("_Scalar", bound=np.generic)


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
        if draws and (at_the_end or (name == "alarm" and n and _harmless_singles(c))):
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
        blocks.append(weighted(c, counts.reshape(rows, c.units).astype(float)))
    return {name: np.concatenate([b[name] for b in blocks]) for name in metrics.MEASURES}


def weighted(c: Columns, counts: Floats) -> dict[str, Floats]:
    """Return every measure for rows of unit counts: (rows, units) -> (rows,) by name.

    A row of ones gives the values of :func:`guard.evaluate.metrics.point`.
    """
    weight = counts[:, c.unit]
    judged = c.usable

    def total(where: NDArray[_Scalar]) -> Floats:
        return np.asarray(weight @ where.astype(float), dtype=np.float64)

    tp, fp = total(c.hit), total(c.predicted & ~c.label & judged)
    biased, harmless = total(c.label & judged), total(~c.label & judged)
    n, everything = biased + harmless, weight.sum(axis=1)
    fn, tn = biased - tp, harmless - fp
    marked = ~np.isnan(c.span_f1)
    f1_of_found = np.where(c.hit & marked, c.span_f1, 0.0)
    f1 = np.where(biased > 0, _ratio(2 * tp, 2 * tp + fp + fn), np.nan)
    other = _ratio(2 * tn, 2 * tn + fp + fn)
    both = (biased > 0) & (harmless > 0)
    pairs = counts[:, c.pair_unit]
    return {
        "accuracy": _ratio(tp + tn, n),
        "f1": f1,
        "precision": _ratio(tp, tp + fp),
        "alarm": _ratio(fp, harmless),
        "miss": _ratio(fn, biased),
        "macro_f1": np.where(both, (f1 + other) / 2, np.nan),
        "auroc": _auroc(c, weight),
        "cs": _ratio(total(c.hit & c.type_known & c.type_right), total(c.hit & c.type_known)),
        "as": _ratio(total(c.hit & c.terms_known & c.terms_right), total(c.hit & c.terms_known)),
        "as_first": _ratio(
            total(c.hit & c.terms_known & c.first_right), total(c.hit & c.terms_known)
        ),
        "group": _ratio(total(c.hit & c.group_known & c.group_right), total(c.hit & c.group_known)),
        "attribute_f1": _ratio(total(f1_of_found), total(c.hit & marked)),
        "attribute_f1_all": _ratio(total(f1_of_found), total(c.label & judged & marked)),
        "pair_order": _ratio(pairs @ c.ordered.astype(float), pairs.sum(axis=1)),
        "overall": _ratio(total(c.all_right), everything),
        "usable": _ratio(total(judged), everything),
        "ece": _ece(c, weight, n),
        "prevalence": _ratio(biased, n),
    }


def _ratio(above: Floats, below: Floats) -> Floats:
    full = np.full_like(below, np.nan)
    return np.divide(above, below, out=full, where=below > 0)


def _by_group(values: Floats, group: NDArray[np.int64], groups: int) -> Floats:
    """Sum the columns of each group: (rows, n) -> (rows, groups)."""
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(groups))
    return np.add.reduceat(values[:, order], starts, axis=1)


def _auroc(c: Columns, weight: Floats) -> Floats:
    """Return AUROC by the rank sum over distinct scores; ties count one half."""
    judged = np.flatnonzero(c.usable)
    if not len(judged):
        return np.full(len(weight), np.nan)
    distinct, group = np.unique(c.score[judged], return_inverse=True)
    label = c.label[judged]
    biased = _by_group(weight[:, judged] * label, group, len(distinct))
    harmless = _by_group(weight[:, judged] * ~label, group, len(distinct))
    below = np.cumsum(harmless, axis=1) - harmless
    won = (biased * (below + harmless / 2)).sum(axis=1)
    return _ratio(won, biased.sum(axis=1) * harmless.sum(axis=1))


def _ece(c: Columns, weight: Floats, n: Floats) -> Floats:
    judged = np.flatnonzero(c.usable)
    if not len(judged):
        return np.full(len(weight), np.nan)
    score = c.score[judged]
    used, group = np.unique(metrics.equal_mass_bins(score), return_inverse=True)
    gaps = _by_group(weight[:, judged] * (c.label[judged] - score), group, len(used))
    return _ratio(np.abs(gaps).sum(axis=1), n)
