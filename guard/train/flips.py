"""How often one added statement changes a verdict that should change, and one that should not.

Groups are invented, predicates those that training held back.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from guard.detect.encoder import Encoder
from guard.retrieve.statement import Statement
from guard.train.own import NEUTRAL, OPPOSED, held_back_predicates, invented_group
from guard.verdict import Scores, Window


class Flips(NamedTuple):
    """Shares over n texts at the balanced point.

    ``before``: of the texts, not biased without the statement; ``after``: of those, biased with it;
    ``neutral`` and ``opposed``: of the sentences about the same group, not biased with it.
    """

    n: int
    before: float
    after: float
    neutral: float
    opposed: float


def flips(encoder: Encoder, names: int = 6, seed: int = 99) -> Flips:
    """Add one statement at a time to the encoder's index and judge three sentences beside it.

    The encoder ends with the index it began with, which it must have.
    """
    rng = random.Random(seed)
    index = encoder.index
    assert index is not None, "there is no index to extend"
    limits = encoder.operating_points["balanced"]

    def biased(scores: Scores) -> bool:
        assert scores.score is not None, "every pair is English"
        assert scores.bias_type is not None, "a score has a type"
        return scores.score >= limits[scores.bias_type]

    before, found = [], []
    for pair in held_back_predicates():
        for _ in range(names):
            group = invented_group(rng)
            trait, known = rng.sample(pair, 2)
            text, statement = f"{group} {trait}.", f"{group} {known}."
            before.append(not biased(encoder.snapshot().score([Window(text)])[0]))
            row = Statement(statement, "culture", group, known)
            encoder.use_index(index.extended([row], encoder.embed([statement])))
            texts = (
                text,
                rng.choice(NEUTRAL).format(g=group),
                rng.choice(OPPOSED).format(g=group, p=trait),
            )
            found.append([biased(s) for s in encoder.snapshot().score([*map(Window, texts)])])
            encoder.use_index(index)
    after = [f[0] for f, b in zip(found, before, strict=True) if b]
    return Flips(
        len(found),
        sum(before) / len(before),
        sum(after) / len(after),
        sum(not f[1] for f in found) / len(found),
        sum(not f[2] for f in found) / len(found),
    )
