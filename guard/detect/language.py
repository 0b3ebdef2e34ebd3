"""Whether a segment in Latin script is clearly in a language other than English.

Text in another language is not judged, so English must hardly ever be mistaken for one. The
evidence is the segment's distinct words:

* for another language: its frequent words that English does not have, elided ones (``l'eau``),
  and words with accents that are neither names nor loan words;
* weakly for it: words that also occur in English text, and words that are not in the encoder's
  vocabulary. Slang and typos look like the latter, so these never decide alone; nor do particles
  of names ("de", "von");
* against it: frequent English words, and English names of groups of people. Words that the other
  language has, too ("in", "was") do not count once there is enough evidence for it;
* also against it: hashtags, and unlisted words that are in the encoder's vocabulary. A few words of
  another language must not exempt an English statement that has no frequent English words
  ("criminals steal jobs, nicht wahr?"). A capitalised word within a sentence is a name and counts
  for no language.

A text of a language without a list is one of words that English does not have.
Why: docs/decisions/language-by-word-lists.md.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Literal, NamedTuple

from guard.detect.script import is_latin
from guard.detect.weights import SHIPPED, TOKENIZER
from guard.detect.words import BORROWED, ENGLISH, LOANS, PARTICLES, SHARED, WORDS

# Addresses, account names, hashtags and formulas are not words.
_NO_WORD = re.compile(r"[\"'(\[“‘]*(?:[@#]|www\.)|.*?(?:://|[@_\\{}=]|\w\.(?:com|org|net)\b)")
_TAG = re.compile(r"#[A-Za-z]{3}")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_ELIDED = re.compile(
    r"(?:l|d|j|c|n|qu|dell|all|nell|sull|dall|un|quest|jusqu|lorsqu|puisqu)'[^\W\d_]{2}"
)
_NOT_ELIDED = frozenset({"c'mon", "c'mere", "d'you"})
_CONTRACTED = ("n't", "'re", "'ll", "'ve", "'m")

# Weights of words; a word of the leading language weighs 1.
_OF_ANOTHER = 0.7
_ACCENTED = 0.8
_SHARED = 0.4
_UNKNOWN = 0.4
# Least total weight per word of the segment.
_CLEAR = 0.2  # two words of other languages and no evidence against them
_MIXED = 0.25  # two such words and evidence against them
_FAINT = 0.3  # one such word and no evidence against it
_FAINT_SUM = 1.4
# A segment with more English words, or less weight per word against, is always judged.
_ENGLISH = 2
_PER_WORD_AGAINST = 3
# A text is of an unknown language if it has at least so many words, so many that are not English,
# and so many of those for each English one.
_LEAST_WORDS, _LEAST_FOREIGN, _FOREIGN_PER_ENGLISH = 4, 3, 3


Language = Literal["english", "other", "unknown"]


def language_of(text: str, known: Callable[[str], bool]) -> Language:
    """Return whether a segment in Latin script is in English, as far as its words tell.

    ``other`` is clearly another language. ``unknown`` has four words or more, of which English has
    hardly any; rare slang looks the same: it is found in 10 of 77,000 English segments. All else is
    ``english``, also a single word.

    ``known``: whether a lower-case word is a whole token of an English encoder's vocabulary. Every
    word counts once.
    """
    pieces = unicodedata.normalize("NFC", text).split()
    words = list(dict.fromkeys(_WORD.findall(" ".join(p for p in pieces if not _NO_WORD.match(p)))))
    if len(words) < 2:
        return "english"
    evidence = _gather_evidence(words, known)
    if _is_other(pieces, words, evidence):
        return "other"
    foreign = evidence.unknown + len(evidence.other) + len(evidence.accented)
    few = foreign < max(_LEAST_FOREIGN, _FOREIGN_PER_ENGLISH * evidence.known)
    return "english" if len(words) < _LEAST_WORDS or evidence.english or few else "unknown"


def has_english_clause(text: str, known: Callable[[str], bool]) -> bool:
    """Whether what a segment has in Latin letters is English, of three words or more.

    One of them is frequent, so that names in a text of another script are none.
    """
    words = {word.lower() for word in _WORD.findall(text)}
    return len(words) > 2 and bool(words & ENGLISH) and language_of(text, known) == "english"


def is_other_language(text: str, known: Callable[[str], bool]) -> bool:
    """Whether a segment is clearly in another language: :func:`language_of`."""
    return language_of(text, known) == "other"


def _is_other(pieces: list[str], words: list[str], evidence: _Evidence) -> bool:
    leader = max(evidence.languages, key=evidence.rank, default="")
    distinct = len(evidence.other) + len(evidence.accented)
    sure = distinct > 1 or (distinct == 1 and evidence.unknown > 1)
    english = evidence.english - (evidence.claimed[leader] if sure else 0)
    against = english + evidence.known + len({p.lower() for p in pieces if _TAG.match(p)})
    weight = (
        evidence.own[leader]
        + _OF_ANOTHER * (len(evidence.other) - evidence.own[leader])
        + _ACCENTED * len(evidence.accented)
        + _SHARED * evidence.shared[leader]
        + _UNKNOWN * evidence.unknown
    )
    if english > _ENGLISH or weight < _PER_WORD_AGAINST * against:
        return False
    if distinct > 1:
        return weight >= (_MIXED if against else _CLEAR) * len(words)
    faint = max(_FAINT_SUM, _FAINT * len(words))
    return distinct == 1 and not against and len(words) > 2 and weight >= faint


@cache
def english_words() -> frozenset[str]:
    """Return the lower-case words that are whole tokens of the shipped encoder's vocabulary.

    It was learnt from English text. Of other languages it has hardly more than names and loan
    words; rare English words are missing.
    """
    vocabulary = json.loads((SHIPPED / TOKENIZER).read_bytes())["model"]["vocab"]
    return frozenset(token for token in vocabulary if token.isalpha())


class _Evidence(NamedTuple):
    """The words of a segment by kind; the counters are by language."""

    own: Counter[str]  # words that English does not have
    shared: Counter[str]  # words that also occur in English text
    claimed: Counter[str]  # frequent words of English, too
    other: set[str]  # all words counted in `own`, and the elided ones
    accented: set[str]
    unknown: int
    known: int  # words in no list
    english: int

    @property
    def languages(self) -> list[str]:
        return sorted({*self.own, *self.shared, *self.claimed})

    def rank(self, language: str) -> float:
        """Return the evidence for this language."""
        return self.own[language] + _SHARED * self.shared[language] + self.claimed[language]


def _gather_evidence(words: list[str], known: Callable[[str], bool]) -> _Evidence:
    own: Counter[str] = Counter()
    shared: Counter[str] = Counter()
    claimed: Counter[str] = Counter()
    other: set[str] = set()
    particles: set[str] = set()
    accented: set[str] = set()
    unknown = within = english = 0
    # In titles and all-capitals text, a capital is no sign of a name.
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
                other.add(word)
                own.update(languages)
            elif word in PARTICLES and i + 1 < len(words) and words[i + 1][0].islower():
                particles.add(word)
            else:
                shared.update(languages)
        elif _ELIDED.match(word) and word not in _NOT_ELIDED and (small or i == 0):
            other.add(word)
        elif not word.isascii():
            # The encoder ignores accents: an English word with an accent is still English.
            if small and word not in BORROWED and all(map(is_latin, word)):
                bare = _without_accents(word)
                if bare not in ENGLISH and not known(bare):
                    accented.add(word)
        elif len(word.removesuffix("'s")) > 2 and word not in LOANS:
            if known(word.removesuffix("'s")):
                within += small or titled or i == 0
            elif small and "'" not in word:
                unknown += 1
    # Particles also occur in names and slang, so they never decide alone.
    sure = bool(other or accented)
    for word in particles:
        (own if sure else shared).update(_LANGUAGES[word])
    if sure:
        other |= particles
    return _Evidence(own, shared, claimed, other, accented, unknown, within, english)


def _without_accents(word: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))


def _by_word() -> dict[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {}
    for language, words in WORDS.items():
        for word in sorted(words):
            table[word] = (*table.get(word, ()), language)
    return table


_LANGUAGES = _by_word()
