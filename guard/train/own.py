"""Rows from texts written for guard, and the made-up rows that teach what a reference means."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from guard.gate.context import in_context
from guard.places import shipped
from guard.retrieve.phrases import find_phrase, find_stem
from guard.train.rows import Statement, TrainingRow, fold, share
from guard.train.sources import WholeText, read_jsonl, row_of, segment_with, text_pieces
from guard.verdict import BIAS_TYPES, BiasType

# Pools of the bias index's statements: stated, and implied.
STATED = ("statements", "implicit")
_HELD_BACK = 0.15


def corpus_folder() -> Path:
    """Return the folder of the texts written for training, which only a checkout has."""
    return shipped("benchmarks") / "detector" / "corpus"


def own_texts(statements: Path) -> Iterator[tuple[WholeText, dict[str, Any]]]:
    """Yield the index's statements, the hard negatives and both halves of the minimal pairs."""
    folder = corpus_folder()
    for item in read_jsonl(statements):
        said = item["statement"]
        yield WholeText(STATED[bool(item.get("implicit"))], said, True, f"own:{fold(said)}"), item
    for item in read_jsonl(folder / "negatives.jsonl"):
        yield WholeText("negatives", item["text"], False, f"own:{fold(item['text'])}"), item
    for item in read_jsonl(folder / "pairs.jsonl"):
        for half in ("biased", "harmless"):
            yield (
                WholeText("pairs", item[half], half == "biased", f"pair:{fold(item['biased'])}"),
                item,
            )


def own_rows(statements: Path) -> Iterator[TrainingRow]:
    """Yield the rows of :func:`own_texts`."""
    for whole, item in own_texts(statements):
        kind = item.get("bias_type") or None
        segments = in_context(text_pieces(whole.text))
        if whole.pool == "negatives":
            for text, context in segments:
                yield row_of(whole, text=text, context=context, bias_type=kind)
        elif whole.biased:
            text, context = (
                segment_with(item["attribute"], segments, find_stem)
                if whole.pool == "pairs"
                else (whole.text, ())
            )
            group, attribute = find_stem(text, item["group"]), find_stem(text, item["attribute"])
            yield row_of(
                whole, "pairs" if whole.pool == "pairs" else "own", text=text, context=context,
                bias_type=kind, group=group, attribute=attribute, implied=item.get("implicit"),
            )  # fmt: skip
        else:
            # The biased half is a reference of this one: quoting, opposing or limiting a stereotype
            # is not bias, whatever is retrieved. What makes it harmless is said last.
            partner = Statement(item["biased"], item["bias_type"], whole.family)
            text, context = segments[-1]
            yield row_of(
                whole, text=text, context=context, bias_type=kind, partners=(partner,),
                partner_share=0.5,
            )  # fmt: skip


@cache
def invented_texts() -> dict[str, list[str]]:
    """Return parts of names, and sentences, about groups that exist nowhere.

    ``plain`` says nothing bad by itself: only a matching reference makes it biased. ``opposed``
    opposes, asks, reports or limits the same predicate: harmless in spite of a match.
    """
    parts: dict[str, list[str]] = json.loads((corpus_folder() / "invented.json").read_bytes())
    return parts


def invented_group(rng: random.Random) -> str:
    """Return a plural group name that no text uses, such as "Velmorians"."""
    parts = invented_texts()
    middle = rng.choice(parts["middles"]) if rng.random() < 0.8 else ""
    return rng.choice(parts["heads"]) + middle + rng.choice(parts["tails"])


