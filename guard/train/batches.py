"""Rows to tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from guard.detect.tokens import WindowTokens
from guard.train.base import padded
from guard.train.model import Targets
from guard.train.references import Hits, Vectors
from guard.train.rows import BAGGED, PAIRED, TrainingRow


class Batch(NamedTuple):
    """Inputs (n, t), references (n, k, d), their types and mask (n, k), and labels."""

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor
    vectors: Tensor
    types: Tensor
    mask: Tensor
    targets: Targets


def twins(rows: Sequence[TrainingRow]) -> list[tuple[int, int]]:
    """Return the (biased, harmless) positions of rows that are variants of one sentence."""
    families: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        if row.source in PAIRED:
            families.setdefault(row.family, []).append(i)
    return [
        (i, j) for ids in families.values() for i in ids for j in ids
        if rows[i].biased and not rows[j].biased
    ]  # fmt: skip


def bags(rows: Sequence[TrainingRow]) -> Tensor:
    """Return for each row the number of the text it is a segment of, -1 if it is no segment.

    Numbers count from 0 in order. A biased text whose annotated segment is missing is no bag.
    """
    families: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        if row.source in BAGGED:
            families.setdefault(row.family, []).append(i)
    out, number = torch.full((len(rows),), -1), 0
    for ids in families.values():
        if len(ids) > 1 and any(rows[i].known for i in ids):
            out[ids] = number
            number += 1
    return out


def collate(
    rows: Sequence[TrainingRow],
    contexts: Sequence[tuple[str, ...]],
    tokens: WindowTokens,
    hits: Hits,
    teacher: Vectors,
) -> Batch:
    """Pad a batch to its longest input.

    ``teacher`` (n, d) is the target of the embedding head. An overlong segment trains on its
    first part.
    """
    encoded = [tokens.encode(r.text, c)[0] for r, c in zip(rows, contexts, strict=True)]
    ids, mask, kinds = padded(encoded, tokens.pad)
    n, width = ids.shape
    spans = torch.zeros(n, width, 2)
    spans_mask = torch.zeros(n, width)
    for i, (row, one) in enumerate(zip(rows, encoded, strict=True)):
        if not row.spans:
            continue
        for j, (start, end) in enumerate(one.offsets, start=1):
            spans_mask[i, j] = 1
            for channel, span in enumerate((row.group, row.attribute)):
                if span is not None and start < span.end and end > span.start:
                    spans[i, j, channel] = 1
    alone = [-1.0 if r.alone is None else float(r.alone) for r in rows]
    implied = [-1.0 if r.implied is None else float(r.implied) for r in rows]
    targets = Targets(
        biased=torch.tensor([float(r.biased) for r in rows]),
        alone=torch.tensor(alone),
        types=torch.tensor([r.type_id for r in rows]),
        spans=spans,
        spans_mask=spans_mask,
        embedding=torch.from_numpy(teacher),
        implied=torch.tensor(implied),
        twins=torch.tensor(twins(rows), dtype=torch.long).reshape(-1, 2),
        known=torch.tensor([float(r.known) for r in rows]),
        bags=bags(rows),
    )
    return Batch(
        ids,
        mask,
        kinds,
        torch.from_numpy(hits.vectors),
        torch.from_numpy(hits.types),
        torch.from_numpy(hits.mask),
        targets,
    )
