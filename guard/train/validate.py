"""Figures on the validation rows, and the numbers they are made of."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from guard.detect.tokens import WindowTokens
from guard.train.base import teacher
from guard.train.batches import collate
from guard.train.config import TrainConfig
from guard.train.corpus import build
from guard.train.encoder import Nets, window_tokens
from guard.train.metrics import auroc
from guard.train.own import own_statements
from guard.train.references import TrainIndex
from guard.train.rows import Row

Array = NDArray[np.float64]


class Judged(NamedTuple):
    """Logits of n rows: ``alone`` by the text, ``final`` with the references; n type ids each.

    ``cosine`` is that of the embedding head with the base model; ``spans`` the share of span
    tokens with the right sign (nan without a span).
    """

    alone: Array
    final: Array
    types: NDArray[np.int64]
    cosine: Array
    spans: Array


def judge(
    nets: Nets,
    rows: Sequence[Row],
    index: TrainIndex,
    tokens: WindowTokens,
    use: str = "all",
    batch_size: int = 64,
    *,
    as_text: bool = False,
) -> Judged:
    """Run the network over rows; ``use`` is that of :meth:`TrainIndex.hits`."""
    order = sorted(
        range(len(rows)), key=lambda i: len(rows[i].text) + sum(map(len, rows[i].context))
    )
    alone, final, cosine, spans = (np.full(len(rows), np.nan) for _ in range(4))
    kinds = np.zeros(len(rows), np.int64)
    for start in range(0, len(order), batch_size):
        ids = order[start : start + batch_size]
        hits = index.hits(ids, random.Random(f"{start}"), use=use)
        chosen = [rows[i] for i in ids]
        batch = collate(
            chosen, [r.context for r in chosen], tokens, hits, index.vectors[ids], as_text=as_text
        )
        with torch.no_grad():
            out = nets.net(batch.input_ids, batch.attention_mask, batch.token_type_ids)
            change, type_change = nets.fusion(out, batch.vectors, batch.types, batch.mask)
        alone[ids] = out.logit.numpy()
        final[ids] = (out.logit + change).numpy()
        kinds[ids] = (out.types + type_change).argmax(1).numpy()
        cosine[ids] = (out.embedding * batch.targets.embedding).sum(1).numpy()
        right = ((out.spans > 0).float() == batch.targets.spans).float().mean(-1)
        mask = batch.targets.spans_mask
        share = (right * mask).sum(1) / mask.sum(1).clamp(min=1)
        spans[ids] = np.where(mask.sum(1).numpy() > 0, share.numpy(), np.nan)
    return Judged(alone, final, kinds, cosine, spans)


class Figures(NamedTuple):
    """Figures of one source: n rows, share biased, accuracy at logit 0, AUROC, type accuracy.

    ``types`` is over biased rows of known type.
    """

    n: int
    prevalence: float
    accuracy: float
    auroc: float
    types: float
    cosine: float
    spans: float


def by_source(rows: Sequence[Row], judged: Judged, *, alone: bool = False) -> dict[str, Figures]:
    """Return the figures of each source."""
    logits = judged.alone if alone else judged.final
    out = {}
    for source in sorted({r.source for r in rows}):
        ids = [i for i, r in enumerate(rows) if r.source == source]
        labels = np.array([rows[i].biased for i in ids], float)
        typed = [i for i in ids if rows[i].biased and rows[i].type_id >= 0]
        right = [judged.types[i] == rows[i].type_id for i in typed]
        spans = judged.spans[ids]
        out[source] = Figures(
            len(ids),
            float(labels.mean()),
            float(((logits[ids] > 0) == (labels > 0)).mean()),
            auroc(logits[ids], labels),
            float(np.mean(right)) if right else float("nan"),
            float(judged.cosine[ids].mean()),
            float(np.nanmean(spans)) if np.isfinite(spans).any() else float("nan"),
        )
    return out


def ablation(config: TrainConfig, nets: Nets) -> dict[str, dict[str, float]]:
    """Return figures on invented groups and own pairs, each with references and without.

    The invented rows use predicates and names that training never saw. Without any
    reference a plain predicate about an unknown group can only be called harmless.
    """
    rows = [r for r in build(config).validation if r.source in ("invented", "pairs", "own")]
    tokens = window_tokens(config)
    statements = own_statements(config.statements)
    embed = teacher(config.embedder)
    index = TrainIndex(rows, statements, embed, config.vectors(), config.k, config.floor)
    found = {use: by_source(rows, judge(nets, rows, index, tokens, use)) for use in ("all", "none")}
    return {
        source: {"n": f.n, "with": f.accuracy, "without": found["none"][source].accuracy}
        for source, f in found["all"].items()
    }
