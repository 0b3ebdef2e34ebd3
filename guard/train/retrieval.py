"""Measures retrieval: posts and the statements that they imply.

Why: docs/decisions/implied-statements.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from guard.train.base import Embed
from guard.train.corpus import eval_folds
from guard.train.rows import fold, in_validation
from guard.train.sources import implied_texts, read_jsonl
from guard.verdict import BiasType

_NEAREST = 5


class Implied(NamedTuple):
    """A post with the statement it implies; statements of the index have no post."""

    post: str
    statement: str
    bias_type: BiasType


def implied_pairs(data: Path, *, validating: bool) -> list[Implied]:
    """Return the posts of one side of the split that imply something of a group of known type.

    The split is that of the corpus; texts of evaluation files are left out. Raises UsageError where
    ``data`` does not hold the implicit-hate corpus.
    """
    forbidden = eval_folds(data)
    implied = []
    for text, (kind, item) in implied_texts(data):
        pair = Implied(item.post.strip(), text.text, kind)
        if in_validation(text.family) == validating and not forbidden & {*map(fold, pair[:2])}:
            implied.append(pair)
    return implied


class Nearest(NamedTuple):
    """What a query finds: whether its own statement, and what the others say.

    Of each of the others: its similarity, and whether it names the query's type.
    """

    own: bool
    others: list[tuple[float, bool]]


def nearest_statements(embed: Embed, asked: list[Implied], known: list[Implied]) -> list[Nearest]:
    """Search with the posts of ``asked`` for the five nearest statements.

    ``known`` are further statements of the index, beside those of ``asked``; copies of a
    statement count once.
    """
    index = {fold(p.statement): p for p in (*known, *asked)}
    folds, statements = list(index), list(index.values())
    vectors = embed([p.statement for p in statements])
    hits = []
    for post, values in zip(asked, embed([p.post for p in asked]) @ vectors.T, strict=True):
        mine, order = fold(post.statement), np.argsort(-values)[: _NEAREST + 1].tolist()
        others = [
            (float(values[i]), statements[i].bias_type == post.bias_type)
            for i in order if folds[i] != mine
        ]  # fmt: skip
        hits.append(Nearest(mine in (folds[i] for i in order[:_NEAREST]), others[:_NEAREST]))
    return hits


def similarity_floor(hits: list[Nearest], least: float) -> float:
    """Return the similarity from which on more than half of what is found names the query's type.

    It is a tenth, and never below ``least``, the floor of the training.
    """
    lowest = 1.0
    for tenth in range(9, -1, -1):
        band = [
            right for one in hits for s, right in one.others
            if int(np.clip(s * 10, 0, 9)) == tenth
        ]  # fmt: skip
        if band and np.mean(band) <= 0.5:
            break
        lowest = tenth / 10 if band else lowest
    return max(lowest, least)


def measure_retrieval(embed: Embed, data: Path, statements: Path, least: float) -> dict[str, Any]:
    """Return how well ``embed`` finds, and the floor.

    ``n`` validating posts that imply what no training post implies search ``statements`` and all
    that posts imply. ``own`` is the share whose own statement is among the five nearest,
    ``bias_type`` the share of the other nearest that name the post's type.
    """
    known, validating = (implied_pairs(data, validating=side) for side in (False, True))
    # Several posts imply one statement: what was a goal of the training is no measure of it.
    learned = {fold(p.statement) for p in known}
    asked = [p for p in validating if fold(p.statement) not in learned]
    known += [Implied("", i["statement"], i["bias_type"]) for i in read_jsonl(statements)]
    hits = nearest_statements(embed, asked, known)
    return {
        "n": len(hits),
        "own": float(np.mean([one.own for one in hits])),
        "bias_type": float(np.mean([right for one in hits for _, right in one.others])),
        "floor": similarity_floor(hits, least),
    }
