"""Measures equal scikit-learn's; intervals are as wide as theory says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from guard.evaluate.columns import Prediction, columns
from guard.evaluate.example import Example
from guard.evaluate.metrics import MEASURES, equal_mass_bins, figures, point, resampled, weighted
from guard.results.intervals import percentile
from tests.evaluate.samples import many, pair, told, worked


@pytest.mark.parametrize("seed", range(5))
def test_the_measures_are_those_of_scikit_learn(seed: int) -> None:
    reference = pytest.importorskip("sklearn.metrics")
    c = columns(*many(300, seed))
    label, predicted, score = c.label[c.usable], c.predicted[c.usable], c.score[c.usable]
    (tn, fp), (fn, tp) = reference.confusion_matrix(label, predicted)
    found = point(c)
    for name, wanted in {
        "accuracy": reference.accuracy_score(label, predicted),
        "f1": reference.f1_score(label, predicted),
        "precision": reference.precision_score(label, predicted),
        "false_positive_rate": fp / (fp + tn),
        "false_negative_rate": fn / (fn + tp),
        "macro_f1": reference.f1_score(label, predicted, average="macro"),
        "auroc": reference.roc_auc_score(label, score),
        "ece": np.abs(np.bincount(equal_mass_bins(score), label - score)).sum() / len(label),
    }.items():
        assert found[name] == pytest.approx(wanted, abs=1e-9), name


def expit(logit: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logit))


def test_counts_of_two_are_texts_that_stand_there_twice() -> None:
    examples, answers = worked()
    counts = np.ones((1, len(examples)))
    counts[0, [1, 5]] = 2
    vector = weighted(columns(examples, answers), counts)
    again = [
        *examples,
        *(
            Example(
                **{f: getattr(examples[i], f) for f in Example.__slots__} | {"id": f"again:{i}"}
            )
            for i in (1, 5)
        ),
    ]
    plain = point(columns(again, [*answers, answers[1], answers[5]]))
    for name in set(MEASURES) - {"ece"}:  # the bins stay those of the sample
        assert vector[name][0] == pytest.approx(plain[name], abs=1e-12, nan_ok=True), name


def test_the_interval_of_a_share_is_as_wide_as_the_binomial_one() -> None:
    examples = [told(i, True) for i in range(400)]
    answers = [Prediction(0.9, True)] * 300 + [Prediction(0.1, False)] * 100
    found = figures(columns(examples, answers), draws=2000, seed=1)["accuracy"]
    half = 1.96 * math.sqrt(0.75 * 0.25 / 400)
    assert found.value == 0.75
    assert found.low == pytest.approx(0.75 - half, abs=0.006)
    assert found.high == pytest.approx(0.75 + half, abs=0.006)


def test_nineteen_of_twenty_intervals_hold_the_truth() -> None:
    rng = np.random.default_rng(7)
    examples = [told(i, True) for i in range(150)]
    held = 0
    for _ in range(200):
        said = rng.random(150) < 0.7
        answers = [Prediction(float(s), bool(s)) for s in said]
        redrawn = resampled(columns(examples, answers), draws=300, seed=int(rng.integers(1 << 30)))
        low, high = percentile(redrawn["accuracy"])
        held += low <= 0.7 <= high
    assert 178 <= held <= 199


def test_texts_of_one_unit_are_drawn_together() -> None:
    # 50 units of four alike texts hold no more than 50 texts do.
    alike = [Example("a", True, f"{u}:{i}", unit=str(u)) for u in range(50) for i in range(4)]
    apart = [Example("a", True, f"{u}:{i}") for u in range(50) for i in range(4)]
    answers = [Prediction(float(u % 2), u % 2 == 1) for u in range(50) for _ in range(4)]
    wide = figures(columns(alike, answers), draws=1000, seed=0)["accuracy"]
    narrow = figures(columns(apart, answers), draws=1000, seed=0)["accuracy"]
    assert (wide.high - wide.low) / (narrow.high - narrow.low) == pytest.approx(2, rel=0.15)


def test_texts_of_one_unit_are_one_where_all_are_alike() -> None:
    alike = [Example("a", False, f"{u}:{i}", unit=str(u)) for u in range(50) for i in range(3)]
    found = figures(columns(alike, [Prediction(0.1, False)] * 150), draws=50, seed=0)
    assert found["false_positive_rate"].n == 150
    assert found["false_positive_rate"].high == pytest.approx(1 - 0.025 ** (1 / 50))


def test_what_no_sample_changes_has_an_exact_interval_or_none() -> None:
    terms = {"groups": ("pilots",), "attributes": ("late",)}
    examples = [told(i, True, **terms) for i in range(20)] + [told(i, False) for i in range(20, 40)]
    right = [Prediction(0.9, True, attributions=pair("pilots", "late"))] * 20
    found = figures(columns(examples, right + [Prediction(0.1, False)] * 20), draws=50, seed=0)
    for name in ("accuracy", "as", "as_first"):
        assert found[name].value == 1, name
        assert 0.8 < found[name].low < 1, name
    for name in ("f1", "macro_f1", "auroc"):
        assert found[name].value == 1, name
        assert math.isnan(found[name].low), name


@pytest.mark.parametrize("shift", [0.5, 1.0])
def test_calibration_errors_lie_in_their_intervals(shift: float) -> None:
    rng = np.random.default_rng(11)
    grid = rng.normal(0, 2, 100_000)
    true = float(np.abs(expit(grid + shift) - expit(grid)).mean())
    held = 0
    for _ in range(100):
        logit = rng.normal(0, 2, 300)
        examples = [told(i, bool(b)) for i, b in enumerate(rng.random(300) < expit(logit))]
        answers = [Prediction(float(s), bool(s > 0.5)) for s in expit(logit + shift)]
        found = figures(columns(examples, answers), draws=100, seed=1)["ece"]
        assert found.low <= found.value <= found.high
        held += found.low <= true <= found.high
    # Of 100 intervals that cover with a chance of .95, so few do in one of a thousand runs.
    assert held >= 87


def test_the_seed_fixes_the_intervals() -> None:
    c = columns(*many(200))
    assert repr(figures(c, draws=100, seed=3)) == repr(figures(c, draws=100, seed=3))
    assert repr(figures(c, draws=100, seed=3)) != repr(figures(c, draws=100, seed=4))


def test_without_draws_there_are_no_intervals() -> None:
    found = figures(columns(*worked()), draws=0, seed=0)
    assert found["accuracy"].value == pytest.approx(7 / 9)
    assert math.isnan(found["accuracy"].low)


def test_nothing_defined_is_nan() -> None:
    c = columns([], [])
    assert all(math.isnan(f.low) for f in figures(c, draws=10, seed=0).values())


def test_no_error_in_n_is_no_proof_of_none() -> None:
    examples = [told(i, False) for i in range(300)]
    found = figures(columns(examples, [Prediction(0.1, False)] * 300), draws=100, seed=0)
    assert found["false_positive_rate"].value == 0
    assert found["false_positive_rate"].high == pytest.approx(
        0.01222, abs=1e-5
    )  # Clopper-Pearson, 0 of 300
    assert found["accuracy"].low == pytest.approx(1 - 0.01222, abs=1e-5)
