"""Frequent words of English and of other languages in Latin script, from ``words.txt``."""

from __future__ import annotations

from pathlib import Path


def _lists() -> dict[str, frozenset[str]]:
    found: dict[str, list[str]] = {}
    name = ""
    for line in Path(__file__).with_name("words.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            name = line.strip("[]")
        else:
            found.setdefault(name, []).extend(line.split())
    return {name: frozenset(words) for name, words in found.items()}


_LISTS = _lists()

#: Words that say a text is English, slang of chats and what it calls groups of people included.
ENGLISH = _LISTS.pop("ENGLISH") | _LISTS.pop("GROUPS")
#: Words of English that other languages have borrowed, or it from them, and that tell neither.
LOANS = _LISTS.pop("LOANS")
#: Words of the other languages that English text, its names and quotations hold too.
SHARED = _LISTS.pop("SHARED")
#: Of these, words that are parts of names before a capital and foreign words before none.
PARTICLES = _LISTS.pop("PARTICLES")
#: Words with accents that English has borrowed.
BORROWED = _LISTS.pop("BORROWED")
#: The others by ISO 639-1 code, which may stand for close languages as well.
WORDS = _LISTS
