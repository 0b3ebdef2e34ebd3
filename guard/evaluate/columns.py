"""Predictions and labels as arrays, from which every measure is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from guard.evaluate.example import Example
from guard.evaluate.matching import group_right, pair_right, token_f1, type_right
from guard.verdict import Attribution, BiasType

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Prediction:
    """A judge's finding on one text; ``score`` in [0, 1] is that of its highest segment.

    ``reason``: why the text was not judged, if so; the other fields have no meaning then.
    """

    score: float
    biased: bool
    bias_type: BiasType | None = None
    attributions: tuple[Attribution, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """n texts with a label, p pairs; every array of texts has shape (n,), of pairs (p,).

    ``predicted``: biased by prediction. ``usable``: judged at all. ``hit``: judged, biased by label
    and by prediction. The ``*_known`` columns: whether the source has the fact to compare with;
    ``*_right``: whether the prediction is right; ``first_right`` is ``terms_right`` of the first
    attribution only. ``span_f1`` is nan if no attribute is marked. ``unit`` numbers the texts'
    units, ``pair_unit`` the pairs'; ``ordered``: whether the member that should score higher does.
    """

    label: Bools
    predicted: Bools
    score: Floats
    usable: Bools
    type_known: Bools
    type_right: Bools
    group_known: Bools
    group_right: Bools
    terms_known: Bools
    terms_right: Bools
    first_right: Bools
    span_f1: Floats
    unit: Ints
    ordered: Bools
    pair_unit: Ints
    units: int

    @property
    def hit(self) -> Bools:
        """Texts that are biased, judged, and predicted to be biased."""
        return self.label & self.predicted & self.usable

    @property
    def all_right(self) -> Bools:
        """Texts judged with the right label and, if biased, the right type and terms."""
        fine = (~self.type_known | self.type_right) & (~self.terms_known | self.terms_right)
        right: Bools = self.usable & (self.label == self.predicted) & (~self.label | fine)
        return right


def columns(examples: Sequence[Example], predictions: Sequence[Prediction]) -> Columns:
    """Compare predictions with the sources' labels; texts without one are used in pairs only."""
    numbers: dict[str, int] = {}
    units = [numbers.setdefault(e.unit or e.id, len(numbers)) for e in examples]
    rows = [(e, a, u) for e, a, u in zip(examples, predictions, units, strict=True)]
    labelled = [row for row in rows if row[0].biased is not None]
    ordered, pair_unit = _pairs(rows)

    def column(values: Sequence[object]) -> Bools:
        array: Bools = np.array(values, dtype=np.bool_)
        return array

    return Columns(
        label=column([e.biased for e, _, _ in labelled]),
        predicted=column([a.biased and not a.reason for _, a, _ in labelled]),
        score=np.array([0.0 if a.reason else a.score for _, a, _ in labelled], dtype=float),
        usable=column([not a.reason for _, a, _ in labelled]),
        type_known=column([bool(e.bias_types) for e, _, _ in labelled]),
        type_right=column([type_right(a.bias_type, e.bias_types) for e, a, _ in labelled]),
        group_known=column([bool(e.groups) for e, _, _ in labelled]),
        group_right=column(
            [group_right([p.group for p in a.attributions], e.groups) for e, a, _ in labelled]
        ),
        terms_known=column([bool(e.groups and e.attributes) for e, _, _ in labelled]),
        terms_right=column(
            [pair_right(a.attributions, e.groups, e.attributes) for e, a, _ in labelled]
        ),
        first_right=column(
            [pair_right(a.attributions[:1], e.groups, e.attributes) for e, a, _ in labelled]
        ),
        span_f1=np.array(
            [
                token_f1(e.text, [p.attribute_span for p in a.attributions], e.attribute_spans)
                for e, a, _ in labelled
            ],
            dtype=float,
        ),
        unit=np.array([u for _, _, u in labelled], dtype=np.int64),
        ordered=column(ordered),
        pair_unit=np.array(pair_unit, dtype=np.int64),
        units=len(numbers),
    )


def _pairs(rows: Sequence[tuple[Example, Prediction, int]]) -> tuple[list[bool], list[int]]:
    """Return for each pair of judged texts whether ``more`` is strictly above ``less``."""
    more = {u: a for e, a, u in rows if e.role == "more" and not a.reason}
    less = {u: a for e, a, u in rows if e.role == "less" and not a.reason}
    both = [u for u in more if u in less]
    return [more[u].score > less[u].score for u in both], both
