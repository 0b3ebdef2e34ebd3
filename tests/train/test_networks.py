"""The interval of a difference between networks holds the truth, and families count once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.scripts import load


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Imports here, and not above, what would take seconds of every collection."""
    global roc_auc_score
    pytest.importorskip("torch")
    from sklearn.metrics import roc_auc_score  # type: ignore[import-untyped]


SCRIPT = Path(__file__).parents[2] / "benchmarks" / "detector" / "networks.py"


@pytest.fixture
def networks(monkeypatch: pytest.MonkeyPatch) -> Any:
    return load(SCRIPT, monkeypatch)


def drawn(networks: Any, rng: np.random.Generator, n: int = 100) -> tuple[Any, list[Any]]:
    """Texts of two sources, and the scores of networks of which the second is worse."""
    biased = rng.random(2 * n) < 0.5
    pool = np.repeat(["redditbias", "emgsd"], n)
    family = np.array([f"{p}:{i // 2}" for i, p in enumerate(pool)])
    texts = networks.Texts(pool, family, biased)
    signal, noise = np.where(biased, 1.0, 0.0), rng.normal(0, 1, 2 * n)
    return texts, [1.5 * signal + noise, 1.2 * signal + noise]


def test_auroc_is_that_of_scikit_learn(networks: Any) -> None:
    rng = np.random.default_rng(1)
    scores, biased = rng.integers(0, 9, 200).astype(float), rng.random(200) < 0.3
    assert networks.auroc(scores, biased) == pytest.approx(roc_auc_score(biased, scores))
    assert np.isnan(networks.auroc(scores, np.ones(200, bool)))


# Of 100 intervals that cover with a chance of .95, fewer than 87 do in one of a thousand runs; of
# 40 fewer than 33.
@pytest.mark.parametrize(
    ("intervals", "least"),
    [(40, 33), pytest.param(100, 87, marks=pytest.mark.slow("draws 10,000 samples"))],
)
def test_intervals_hold_the_difference(networks: Any, intervals: int, least: int) -> None:
    rng = np.random.default_rng(2)
    large, scores = drawn(networks, rng, 100_000)
    better, worse = (
        np.mean([networks.auroc(of[i], large.biased[i]) for i in large.sources().values()])
        for of in scores
    )
    held = 0
    for seed in range(intervals):
        texts, scores = drawn(networks, rng)
        same, (change, low, high) = networks.differences(scores, texts, draws=100, seed=seed)
        assert same == (0, 0, 0)
        assert low <= change <= high
        held += low <= worse - better <= high
    assert held >= least


def test_copies_of_a_family_say_nothing_new(networks: Any) -> None:
    texts, scores = drawn(networks, np.random.default_rng(3))
    copied = networks.Texts(*(np.repeat(column, 4) for column in texts))
    of_copies = [np.repeat(of, 4) for of in scores]
    (_, once), (_, four) = (
        networks.differences(s, t, draws=300) for s, t in ((scores, texts), (of_copies, copied))
    )
    assert four == pytest.approx(once, abs=1e-9)
