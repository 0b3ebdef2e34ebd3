"""Turns token scores into attributions: groups and attributes in the text.

Each attribute goes to the nearest group: a finding without its group helps nobody.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.detect.tokens import Encoded
from guard.verdict import Attribution, Span

MAX_GROUP_WORDS = 5
MAX_ATTRIBUTE_WORDS = 14
MOST_GROUPS, MOST_ATTRIBUTES = 2, 3
# Added to each logit: a word with a slightly negative logit may belong to a span.
_SLACK = 0.7
# If no run is positive, the word with the highest logit is taken, provided it is above this.
_LEAST = -2.5
# The same slack for a second group or attribute: none.
_FURTHER_SLACK = 0.0


class _Word(NamedTuple):
    start: int
    end: int
    scores: tuple[float, float]


def find_attributions(
    text: str, encoded: Encoded, scores: NDArray[np.float32]
) -> tuple[Attribution, ...]:
    """Return the (group, attribute) pairs of a segment, the likeliest first; often one, or none.

    ``scores`` (t, 2) are the logits of the whole input's tokens. A span is the run of words with
    the greatest sum of logits; groups and attributes never overlap. Each attribute is paired with
    the nearest group; a group without an attribute is then paired with its nearest attribute.
    """
    words = _joined_words(text, encoded, scores)
    groups = _best_runs([w.scores[0] for w in words], MAX_GROUP_WORDS, MOST_GROUPS)
    taken = {i for run in groups for i in range(*run)}
    rest = [_NEVER if i in taken else w.scores[1] for i, w in enumerate(words)]
    attribute_runs = _best_runs(rest, MAX_ATTRIBUTE_WORDS, MOST_ATTRIBUTES)
    if not groups or not attribute_runs:
        return ()
    pairs = [(min(groups, key=partial(_distance_apart, run)), run) for run in attribute_runs]
    matched = {group for group, _ in pairs}
    pairs += [
        (g, min(attribute_runs, key=partial(_distance_apart, g)))
        for g in groups
        if g not in matched
    ]
    return tuple(_attribution_of(text, words, group, run) for group, run in pairs)


_NEVER = -1e3


def _best_runs(scores: list[float], width: int, most: int) -> list[tuple[int, int]]:
    """Return the best run of words and further runs with a positive sum."""
    first = _best_run(scores, width, _SLACK)
    if first is None:
        best = max(range(len(scores)), key=scores.__getitem__, default=None)
        return [] if best is None or scores[best] < _LEAST else [(best, best + 1)]
    runs = [first]
    rest = list(scores)
    while len(runs) < most:
        for i in range(*runs[-1]):
            rest[i] = _NEVER
        further = _best_run(rest, width, _FURTHER_SLACK)
        if further is None:
            break
        runs.append(further)
    return runs


def _distance_apart(first: tuple[int, int], other: tuple[int, int]) -> int:
    return max(first[0] - other[1], other[0] - first[1])


def _attribution_of(
    text: str, words: list[_Word], group: tuple[int, int], attribute: tuple[int, int]
) -> Attribution:
    group_span, attribute_span = _span_of(words, group), _span_of(words, attribute)
    return Attribution(
        text[group_span.start : group_span.end],
        text[attribute_span.start : attribute_span.end],
        group_span,
        attribute_span,
    )


def _joined_words(text: str, encoded: Encoded, scores: NDArray[np.float32]) -> list[_Word]:
    """Join word pieces, and words with inner punctuation ("don't", "non-white")."""
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


def _best_run(scores: list[float], most: int, slack: float) -> tuple[int, int] | None:
    """Return the run [i, j) of at most ``most`` words with the greatest sum, if any is positive.

    ``slack`` is added to each word.
    """
    best, best_run = 0.0, None
    for i in range(len(scores)):
        total = 0.0
        for j in range(i, min(len(scores), i + most)):
            total += scores[j] + slack
            if total > best:
                best, best_run = total, (i, j + 1)
    return best_run


def _span_of(words: list[_Word], run: tuple[int, int]) -> Span:
    return Span(words[run[0]].start, words[run[1] - 1].end)
