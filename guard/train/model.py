"""The network: one shared pass, five heads, and the fusion of references.

Shapes: n windows, t tokens, k references, d numbers of a sentence vector (384).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from guard.detect.fusion import DIFFERENCE_SCALE, LOGIT_SCALE, NAMED_SCALE, PRODUCT_SCALE
from guard.verdict import BIAS_TYPES

TYPES = len(BIAS_TYPES)
DIM = 384  # of a sentence vector, whatever the base's width
STATE = 256
FUSED = 128
VALUE = 64


class Outputs(NamedTuple):
    """What one pass gives.

    ``embedding`` (n, d), norm 1; ``state`` (n, 256); ``logit`` (n,) of "biased" by the text
    alone; ``types`` (n, 9) logits; ``spans`` (n, t, 2) logits of a token being part of the group
    and of the attribute; ``implied`` (n,) logit that the association is implied, not stated.
    """

    embedding: Tensor
    state: Tensor
    logit: Tensor
    types: Tensor
    spans: Tensor
    implied: Tensor


class BiasNet(nn.Module):
    """A base model with heads for sentence vector, bias, type, spans and implied."""

    def __init__(self, encoder: Any, dropout: float) -> None:
        super().__init__()
        self.encoder = encoder
        hidden = encoder.config.hidden_size
        self._typed = encoder.config.model_type == "bert"  # MPNet has no token types
        self.embed = nn.Linear(hidden, DIM)
        # Identity at the start: an untouched base of this width retrieves from the first step on.
        nn.init.eye_(self.embed.weight)
        nn.init.zeros_(self.embed.bias)
        self.dense = nn.Linear(2 * hidden, STATE)
        self.drop = nn.Dropout(dropout)
        self.bias_head = nn.Linear(STATE, 1)
        self.type_head = nn.Linear(STATE, TYPES)
        self.span_head = nn.Linear(hidden, 2)
        self.implied_head = nn.Linear(STATE, 1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Outputs:
        """Run the shared pass; all inputs are (n, t) integers."""
        states, mean = self.states(input_ids, attention_mask, token_type_ids)
        state = F.gelu(self.dense(torch.cat([states[:, 0], mean], dim=1)))
        dropped = self.drop(state)
        return Outputs(
            F.normalize(self.embed(mean), dim=1),
            state,
            self.bias_head(dropped).squeeze(-1),
            self.type_head(dropped),
            self.span_head(self.drop(states)),
            self.implied_head(dropped).squeeze(-1),
        )

    def states(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the base's states (n, t, its width), and their mean over the segment's tokens."""
        kinds = {"token_type_ids": token_type_ids} if self._typed else {}
        states = self.encoder(
            input_ids=input_ids, attention_mask=attention_mask, **kinds
        ).last_hidden_state
        # The segment's tokens only: context may colour them but is never pooled.
        own = (attention_mask * (1 - token_type_ids)).to(states.dtype)
        return states, (states * own[..., None]).sum(1) / own.sum(1, keepdim=True)


