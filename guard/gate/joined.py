"""Joined looks: what a segment is judged joined to, because alone it says too little.

A short answer is judged joined to its question, and a few words that name a group to the heading of
their list, the head of their column, or their key: "QUESTION ANSWER" and "HEADING: ITEM". A number
or a connective alone is judged without the texts before it. Every other segment is judged as it
is, with its context.

The joined text goes to the detector: it is the segment's reading. What of its verdict lies in the
question or the heading is moved to the place in the segment before which it was put.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from guard.gate.context import CONTEXT_SEGMENTS, UNDER_HEADING, Context, is_heading
from guard.gate.phrases import (
    is_answer,
    is_bare_group,
    is_generic,
    is_question,
    may_answer,
    names_a_group,
    says_nothing,
    words,
)
from guard.verdict import Span, Verdict, Window

# Answers to one question: "Yes. Absolutely. All of them."
_MOST_ANSWERS = 3
_MOST_HEADINGS = 8  # that are open inside of each other
_LONGEST = 240  # characters of a question or a heading
_SHORT_QUESTION = 3  # words; what it asks is in the one before: "Are they? Really?"

# Tags without attributes: in an attribute there may be words.
_TAG = r"</?[a-zA-Z][a-zA-Z0-9]*\s*/?>"
_BEGIN = re.compile(
    rf"\s*(?:>[ \t]*)*(?P<tags>(?:{_TAG}\s*)*)(?P<marker>(?:[-*+•–·▪◦]|\d{{1,3}}[.)]|[a-zA-Z][.)])"
    r"[ \t]+(?:\[[ xX]\][ \t]+)?)?(?P<hash>#{1,6}[ \t]+)?"
    r"(?P<speaker>[*_]*(?:Q|A|Question|Answer|Ans)\d{0,2}[.:][*_]*\s+)?[*_~`\"“'‘(\[]*",
    re.IGNORECASE,
)
_LAST_TAG = re.compile(rf"{_TAG}\Z")
_END_MARKS = "*_~`\"”'’)] \t\r\n"
_ITEM_TAG = re.compile(r"<(?:li|td|dd|option)\b", re.IGNORECASE)
_HEADING_TAG = re.compile(r"<h([1-6])\b", re.IGNORECASE)
_BULLET = re.compile(r"\s*(?:[-*+•–·▪◦#>|<]|[a-zA-Z][.)])")
_FENCE = re.compile(r"\s*(?:```|~~~)")
_ROW = re.compile(r"\s*(?:>[ \t]*)*\|")
_BAR = re.compile(r"(?<!\\)\|")
_WORD_CHARACTER = re.compile(r"[^\W_]")
_KEY_VALUE = re.compile(r":\s+\S")


class SegmentReading(NamedTuple):
    """What a detector reads of a segment.

    ``pieces`` are the parts of the segment in ``text``, each as (offset in ``text``, offset in the
    segment, length); none if ``text`` is the segment.
    """

    text: str
    context: tuple[str, ...]
    pieces: tuple[tuple[int, int, int], ...] = ()

    def window(self, user: str) -> Window:
        """Return the window to judge; ``user`` is the user's message."""
        return Window(self.text, self.context, user or None)

    def in_segment(self, verdict: Verdict) -> Verdict:
        """Return a verdict on the window with its spans moved into the segment.

        Groups and attributes keep their words. A span outside of the segment becomes empty.
        """
        moves = self.pieces and verdict.attributions
        return with_spans(verdict, self._place) if moves else verdict

    def _place(self, at: int) -> int:
        for begin, start, length in self.pieces:
            if at <= begin + length:
                return start + max(at - begin, 0)
        return self.pieces[-1][1] + self.pieces[-1][2]


def with_spans(verdict: Verdict, place: Callable[[int], int]) -> Verdict:
    """Return a verdict with each end of its spans moved to where ``place`` says."""
    pairs = tuple(
        replace(
            pair,
            group_span=Span(*sorted(map(place, pair.group_span))),
            attribute_span=Span(*sorted(map(place, pair.attribute_span))),
        )
        for pair in verdict.attributions
    )
    return verdict if pairs == verdict.attributions else replace(verdict, attributions=pairs)


class _SegmentLine(NamedTuple):
    """Where a segment's words are, and how deep in lists and headings it stands."""

    said: str
    begin: int
    depth: float
    marked: bool  # as an item of a list or as a cell
    titled: bool  # as a heading


class _Heading(NamedTuple):
    label: str
    depth: float
    before: tuple[str, ...]  # the context that it was judged with
    asks: bool = False