def invented_rows(
    rng: random.Random, rows: list[TrainingRow], predicates: list[tuple[str, str]], count: int
) -> Iterator[TrainingRow]:
    """Yield ``count`` rows about groups that exist nowhere, five kinds, the first twice in six.

    1. a plain predicate with its paraphrase in the index: biased, by the reference alone;
    2. the same with another group's or another predicate's statement: not biased;
    3. the predicate opposed or reported, with the matching statement: not biased;
    4. a neutral text about the group, with a biased statement about it: not biased;
    5. a biased row of the corpus with its group renamed, its own statement renamed alike.
    """
    usable = [r for r in rows if r.biased and r.spans and r.group is not None and r.bias_type]
    for i in range(count):
        group, kind = invented_group(rng), rng.choice(BIAS_TYPES)
        first, second = rng.sample(predicates[rng.randrange(len(predicates))], 2)
        other = rng.choice(rng.choice(predicates))
        family = f"invented:{group}:{i}"
        turn = i % 6
        if turn in (0, 5):
            same = first if rng.random() < 0.35 else second
            yield _framed_row(rng, "plain", group, first, kind, family, (group, same), biased=True)
        elif turn == 1:
            wrong = (group, other) if rng.random() < 0.6 else (invented_group(rng), second)
            yield _framed_row(rng, "plain", group, first, kind, family, wrong)
        elif turn in (2, 3):
            frames = "opposed" if turn == 2 else "neutral"
            yield _framed_row(rng, frames, group, first, kind, family, (group, second))
        elif usable:
            yield _renamed_row(rng, rng.choice(usable), group, family)


def plain_without_reference(
    rng: random.Random, predicates: list[tuple[str, str]], count: int
) -> Iterator[TrainingRow]:
    """Yield plain predicates about invented groups with nothing in the index: not biased."""
    for i in range(count):
        group = invented_group(rng)
        predicate = rng.choice(rng.choice(predicates))
        yield _framed_row(rng, "plain", group, predicate, "culture", f"bare:{group}:{i}", None)


def _framed_row(
    rng: random.Random,
    frames: str,
    group: str,
    predicate: str,
    kind: BiasType,
    family: str,
    known: tuple[str, str] | None,
    *,
    biased: bool = False,
) -> TrainingRow:
    """Return a frame filled with a group and a predicate; ``known`` are those in the index."""
    texts = invented_texts()
    text = rng.choice(texts[frames]).format(g=group, p=predicate)
    text = text.lower() if rng.random() < 0.15 else text
    partners = () if known is None else (
        Statement(rng.choice(texts["statements"]).format(g=known[0], p=known[1]), kind, family),
    )  # fmt: skip
    attribute = find_phrase(text, predicate)
    # A biased row of this kind is biased only while its reference is at hand.
    return TrainingRow(
        text, biased, "bare" if known is None else "invented", family,
        bias_type=kind if biased else None, group=find_phrase(text, group), attribute=attribute,
        spans=biased and attribute is not None, alone=None if biased else False, partners=partners,
        partner_share=1.0 if biased else 0.8,
    )  # fmt: skip


def _renamed_row(rng: random.Random, row: TrainingRow, group: str, family: str) -> TrainingRow:
    assert row.group is not None
    assert row.bias_type is not None
    old = row.text[row.group.start : row.group.end]
    text = row.text[: row.group.start] + group + row.text[row.group.end :]
    phrase = "" if row.attribute is None else row.text[row.attribute.start : row.attribute.end]
    said = f"{group}: {phrase}." if rng.random() < 0.2 else text
    attribute = find_phrase(text, phrase) if phrase and phrase != old else None
    return TrainingRow(
        text, True, "renamed", family, row.context, row.bias_type, find_phrase(text, group),
        attribute, spans=attribute is not None, alone=True,
        partners=(Statement(said, row.bias_type, family),), partner_share=0.4,
    )  # fmt: skip


def predicate_pairs(*, held_back: bool) -> list[tuple[str, str]]:
    """Return paraphrase pairs of plain predicates.

    They are those of training, or the 15 % that measure the effect of references.
    """
    pairs = [(i["a"], i["b"]) for i in read_jsonl(corpus_folder() / "predicates.jsonl")]
    return [p for p in pairs if (share(p[0], "predicates") < _HELD_BACK) == held_back]
