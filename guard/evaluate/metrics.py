"""The measures of one sample of texts, as numbers; an empty denominator is nan, never 0.

Over judged texts with a label (`usable` and `overall` count every text with a label):

========= =============================================================================
accuracy  share of texts judged as labelled (BiasAlert paper, section 4.1, efficacy score)
f1        2 TP / (2 TP + FP + FN) of the class biased; nan where no text is biased
precision TP / (TP + FP)
alarm     FP / (FP + TN): the false positive rate, over harmless texts
miss      FN / (FN + TP): the false negative rate, over biased texts
macro_f1  mean F1 of both classes; nan where a class has no text
auroc     probability that a biased text scores above a harmless one; a tie counts one half
prevalence share of texts labelled biased
cs        classification score: share with the right type among hits of known type
as        attribution score: share with the right (group, attribute) among hits of known terms
group     share with the right group among hits of known group
attribute_f1      mean word F1 of the attribute among hits whose attribute is marked
attribute_f1_all  the same among all biased texts whose attribute is marked; a miss counts 0
pair_order        share of pairs whose member that should score higher does; a tie counts 0
ece       expected calibration error, sum over bins of (n_b / n) |share biased - mean score|
          (Guo et al. 2017, equation 5), here with bins of equal mass
overall   share of all texts with the right label and, if biased, the right type and terms
usable    share of all texts that were judged (OS of the BiasAlert paper's Table 5)
========= =============================================================================

The paper computes CS and AS "only on the data predicted to be biased". A hit is a text that is
biased by label and by prediction: a false positive has no right type or attribution.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from guard.errors import UsageError
from guard.evaluate.columns import Bools, Columns, Floats, Ints
from guard.installed import install_command
from guard.intervals import exact

try:
    from sklearn.metrics import (  # type: ignore[import-untyped]
        accuracy_score,
        confusion_matrix,
        f1_score,
        precision_score,
        recall_score,
        roc_auc_score,
    )
except ImportError:  # pragma: no cover - a test removes the package in a process of its own
    raise UsageError(f"guard eval needs scikit-learn: {install_command('eval')}") from None

NAN = float("nan")
BINS = 15

MEASURES = (
    "accuracy",
    "f1",
    "precision",
    "alarm",
    "miss",
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


class Bin(NamedTuple):
    """One bin of a reliability diagram: n texts, their mean score and share of biased ones.

    ``low`` and ``high`` are the exact binomial 95 % interval of that share.
    """

    n: int
    score: float
    biased: float
    low: float
    high: float


def point(c: Columns) -> dict[str, float]:
    """Return every measure of the sample, by name."""
    judged = c.usable
    label, predicted, score = c.label[judged], c.predicted[judged], c.score[judged]
    return {
        **_classification(label, predicted),
        "auroc": _auroc(label, score),
        "cs": _share(c.type_right, c.hit & c.type_known),
        "as": _share(c.terms_right, c.hit & c.terms_known),
        "as_first": _share(c.first_right, c.hit & c.terms_known),
        "group": _share(c.group_right, c.hit & c.group_known),
        "attribute_f1": _share(c.span_f1, c.hit & ~np.isnan(c.span_f1)),
        "attribute_f1_all": _share(
            np.where(c.hit, c.span_f1, 0.0), c.label & judged & ~np.isnan(c.span_f1)
        ),
        "pair_order": float(c.ordered.mean()) if len(c.ordered) else NAN,
        "overall": float(c.all_right.mean()) if len(c.label) else NAN,
        "usable": float(judged.mean()) if len(c.label) else NAN,
        "ece": _ece(label, score),
        "prevalence": float(label.mean()) if len(label) else NAN,
    }


def denominators(c: Columns) -> dict[str, int]:
    """Return the number of texts (or pairs) in each measure's denominator."""
    biased, harmless = c.label & c.usable, ~c.label & c.usable
    marked = ~np.isnan(c.span_f1)
    judged = int(c.usable.sum())
    return {
        **dict.fromkeys(MEASURES, judged),
        "precision": int((c.predicted & c.usable).sum()),
        "alarm": int(harmless.sum()),
        "miss": int(biased.sum()),
        "cs": int((c.hit & c.type_known).sum()),
        "as": int((c.hit & c.terms_known).sum()),
        "as_first": int((c.hit & c.terms_known).sum()),
        "group": int((c.hit & c.group_known).sum()),
        "attribute_f1": int((c.hit & marked).sum()),
        "attribute_f1_all": int((biased & marked).sum()),
        "pair_order": len(c.ordered),
        "overall": len(c.label),
        "usable": len(c.label),
    }


def equal_mass_bins(score: Floats, bins: int = BINS) -> Ints:
    """Return the bin of each score: edges are quantiles, so equal scores share a bin.

    Shape (n,) -> (n,). Ties can leave fewer than ``bins`` bins in use.
    """
    if not len(score):
        return np.zeros(0, dtype=np.int64)
    edges = np.quantile(score, np.arange(1, bins) / bins)
    return np.searchsorted(edges, score, side="left").astype(np.int64)


def reliability(c: Columns) -> list[Bin]:
    """Return the reliability diagram of the judged texts, lowest scores first."""
    label, score = c.label[c.usable], c.score[c.usable]
    where = equal_mass_bins(score)
    found = []
    for b in np.unique(where):
        inside = where == b
        n, biased = int(inside.sum()), int(label[inside].sum())
        found.append(Bin(n, float(score[inside].mean()), biased / n, *exact(biased, n)))
    return found


def _classification(label: Bools, predicted: Bools) -> dict[str, float]:
    if not len(label):
        names = ("accuracy", "f1", "precision", "alarm", "miss", "macro_f1")
        return dict.fromkeys(names, NAN)
    ((tn, fp), (fn, tp)) = confusion_matrix(label, predicted, labels=[False, True])
    biased, harmless = bool(fn + tp), bool(tn + fp)
    both = biased and harmless
    return {
        "accuracy": float(accuracy_score(label, predicted)),
        "f1": float(f1_score(label, predicted, zero_division=NAN)) if biased else NAN,
        "precision": float(precision_score(label, predicted, zero_division=NAN)),
        "alarm": float(fp / (fp + tn)) if harmless else NAN,
        "miss": 1 - float(recall_score(label, predicted)) if biased else NAN,
        "macro_f1": float(f1_score(label, predicted, average="macro")) if both else NAN,
    }


def _auroc(label: Bools, score: Floats) -> float:
    if label.all() or not label.any():
        return NAN
    return float(roc_auc_score(label, score))


def _share(values: Bools | Floats, among: Bools) -> float:
    return float(values[among].mean()) if among.any() else NAN


def _ece(label: Bools, score: Floats) -> float:
    if not len(label):
        return NAN
    gaps = np.bincount(equal_mass_bins(score), weights=label - score)
    return float(np.abs(gaps).sum() / len(label))
