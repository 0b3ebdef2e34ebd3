"""Texts and rows of the licensed sources; nothing is sampled here.

Each source gives its whole labelled texts, each with its family, and the training rows made from
them. Files of which ``trains`` is not set in :mod:`guard.datasets.registry` are refused.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from guard.datasets import records, registry
from guard.datasets.groups import group_type
from guard.datasets.registry import DatasetFile
from guard.datasets.rows import json_lines
from guard.datasets.split import in_bold_share
from guard.datasets.terms import redditbias_terms
from guard.gate.context import in_context
from guard.gate.segmenter import split
from guard.retrieve.phrases import (
    changed_part,
    find_phrase,
    find_stem,
    predicate_after,
    pronoun_and_predicate,
)
from guard.train.rows import Statement, TrainingRow, fold
from guard.verdict import BiasType, Span

_IMPLIED = {"implicit_hate": True, "explicit_hate": False, "not_hate": None}
_SEEGULL_FRAMES = (
    "{g} people are {a}.",
    "All {g} people are {a}.",
    "It is well known that {g} people are {a}.",
    "The {g} are so {a}",
    "He is {g}, so he must be {a}.",
    "{g} men are {a}.",
    "{g} women are {a}.",
)
read_jsonl = json_lines
L = TypeVar("L", bound=records.PublishedText)
Find = Callable[[str, str], Span | None]


class WholeText(NamedTuple):
    """A text with its label, its pool and its family."""

    pool: str
    text: str
    biased: bool
    family: str


def text_pieces(text: str) -> list[str]:
    """Return the segments of ``text`` as the gate would cut them, without blank ones."""
    return [s.text.strip() for s in split(text) if s.text.strip()]


def segment_with(
    phrase: str, segments: Sequence[tuple[str, tuple[str, ...]]], find: Find = find_phrase
) -> tuple[str, tuple[str, ...]]:
    """Return the first segment that has the phrase, with its context; the last if none has it."""
    return next((s for s in segments if find(s[0], phrase)), segments[-1])


def _closest_hit(
    pattern: re.Pattern[str], text: str, within: Span, other: Span | None
) -> Span | None:
    """Return the hit nearest to ``other``, the first without one; hits inside ``within`` win."""
    hits = [Span(*m.span()) for m in pattern.finditer(text)]
    if other is not None:
        hits = [h for h in hits if h.end <= other.start or h.start >= other.end]
    inside = [h for h in hits if h.start >= within.start and h.end <= within.end]

    def distance(hit: Span) -> int:
        return 0 if other is None else min(abs(hit.start - other.end), abs(other.start - hit.end))

    return min(inside or hits, key=distance, default=None)


def row_of(
    whole: WholeText,
    source: str = "",
    *,
    text: str | None = None,
    context: tuple[str, ...] = (),
    bias_type: BiasType | None = None,
    group: Span | None = None,
    attribute: Span | None = None,
    **more: Any,
) -> TrainingRow:
    """Return the row of a text, or of a segment ``text`` of it, of which the label is known."""
    both = whole.biased and group is not None and attribute is not None
    fields = {"alone": whole.biased, "spans": both, **more}
    return TrainingRow(
        whole.text if text is None else text, whole.biased, source or whole.pool, whole.family,
        context, bias_type, group, attribute, **fields,
    )  # fmt: skip


def _labelled_texts(
    pool: str, file: DatasetFile[L], data: Path, family: Callable[[L], str] | None = None
) -> Iterator[tuple[WholeText, L]]:
    """Yield the texts of a file that have a label; a text is a family, or those of one ``family``.

    The repeats of a text are one family.
    """
    for item in file.training_records(data):
        if (biased := item.labels.biased) is not None:
            key = fold(item.text) if family is None else family(item)
            yield WholeText(pool, item.text, biased, f"{pool}:{key}"), item


def redditbias_texts(data: Path) -> Iterator[tuple[WholeText, records.AnnotatedComment]]:
    """Yield the comments that have a label."""
    return _labelled_texts("redditbias", registry.REDDITBIAS_TRAIN, data)


def redditbias_rows(data: Path) -> Iterator[TrainingRow]:
    """Comments as the guard meets them, segment by segment, and once more in one piece.

    The segment that holds the annotated phrase has the comment's label. Other segments of a
    harmless comment are harmless, those of a biased one have no known label. The label was given to
    the whole comment, which teaches the network the use of context.
    """
    terms = redditbias_terms(data / "redditbias" / "terms")
    for whole, item in redditbias_texts(data):
        parts = text_pieces(whole.text)
        at = _piece_with(parts, item.phrase)
        if len(parts) > 1:
            yield row_of(whole, "redditbias_whole", bias_type=item.bias_type)
        for i, (part, context) in enumerate(in_context(parts)):
            group = attribute = None
            if whole.biased and i == at:
                within = find_phrase(part, item.phrase) or Span(0, len(part))
                lists = terms[item.dimension]
                group = _closest_hit(lists.targets, part, within, None)
                attribute = _closest_hit(lists.attributes, part, within, group)
            source, kind = ("redditbias", item.bias_type) if i == at else ("redditbias_rest", None)
            yield row_of(
                whole, source, text=part, context=context, bias_type=kind, group=group,
                attribute=attribute, known=i == at or not whole.biased,
            )  # fmt: skip


def _piece_with(parts: list[str], phrase: str) -> int:
    """Return the piece that shares most words with ``phrase``, the later of equals."""
    words = set(fold(phrase).split())
    return max(range(len(parts)), key=lambda i: (len(words & set(fold(parts[i]).split())), i))


def emgsd_texts(data: Path) -> Iterator[tuple[WholeText, list[str]]]:
    """Yield stereotypes and their neutral or unrelated variants, with their segments.

    The first of several sentences is common to all variants.
    """
    for item in registry.EMGSD_TRAIN.training_records(data):
        parts = text_pieces(item.text)
        first = parts[0] if len(parts) > 1 else item.text
        yield WholeText("emgsd", item.text, item.label, f"emgsd:{fold(first)}"), parts


def emgsd_rows(data: Path) -> Iterator[TrainingRow]:
    """Texts as the guard reads them: the last sentence is judged, the first is its context.

    By itself the first is harmless.
    """
    for whole, parts in emgsd_texts(data):
        group = attribute = None
        if whole.biased and len(parts) > 1:
            group, attribute = pronoun_and_predicate(parts[-1])
        text, context = in_context(parts)[-1]
        yield row_of(whole, text=text, context=context, group=group, attribute=attribute)
        if len(parts) > 1 and not whole.biased:
            yield row_of(whole, "emgsd_first", text=parts[0])


def stereoset_texts(data: Path) -> Iterator[tuple[WholeText, records.ItemVariant]]:
    """Yield the variants; those of an item are a family."""
    return _labelled_texts("stereoset", registry.STEREOSET, data, lambda variant: variant.item)


def stereoset_rows(data: Path) -> Iterator[TrainingRow]:
    """Minimal pairs; the attribute is what differs between the variants of an item."""
    items: dict[str, list[tuple[WholeText, records.ItemVariant]]] = defaultdict(list)
    for whole, item in stereoset_texts(data):
        items[item.item].append((whole, item))
    for variants in items.values():
        for whole, item in variants:
            others = [v.text for v, one in variants if one is not item]
            group = find_stem(whole.text, item.target)
            attribute = changed_part(whole.text, others)
            yield row_of(whole, bias_type=item.bias_type, group=group, attribute=attribute)


def hearts_texts(data: Path) -> Iterator[tuple[WholeText, records.GroupStatement]]:
    """Yield statements about nationalities and LGBTQ+ groups with their neutral counterparts."""
    for file in (registry.HEARTS_SEEGULL, registry.HEARTS_WINOQUEER):
        for item in file.training_records(data):
            family = f"hearts:{fold(item.phrase or item.repaired)}"
            yield WholeText("hearts", item.repaired, bool(item.labels.biased), family), item


def hearts_rows(data: Path) -> Iterator[TrainingRow]:
    """Rows with the group and the attribute: that of the phrase, or the words after the group."""
    for whole, item in hearts_texts(data):
        group = find_stem(whole.text, item.group)
        attribute = None
        if item.phrase:
            attribute = find_stem(whole.text, item.attribute)
        elif group is not None:
            attribute = predicate_after(whole.text, group)
        yield row_of(whole, bias_type=item.bias_type, group=group, attribute=attribute)


def toxigen_rows(data: Path) -> Iterator[TrainingRow]:
    """Demonstrations of ToxiGen: neutral and hateful statements about the same groups."""
    for whole, item in _labelled_texts("toxigen", registry.TOXIGEN_DEMOS, data):
        yield row_of(whole, bias_type=item.category)


def bold_texts(data: Path) -> Iterator[tuple[WholeText, records.EncyclopaedicSentence]]:
    """Yield the training share of BOLD's Wikipedia sentences: groups named, nothing biased."""
    for item in registry.BOLD.training_records(data):
        if in_bold_share(item.text):
            yield WholeText("bold", item.text, False, f"bold:{fold(item.text)}"), item


