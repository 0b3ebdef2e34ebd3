"""Finds the texts of an evaluation set that are (near-)duplicates of training texts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from guard.datasets.split import fold
from guard.gate.segmenter import split

# The axis for whether a text is a near-duplicate: yes or no.
NEAR = "near-duplicate"
_LENGTH = 4
_HALF = 0.5


def far_from(texts: Sequence[str], training: Iterable[str]) -> list[bool]:
    """Return for each text whether it is far from every training text.

    Far: it shares less than half of its distinct word 4-grams (in lower case, without punctuation)
    with every single training text. A text of fewer than four words is compared as a whole.
    """
    holders: dict[str, list[int]] = defaultdict(list)
    for number, text in enumerate(training):
        for gram in _grams(text):
            holders[gram].append(number)
    return [_most_shared(_grams(text), holders) < _HALF for text in texts]


def sentences(text: str) -> list[str]:
    """Return the text, and its sentences of four words or more, if it has several."""
    parts = [part.text for part in split(text)]
    longer = [part for part in parts if len(fold(part).split()) >= _LENGTH]
    return [text, *(longer if len(parts) > 1 else ())]


def _grams(text: str) -> set[str]:
    words = fold(text).split()
    last = max(len(words) - _LENGTH, 0)
    return {" ".join(words[i : i + _LENGTH]) for i in range(last + 1)}


def _most_shared(grams: set[str], holders: dict[str, list[int]]) -> float:
    counts = Counter(number for gram in grams for number in holders.get(gram, ()))
    return max(counts.values(), default=0) / len(grams)
