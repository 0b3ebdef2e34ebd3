"""Whether a segment in Latin script is clearly in another language than English.

Text that is taken for another language goes unjudged, so English must hardly ever be. Words are
counted, each once:

* for another language: its frequent words that English does not use, elided ones (``l'eau``),
  and words with accents that are neither names nor borrowed;
* in part: words that English text holds too, and words that the encoder's vocabulary lacks.
  Slang and typos look like the latter, so these never decide alone, and neither do particles of
  names ("de", "von");
* against it: frequent words of English and its names for groups of people, whom another language
  would call otherwise. Those that the other language has too ("in", "was") count for neither once
  enough else speaks for it;
* against it as well: tags, and words in no list that the encoder's vocabulary knows. A few foreign
  words must not carry out an English statement that has none of its frequent words ("criminals
  steal jobs, nicht wahr?"). A capital within a sentence begins a name, which is of no language.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from guard.detect.words import BORROWED, ENGLISH, LOANS, PARTICLES, SHARED, WORDS

# Addresses, names of accounts, tags and formulas are no words.
_NO_WORD = re.compile(r"[\"'(\[“‘]*(?:[@#]|www\.)|.*?(?:://|[@_\\{}=]|\w\.(?:com|org|net)\b)")
_TAG = re.compile(r"#[A-Za-z]{3}")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_ELIDED = re.compile(
    r"(?:l|d|j|c|n|qu|dell|all|nell|sull|dall|un|quest|jusqu|lorsqu|puisqu)'[^\W\d_]{2}"
)
_NOT_ELIDED = frozenset({"c'mon", "c'mere", "d'you"})
_CONTRACTED = ("n't", "'re", "'ll", "'ve", "'m")

# What a word weighs; one that the leading language has for its own weighs 1.
_OF_ANOTHER = 0.7
_ACCENTED = 0.8
_SHARED = 0.4
_UNKNOWN = 0.4
# What the words must weigh together, for each word of the segment.
_CLEAR = 0.2  # two foreign words and none against them
_MIXED = 0.25  # two foreign words beside others
_FAINT = 0.3  # one foreign word and none against it
_FAINT_SUM = 1.4
# A segment with more English words, or with less for each word against, is judged in any case.
_ENGLISH = 2
_PER_WORD_AGAINST = 3


def foreign(text: str, known: Callable[[str], bool]) -> bool:
    """Whether a segment in Latin script is clearly in another language than English.

    ``known`` says whether a word in lower case stands whole in the vocabulary of an encoder of
    English. Every word counts once. A single word is never foreign.
    """
    pieces = unicodedata.normalize("NFC", text).split()
    words = list(dict.fromkeys(_WORD.findall(" ".join(p for p in pieces if not _NO_WORD.match(p)))))
    if len(words) < 2:
        return False
    found = _evidence(words, known)
    leader = max(found.languages, key=found.rank, default="")
    distinct = len(found.foreign) + len(found.accented)
    sure = distinct > 1 or (distinct == 1 and found.unknown > 1)
    english = found.english - (found.claimed[leader] if sure else 0)
    against = english + found.known + len({p.lower() for p in pieces if _TAG.match(p)})
    weight = (
        found.own[leader]
        + _OF_ANOTHER * (len(found.foreign) - found.own[leader])
        + _ACCENTED * len(found.accented)
        + _SHARED * found.shared[leader]
        + _UNKNOWN * found.unknown
    )
    if english > _ENGLISH or weight < _PER_WORD_AGAINST * against:
        return False
    if distinct > 1:
        return weight >= (_MIXED if against else _CLEAR) * len(words)
    faint = max(_FAINT_SUM, _FAINT * len(words))
    return distinct == 1 and not against and len(words) > 2 and weight >= faint


class _Evidence(NamedTuple):
    """What the words of a segment are; the counts are by language."""

    own: Counter[str]  # words that English does not use
    shared: Counter[str]  # words that English text holds too
    claimed: Counter[str]  # frequent words of English
    foreign: set[str]  # the words of `own` and the elided, of whatever language
    accented: set[str]
    unknown: int
    known: int  # words in no list
    english: int

    @property
    def languages(self) -> list[str]:
        return sorted({*self.own, *self.shared, *self.claimed})

    def rank(self, language: str) -> float:
        """Return how much of the segment would be in this language."""
        return self.own[language] + _SHARED * self.shared[language] + self.claimed[language]


def _evidence(words: list[str], known: Callable[[str], bool]) -> _Evidence:
    own: Counter[str] = Counter()
    shared: Counter[str] = Counter()
    claimed: Counter[str] = Counter()
    foreign: set[str] = set()
    particles: set[str] = set()
    accented: set[str] = set()
    unknown = within = english = 0
    # In titles and shouting a capital does not tell a name.
    titled = 2 * sum(written[0].islower() for written in words) <= len(words)
    for i, written in enumerate(words):
        word = written.lower().replace("’", "'")
        small = written[0].islower()
        languages = _LANGUAGES.get(word, ())
        if word in ENGLISH or word.endswith(_CONTRACTED):
            english += 1
            claimed.update(languages)
        elif len(word) == 1 and word.isascii():
            continue
        elif languages:
            if word not in SHARED:
                foreign.add(word)
                own.update(languages)
            elif word in PARTICLES and i + 1 < len(words) and words[i + 1][0].islower():
                particles.add(word)
            else:
                shared.update(languages)
        elif _ELIDED.match(word) and word not in _NOT_ELIDED and (small or i == 0):
            foreign.add(word)
        elif not word.isascii():
            # The encoder reads no accents: with one, a word of English is still what it was.
            if small and word not in BORROWED and all(_latin(ord(c)) for c in word):
                bare = _without_accents(word)
                if bare not in ENGLISH and not known(bare):
                    accented.add(word)
        elif len(word.removesuffix("'s")) > 2 and word not in LOANS:
            if known(word.removesuffix("'s")):
                within += small or titled or i == 0
            elif small and "'" not in word:
                unknown += 1
    # Particles stand in names and slang as well, and say nothing alone.
    sure = bool(foreign or accented)
    for word in particles:
        (own if sure else shared).update(_LANGUAGES[word])
    if sure:
        foreign |= particles
    return _Evidence(own, shared, claimed, foreign, accented, unknown, within, english)


def _without_accents(word: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))


def _latin(code: int) -> bool:
    return code < 0x250 or 0x1E00 <= code <= 0x1EFF


def _by_word() -> dict[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {}
    for language, words in WORDS.items():
        for word in sorted(words):
            table[word] = (*table.get(word, ()), language)
    return table


_LANGUAGES = _by_word()
