"""Rows to tensors."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from guard.detect.tokens import WindowTokens
from guard.train.base import padded_inputs
from guard.train.config import TrainConfig
from guard.train.corpus import Corpus, Pick, Sampler
from guard.train.misspelt import misspelt_row
from guard.train.model import Targets
from guard.train.references import TrainIndex
from guard.verdict import BIAS_TYPES


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a run reads: the corpus, its index and the batches of each epoch."""

    corpus: Corpus
    tokens: WindowTokens
    index: TrainIndex
    sampler: Sampler
    soft: Tensor  # (rows,) the teachers' probability of "biased" or -1, (0,) without teachers


class Batch(NamedTuple):
    """A batch of n rows.

    ``inputs`` are ids, attention mask and token types (n, t), ``references`` are vectors (n, k, d),
    type ids (n, k) and which slots are used (n, k).
    """

    inputs: tuple[Tensor, ...]
    references: tuple[Tensor, ...]
    targets: Targets


def make_batch(
    ready: Prepared, picks: list[Pick], rng: random.Random, config: TrainConfig
) -> Batch:
    """Return the tensors of one batch of training rows, with a newly subsampled index.

    Inputs are padded to the longest; an overlong segment trains on its first part. A misspelt row
    has the vector and the teachers' logit of the text without the mistake.
    """
    ids = [p.row for p in picks]
    fused = config.references == "fused"
    hits = ready.index.hits(ids, rng) if fused else ready.index.no_hits(len(ids))
    rows = [ready.corpus.train[i] for i in ids]
    rows = [misspelt_row(r, rng) if rng.random() < config.misspelt else r for r in rows]
    encoded = [ready.tokens.encode(r.text, p.context)[0] for r, p in zip(rows, picks, strict=True)]
    inputs = padded_inputs(encoded, ready.tokens.pad)
    spans = torch.zeros(*inputs[0].shape, 2)
    spans_mask = torch.zeros(inputs[0].shape)
    for i, (row, window) in enumerate(zip(rows, encoded, strict=True)):
        for j, (start, end) in enumerate(window.offsets if row.spans else (), start=1):
            spans_mask[i, j] = 1
            for channel, span in enumerate((row.group, row.attribute)):
                if span is not None and start < span.end and end > span.start:
                    spans[i, j, channel] = 1
    targets = Targets(
        biased=torch.tensor([float(r.biased) for r in rows]),
        alone=torch.tensor([-1.0 if r.alone is None else float(r.alone) for r in rows]),
        types=torch.tensor([BIAS_TYPES.index(r.bias_type) if r.bias_type else -1 for r in rows]),
        spans=spans,
        spans_mask=spans_mask,
        embedding=torch.from_numpy(ready.index.vectors[ids]),
        implied=torch.tensor([-1.0 if r.implied is None else float(r.implied) for r in rows]),
        soft=ready.soft[ids] if len(ready.soft) else ready.soft,
        known=torch.tensor([float(r.known) for r in rows]),
    )
    return Batch(inputs, tuple(map(torch.from_numpy, hits)), targets)
