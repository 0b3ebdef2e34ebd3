"""From token scores to a group and an attribute in the text."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.detect.tokens import Encoded
from guard.verdict import Attribution, Span

MAX_GROUP_WORDS = 5
MAX_ATTRIBUTE_WORDS = 14
# A word may carry a span although its own logit is slightly negative.
_SLACK = 0.7


class _Word(NamedTuple):
    start: int
    end: int
    scores: tuple[float, float]


def attribution(text: str, encoded: Encoded, scores: NDArray[np.float32]) -> Attribution | None:
    """Return the likeliest (group, attribute) pair of a segment, None without a decent one.

    ``scores`` (t, 2) are the logits of the whole input's tokens. A span is the run of words with
    the greatest sum of logits; group and attribute never overlap.
    """
    words = _words(text, encoded, scores)
    group = _best_run([w.scores[0] for w in words], MAX_GROUP_WORDS)
    if group is None:
        return None
    taken = set(range(*group))
    rest = [-1e3 if i in taken else w.scores[1] for i, w in enumerate(words)]
    attribute = _best_run(rest, MAX_ATTRIBUTE_WORDS)
    if attribute is None:
        return None
    one, two = _span(words, group), _span(words, attribute)
    return Attribution(text[one.start : one.end], text[two.start : two.end], one, two)


def _words(text: str, encoded: Encoded, scores: NDArray[np.float32]) -> list[_Word]:
    """Join word pieces, and what punctuation joins without a space ("don't", "non-white")."""
    words: list[_Word] = []
    counts: list[int] = []
    for i, (start, end) in enumerate(encoded.offsets):
        group, attribute = float(scores[i + 1, 0]), float(scores[i + 1, 1])
        if end <= start:
            continue
        inner = any(c.isalnum() for c in text[start:end])
        if words and words[-1].end == start and (inner or text[start] in "'’-"):
            last, n = words[-1], counts[-1]
            if text[start] in "'’-" and not (end < len(text) and text[end].isalnum()):
                continue
            mean = (
                (last.scores[0] * n + group) / (n + 1),
                (last.scores[1] * n + attribute) / (n + 1),
            )
            words[-1], counts[-1] = _Word(last.start, end, mean), n + 1
        elif inner:
            words.append(_Word(start, end, (group, attribute)))
            counts.append(1)
    return words


def _best_run(scores: list[float], most: int) -> tuple[int, int] | None:
    """Return the run [i, j) of at most ``most`` words with the greatest sum, if any is positive."""
    best, found = 0.0, None
    for i in range(len(scores)):
        total = 0.0
        for j in range(i, min(len(scores), i + most)):
            total += scores[j] + _SLACK
            if total > best:
                best, found = total, (i, j + 1)
    return found


def _span(words: list[_Word], run: tuple[int, int]) -> Span:
    return Span(words[run[0]].start, words[run[1] - 1].end)
