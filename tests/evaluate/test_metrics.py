"""Every measure against numbers worked out by hand, and what has no denominator."""

from __future__ import annotations

import math

import numpy as np
import pytest

from guard.evaluate.columns import Prediction, columns
from guard.evaluate.example import Example
from guard.evaluate.metrics import (
    MEASURES,
    denominators,
    equal_mass_bins,
    point,
    reliability,
)
from guard.verdict import Attribution, Span
from tests.evaluate.samples import told, worked


def test_worked_example() -> None:
    # Judged: TP 3, FN 1, FP 1, TN 4 of 9; one of 10 was not judged.
    found = point(columns(*worked()))
    f1, other = 6 / 8, 8 / 10
    # Biased scores .9 .8 .7 .2 against .6 .4 .3 .2 .1: 5 + 5 + 5 + 1.5 of 20.
    expected = {
        "accuracy": 7 / 9,
        "f1": f1,
        "precision": 3 / 4,
        "false_positive_rate": 1 / 5,
        "false_negative_rate": 1 / 4,
        "macro_f1": (f1 + other) / 2,
        "auroc": 16.5 / 20,
        "prevalence": 4 / 9,
        "cs": 2 / 3,
        "as": 1 / 2,
        "group": 1.0,
        "overall": 5 / 10,  # the first text and four harmless ones
        "usable": 9 / 10,
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-12), name
    assert math.isnan(found["pair_order"])
    assert math.isnan(found["attribute_f1"])


def test_denominators_of_the_worked_example() -> None:
    over = {name: len(units) for name, units in denominators(columns(*worked())).items()}
    assert over["accuracy"] == 9
    assert over["precision"] == 4
    assert over["false_positive_rate"] == 5
    assert over["false_negative_rate"] == 4
    assert over["cs"] == 3
    assert over["as"] == 2
    assert over["group"] == 3
    assert over["overall"] == 10
    assert over["pair_order"] == 0
    assert set(over) == set(MEASURES)


def test_nothing_measured_is_nan_not_zero() -> None:
    found = point(columns([], []))
    assert set(found) == set(MEASURES)
    assert all(math.isnan(v) for v in found.values())


def test_only_harmless_texts() -> None:
    examples = [told(i, False) for i in range(4)]
    found = point(columns(examples, [Prediction(0.9, True), *[Prediction(0.1, False)] * 3]))
    assert found["false_positive_rate"] == 0.25
    assert found["accuracy"] == 0.75
    assert found["precision"] == 0
    for name in ("f1", "false_negative_rate", "macro_f1", "auroc", "cs", "as", "group"):
        assert math.isnan(found[name]), name


def test_only_biased_texts_and_none_found() -> None:
    found = point(columns([told(0, True)], [Prediction(0.1, False)]))
    assert found["false_negative_rate"] == 1
    assert found["f1"] == 0
    for name in ("false_positive_rate", "precision", "auroc", "macro_f1", "cs"):
        assert math.isnan(found[name]), name


def test_everything_unjudged() -> None:
    found = point(
        columns([told(0, True), told(1, False)], [Prediction(0, False, reason="failure")] * 2)
    )
    assert found["usable"] == 0
    assert found["overall"] == 0
    assert math.isnan(found["accuracy"])
    assert math.isnan(found["ece"])


def test_a_text_is_right_with_any_of_its_types() -> None:
    example = told(0, True, bias_types=("race", "religion"))
    for kind, right in (("race", 1.0), ("religion", 1.0), ("age", 0.0)):
        assert point(columns([example], [Prediction(0.9, True, kind)]))["cs"] == right  # type: ignore[arg-type]


def test_any_attribution_may_be_right_and_the_first_is_told_apart() -> None:
    example = Example(
        "old dogs and cats sleep", True, "t:1", groups=("cats",), attributes=("sleep",)
    )
    wrong = Attribution("dogs", "old", Span(4, 8), Span(0, 3))
    right = Attribution("cats", "sleep", Span(13, 17), Span(18, 23))
    found = point(columns([example], [Prediction(0.9, True, None, (wrong, right))]))
    assert (found["as"], found["as_first"]) == (1, 0)
    found = point(columns([example], [Prediction(0.9, True, None, (right, wrong))]))
    assert (found["as"], found["as_first"]) == (1, 1)


def test_attribute_f1_of_found_texts_and_of_all() -> None:
    marked = Example("old dogs sleep late", True, "t:1", attribute_spans=(Span(9, 19),))
    half = Attribution("dogs", "late", Span(4, 8), Span(15, 19))  # one of two words: F1 2/3
    found = point(
        columns([marked, marked], [Prediction(0.9, True, None, (half,)), Prediction(0.1, False)])
    )
    assert found["attribute_f1"] == pytest.approx(2 / 3)
    assert found["attribute_f1_all"] == pytest.approx(1 / 3)


def test_pair_order_is_strict_and_leaves_out_what_was_not_judged() -> None:
    def two(
        unit: str, more: float, less: float, reason: str = ""
    ) -> list[tuple[Example, Prediction]]:
        return [
            (Example("a", None, f"{unit}:m", unit=unit, role="more"), Prediction(more, False)),
            (
                Example("b", None, f"{unit}:l", unit=unit, role="less"),
                Prediction(less, False, reason=reason),
            ),
        ]

    rows = [
        *two("1", 0.6, 0.5),
        *two("2", 0.5, 0.5),
        *two("3", 0.1, 0.9),
        *two("4", 1, 0, "language"),
    ]
    c = columns([e for e, _ in rows], [a for _, a in rows])
    assert point(c)["pair_order"] == pytest.approx(1 / 3)
    assert len(denominators(c)["pair_order"]) == 3
    assert math.isnan(point(c)["accuracy"])  # pairs without labels are no classification


def test_calibrated_scores_have_no_error_and_biased_ones_their_distance() -> None:
    examples = [told(i, i % 2 == 0) for i in range(200)]
    assert point(columns(examples, [Prediction(0.5, True)] * 200))["ece"] == pytest.approx(0)
    assert point(columns(examples, [Prediction(0.9, True)] * 200))["ece"] == pytest.approx(0.4)


def test_ece_of_two_bins_by_hand() -> None:
    # 100 texts at .2, 30 biased; 100 at .8, 70 biased: (.5 x .1) + (.5 x .1).
    examples = [told(i, i < 30 or 100 <= i < 170) for i in range(200)]
    answers = [Prediction(0.2, False)] * 100 + [Prediction(0.8, True)] * 100
    c = columns(examples, answers)
    assert point(c)["ece"] == pytest.approx(0.1)
    low, high = reliability(c)
    assert (low.biased.n, low.score, low.biased.value) == pytest.approx((100, 0.2, 0.3))
    assert (high.biased.n, high.score, high.biased.value) == pytest.approx((100, 0.8, 0.7))


def test_bins_hold_equal_mass_and_equal_scores_share_one() -> None:
    score = np.linspace(0, 1, 150)
    assert set(np.bincount(equal_mass_bins(score))) == {10}
    assert len(set(equal_mass_bins(np.full(150, 0.3)))) == 1
