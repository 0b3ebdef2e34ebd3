"""The measures of texts, as numbers; an empty denominator is nan, never 0.

Over judged texts with a label (`usable` and `overall` count every text with a label):

=================== ==================================================================
accuracy            share of texts judged as labelled (BiasAlert paper, section 4.1,
                    efficacy score)
f1                  2 TP / (2 TP + FP + FN) of the class biased; nan where no text is
                    biased
precision           TP / (TP + FP)
false_positive_rate FP / (FP + TN), over harmless texts
false_negative_rate FN / (FN + TP), over biased texts
macro_f1            mean F1 of both classes; nan where a class has no text
auroc               probability that a biased text scores above a harmless one; a tie
                    counts one half
prevalence          share of texts labelled biased
cs                  classification score: share with the right type among hits of known
                    type
as                  attribution score: share with the right (group, attribute) among
                    hits of known terms
as_first            the same with the first attribution only
group               share with the right group among hits of known group
attribute_f1        mean word F1 of the attribute among hits whose attribute is marked
attribute_f1_all    the same among all biased texts whose attribute is marked; a false
                    negative counts 0
pair_order          share of pairs whose member that should score higher does; a tie
                    counts 0
ece                 expected calibration error, sum over bins of
                    (n_b / n) |share biased - mean score| (Guo et al. 2017,
                    equation 5), here with bins of equal mass
overall             share of all texts with the right label and, if biased, the right
                    type and terms
usable              share of all texts that were judged (OS of the BiasAlert paper's
                    Table 5)
=================== ==================================================================

The paper computes CS and AS "only on the data predicted to be biased". A hit is a text that is
biased by label and by prediction: a false positive has no right type or attribution.

Intervals are those of the percentile bootstrap over units (Efron and Tibshirani 1993, ch. 13). A
bootstrap sample is a row of counts: how often each unit was drawn. Variants of one unit (the two
sentences of a pair, the variants of an item) are drawn together, because their errors are not
independent. Every measure is computed from the counts of many samples at once, so that a thousand
samples of ten thousand texts take about a second. Counts of one give the measures themselves.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from guard.evaluate.columns import Columns, Floats, Ints
from guard.results.estimate import Estimate
from guard.results.intervals import clopper_pearson, percentile, union_of_bootstraps

NAN = float("nan")
BINS = 15

MEASURES = (
    "accuracy",
    "f1",
    "precision",
    "false_positive_rate",
    "false_negative_rate",
    "macro_f1",
    "auroc",
    "cs",
    "as",
    "as_first",
    "group",
    "attribute_f1",
    "attribute_f1_all",
    "pair_order",
    "overall",
    "usable",
    "ece",
    "prevalence",
)

# Bootstrap samples in memory at a time: 64 rows of 20,000 texts take 10 MB.
_ROWS = 64
# Measures that are proportions of n texts or pairs.
_SHARES = frozenset(
    "accuracy precision false_positive_rate false_negative_rate cs as as_first group pair_order "
    "overall usable prevalence".split()
)
_Scalar = TypeVar("_Scalar", bound=np.generic)


class ScoreBin(NamedTuple):
    """One bin of a reliability diagram: the mean score of its texts, and the share biased.

    The interval of that share is the exact binomial one.
    """

    score: float
    biased: Estimate


def point(c: Columns) -> dict[str, float]:
    """Return every measure of the sample, by name."""
    of_one = weighted(c, np.ones((1, c.units)))
    # Always the same nan, which equals itself in a comparison of dictionaries.
    return {name: NAN if np.isnan(of[0]) else float(of[0]) for name, of in of_one.items()}


def weighted(c: Columns, counts: Floats) -> dict[str, Floats]:
    """Return every measure for rows of unit counts: (rows, units) -> (rows,) by name."""
    weight = counts[:, c.unit]
    judged = c.usable

    def total(where: NDArray[_Scalar]) -> Floats:
        return np.asarray(weight @ where.astype(float), dtype=np.float64)

    tp, fp = total(c.hit), total(c.predicted & ~c.label & judged)
    biased, harmless = total(c.label & judged), total(~c.label & judged)
    n, everything = biased + harmless, weight.sum(axis=1)
    fn, tn = biased - tp, harmless - fp
    marked = ~np.isnan(c.span_f1)
    f1_of_found = total(np.where(c.hit & marked, c.span_f1, 0.0))
    f1 = np.where(biased > 0, _ratio_of(2 * tp, 2 * tp + fp + fn), np.nan)
    other = _ratio_of(2 * tn, 2 * tn + fp + fn)
    both = (biased > 0) & (harmless > 0)
    of_terms = total(c.hit & c.terms_known)
    pairs = counts[:, c.pair_unit]
    return {
        "accuracy": _ratio_of(tp + tn, n),
        "f1": f1,
        "precision": _ratio_of(tp, tp + fp),
        "false_positive_rate": _ratio_of(fp, harmless),
        "false_negative_rate": _ratio_of(fn, biased),
        "macro_f1": np.where(both, (f1 + other) / 2, np.nan),
        "auroc": _auroc(c, weight),
        "cs": _ratio_of(total(c.hit & c.type_known & c.type_right), total(c.hit & c.type_known)),
        "as": _ratio_of(total(c.hit & c.terms_known & c.terms_right), of_terms),
        "as_first": _ratio_of(total(c.hit & c.terms_known & c.first_right), of_terms),
        "group": _ratio_of(
            total(c.hit & c.group_known & c.group_right), total(c.hit & c.group_known)
        ),
        "attribute_f1": _ratio_of(f1_of_found, total(c.hit & marked)),
        "attribute_f1_all": _ratio_of(f1_of_found, total(c.label & judged & marked)),
        "pair_order": _ratio_of(pairs @ c.ordered.astype(float), pairs.sum(axis=1)),
        "overall": _ratio_of(total(c.all_right), everything),
        "usable": _ratio_of(total(judged), everything),
        "ece": _ece(c, weight, n),
        "prevalence": _ratio_of(biased, n),
    }


def denominators(c: Columns) -> dict[str, NDArray[np.int64]]:
    """Return the unit of each text (or pair) in each measure's denominator."""
    biased, harmless = c.label & c.usable, ~c.label & c.usable
    marked = ~np.isnan(c.span_f1)
    judged, everything = c.unit[c.usable], c.unit
    of_terms = c.unit[c.hit & c.terms_known]
    return {
        **dict.fromkeys(MEASURES, judged),
        "precision": c.unit[c.predicted & c.usable],
        "false_positive_rate": c.unit[harmless],
        "false_negative_rate": c.unit[biased],
        "cs": c.unit[c.hit & c.type_known],
        "as": of_terms,
        "as_first": of_terms,
        "group": c.unit[c.hit & c.group_known],
        "attribute_f1": c.unit[c.hit & marked],
        "attribute_f1_all": c.unit[biased & marked],
        "pair_order": c.pair_unit,
        "overall": everything,
        "usable": everything,
    }