class Joins:
    """What came before the next segment of a channel.

    ``most`` is the number of context segments; with none, every segment is judged as it is.
    ``before`` are the segments of an earlier answer that the channel continues.
    """

    def __init__(self, most: int, before: Iterable[str] = ()) -> None:
        self._most = most
        self._context = Context(most)
        self._question = _Heading("", 0, ())  # which may yet be answered
        self._question_key = ""  # in JSON
        self._answers = 0  # segments that may yet be its answers
        self._holds = False  # whether it names a group
        self._headings: tuple[_Heading, ...] = ()  # the innermost last
        self._since = 0  # segments since the last heading or item
        self._listing = False  # whether an item stood under the headings
        self._after_heading = False
        self._row: tuple[str, ...] = ()  # the cells of the row before
        self._heads: tuple[str, ...] = ()  # of the table's columns
        self._before_table: tuple[str, ...] = ()
        for text in before:
            self.read(text)

    def copy(self) -> Joins:
        """Return a copy that reads on by itself."""
        copied = copy(self)
        copied._context = self._context.copy()
        return copied

    def read(
        self,
        text: str,
        *,
        string: bool = False,
        lead: int = 0,
        key: str = "",
        around: str = "",
        whole: bool = True,
    ) -> SegmentReading:
        """Return the reading of the next segment of the channel, and note the segment.

        ``string``: whether it begins a string of JSON. ``lead`` is the length of the keys that its
        text then begins with: ``key``, and those around it. ``whole``: whether no forced cut is in
        the segment.
        """
        shown = self._context.shown()
        reading = None
        if string and not _answers(self._question_key, key, _saying(around)):
            self._answers = 0
        if self._most:
            if not whole:
                self._answers = 0
            elif _ROW.match(text, lead):
                reading = self._row_reading(text, lead, shown)
            else:
                self._row = self._heads = ()
                line = _line(text, lead)
                reading = self._line_reading(text, line, lead, key, around)
                self._note(text, line, lead, key, shown)
        self._context.add(text)
        return reading or SegmentReading(text, shown)

    def holds(self, begun: str) -> bool:
        """Whether a segment that begins so may be an answer to a question that names a group."""
        return self._answers > 0 and self._holds and may_answer(begun)

    def _line_reading(
        self, text: str, line: _SegmentLine, lead: int, key: str, around: str
    ) -> SegmentReading | None:
        said = line.said
        if _WORD_CHARACTER.search(said) is None or not is_generic(_spaced(key)):
            return None  # what says something is before it
        if self._answers and is_answer(said, self._question.label):
            return _joined(line, self._question)
        # Behind a heading, a key or a marker a number may be what is said of a group.
        under = self._after_heading or self._listing or _BULLET.match(text) is not None
        if not (lead or under) and says_nothing(text):
            return SegmentReading(text, ())
        if not is_bare_group(_first_lines(said)):
            return None
        if label := _saying(around):
            return _joined(line, _Heading(label, 0, self._context.shown()))
        above = (h for h in reversed(self._headings) if lead or h.depth < line.depth)
        heading = next((h for h in above if not is_generic(h.label)), None)
        return None if heading is None else _joined(line, heading)

    def _row_reading(self, text: str, lead: int, shown: tuple[str, ...]) -> SegmentReading | None:
        """Read a row of a table: a bare group in it is joined to its column's head.

        Without one it is joined to the row's first cell.
        """
        cells = [_line(text[:end], begin) for begin, end in _cells(text, lead)]
        said = tuple(cell.said for cell in cells)
        if not any(map(words, said)):
            self._heads, self._row = self._row, ()
            return None
        if not self._row and not self._heads:
            self._before_table = shown
        self._row = said
        first = said[0] if words(said[0]) and not is_bare_group(said[0]) else ""
        label = first if not is_generic(first) and may_answer(first) else ""
        whole, pieces, headed, joined = "", [], False, False
        for column, cell in enumerate(cells):
            head = self._heads[column] if column < len(self._heads) else ""
            group = is_bare_group(cell.said)
            before = " | " if column else ""
            if group and head and not is_generic(head):
                before += f"{head}: "
                headed = joined = True
            elif group and column and label:
                before = ": " if column == 1 else f" | {label}: "
                joined = True
            whole += before
            if cell.said:
                pieces.append((len(whole), cell.begin, len(cell.said)))
            whole += cell.said
        if joined:
            return SegmentReading(whole, self._before_table if headed else shown, tuple(pieces))
        return None

    def _note(
        self, text: str, line: _SegmentLine, lead: int, key: str, shown: tuple[str, ...]
    ) -> None:
        said = line.said
        after_heading, self._after_heading = self._after_heading, False
        if _WORD_CHARACTER.search(said) is None or _FENCE.match(text):
            self._after_heading = after_heading
            return
        if is_question(said):
            self._ask(said, shown)
            self._question_key = key
            if not lead:
                self._open(self._question)
            return
        if self._answers:
            self._answers = self._answers - 1 if may_answer(said) else 0
        if lead:
            return
        last = said.splitlines()[-1]
        if last != said and last.rstrip(_END_MARKS).endswith(":"):  # a key behind an item, in YAML
            self._listing = True
            line = _line(text, text.rfind("\n", 0, line.begin + len(said)) + 1)
            said = line.said
        label = said.strip(_END_MARKS + ":#")
        titled = line.titled or said.endswith(":") or is_heading(said)
        if titled and words(label) and not _KEY_VALUE.search(said):
            self._open(_Heading(label[-_LONGEST:], line.depth, shown))
            self._after_heading = True
            self._listing = line.marked
        elif line.marked or is_bare_group(said):
            self._listing, self._since = True, 0
        else:
            self._since += 1
            # In the line of an item its next sentence begins with a space.
            ended = self._listing and not text.startswith((" ", "\t"))
            self._headings = tuple(
                h
                for h in self._headings
                if self._since < UNDER_HEADING and not h.asks and not (ended and h.depth >= 0)
            )
            self._listing = self._listing and not ended

    def _open(self, heading: _Heading) -> None:
        outer = tuple(h for h in self._headings if h.depth < heading.depth)
        self._headings = (*outer, heading)[-_MOST_HEADINGS:]
        self._since, self._listing = 0, False

    def _ask(self, question: str, before: tuple[str, ...]) -> None:
        label = question.strip()[-_LONGEST:]
        unanswered = self._answers == _MOST_ANSWERS
        if unanswered and len(words(label)) <= _SHORT_QUESTION:
            label, before = f"{self._question.label} {label}"[-_LONGEST:], self._question.before
        self._question = _Heading(label, 0, before, asks=True)
        self._answers = _MOST_ANSWERS
        self._holds = names_a_group(label)


