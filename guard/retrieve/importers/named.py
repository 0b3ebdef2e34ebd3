"""Finds the group that a running text names, and its attribute.

For sources whose rows are whole sentences without a column for the group.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple, cast

from guard.retrieve.importers.found import MOST_WORDS, find_mention, predicate_of, with_people
from guard.retrieve.phrases import find_pronoun, predicate_after
from guard.verdict import BiasType, Span

_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_LONGEST = 3
_SENTENCE_END = re.compile(r"[.!?]+[\"')]*\s+(?=\S)")


class Named(NamedTuple):
    """A group that a text names, with the bias type of its name."""

    group: Span
    bias_type: BiasType


class _Known(NamedTuple):
    """The listed names with the number of their section, and the first words of longer names."""

    sections: dict[str, int]
    types: tuple[BiasType, ...]
    openings: frozenset[str]


def find_named(text: str, kind: BiasType | None = None) -> Named | None:
    """Return the group that ``text`` names; with ``kind``, only one of that type.

    If there are several, the one of the rarest type, then the first.
    """
    known = _known_names()
    words = list(_WORD.finditer(text))
    folded = [word[0].casefold() for word in words]
    best: tuple[int, Named] | None = None
    at = 0
    while at < len(words):
        size, rank = _name_at(folded, at, known)
        if rank is not None and (best is None or rank < best[0]):
            kind_found = known.types[rank]
            if kind is None or kind_found == kind:
                span = Span(words[at].start(), words[at + size - 1].end())
                best = (rank, Named(with_people(text, span), kind_found))
        at += size
    return best[1] if best else None


def find_predicate(text: str, group: Span) -> Span | None:
    """Return the attribute of a text's group, from its last sentence.

    There the group may be named again, be a pronoun, or be missing.
    """
    starts = [0, *(hit.end() for hit in _SENTENCE_END.finditer(text))]
    last = starts[-1]
    if group.start >= last:
        attribute = predicate_of(text[last:], Span(group.start - last, group.end - last))
        return attribute and attribute.shifted(last)
    sentence = text[last:]
    again = find_mention(sentence, text[slice(*group)]) or find_pronoun(sentence, it=True)
    if again is not None and (attribute := predicate_after(sentence, again, most=MOST_WORDS)):
        return attribute.shifted(last)
    words = list(re.finditer(r"\S+", sentence.rstrip(" .!?\"'")))[:MOST_WORDS]
    return Span(last + words[0].start(), last + words[-1].end()) if words else None


def _singular_forms(name: str) -> tuple[str, ...]:
    forms = [name]
    if name.endswith("s") and len(name) > 3:
        forms.append(name[:-1])
        if name.endswith("es"):
            forms.append(name[:-2])
        if name.endswith("ies"):
            forms.append(f"{name[:-3]}y")
        if name.endswith("ves"):
            forms.append(f"{name[:-3]}fe")
    if name.endswith("men"):
        forms.append(f"{name[:-3]}man")
    return tuple(forms)


def _name_at(words: list[str], at: int, known: _Known) -> tuple[int, int | None]:
    """Return the length of the longest name that begins at a word, and its section."""
    longest = min(_LONGEST, len(words) - at) if words[at] in known.openings else 1
    for size in range(longest, 0, -1):
        for name in _singular_forms(" ".join(words[at : at + size])):
            if name in known.sections:
                return size, known.sections[name]
    return 1, None


@cache
def _known_names() -> _Known:
    listed = files("guard.retrieve.importers").joinpath("groups.txt").read_text(encoding="utf-8")
    sections: dict[str, int] = {}
    types: list[BiasType] = []
    for line in listed.splitlines():
        if line.startswith("["):
            types.append(cast(BiasType, line.strip("[]")))
        elif not line.startswith("#"):
            for name in filter(None, (part.strip() for part in line.split(","))):
                sections.setdefault(name, len(types) - 1)
    openings = frozenset(name.split()[0] for name in sections if " " in name)
    return _Known(sections, tuple(types), openings)
