"""Texts that calibration may see: whole, labelled, of the validation families, far from training.

A family's side of the split is that of :mod:`guard.train.sources` and :mod:`guard.train.own`. Texts
that training knows in spite of it, through another source or a near-duplicate, are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from guard.evaluate.near import far_from
from guard.train.corpus import VALIDATION_SHARE
from guard.train.groups import group_type
from guard.train.own import corpus_folder
from guard.train.rows import fold, share
from guard.train.sources import in_bold_share, pieces, read_jsonl

# Own statements of the bias index: said outright, and implied.
STATED = ("statements", "implicit")
# Texts of one source at most: more would cost time and tell little.
MOST = 800


class Text(NamedTuple):
    """A text with its label, the pool it stands in and its family."""

    pool: str
    text: str
    biased: bool
    family: str


def read(data: Path, statements: Path) -> list[Text]:
    """Return the validation texts of every source, each once, at most ``MOST`` of a pool.

    Pools: ``redditbias``, ``emgsd``, ``stereoset``, ``hearts``, ``implied``, ``implicit_hate``,
    ``statements``, ``implicit``, ``negatives``, ``unseen``, ``pairs``, ``bold``. Which texts of a
    larger pool are taken is decided by a hash of the text.
    """
    found: dict[str, dict[str, Text]] = defaultdict(dict)
    for t in (*licensed(data), *own(statements)):
        if (validates(t.family) or t.pool == "unseen") and fold(t.text):
            found[t.pool].setdefault(fold(t.text), t)
    return [
        t
        for pool in found.values()
        for t in sorted(pool.values(), key=lambda t: share(t.text, "pool"))[:MOST]
    ]


def validates(family: str) -> bool:
    """Whether a family stands on the validation side of the split."""
    return share(family, "validation") < VALIDATION_SHARE


def licensed(data: Path) -> Iterator[Text]:
    """Yield the whole texts of the licensed sources, whatever their side of the split."""
    for r in read_jsonl(data / "redditbias" / "train.jsonl"):
        if r["bias_sent"] is not None:
            family = f"redditbias:{fold(r['comment'])}"
            yield Text("redditbias", r["comment"], r["bias_sent"] == 1, family)
    for r in read_jsonl(data / "emgsd" / "train.jsonl"):
        parts = pieces(r["text"])
        first = parts[0] if len(parts) > 1 else r["text"]
        yield Text("emgsd", r["text"], r["label"] == 1, f"emgsd:{fold(first)}")
    for r in read_jsonl(data / "stereoset" / "intrasentence.jsonl"):
        biased = r["label"] == "stereotype"
        yield Text("stereoset", r["text"], biased, f"stereoset:{r['item']}")
    for name in ("seegull_gpt", "winoqueer_gpt"):
        for r in read_jsonl(data / "hearts" / f"{name}.jsonl"):
            text = r["text"].replace("â€™", "’")
            family = f"hearts:{fold(r.get('phrase', text))}"
            yield Text("hearts", text, r["label"] == "stereotype", family)
    for r in read_jsonl(data / "implicit_hate" / "implied.jsonl"):
        text = r["implied_statement"].strip()
        if len(text) > 8 and group_type(r["target"]) is not None:
            yield Text("implied", text, True, f"implicit_hate:{fold(r['post'])}")
    for r in read_jsonl(data / "implicit_hate" / "posts.jsonl"):
        family = f"implicit_hate:{fold(r['post'])}"
        yield Text("implicit_hate", r["post"], r["label"] != "not_hate", family)
    for r in read_jsonl(data / "bold" / "wikipedia.jsonl"):
        # The rest of BOLD measures false alarms and must decide nothing.
        if in_bold_share(r["text"]):
            yield Text("bold", r["text"], False, f"bold:{fold(r['text'])}")


def own(statements: Path) -> Iterator[Text]:
    """Yield the texts written for guard, whatever their side of the split."""
    for r in read_jsonl(statements):
        pool = STATED[bool(r.get("implicit"))]
        yield Text(pool, r["statement"], True, f"own:{fold(r['statement'])}")
    for r in read_jsonl(corpus_folder() / "negatives.jsonl"):
        yield Text("negatives", r["text"], False, f"own:{fold(r['text'])}")
    # No run reads these: both sides of the split validate.
    for r in read_jsonl(corpus_folder() / "unseen.jsonl"):
        yield Text("unseen", r["text"], r["biased"], f"unseen:{fold(r['text'])}")
    for r in read_jsonl(corpus_folder() / "pairs.jsonl"):
        family = f"pair:{fold(r['biased'])}"
        yield Text("pairs", r["biased"], True, family)
        yield Text("pairs", r["harmless"], False, family)


def unseen(texts: Iterable[Text], training: Iterable[str]) -> list[Text]:
    """Leave out what shares half or more of its word 4-grams with one training text.

    A text of fewer than four words is compared as a whole. Texts of several sentences are
    compared sentence by sentence, as training reads them: one far from all is enough.
    """
    texts = list(texts)
    parts = [(i, part) for i, t in enumerate(texts) for part in pieces(t.text) if fold(part)]
    far = far_from([part for _, part in parts], training)
    kept = {i for (i, _), f in zip(parts, far, strict=True) if f}
    return [t for i, t in enumerate(texts) if i in kept]
