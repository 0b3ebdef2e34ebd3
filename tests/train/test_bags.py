"""Segments of one text share its label: the highest of them bears it."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812

from guard.train.batches import bags
from guard.train.model import _bias_loss
from guard.train.rows import TrainingRow

LOGITS = st.lists(st.floats(-8, 8), min_size=2, max_size=6)


def row(text: str, family: str, *, biased: bool = True, known: bool = True) -> TrainingRow:
    source = "redditbias" if known and biased else "redditbias_rest"
    return TrainingRow(text, biased, source, family, alone=biased, known=known)


def loss(logits: list[float], label: float, known: list[float], numbers: list[int]) -> float:
    return _bias_loss(
        torch.tensor(logits), torch.full((len(logits),), label), torch.tensor(known),
        torch.tensor(numbers),
    ).item()  # fmt: skip


def test_segments_of_a_text_are_numbered_together() -> None:
    rows = [row("a", "1"), row("x", "2"), row("b", "1", known=False), row("c", "3", known=False)]
    assert bags([*rows, row("d", "3", known=False)]).tolist() == [0, -1, 0, -1, -1]
    other = replace(rows[0], source="own")
    assert bags([other, other]).tolist() == [-1, -1]


@given(LOGITS)
def test_a_text_is_as_biased_as_its_highest_segment(logits: list[float]) -> None:
    n = len(logits)
    # No segment's own label is known here, so that the bag alone counts.
    found = loss(logits, 1.0, [0.0] * n, [0] * n)
    highest = F.softplus(torch.tensor(-max(logits))).item()
    alike = F.softplus(torch.tensor(-(max(logits) + torch.tensor(float(n)).log().item() / 2)))
    assert alike.item() - 1e-5 <= found <= highest + 1e-5


@given(LOGITS, st.floats(-8, 8))
def test_a_segment_of_unknown_label_counts_through_its_text_alone(
    logits: list[float], other: float
) -> None:
    # Left out of every bag, it changes nothing.
    n = len(logits)
    alone = loss(logits, 1.0, [1.0] * n, [-1] * n)
    assert loss([*logits, other], 1.0, [1.0] * n + [0.0], [-1] * (n + 1)) == pytest.approx(alone)


def test_without_bags_it_is_the_mean_log_loss() -> None:
    logits, labels = torch.tensor([2.0, -1.0, 0.5]), torch.tensor([1.0, 0.0, 0.0])
    found = _bias_loss(logits, labels, torch.ones(3), torch.full((3,), -1))
    assert found.item() == pytest.approx(F.binary_cross_entropy_with_logits(logits, labels).item())
