"""How often one added statement changes a verdict that should change, and one that should not.

Groups are invented, predicates those that training held back.
"""

from __future__ import annotations

import random

import numpy as np

from guard.detect.encoder import Encoder
from guard.retrieve.statement import BiasStatement
from guard.train.own import invented_group, invented_texts, predicate_pairs
from guard.verdict import Window

# Groups that each pair of predicates is said of.
_NAMES = 6


def statement_effects(encoder: Encoder) -> dict[str, float]:
    """Add one statement at a time to the encoder's index and judge three sentences beside it.

    Returns shares over ``n`` sentences at the balanced point. ``before``: not biased without the
    statement; ``after``: of those, biased with it; ``neutral`` and ``opposed``: of the sentences
    about the same group, not biased with it. The encoder, which must have an index, keeps it.
    """
    rng = random.Random(99)
    index, limits = encoder.index, encoder.operating_points["balanced"]
    assert index is not None, "there is no index to extend"

    def biased(*texts: str) -> list[bool]:
        flips = []
        for scores in encoder.snapshot().score([*map(Window, texts)]):
            assert scores.score is not None, "every sentence is English"
            assert scores.bias_type is not None, "a score has a type"
            flips.append(scores.score >= limits[scores.bias_type])
        return flips

    before, beside = [], []
    for pair in predicate_pairs(held_back=True):
        for _ in range(_NAMES):
            group = invented_group(rng)
            trait, known = rng.sample(pair, 2)
            text, statement = f"{group} {trait}.", f"{group} {known}."
            before += biased(text)
            row = BiasStatement(statement, "culture", group, known)
            encoder.use_index(index.extended([row], encoder.embed([statement])))
            neutral = rng.choice(invented_texts()["neutral"]).format(g=group)
            opposed = rng.choice(invented_texts()["opposed"]).format(g=group, p=trait)
            beside.append(biased(text, neutral, opposed))
            encoder.use_index(index)
    harmless, caught = ~np.array(before), np.array(beside)
    return {
        "n": len(caught),
        "before": float(harmless.mean()),
        "after": float(caught[harmless, 0].mean()),
        "neutral": float(1 - caught[:, 1].mean()),
        "opposed": float(1 - caught[:, 2].mean()),
    }
