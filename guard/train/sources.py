"""Readers of the licensed sources, each turning a published file into rows.

Every function takes the data folder and yields :class:`Row`; nothing is sampled here. Sources
without a stated licence and evaluation sets have no reader, so that they cannot slip in.
"""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from guard.errors import UsageError
from guard.evaluate.files import decoded
from guard.evaluate.terms import redditbias_terms
from guard.gate.context import in_context
from guard.gate.segmenter import split
from guard.retrieve.groups import SOURCE_TYPES, group_type
from guard.retrieve.spans import (
    changed_part,
    find_phrase,
    find_stem,
    predicate_after,
    said_of_pronoun,
)
from guard.train.rows import Row, Statement, fold, share
from guard.verdict import Span

# The rest of BOLD's encyclopaedic text measures false alarms and is never trained on.
BOLD_SHARE = 0.2

_IMPLIED: dict[str, bool | None] = {
    "implicit_hate": True, "explicit_hate": False, "not_hate": None,
}  # fmt: skip


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON-lines file.

    Raises UsageError where it cannot be read, and for the first line that is no object.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read ({error.strerror}); name the folder of the sources."
        ) from None
    for number, line in enumerate(decoded(path, raw).split("\n"), start=1):
        if line.strip():
            try:
                found = json.loads(line)
            except ValueError:
                found = None
            if not isinstance(found, dict):
                raise UsageError(f"{path}, line {number}: the line is not a JSON object.")
            yield found


def pieces(text: str) -> list[str]:
    """Return the segments of ``text`` as the gate would cut them, without blank ones."""
    return [s.text.strip() for s in split(text) if s.text.strip()]


def _closest(pattern: re.Pattern[str], text: str, within: Span, other: Span | None) -> Span | None:
    """Return the hit nearest to ``other``, the first without one; hits inside ``within`` win."""
    hits = [Span(*m.span()) for m in pattern.finditer(text)]
    if other is not None:
        hits = [h for h in hits if h.end <= other.start or h.start >= other.end]
    inside = [h for h in hits if h.start >= within.start and h.end <= within.end]
    pool = inside or hits
    if not pool:
        return None
    if other is None:
        return pool[0]
    return min(pool, key=lambda h: min(abs(h.start - other.end), abs(other.start - h.end)))


def redditbias(data: Path) -> Iterator[Row]:
    """Comments as the guard meets them, segment by segment.

    The segment that holds the annotated phrase has the comment's label. Other segments of a
    harmless comment are harmless; of a biased one nothing is known.
    """
    terms = redditbias_terms(data / "redditbias" / "terms")
    for item in read_jsonl(data / "redditbias" / "train.jsonl"):
        if item["bias_sent"] is None:
            continue
        comment, biased = item["comment"], item["bias_sent"] == 1
        parts = pieces(comment)
        family = f"redditbias:{fold(comment)}"
        kind = SOURCE_TYPES[item["bias_type"]]
        at = _piece_with(parts, item["phrase"])
        for i, (part, context) in enumerate(in_context(parts)):
            group = attribute = None
            if biased and i == at:
                within = find_phrase(part, item["phrase"]) or Span(0, len(part))
                lists = terms[item["dimension"]]
                group = _closest(lists.targets, part, within, None)
                attribute = _closest(lists.attributes, part, within, group)
            yield Row(
                text=part,
                biased=biased,
                source="redditbias" if i == at else "redditbias_rest",
                family=family,
                context=context,
                bias_type=kind if i == at else None,
                group=group,
                attribute=attribute,
                spans=group is not None and attribute is not None,
                alone=biased,
                known=i == at or not biased,
            )


def _piece_with(parts: list[str], phrase: str) -> int:
    """Return the piece that shares most words with ``phrase``, the later of equals."""
    words = set(fold(phrase).split())
    return max(range(len(parts)), key=lambda i: (len(words & set(fold(parts[i]).split())), i))


def emgsd(data: Path) -> Iterator[Row]:
    """Stereotypes and their neutral or unrelated variants.

    Texts of two sentences are read as the guard reads them: the last is judged, the first is its
    context, and by itself harmless (it is common to all variants).
    """
    for item in read_jsonl(data / "emgsd" / "train.jsonl"):
        parts = pieces(item["text"])
        biased = item["label"] == 1
        family = f"emgsd:{fold(parts[0]) if len(parts) > 1 else fold(item['text'])}"
        group = attribute = None
        if biased and len(parts) > 1:
            group, attribute = said_of_pronoun(parts[-1])
        text, context = in_context(parts)[-1]
        yield Row(
            text=text,
            biased=biased,
            source="emgsd",
            family=family,
            context=context,
            group=group,
            attribute=attribute,
            spans=group is not None and attribute is not None,
            alone=biased,
        )
        if len(parts) > 1 and not biased:
            yield Row(parts[0], False, "emgsd_first", family, alone=False)