def figures(c: Columns, *, draws: int, seed: int) -> dict[str, Estimate]:
    """Return every measure with its 95 % interval; ``draws=0`` leaves the intervals nan.

    ``n`` is the number of texts or pairs.

    Samples in which a measure is not defined are left out of its interval. A proportion of exactly
    0 or 1 gets the exact binomial interval over units, because its bootstrap interval is empty; so
    does the false positive rate if all texts are harmless and each is a unit. Other measures that
    are the same in every sample get none. The interval of ``ece``, which has a bias, is that
    of :func:`guard.results.intervals.union_of_bootstraps`.
    """
    values, over = point(c), denominators(c)
    redrawn = resampled(c, draws=draws, seed=seed) if draws else {}
    estimates = {}
    for name in MEASURES:
        value, n, units = values[name], len(over[name]), len(np.unique(over[name]))
        low, high = percentile(redrawn.get(name, np.zeros(0)))
        at_the_end = name in _SHARES and value in (0.0, 1.0)
        if draws and (at_the_end or (name == "false_positive_rate" and n and _harmless_singles(c))):
            low, high = clopper_pearson(round(value * units), units)
        elif low == high:
            low = high = NAN
        elif name == "ece" and not np.isnan(low):
            low, high = union_of_bootstraps(value, low, high)
        estimates[name] = Estimate(value, low, high, n)
    return estimates


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
    return {name: np.concatenate([b[name] for b in blocks]) for name in MEASURES}


def equal_mass_bins(score: Floats, bins: int = BINS) -> Ints:
    """Return the bin of each score: edges are quantiles, so equal scores share a bin.

    Shape (n,) -> (n,). Ties can leave fewer than ``bins`` bins in use.
    """
    if not len(score):
        return np.zeros(0, dtype=np.int64)
    edges = np.quantile(score, np.arange(1, bins) / bins)
    return np.searchsorted(edges, score, side="left").astype(np.int64)


def reliability(c: Columns) -> list[ScoreBin]:
    """Return the reliability diagram of the judged texts, lowest scores first."""
    label, score = c.label[c.usable], c.score[c.usable]
    where = equal_mass_bins(score)
    diagram = []
    for b in np.unique(where):
        inside = where == b
        n, biased = int(inside.sum()), int(label[inside].sum())
        share = Estimate(biased / n, *clopper_pearson(biased, n), n)
        diagram.append(ScoreBin(float(score[inside].mean()), share))
    return diagram


def _ratio_of(above: Floats, below: Floats) -> Floats:
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
    return _ratio_of(won, biased.sum(axis=1) * harmless.sum(axis=1))


def _ece(c: Columns, weight: Floats, n: Floats) -> Floats:
    """Return the expected calibration error; the bins are those of the sample itself."""
    judged = np.flatnonzero(c.usable)
    if not len(judged):
        return np.full(len(weight), np.nan)
    score = c.score[judged]
    used, group = np.unique(equal_mass_bins(score), return_inverse=True)
    gaps = _by_group(weight[:, judged] * (c.label[judged] - score), group, len(used))
    return _ratio_of(np.abs(gaps).sum(axis=1), n)
