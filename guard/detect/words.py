"""Frequent words of English and of other languages in Latin script, from ``words.txt``."""

from __future__ import annotations

from pathlib import Path


def _word_lists() -> dict[str, frozenset[str]]:
    lists: dict[str, list[str]] = {}
    name = ""
    for line in Path(__file__).with_name("words.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            name = line.strip("[]")
        else:
            lists.setdefault(name, []).extend(line.split())
    return {name: frozenset(words) for name, words in lists.items()}


_LISTS = _word_lists()

#: Frequent English words, including chat slang and names of groups of people.
ENGLISH = _LISTS.pop("ENGLISH") | _LISTS.pop("GROUPS")
#: Loan words between English and other languages, which are evidence for neither.
LOANS = _LISTS.pop("LOANS")
#: Words of other languages that also occur in English text, its names and quotations.
SHARED = _LISTS.pop("SHARED")
#: Those of them that are part of a name if a capital follows.
PARTICLES = _LISTS.pop("PARTICLES")
#: Words with accents that English has borrowed.
BORROWED = _LISTS.pop("BORROWED")
#: The other lists by ISO 639-1 code; a list may include closely related languages.
WORDS = _LISTS
