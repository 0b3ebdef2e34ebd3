"""The n-gram model of `encoder-small` 1.1."""

from __future__ import annotations

import numpy as np
import pytest

from guard.detect.lexical import BUCKETS, LexicalHead, gram_values, hashed_grams
from tests.small import WEIGHTS


@pytest.fixture(scope="module")
def head() -> LexicalHead:
    with (WEIGHTS / "lexical.npz").open("rb") as file:
        return LexicalHead.load(file)


def test_wording_decides(head: LexicalHead) -> None:
    assert head.logit("Those people are lazy liars.") > head.logit("Those people sell bread.")
    # Case is no wording.
    assert head.logit("LAZY LIARS") == head.logit("lazy liars")


def test_an_empty_text_has_the_bias_alone(head: LexicalHead) -> None:
    assert head.logit("") == head.bias


def test_vectors_have_norm_one_in_each_block() -> None:
    one = hashed_grams("Plain words stand here, and here again.")
    x = gram_values(one, np.ones(2 * BUCKETS, np.float32))
    for block in (one.ids < BUCKETS, one.ids >= BUCKETS):
        assert np.linalg.norm(x[block]) == pytest.approx(1, abs=1e-6)
    assert len(set(one.ids.tolist())) == len(one.ids)
