"""The n-gram model learns wording, and is the same after it was saved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from guard.detect.lexical import BUCKETS, LexicalHead, grams, values
from guard.train.lexical import fit, fit_rows, save
from guard.train.rows import TrainingRow

BAD = [f"the {n} people are lazy liars" for n in ("old", "new", "tall", "quiet", "loud", "far")]
GOOD = [f"the {n} people are at the market" for n in ("old", "new", "tall", "quiet", "loud", "far")]


@pytest.fixture(scope="module")
def head() -> LexicalHead:
    return fit(BAD + GOOD, [True] * 6 + [False] * 6, strength=10)


def test_it_separates_by_wording(head: LexicalHead) -> None:
    assert head.logit("Some people are lazy liars.") > 0
    assert head.logit("Some people are at the market.") < 0
    # Case is no wording.
    assert head.logit("LAZY LIARS") == head.logit("lazy liars")


def test_an_empty_text_has_the_bias_alone(head: LexicalHead) -> None:
    assert head.logit("") == head.bias
    assert head.logit("…") == pytest.approx(head.bias, abs=1.0)


def test_vectors_have_norm_one_in_each_block() -> None:
    one = grams("Plain words stand here, and here again.")
    x = values(one, np.ones(2 * BUCKETS, np.float32))
    for block in (one.ids < BUCKETS, one.ids >= BUCKETS):
        assert np.linalg.norm(x[block]) == pytest.approx(1, abs=1e-6)
    assert len(set(one.ids.tolist())) == len(one.ids)


def test_the_fit_is_a_minimum(head: LexicalHead) -> None:
    texts, labels = BAD + GOOD, np.array([1.0] * 6 + [0.0] * 6)

    def loss(change: np.ndarray) -> float:
        moved = LexicalHead(head.idf, head.weight + change.astype(np.float32), head.bias)
        z = np.array([moved.logit(t) for t in texts])
        fitted = np.logaddexp(0, np.where(labels > 0, -z, z)).sum()
        return float(fitted + (moved.weight.astype(float) ** 2).sum() / 20)

    best = loss(np.zeros(2 * BUCKETS))
    rng = np.random.default_rng(0)
    for _ in range(5):
        change = rng.normal(size=2 * BUCKETS) * (head.weight != 0)
        assert loss(0.05 * change / np.linalg.norm(change)) > best - 1e-4


def test_rows_without_a_label_of_their_own_are_left_out() -> None:
    rows = [TrainingRow(t, True, "own", "f", alone=True) for t in BAD]
    rows += [TrainingRow(t, False, "own", "f", alone=False) for t in GOOD]
    more = [*rows, TrainingRow("only a reference tells", True, "invented", "f")]
    np.testing.assert_array_equal(fit_rows(rows).weight, fit_rows(more).weight)


def test_saved_and_read_it_says_the_same(head: LexicalHead, tmp_path: Path) -> None:
    save(head, tmp_path / "lexical.npz")
    again = LexicalHead.load(tmp_path / "lexical.npz")
    for text in BAD + GOOD:
        assert again.logit(text) == pytest.approx(head.logit(text), abs=5e-3)
