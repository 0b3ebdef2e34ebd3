"""Rows about stance: the same statements endorsed, opposed, listed, or carried over two sentences.

Frames and patterns of lists are written for guard and filled with plain statements written for it;
which statements a frame gets follows from the frame alone. A frame is a family: all of its rows
train, or all of them validate.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from guard.gate.context import CONTEXT_SEGMENTS, in_context, is_heading
from guard.retrieve.phrases import find_phrase
from guard.train.own import corpus_folder
from guard.train.rows import TrainingRow, fold
from guard.train.sources import WholeText, read_jsonl, row_of, segment_with, text_pieces
from guard.verdict import BiasType

_FILLS = 14  # statements a frame is filled with
_GROUPS = 12  # groups a pattern of a list is filled with
_MOST_WORDS = 14
_SLOT = re.compile(r"\{([sSgGpP])(\d?)\}")
_VERBS = frozenset(
    "are can can't cannot could couldn't do don't have haven't will won't would wouldn't should "
    "shouldn't must never always only just get make ruin live sleep run take breed steal hoard own "
    "eat drink drag treat hate want endanger turn overcharge whine hide wait come came stay bring "
    "expect believe lie cheat smell gossip nag panic drive spend think need".split()
)


class Claim(NamedTuple):
    """A statement "<group> <predicate>."; the group in the form that it has inside a sentence."""

    group: str
    predicate: str
    bias_type: BiasType

    def fill(self, slot: str, *, first: bool) -> str:
        """Return the text for a slot: ``g`` group, ``p`` predicate, ``s`` both.

        ``S`` begins with a capital letter; so does ``G`` if it is ``first`` in the sentence.
        """
        text = {"g": self.group, "p": self.predicate}.get(
            slot.lower(), f"{self.group} {self.predicate}"
        )
        return text[:1].upper() + text[1:] if slot == "S" or (slot == "G" and first) else text


def plain_claims(statements: Path) -> list[Claim]:
    """Return the plain statements among the index's and the biased halves of the pairs, once."""
    claims: dict[str, Claim] = {}
    items = [(i["statement"], i) for i in read_jsonl(statements)]
    items += [(i["biased"], i) for i in read_jsonl(corpus_folder() / "pairs.jsonl")]
    for text, item in items:
        group = item["group"]
        rest = text[len(group) + 1 : -1]
        alone = text.endswith(".") and not re.search(r"[.,;:!?\"“—–-]", rest)
        if (
            alone
            and text.lower().startswith(f"{group.lower()} ")
            and len(text.split()) <= _MOST_WORDS
            and rest.split()[:1]
            and rest.split()[0] in _VERBS
        ):
            claims.setdefault(fold(text), Claim(group, rest, item["bias_type"]))
    return list(claims.values())


def framed_rows(statements: Path) -> Iterator[TrainingRow]:
    """Yield statements in frames that endorse them (biased) or oppose and report them (harmless).

    The segment with the predicate is judged, those before it are its context.
    """
    claims = plain_claims(statements)
    for item in read_jsonl(corpus_folder() / "frames.jsonl"):
        frame, biased = item["frame"], item["stance"] == "endorse"
        rng = random.Random(f"frame:{frame}")
        for claim in rng.sample(claims, _FILLS):
            text = _filled_pattern(frame, {"": claim}, claim)
            yield from _judged_segment(text, claim, biased, "framed", f"frame:{fold(frame)}")


def listed_rows(statements: Path) -> Iterator[TrainingRow]:
    """Yield the lines of lists with those before them, as far as the guard shows these."""
    by_group: dict[str, list[Claim]] = defaultdict(list)
    for claim in plain_claims(statements):
        by_group[claim.group].append(claim)
    for item in read_jsonl(corpus_folder() / "lists.jsonl"):
        lines = item["lines"]
        slots = {number for line in lines for _, number in _SLOT.findall(line) if number}
        usable = sorted(g for g, of in by_group.items() if len(of) >= len(slots))
        family = f"list:{fold(' '.join(lines))}"
        rng = random.Random(family)
        for group in rng.sample(usable, min(_GROUPS, len(usable))):
            chosen = rng.sample(by_group[group], max(1, len(slots)))
            claims = dict(zip(sorted(slots) or ["1"], chosen, strict=True))
            before: list[str] = []
            for number, (line, biased) in enumerate(zip(lines, item["biased"], strict=True)):
                claim = next((claims[n] for _, n in _SLOT.findall(line) if n), chosen[0])
                text = _filled_pattern(line, claims, chosen[0])
                # What a line further down means may depend on one that the guard no longer shows.
                if number <= CONTEXT_SEGMENTS or is_heading(before[0]):
                    yield from _judged_segment(text, claim, biased, "listed", family, before)
                before += text_pieces(text)


def _filled_pattern(pattern: str, claims: Mapping[str, Claim], default: Claim) -> str:
    def fill(slot: re.Match[str]) -> str:
        first = not any(c.isalnum() for c in pattern[: slot.start()])
        return claims.get(slot[2], default).fill(slot[1], first=first)

    return _SLOT.sub(fill, pattern)


def carried_rows() -> Iterator[TrainingRow]:
    """Yield sentences that are biased behind one sentence, and harmless behind another."""
    for item in read_jsonl(corpus_folder() / "carried.jsonl"):
        text, kind = item["text"], item["bias_type"]
        family = f"carried:{fold(text)}"
        for biased in (True, False):
            sentences = item["biased_context" if biased else "harmless_context"]
            before = [part for one in sentences for part in text_pieces(one)]
            segment, context = in_context([*before, *text_pieces(text)])[-1]
            attribute = find_phrase(segment, item["attribute"]) if biased else None
            yield row_of(
                WholeText("carried", segment, biased, family), context=context, bias_type=kind,
                attribute=attribute, spans=attribute is not None,
            )  # fmt: skip


def _judged_segment(
    text: str, claim: Claim, biased: bool, source: str, family: str, before: list[str] | None = None
) -> Iterator[TrainingRow]:
    """Yield the segment of ``text`` that has the predicate, or the last where none has it."""
    parts = [*(before or ()), *text_pieces(text)]
    own = in_context(parts)[len(before or ()) :]
    if not own:
        return
    segment, context = segment_with(claim.predicate, own)
    group, attribute = find_phrase(segment, claim.group), find_phrase(segment, claim.predicate)
    known = biased and attribute is not None
    yield row_of(
        WholeText(source, segment, biased, family), context=context, bias_type=claim.bias_type,
        group=group if known else None, attribute=attribute if known else None, spans=known,
    )  # fmt: skip
