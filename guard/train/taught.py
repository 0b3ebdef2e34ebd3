"""What earlier runs teach a new one: their mean verdict, on texts of the sources and on mixtures.

Runs that began differently err differently, and their mean ranks texts better than any of them. A
run with teachers is held to that mean. On texts that the teachers learned from they repeat the
labels; mixtures of two texts, which nobody labelled, show what they make of words they never saw
together. No mixture says what an evaluation or validation text says.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from guard.detect.tokens import WindowTokens
from guard.errors import UsageError
from guard.train import pools
from guard.train.batches import Batch, padded
from guard.train.config import TrainConfig
from guard.train.corpus import eval_folds, says
from guard.train.model import BiasNet
from guard.train.rows import WRITTEN, Row, fold
from guard.train.sources import pieces
from guard.verdict import Span

# Draws for one mixture, before a row is shown as it is.
_TRIES = 4


def held_out(config: TrainConfig, validation: Sequence[Row]) -> set[str]:
    """Return the folds of evaluation texts, whole and by segment, and of validation texts."""
    folds = {fold(row.text) for row in validation}
    if config.data is not None:
        folds |= eval_folds(config.data)
        for text in pools.read(config.data, config.statements):
            folds.update(fold(part) for part in (text.text, *pieces(text.text)))
    folds.discard("")
    return folds


class Lesson(NamedTuple):
    """What the teachers say of a batch (n rows) and of m mixtures.

    ``said`` (n,) and ``said_of_mixed`` (m,) are probabilities; ``heard`` (n,) is 0 where the label
    counts alone; ``mixed`` are the ids, mask and types (m, t) of the mixtures.
    """

    said: Tensor
    heard: Tensor
    mixed: tuple[Tensor, Tensor, Tensor]
    said_of_mixed: Tensor

    def loss(self, logit: Tensor, mixed_logit: Tensor) -> Tensor:
        """Return the mean cross-entropy of a run's own logits (n,) and (m,) against the lesson."""
        rows = F.binary_cross_entropy_with_logits(logit, self.said, reduction="none")
        mixed = F.binary_cross_entropy_with_logits(mixed_logit, self.said_of_mixed, reduction="sum")
        return ((rows * self.heard).sum() + mixed) / (self.heard.sum() + len(mixed_logit)).clamp(1)


class Teachers:
    """The final weights of earlier runs, of which a run learns; texts written for guard they leave.

    ``rows`` are the training rows, ``shown`` those that an epoch may draw and mixtures are made of,
    ``forbidden`` the folded texts that no mixture may say, ``share`` the number of mixtures for
    each row of a batch. Raises UsageError where no row of a source is shown.
    """

    def __init__(
        self, nets: Sequence[BiasNet], rows: Sequence[Row], shown: Sequence[int],
        forbidden: set[str], tokens: WindowTokens, share: float, bf16: bool,
    ) -> None:  # fmt: skip
        self._nets = list(nets)
        self._rows = rows
        self._forbidden = forbidden
        self._tokens = tokens
        self._share = share
        self._bf16 = bf16
        self._by_source: dict[str, list[Row]] = defaultdict(list)
        for row in (rows[i] for i in shown):
            if row.source not in WRITTEN:
                self._by_source[row.source].append(row)
        if not self._by_source:
            raise UsageError(
                "Teachers teach on the sources' texts alone, and this run draws none; name a "
                "source in --quotas or leave --teachers out."
            )

    def lesson(self, batch: Batch, ids: Sequence[int], rng: random.Random) -> Lesson:
        """Return what the teachers say of ``batch``, whose rows are ``ids``, and of mixtures."""
        rows = [self._rows[i] for i in ids]
        theirs = [row for row in rows if row.source not in WRITTEN]
        texts = [
            self._mixed(row, rng)
            for row in rng.choices(theirs, k=round(self._share * len(rows)) if theirs else 0)
        ]
        mixed = padded([self._tokens.encode(text, ())[0] for text in texts], self._tokens.pad)
        heard = torch.tensor([row.source not in WRITTEN for row in rows])
        said = torch.zeros(len(rows))
        inputs = (batch.input_ids, batch.attention_mask, batch.token_type_ids)
        if bool(heard.any()):
            said[heard] = self._judge(*(part[heard] for part in inputs))
        return Lesson(said, heard.float(), mixed, self._judge(*mixed) if texts else said[:0])

    def _mixed(self, row: Row, rng: random.Random) -> str:
        for _ in range(_TRIES):
            text = mixture(row, rng.choice(self._by_source[row.source]), rng)
            if not says(text, self._forbidden):
                return text
        return row.text

    def _judge(self, *inputs: Tensor) -> Tensor:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=self._bf16):
            logits = [net(*inputs).logit.float() for net in self._nets]
        return torch.sigmoid(torch.stack(logits).mean(0))


def mixture(row: Row, other: Row, rng: random.Random) -> str:
    """Return ``row`` with the group or the attribute of ``other``, or its start and other's end.

    Nothing is promised of its sense or its label; a text and itself may give the text again.
    """
    pairs = [(row.group, other.group), (row.attribute, other.attribute)]
    both = [(own, new) for own, new in pairs if own is not None and new is not None]
    if both:
        own, new = rng.choice(both)
        return row.text[: own.start] + _of(other, new) + row.text[own.end :]
    first, second = row.text.split(), other.text.split()
    start = first[: rng.randint(len(first) // 3, len(first) - len(first) // 3)]
    end = second[rng.randint(len(second) // 3, len(second) - len(second) // 3) :]
    return " ".join(start + end) or row.text


def _of(row: Row, span: Span) -> str:
    return row.text[span.start : span.end]
