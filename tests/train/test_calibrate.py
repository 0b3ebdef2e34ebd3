"""Temperature, operating points and the figures they rest on."""

from __future__ import annotations

import math

import numpy as np
import pytest

from guard.train.calibrate import fit_temperature, operating_points
from guard.train.evaluate import binary, windows
from guard.train.metrics import auroc
from guard.verdict import Scores


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_the_temperature_of_too_sure_logits_is_found() -> None:
    rng = np.random.default_rng(1)
    honest = rng.normal(0, 2, 20_000)
    labels = (rng.random(20_000) < sigmoid(honest)).astype(float)
    assert fit_temperature(honest * 2, labels) == pytest.approx(2, rel=0.05)
    assert fit_temperature(honest, labels) == pytest.approx(1, rel=0.05)


def test_points_are_ordered_and_keep_their_word() -> None:
    rng = np.random.default_rng(2)
    logits = rng.normal(0, 2, 4000)
    labels = (rng.random(4000) < sigmoid(logits)).astype(float)
    harmless = sigmoid(rng.normal(-4, 1.2, 2000))
    scores = sigmoid(logits)
    points = operating_points(scores, labels, harmless)
    strict, balanced, quiet = (points[p] for p in ("strict", "balanced", "quiet"))
    assert strict.threshold < balanced.threshold < quiet.threshold
    assert balanced.alarms <= 0.01
    assert quiet.alarms <= 0.004
    assert strict.recall >= 0.9
    assert balanced.accuracy == pytest.approx(0.79, abs=0.05)
    false = (scores[labels == 0] >= balanced.threshold).mean()
    assert (scores[labels == 0] >= quiet.threshold).mean() <= false / 2


def test_auroc_is_the_share_of_rightly_ordered_pairs() -> None:
    # scikit-learn's example: roc_auc_score([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]) == 0.75
    scores = np.array([0.1, 0.4, 0.35, 0.8])
    assert auroc(scores, np.array([0.0, 0, 1, 1])) == pytest.approx(0.75, abs=1e-12)
    # A tie is half a pair.
    assert auroc(np.array([1.0, 1.0]), np.array([0.0, 1.0])) == 0.5
    assert math.isnan(auroc(scores, np.ones(4)))


def test_rates_of_an_absent_label_are_nan() -> None:
    found = binary([Scores(0.9, "age"), Scores(0.1, "age")], [False, False], 0.5)
    assert found.alarm == 0.5
    assert math.isnan(found.miss)
    assert math.isnan(found.auroc)
    assert found.accuracy == 0.5


def test_thresholds_can_differ_by_type() -> None:
    scores = [Scores(0.6, "age"), Scores(0.6, "race")]
    limits = {"age": 0.5, "race": 0.7}
    assert binary(scores, [True, False], limits).accuracy == 1.0  # type: ignore[arg-type]


def test_windows_carry_two_segments_of_context() -> None:
    found = windows("One is here. Two is here. Three is here. Four is here.")
    assert len(found) == 4
    assert found[0].context == ()
    assert [c.strip() for c in found[3].context] == ["Two is here.", "Three is here."]