class Fusion(nn.Module):
    """Adds what the references say, for a batch; the formula is in :mod:`guard.detect.fusion`."""

    def __init__(self, dim: int = DIM) -> None:
        super().__init__()
        self.first = nn.Linear(2 * dim + 2 + TYPES + STATE + 1, FUSED)
        self.second = nn.Linear(FUSED, VALUE)
        self.weight = nn.Linear(FUSED, 1)
        self.delta = nn.Linear(2 * VALUE, 1)
        self.type_delta = nn.Linear(2 * VALUE + TYPES, TYPES)

    def forward(
        self, out: Outputs, vectors: Tensor, types: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the changes (n,) and (n, 9).

        ``vectors`` (n, k, d), ``types`` (n, k) ids and ``mask`` (n, k), true where a slot is used.
        """
        k = vectors.shape[1]
        q = out.embedding[:, None, :].expand_as(vectors)
        s = (q * vectors).sum(-1, keepdim=True)
        kinds = F.one_hot(types, TYPES).to(q.dtype)
        state = out.state[:, None, :].expand(-1, k, -1)
        logit = out.logit[:, None, None].expand(-1, k, 1)
        features = torch.cat(
            [
                q * vectors * PRODUCT_SCALE,
                (q - vectors).abs() * DIFFERENCE_SCALE,
                s,
                s * s,
                kinds,
                state,
                logit * LOGIT_SCALE,
            ],
            dim=-1,
        )
        u = F.relu(self.first(features))
        v = F.relu(self.second(u))
        attention = self.weight(u).squeeze(-1).masked_fill(~mask, -1e4).softmax(dim=1)
        mean = (attention[..., None] * v).sum(1)
        best = v.masked_fill(~mask[..., None], 0.0).amax(1)
        pooled = torch.cat([mean, best], dim=1)
        there = mask.any(dim=1)
        change = self.delta(pooled).squeeze(-1) * there
        # The references' own types also go straight through: theirs is mostly the answer.
        named = (attention[..., None] * kinds).sum(1)
        type_change = self.type_delta(torch.cat([pooled, named * NAMED_SCALE], dim=1))
        return change, type_change * there[:, None]


class Targets(NamedTuple):
    """Labels of a batch; -1 (or a zero mask) leaves a row out of that part of the loss."""

    biased: Tensor  # (n,) 0/1
    alone: Tensor  # (n,) 0/1, -1 where only references decide
    types: Tensor  # (n,) type id or -1
    spans: Tensor  # (n, t, 2) 0/1
    spans_mask: Tensor  # (n, t) 1 for segment tokens of rows with known spans
    embedding: Tensor  # (n, d) the embedder's
    implied: Tensor  # (n,) 0/1, -1 where unknown
    soft: Tensor  # (n,) the teachers' probability of "biased" or -1, (0,) without teachers
    known: Tensor  # (n,) 1, 0 where the label is unknown


def _used_mean(values: Tensor, used: Tensor) -> Tensor:
    """Return the mean of the used values, 0 without any."""
    return (values * used).sum() / used.sum().clamp(min=1)


def _log_loss(logits: Tensor, labels: Tensor, used: Tensor) -> Tensor:
    each = F.binary_cross_entropy_with_logits(logits, labels.clamp(min=0), reduction="none")
    return _used_mean(each, used)


# What each part of the loss counts; that of the sentence vectors is a setting.
_WEIGHTS = {
    "final": 1.0, "alone": 0.5, "soft": 1.0, "types": 0.3, "spans": 1.0, "implied": 0.1
}  # fmt: skip


def loss_parts(
    out: Outputs, change: Tensor, type_change: Tensor, targets: Targets
) -> dict[str, Tensor]:
    """Compare a batch's outputs with its labels; return the parts of the loss, each a scalar."""
    soft = torch.zeros(())
    if len(targets.soft):
        soft = _log_loss(out.logit, targets.soft, (targets.soft >= 0).float())
    types = F.cross_entropy(
        out.types + type_change, targets.types, ignore_index=-1, reduction="none"
    )
    marked = targets.spans_mask[..., None].expand_as(out.spans)
    return {
        "final": _log_loss(out.logit + change, targets.biased, targets.known),
        "alone": _log_loss(out.logit, targets.alone, (targets.alone >= 0) * targets.known),
        "soft": soft,
        "types": _used_mean(types, targets.types >= 0),
        "spans": _log_loss(out.spans, targets.spans, marked),
        "distill": (1 - (out.embedding * targets.embedding).sum(-1)).mean(),
        "implied": _log_loss(out.implied, targets.implied, targets.implied >= 0),
    }


def total_loss(parts: dict[str, Tensor], distill: float) -> Tensor:
    """Return the weighted sum that is minimised; ``distill`` is the weight of that part."""
    weights = _WEIGHTS | {"distill": distill}
    return sum((weights[name] * part for name, part in parts.items()), start=torch.zeros(()))