def stereoset(data: Path) -> Iterator[Row]:
    """Minimal pairs; the attribute is what differs between the variants of an item."""
    items: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for item in read_jsonl(data / "stereoset" / "intrasentence.jsonl"):
        items[item["item"]].append(item)
    for key, variants in items.items():
        for item in variants:
            text, biased = item["text"], item["label"] == "stereotype"
            others = [v["text"] for v in variants if v is not item]
            group = find_stem(text, item["target"])
            attribute = changed_part(text, others)
            yield Row(
                text=text,
                biased=biased,
                source="stereoset",
                family=f"stereoset:{key}",
                bias_type=SOURCE_TYPES[item["bias_type"]],
                group=group,
                attribute=attribute,
                spans=biased and group is not None and attribute is not None,
                alone=biased,
            )


def hearts(data: Path) -> Iterator[Row]:
    """Statements about nationalities and LGBTQ+ groups with their neutral counterparts."""
    for name in ("seegull_gpt", "winoqueer_gpt"):
        for item in read_jsonl(data / "hearts" / f"{name}.jsonl"):
            # Some apostrophes of the published file went through a wrong decoding.
            text = item["text"].replace("â€™", "’")
            biased = item["label"] == "stereotype"
            group = find_stem(text, item["group"])
            attribute = None
            if "phrase" in item:
                attribute = find_stem(text, item["phrase"].removeprefix(item["group"]).strip())
            elif group is not None:
                attribute = predicate_after(text, group)
            yield Row(
                text=text,
                biased=biased,
                source="hearts",
                family=f"hearts:{fold(item.get('phrase', text))}",
                bias_type="culture" if name == "seegull_gpt" else "orientation",
                group=group,
                attribute=attribute,
                spans=biased and group is not None and attribute is not None,
                alone=biased,
            )


def toxigen(data: Path) -> Iterator[Row]:
    """Demonstrations of ToxiGen: neutral and hateful statements about the same groups."""
    for item in read_jsonl(data / "toxigen_demos" / "all.jsonl"):
        biased = item["label"] == "hate"
        kind = SOURCE_TYPES[item["category"]]
        family = f"toxigen:{fold(item['text'])}"
        yield Row(item["text"], biased, "toxigen", family, bias_type=kind, alone=biased)


def bold(data: Path) -> Iterator[Row]:
    """Read the training share of BOLD's Wikipedia sentences: groups named, nothing biased."""
    for item in read_jsonl(data / "bold" / "wikipedia.jsonl"):
        if in_bold_share(item["text"]):
            yield Row(item["text"], False, "bold", f"bold:{fold(item['text'])}", alone=False)


def in_bold_share(text: str) -> bool:
    """Whether a BOLD sentence belongs to the part that training may see."""
    return share(text, "bold") < BOLD_SHARE


def implicit_hate(data: Path) -> Iterator[Row]:
    """Read posts with their label, and the implied statements of the implicit ones.

    A post's own implied statement is its partner: put into the index, it says in plain words
    what the post means.
    """
    implied: dict[str, list[Statement]] = defaultdict(list)
    for item in read_jsonl(data / "implicit_hate" / "implied.jsonl"):
        text, target = item["implied_statement"].strip(), item["target"]
        kind = group_type(target)
        family = f"implicit_hate:{fold(item['post'])}"
        group = find_stem(text, target)
        attribute = predicate_after(text, group) if group else None
        if len(text) > 8 and kind is not None:
            implied[fold(item["post"])].append(Statement(text, kind, family))
            yield Row(
                text=text,
                biased=True,
                source="implied",
                family=family,
                bias_type=kind,
                group=group,
                attribute=attribute,
                spans=group is not None and attribute is not None,
                alone=True,
                implied=False,
            )
    for item in read_jsonl(data / "implicit_hate" / "posts.jsonl"):
        parts = pieces(item["post"])
        biased = item["label"] != "not_hate"
        partners = tuple(implied.get(fold(item["post"]), ()))
        family = f"implicit_hate:{fold(item['post'])}"
        if biased and len(parts) > 1:
            # Which sentence carries the implication is not said: the post stays in one piece.
            parts = [" ".join(parts)[:320]]
        for part, context in in_context(parts):
            if len(part) < 12:
                continue
            yield Row(
                text=part,
                biased=biased,
                source=item["label"],
                family=family,
                context=context,
                bias_type=partners[0].bias_type if partners else None,
                alone=None if partners else biased,
                partners=partners,
                partner_share=0.5 if partners else 0.0,
                implied=_IMPLIED[item["label"]],
            )


def seegull(data: Path) -> Iterator[Row]:
    """Plain sentences made of SeeGULL pairs that at least two raters of a region know."""
    for item in read_jsonl(data / "seegull" / "pairs.jsonl"):
        if item["region_votes"] < 2:
            continue
        rng = random.Random(f"{item['identity']}|{item['attribute']}")
        frame = rng.choice(
            (
                "{g} people are {a}.",
                "All {g} people are {a}.",
                "It is well known that {g} people are {a}.",
                "The {g} are so {a}",
                "He is {g}, so he must be {a}.",
                "{g} men are {a}.",
                "{g} women are {a}.",
            )
        )
        text = frame.format(g=item["identity"], a=item["attribute"])
        yield Row(
            text=text,
            biased=True,
            source="seegull",
            family=f"seegull:{item['attribute']}",
            bias_type="culture",
            group=find_phrase(text, item["identity"]),
            attribute=find_phrase(text, item["attribute"]),
            spans=True,
            alone=True,
            implied=False,
        )
