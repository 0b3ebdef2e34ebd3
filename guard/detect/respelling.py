"""Words that are one slip of the keyboard from a common word, and two common words written as one.

Such a text is judged as written, and also as it was probably meant; the higher score counts. So a
wrong guess can find bias that is not there, but can hide none.
Why: docs/decisions/other-readings-only-add.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from string import ascii_lowercase

from spellchecker import SpellChecker

from guard.detect.normalise import Normalised, apply_edits
from guard.detect.spelling import Edit, Known, is_word
from guard.detect.words import BORROWED, LOANS, SHARED, WORDS
from guard.mentions import first_mention, shipped_lexicon

_WORD = re.compile(r"(?<![\w@#/\\.$&'’+-])[A-Za-z]{3,16}(?![\w@/\\$&+]|\.\w|-\w|[(\[{=])")
_BEGINS = " \t\r\n\"'“‘(*_-•|>"  # what may stand before the first word
_SHORT = 6  # letters
_MOST = 3  # slips in a segment; a text with more is slang, or in another language
# Counts in the library's dictionary, where "women" has 258,298 and half of the words 50.
_COMMON, _VERY_COMMON = 400, 20_000
_NAMED = 50_000  # the least that a name of a group counts as
# By how much other slips are less likely than the commonest, by judgement.
_LIKELY, _UNLIKELY, _FIRST = 1.5, 8.0, 10.0
_VOWELS = frozenset("aeiouy")


def respelling_edits(text: str, earlier: str, known: Known) -> list[Edit]:
    """Return the edits that make the slips of a segment the words that were meant.

    There are none if neither the segment so read nor ``earlier``, its context, names a group.
    ``known``: whether a lower-case word is a whole token of an English encoder's vocabulary.
    """
    edits: list[Edit] = []
    shouted = text.isupper()
    for match in _WORD.finditer(text):
        if match[0].isupper() and not shouted and len(match[0]) < _SHORT:  # an abbreviation
            continue
        begins = not text[: match.start()].strip(_BEGINS)
        meant = _meant_words(match[0], begins=begins, known=known)
        if meant is not None:
            edits.append(Edit(*match.span(), meant))
    if not edits or len(edits) > _MOST:
        return []
    read = f"{earlier}\n{apply_edits(Normalised(text), edits).text}"
    return edits if first_mention(read, shipped_lexicon(), pronouns=False) is not None else []


def _meant_words(word: str, *, begins: bool, known: Known) -> str | None:
    """Return the word or the two words that ``word`` was meant as; None if it is one itself."""
    lower = word.lower()
    if not word.isupper() and word[1:] != lower[1:]:  # CamelCase
        return None
    if _is_word(lower, known):
        return None
    # A word with a capital inside of a sentence is a name; only that of a group is restored.
    is_name = word[0].isupper() and not begins and not word.isupper()
    likely = _FIRST / 2 if is_name else float("inf")
    counts = (
        (_word_count(meant, names_only=is_name) / unlikely, meant)
        for meant, unlikely in _one_edit_away(lower)
        if unlikely < likely
    )
    count, meant = max(counts)
    if not count and len(lower) > 5:
        count, meant = max(_word_splits(lower, name_first=is_name), default=(0.0, ""))
    if not count:
        return None
    if word.isupper():
        return meant.upper()
    return meant[0].upper() + meant[1:] if word[0].isupper() else meant


def _is_word(word: str, known: Known) -> bool:
    """Whether a word is one of English, British or American, or of another language."""
    if shipped_lexicon().kinds(word) or is_word(word, known):
        return True
    if any(word in words for words in (LOANS, SHARED, BORROWED, *WORDS.values())):
        return True
    spellings = (word, word.replace("is", "iz"), word.replace("our", "or"))
    return any(spelling in _word_counts() for spelling in spellings)


def _one_edit_away(word: str) -> Iterator[tuple[str, float]]:
    """Yield the strings that may have been meant, and how unlikely each slip is.

    Likeliest (1) is a letter left out or two exchanged; one doubled or one vowel for another is
    likelier than another letter or one too many. The first letter is rarely wrong.
    """
    for i in range(len(word) + 1):
        left, right = word[:i], word[i:]
        first = 1.0 if i else _FIRST
        if len(right) > 1:
            yield left + right[1] + right[0] + right[2:], first
        if right and len(word) > 3:
            doubled = right[0] in (left[-1:], right[1:2])
            yield left + right[1:], first * (_LIKELY if doubled else _UNLIKELY)
        for letter in ascii_lowercase:
            yield left + letter + right, first
            if right and len(word) > 3:
                vowels = letter in _VOWELS and right[0] in _VOWELS
                yield left + letter + right[1:], first * (_LIKELY if vowels else _UNLIKELY)


def _word_count(word: str, *, names_only: bool) -> int:
    """Return how common a word is; 0 for no word or a rare one."""
    count = _word_counts().get(word, 0)
    if _is_name(word):
        return max(_NAMED, count)
    return 0 if names_only or len(word) < 4 or count < _COMMON else count


def _word_splits(word: str, *, name_first: bool) -> Iterator[tuple[float, str]]:
    """Yield the pairs of words that ``word`` consists of, and the count of the rarer one."""
    for at in range(2, len(word) - 1):
        halves = word[:at], word[at:]
        if name_first and not _is_name(halves[0]):
            continue
        counts = [_NAMED if _is_name(half) else _word_counts().get(half, 0) for half in halves]
        # A rare word is believed only beside a very common one.
        if min(counts) >= _COMMON and max(counts) >= _VERY_COMMON:
            yield float(min(counts)), " ".join(halves)


def _is_name(word: str) -> bool:
    return "name" in shipped_lexicon().kinds(word)


@cache
def _word_counts() -> dict[str, int]:
    """Return the English words of pyspellchecker (from OpenSubtitles) and how often each occurs."""
    return dict(SpellChecker(language="en", distance=1).word_frequency.dictionary)
