"""Rounding of weights to few bits such that later weights make up for what earlier ones lost.

GPTQ (Frantar et al. 2023, algorithm 1), with the inputs of the largest moments first.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Inputs that are rounded before the rest of the matrix makes up for them: it changes the speed,
# not the result.
_BLOCK = 128
# Share of the mean moment that is added to every one, so that the matrix can be inverted.
_DAMPING = 0.01


def rounded(weight: Tensor, moments: Tensor, bits: int) -> Tensor:
    """Return ``weight`` (outputs, inputs) on a grid of 2 ** ``bits`` + 1 steps for each output.

    ``moments`` (inputs, inputs) is the sum of x x^T over the layer's inputs x; the rounding keeps
    the products with such inputs, not the weights. A grid is even on both sides of 0 and ends at
    the output's largest weight.
    """
    count = weight.shape[1]
    order = moments.diagonal().argsort(descending=True)
    left = weight[:, order].double()
    known = moments[order][:, order].double()
    # An input that was never anything but 0 is no reason to change another's weight.
    known.diagonal()[known.diagonal() == 0] = 1
    known.diagonal().add_(_DAMPING * known.diagonal().mean())
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(known))
    factor = torch.linalg.cholesky(inverse, upper=True)
    levels = 2 ** (bits - 1)
    step = left.abs().amax(1).clamp(min=1e-12) / levels
    result = torch.zeros_like(left)
    for start in range(0, count, _BLOCK):
        end = min(start + _BLOCK, count)
        block = left[:, start:end].clone()
        errors = torch.zeros_like(block)
        for i in range(end - start):
            place = start + i
            grid = (block[:, i] / step).round().clamp(-levels, levels)
            result[:, place] = grid * step
            errors[:, i] = (block[:, i] - result[:, place]) / factor[place, place]
            block[:, i:] -= errors[:, i, None] * factor[place, place:end]
        left[:, end:] -= errors @ factor[start:end, end:]
    found = torch.empty_like(weight)
    found[:, order] = result.to(weight.dtype)
    return found