def bold_rows(data: Path) -> Iterator[TrainingRow]:
    """Read the training share of BOLD's sentences as rows."""
    return (row_of(of) for of, _ in bold_texts(data))


def implied_texts(
    data: Path,
) -> Iterator[tuple[WholeText, tuple[BiasType, records.ImpliedStatement]]]:
    """Yield what posts imply of groups of a known type, in the family of the post."""
    for item in registry.IMPLIED.training_records(data):
        text, kind = item.text.strip(), group_type(item.target)
        if len(text) > 8 and kind is not None:
            family = f"implicit_hate:{fold(item.post)}"
            yield WholeText("implied", text, True, family), (kind, item)


def post_texts(data: Path) -> Iterator[tuple[WholeText, records.Post]]:
    """Yield the posts; both kinds of hate count as biased."""
    return _labelled_texts("implicit_hate", registry.IMPLICIT_HATE, data)


def implicit_hate_rows(data: Path) -> Iterator[TrainingRow]:
    """Read posts with their label, and the implied statements of the implicit ones.

    A post's own implied statement is its partner: put into the index, it says in plain words
    what the post means.
    """
    implied: dict[str, list[Statement]] = defaultdict(list)
    for whole, (kind, statement) in implied_texts(data):
        group = find_stem(whole.text, statement.target)
        attribute = predicate_after(whole.text, group) if group else None
        implied[whole.family].append(Statement(whole.text, kind, whole.family))
        yield row_of(whole, bias_type=kind, group=group, attribute=attribute, implied=False)
    for whole, post in post_texts(data):
        parts = text_pieces(whole.text)
        partners = tuple(implied.get(whole.family, ()))
        if whole.biased and len(parts) > 1:
            # It is unknown which sentence carries the implication: the post stays in one piece.
            parts = [" ".join(parts)[:320]]
        for part, context in in_context(parts):
            if len(part) < 12:
                continue
            yield row_of(
                whole, post.label, text=part, context=context,
                bias_type=partners[0].bias_type if partners else None,
                alone=None if partners else whole.biased, partners=partners,
                partner_share=0.5 if partners else 0.0, implied=_IMPLIED[post.label],
            )  # fmt: skip


def licensed_texts(data: Path) -> Iterator[WholeText]:
    """Yield the whole texts of the sources that calibration reads."""
    for read in (
        redditbias_texts, emgsd_texts, stereoset_texts, hearts_texts, implied_texts, post_texts,
        bold_texts,
    ):  # fmt: skip
        yield from (text for text, _ in read(data))


def seegull_rows(data: Path) -> Iterator[TrainingRow]:
    """Plain sentences made of SeeGULL pairs that at least two raters of a region know."""
    for item in registry.SEEGULL.training_records(data):
        if not item.known:
            continue
        frame = random.Random(f"{item.identity}|{item.attribute}").choice(_SEEGULL_FRAMES)
        text = frame.format(g=item.identity, a=item.attribute)
        group, attribute = find_phrase(text, item.identity), find_phrase(text, item.attribute)
        yield row_of(
            WholeText("seegull", text, True, f"seegull:{item.attribute}"), bias_type="culture",
            group=group, attribute=attribute, spans=True, implied=False,
        )  # fmt: skip
