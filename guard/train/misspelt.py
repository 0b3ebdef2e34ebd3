"""Spelling mistakes for training: people make them, and a biased text is biased in spite of one."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace

from guard.detect.spelling import Edit
from guard.train.rows import TrainingRow
from guard.verdict import Span

# In shorter words a mistake often makes another word: "not" and "no".
_WORD = re.compile(r"[A-Za-z]{4,}")
_GAP = re.compile(r"(?<=[A-Za-z]) (?=[A-Za-z])")
# Share of the mistakes in a word of the group, where the row's group is known.
_IN_GROUP = 1 / 3


def _dropped_letter(word: str, at: int, rng: random.Random) -> Edit:
    i = rng.randrange(1, len(word))
    return Edit(at + i, at + i + 1, "")


def _doubled_letter(word: str, at: int, rng: random.Random) -> Edit:
    i = rng.randrange(1, len(word))
    return Edit(at + i, at + i + 1, 2 * word[i])


def _swapped_letters(word: str, at: int, rng: random.Random) -> Edit:
    i = rng.randrange(1, len(word) - 1)
    return Edit(at + i, at + i + 2, word[i + 1] + word[i])


_IN_A_WORD: tuple[Callable[[str, int, random.Random], Edit], ...] = (
    _dropped_letter,
    _doubled_letter,
    _swapped_letters,
)


def misspelt_row(row: TrainingRow, rng: random.Random) -> TrainingRow:
    """Return a row with a mistake: a letter dropped, doubled or swapped, or two words joined.

    Spans follow their words. A text of short words only may stay as it is.
    """
    edit = _random_edit(row, rng)
    if edit is None:
        return row
    text = row.text[: edit.start] + edit.text + row.text[edit.end :]
    group, attribute = (_moved_span(span, edit) for span in (row.group, row.attribute))
    return replace(row, text=text, group=group, attribute=attribute)


def _random_edit(row: TrainingRow, rng: random.Random) -> Edit | None:
    gaps = [hit.start() for hit in _GAP.finditer(row.text)]
    if gaps and rng.random() < 1 / (len(_IN_A_WORD) + 1):
        at = rng.choice(gaps)
        return Edit(at, at + 1, "")
    words = list(_WORD.finditer(row.text))
    if row.group is not None and rng.random() < _IN_GROUP:
        inside = [w for w in words if row.group.start <= w.start() and w.end() <= row.group.end]
        words = inside or words
    if not words:
        return None
    word = rng.choice(words)
    return rng.choice(_IN_A_WORD)(word[0], word.start(), rng)


def _moved_span(span: Span | None, edit: Edit) -> Span | None:
    if span is None:
        return None
    change = len(edit.text) - (edit.end - edit.start)
    start, end = (at + change if at > edit.start else at for at in (span.start, span.end))
    return Span(start, end)
