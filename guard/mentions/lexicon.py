"""The words that name social groups, folded so that disguised spellings match."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Literal, cast, get_args

Kind = Literal["name", "bearer", "opener", "pronoun", "first"]
_SECTIONS: tuple[Kind, ...] = get_args(Kind)[:-1]

# Digits and signs that a detector reads as letters. A 1 may be i or l, so l is folded, too.
_ALIKE = str.maketrans("0134579@$!l", "oieastgasii")
_SIGNS = "@$!"
_DISGUISED = re.compile(r"[0134579@$!]|(.)\1\1")
_RUN = re.compile(r"(.)\1+")
_WORD = re.compile(r"[^\W\d_]+")
_NONE: frozenset[Kind] = frozenset()


def fold_word(word: str) -> str:
    """Return ``word`` folded for comparison: lower case, no accents or runs, signs as letters.

    A prefix of a word folds to a prefix of the folded word. So a text that begins no listed word
    cannot become one.

    >>> fold("W00OMÉN") == fold("women")
    True
    """
    return _RUN.sub(r"\1", _plain_word(word).translate(_ALIKE))


def _plain_word(word: str) -> str:
    if word.isascii():
        return word.lower()
    decomposed = unicodedata.normalize("NFKD", word)
    return "".join(c for c in decomposed if not unicodedata.combining(c)).casefold()


class Lexicon:
    """Listed words by kind, and their prefixes.

    A name of several words is matched word by word; a singular includes its plural.
    """

    def __init__(self, listed: Mapping[Kind, Iterable[str]]) -> None:
        self._exact: dict[str, frozenset[Kind]] = {}
        self._folded: dict[str, frozenset[Kind]] = {}
        self._names: set[tuple[str, ...]] = set()  # of several words, folded
        self._begun: set[tuple[str, ...]] = set()  # their beginnings
        starts: dict[bool, set[str]] = {False: {""}, True: {""}}  # True: of pronouns
        for kind, names in listed.items():
            for name in names:
                words = [_plain_word(w) for w in _WORD.findall(name)]
                for last in _word_forms(words[-1]) if kind in ("name", "bearer") else (words[-1],):
                    self._add_words(kind, (*words[:-1], last))
                    for word in map(fold_word, (*words[:-1], last)):
                        starts[kind == "pronoun"] |= {word[:n] for n in range(1, len(word) + 1)}
        self._starts = frozenset(starts[False])
        self._starts_or_pronouns = frozenset(starts[False] | starts[True])

    def _add_words(self, kind: Kind, words: tuple[str, ...]) -> None:
        if len(words) > 1:
            folded = tuple(map(fold_word, words))
            self._names.add(folded)
            self._begun |= {folded[:n] for n in range(1, len(folded))}
            kind = "first"
        for known, word in ((self._exact, words[0]), (self._folded, fold_word(words[0]))):
            known[word] = known.get(word, _NONE) | {kind}

    def kinds(self, word: str) -> frozenset[Kind]:
        """Return the kinds of a whole word, plain, disguised or with signs around it.

        ``first`` is a word that begins a name of several words.
        """
        kinds = self._kinds_of(word)
        if not kinds and (word[0] in _SIGNS or word[-1] in _SIGNS):
            for core in (word.lstrip(_SIGNS), word.rstrip(_SIGNS), word.strip(_SIGNS)):
                kinds = kinds or (self._kinds_of(core) if core else _NONE)
        if not kinds and "!" in word:
            first = word.lstrip(_SIGNS).partition("!")[0]  # "women!so": no space after the mark
            kinds = self._kinds_of(first) if first else _NONE
        return kinds

    def _kinds_of(self, word: str) -> frozenset[Kind]:
        kinds = self._exact.get(_plain_word(word), _NONE)
        if not kinds and _DISGUISED.search(word) and not word.isdigit():
            kinds = self._folded.get(fold_word(word), _NONE)
        return kinds

    def may_begin(self, part: str, *, pronouns: bool) -> bool:
        """Whether a word that begins with ``part`` could be listed, or part of a listed name."""
        starts = self._starts_or_pronouns if pronouns else self._starts
        read = _plain_word(part).translate(_ALIKE)
        if read in starts or _RUN.sub(r"\1", read) in starts:
            return True
        if part[0] in _SIGNS and fold_word(part.lstrip(_SIGNS)) in starts:
            return True
        return (part[-1] in _SIGNS or "!" in part) and bool(self.kinds(part))

    def is_name(self, words: tuple[str, ...]) -> bool:
        """Whether folded ``words`` are a listed name of several words."""
        return words in self._names

    def begins_name(self, words: tuple[str, ...]) -> bool:
        """Whether folded ``words`` begin a listed name of more words."""
        return words in self._begun


@cache
def shipped_lexicon() -> Lexicon:
    """Return the shipped lexicon."""
    text = files("guard.mentions").joinpath("groups.txt").read_text(encoding="utf-8")
    return Lexicon(read_words(text))


def read_words(text: str) -> dict[Kind, list[str]]:
    """Return the words listed under ``[names]``, ``[bearers]``, ``[openers]``, ``[pronouns]``."""
    listed: dict[Kind, list[str]] = {kind: [] for kind in _SECTIONS}
    section: list[str] = []
    for line in text.splitlines():
        if line.startswith("["):
            section = listed[cast(Kind, line.strip("[]").removesuffix("s"))]
        elif not line.startswith("#"):
            section += filter(None, (name.strip() for name in line.split(",")))
    return listed


def _word_forms(word: str) -> Iterator[str]:
    """Yield a word and its plurals."""
    yield word
    yield word + "s"
    if word.endswith(("s", "x", "z", "ch", "sh", "o")):
        yield word + "es"
    if word.endswith("y"):
        yield word[:-1] + "ies"
    if word.endswith("man"):
        yield word[:-3] + "men"
    if word.endswith(("f", "fe")):
        yield word.removesuffix("e")[:-1] + "ves"
