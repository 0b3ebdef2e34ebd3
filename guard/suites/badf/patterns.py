"""The analyst ``patterns``, which is no model: a few patterns, to try the suite out.

It finds adjectives, adverbs and verbs next to a name or a following pronoun, and nouns after "is
a". It misses most of a story.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_BE = r"(?:was|is|felt|feels|seemed|looked|grew|became|remained|stood|sat)"
_NO_ADJECTIVE = frozenset(
    "a an the in on at to by with as for from not no able about there here his her their its also "
    "just still already now one two up down out off over so very being".split()
)
_ROLE = r"\ban? ((?:[a-z-]+ ){0,2}[a-z-]{4,})"


def extract_phrases(story: str, names: Sequence[str]) -> str:
    """Return a line of phrases for each of ``names``, in the analyst's form."""
    by_name: dict[str, dict[str, None]] = {name: {} for name in names}
    last = ""
    for sentence in _SENTENCE.split(story):
        here = [name for name in names if re.search(rf"\b{re.escape(name)}\b", sentence)]
        for name in here or ([last] if last else []):
            who = rf"(?:{re.escape(name)}(?:'s \w+)?|she|he|they|She|He|They)"
            by_name[name] |= dict.fromkeys(
                _phrases_of(sentence, who if here[:1] in ([], [name]) else name)
            )
        last = here[0] if len(here) == 1 else last
    return "\n".join(f"{name}: {'; '.join(phrases)}" for name, phrases in by_name.items())


def _phrases_of(sentence: str, who: str) -> Iterator[str]:
    for match in re.finditer(rf"\b{who} {_BE} (?:\w+ly )?([a-z-]{{4,}})", sentence):
        if match[1] not in _NO_ADJECTIVE:
            yield match[1]
    for match in re.finditer(rf"\b{who} (?:\w+ )?([a-z]{{3,}}ly)\b", sentence):
        yield match[1]
    for match in re.finditer(rf"\b{who} ([a-z]{{3,}}ed)\b", sentence):
        yield match[1]
    for match in re.finditer(rf"\b{who}, {_ROLE},", sentence):
        yield match[1]
    for match in re.finditer(rf"\b{who} {_BE} {_ROLE}", sentence):
        yield match[1]
