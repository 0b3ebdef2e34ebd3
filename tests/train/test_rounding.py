"""Weights rounded to few bits."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.train.rounding import rounded


def _layer(seed: int, outputs: int = 12, inputs: int = 150) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a weight (outputs, inputs) and inputs (400, inputs) that depend on each other."""
    torch.manual_seed(seed)
    mixed = torch.randn(400, 20) @ torch.randn(20, inputs) + 0.3 * torch.randn(400, inputs)
    return torch.randn(outputs, inputs) * 0.05, mixed


def _plain(weight: torch.Tensor, bits: int) -> torch.Tensor:
    step = weight.abs().amax(1, keepdim=True) / 2 ** (bits - 1)
    return (weight / step).round() * step


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(3, 7))
def test_every_weight_lies_on_its_outputs_grid(seed: int, bits: int) -> None:
    weight, inputs = _layer(seed)
    step = weight.abs().amax(1, keepdim=True) / 2 ** (bits - 1)
    places = rounded(weight, inputs.T @ inputs, bits) / step
    assert (places - places.round()).abs().max() < 1e-4
    assert places.abs().max() < 2 ** (bits - 1) + 1e-4


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(3, 7))
def test_products_are_kept_better_than_by_plain_rounding(seed: int, bits: int) -> None:
    weight, inputs = _layer(seed)
    found = rounded(weight, inputs.T @ inputs, bits)

    def error(changed: torch.Tensor) -> float:
        return float(((changed - weight) @ inputs.T).square().mean())

    assert error(found) < 0.7 * error(_plain(weight, bits))


def test_inputs_that_share_nothing_leave_plain_rounding() -> None:
    weight, _ = _layer(3)
    moments = torch.diag(torch.rand(weight.shape[1]) + 0.1)
    torch.testing.assert_close(rounded(weight, moments, 6), _plain(weight, 6))


def test_an_input_that_is_always_zero_changes_no_other_weight() -> None:
    weight, inputs = _layer(5)
    inputs[:, 7] = 0
    other = weight.clone()
    other[:, 7] = 0
    found = rounded(weight, inputs.T @ inputs, 6)
    others = [i for i in range(weight.shape[1]) if i != 7]
    step = weight.abs().amax(1) / 32
    same = step == other.abs().amax(1) / 32
    assert same.sum() > 6
    torch.testing.assert_close(
        found[same][:, others], rounded(other, inputs.T @ inputs, 6)[same][:, others]
    )
