"""Texts that calibration may see: whole, labelled, of the validation families, far from training.

A family's side of the split is that of :mod:`guard.train.sources` and :mod:`guard.train.own`. Texts
that training knows in spite of it, through another source or a near-duplicate, are left out.
Why: docs/decisions/unseen-texts-bound-false-alarms.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from guard.evaluate.near import far_from
from guard.train import forms
from guard.train.own import corpus_folder, own_texts
from guard.train.rows import fold, in_validation, share
from guard.train.sources import WholeText, licensed_texts, read_jsonl, text_pieces

# The most texts of one source: more would take time and change little.
MOST = 800


def validation_texts(data: Path, statements: Path) -> list[WholeText]:
    """Return the validation texts of every source, each once, at most ``MOST`` of a pool.

    Pools: ``redditbias``, ``emgsd``, ``stereoset``, ``hearts``, ``implied``, ``implicit_hate``,
    ``statements``, ``implicit``, ``negatives``, ``unseen``, ``pairs``, ``forms``, ``bold``. Which
    texts of a larger pool are taken is decided by a hash of the text.
    """
    pools: dict[str, dict[str, WholeText]] = defaultdict(dict)
    for t in (*licensed_texts(data), *all_own_texts(statements)):
        if (in_validation(t.family) or t.pool == "unseen") and fold(t.text):
            pools[t.pool].setdefault(fold(t.text), t)
    return [
        t
        for pool in pools.values()
        for t in sorted(pool.values(), key=lambda t: share(t.text, "pool"))[:MOST]
    ]


def all_own_texts(statements: Path) -> Iterator[WholeText]:
    """Yield the texts written for guard, of both sides of the split."""
    yield from (text for text, _ in own_texts(statements))
    yield from forms.whole_texts()
    # No run reads these: both sides of the split validate.
    for r in read_jsonl(corpus_folder() / "unseen.jsonl"):
        yield WholeText("unseen", r["text"], r["biased"], f"unseen:{fold(r['text'])}")


def far_from_training(texts: Iterable[WholeText], training: Iterable[str]) -> list[WholeText]:
    """Leave out what shares half or more of its word 4-grams with one training text.

    A text of fewer than four words is compared as a whole. Texts of several sentences are
    compared sentence by sentence, as training reads them: one far from all is enough.
    """
    texts = list(texts)
    parts = [(i, part) for i, t in enumerate(texts) for part in text_pieces(t.text) if fold(part)]
    far = far_from([part for _, part in parts], training)
    selected = {i for (i, _), f in zip(parts, far, strict=True) if f}
    return [t for i, t in enumerate(texts) if i in selected]