def readings(segments: Iterable[str], most: int = CONTEXT_SEGMENTS) -> list[SegmentReading]:
    r"""Return the readings of the segments of a text.

    >>> [reading.text for reading in readings(["Criminals:\n", "* Mexicans\n"])]
    ['Criminals:\n', 'Criminals: Mexicans']
    """
    joins = Joins(most)
    return [joins.read(segment) for segment in segments]


def _line(text: str, lead: int) -> _SegmentLine:
    """Find the words of a segment behind ``lead`` characters."""
    beginning = _BEGIN.match(text, lead)
    assert beginning is not None
    begin, end = beginning.end(), len(text)
    while end > begin:
        cut = begin + len(text[begin:end].rstrip(_END_MARKS))
        tag = _LAST_TAG.search(text, max(begin, cut - _LONGEST), cut)
        if tag is None:
            if cut == end:
                break
            end = cut
        else:
            end = tag.start()
    said = text[begin:end]
    # The partner of a bracket or of an apostrophe at the end stays.
    tail = text[end : end + 1]
    if tail and ((tail == ")" and "(" in said) or (tail == "]" and "[" in said)):
        said += tail
    space = beginning.group()[: len(beginning.group()) - len(beginning.group().lstrip())]
    indent = len(space.rpartition("\n")[2].replace("\t", "    "))
    marked = beginning["marker"] is not None or _ITEM_TAG.search(beginning["tags"]) is not None
    tag = _HEADING_TAG.search(beginning["tags"])
    level = int(tag[1]) if tag else len((beginning["hash"] or "").strip())
    depth: float = level - 10 if level else indent + marked
    if not level and not marked and not said.endswith(":") and is_bare_group(said):
        depth += 0.5  # under a heading at the same indent, and above a list
    return _SegmentLine(said, begin, depth, marked, level > 0)


def _first_lines(said: str) -> str:
    """Return a segment's words without a key that stands in its last line, in YAML."""
    first, line_end, last = said.rpartition("\n")
    return first if line_end and last.rstrip(_END_MARKS).endswith(":") else said


def _cells(text: str, at: int) -> list[tuple[int, int]]:
    """Return where the cells of a table's row are, without its outer bars."""
    bars = [m.start() for m in _BAR.finditer(text, at)]
    bars += [] if not text[bars[-1] + 1 :].strip() else [len(text)]
    return [(begin + 1, end) for begin, end in pairwise(bars)]


def _joined(line: _SegmentLine, heading: _Heading) -> SegmentReading:
    before = heading.label + (" " if heading.asks else ": ")
    item = _first_lines(line.said)
    if item == line.said:
        return SegmentReading(
            before + item, heading.before, ((len(before), line.begin, len(item)),)
        )
    # What the key behind an item says comes first: the item stands next to its own heading.
    key = line.said[len(item) :].strip()
    pieces = (
        (0, line.begin + len(line.said) - len(key), len(key)),
        (len(key) + 1 + len(before), line.begin, len(item)),
    )
    return SegmentReading(f"{key}\n{before}{item}", heading.before, pieces)


def _saying(keys: str) -> str:
    """Return the words of a JSON string's keys that say something."""
    return " ".join(word for word in _spaced(keys).split() if not is_generic(word))


def _answers(question_key: str, key: str, label: str) -> bool:
    """Whether a JSON string may answer the one before it, by their keys.

    ``label`` is what the keys around say; a string without a key, or whose key says something, is a
    text of its own.
    """
    if label or not (key and question_key):
        return False
    if key.lower() == "a":
        return question_key.lower() in ("q", "question")
    return question_key.lower() != "a" and is_generic(key) and is_generic(_spaced(question_key))


def _spaced(key: str) -> str:
    """Return a key's words apart: those of ``bad_drivers`` and of ``badDrivers``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", key.replace("_", " ").replace("-", " "))
