"""Cut text into segments while it arrives.

A boundary depends on the text alone, never on how it was chunked: every rule looks at most
``lookahead`` characters past its candidate, and waits until it has them. Segments tile the text;
white space after a sentence leads the next one, so a sentence can be judged as soon as one
character follows its full stop.

Text that reaches ``max_chars`` without a boundary is cut at the last clause, else the last word.
The next segment then begins ``overlap`` characters before the cut, so that any phrase up to that
length is whole in one segment.
"""

from __future__ import annotations

import re
from copy import copy
from typing import NamedTuple


class Segment(NamedTuple):
    """A piece to judge; offsets are characters of the channel's text.

    ``start`` is where its text begins. ``fresh`` is where text begins that was in no earlier
    segment (after ``start`` only after a forced cut). ``release`` is the offset up to which text
    may go out if this segment is harmless: ``end``, or after a forced cut the next one's start.
    """

    text: str
    start: int
    fresh: int
    end: int
    release: int


_STOPS = ".!?…"
_CJK_STOPS = "。！？｡．"
# What ends a line's sentence, a tag's end among it.
_LINE_STOPS = _STOPS + _CJK_STOPS + ":>"
_CLOSERS = "\"'”’»)]}*_）】」』〉》"
_CANDIDATE = re.compile(r"[.!?…。！？｡．\n<]")
_LINE_END = re.compile(r"\n")
_SPACE = " \t\r\u00a0\u3000"
# A line that begins like one of these is a unit of its own: list item, heading, table row, quote,
# rule, fence or HTML tag.
_MARKER = re.compile(
    r"[-*+•–·▪◦]\s|\d{1,3}[.)]\s|[a-zA-Z][.)]\s|#{1,6}\s|\||>|```|~~~|---|===|"
    r"</?[a-zA-Z]|<!--|\[\[ ##"
)
_FENCE = re.compile(r"```|~~~")
# Such a line is over at its end: heading, table row, fence, the name of one of DSPy's fields.
_UNIT = re.compile(r"#|\||```|~~~|\[\[ ##")
# In HTML: the end of a block or of a line of one, and the ends of elements behind a sentence.
_BLOCK_END = re.compile(
    r"(?:</(?:p|li|dt|dd|td|th|tr|h[1-6]|div|section|article|blockquote|option|caption)|<br\s*/?)>",
    re.IGNORECASE,
)
_ELEMENT_ENDS = re.compile(r"(?:</[a-zA-Z][a-zA-Z0-9]*>)+")
_BEGUN_TAG = re.compile(r"</?[a-zA-Z0-9]*\s?/?\Z")
_LONGEST_TAG = 14
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof sr jr st rev hon gen col sgt capt lt cmdr gov sen rep pres supt mt ft "
    "vs cf al fig figs eq eqs sec ch vol vols pp ed eds trans approx dept univ assn bros inc ltd "
    "co corp jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat "
    "e.g i.e u.s u.k u.n e.u u.s.a d.c a.m p.m ph.d m.d b.a m.a b.sc m.sc viz incl max min est "
    "tel ext ave blvd rd".split()
)
# Abbreviations only before a number; otherwise words that may end a sentence.
_BEFORE_NUMBER = frozenset({"no", "nos", "p", "art", "para"})
_WORD_BEFORE = re.compile(r"[^\s\"'“”‘’()\[\]{}<>/,;:!?…—–]+\Z")
_CLAUSE = re.compile(r"[,;:—–、，；：)\n](?=\s)|[、，；：]")
# Characters of a line that show how it begins; the longest marker is seven.
_HEAD = 7
# Characters read before a full stop; a longer token is no abbreviation.
_LOOKBEHIND = 24


class Segmenter:
    """Incremental segmenter of one channel. Memory is bounded by the open segment and the feed.

    >>> s = Segmenter()
    >>> [x.text for x in s.feed("Dr. Wu left. She")]
    ['Dr. Wu left.']
    >>> [x.text for x in s.finish()]
    [' She']
    """

    def __init__(self, max_chars: int = 240, overlap: int = 80, lookahead: int = 32) -> None:
        self._max = max_chars
        self._overlap = overlap
        self._lookahead = lookahead
        # A forced cut is placed within the last `_slack` characters before the limit.
        self._slack = min(80, (max_chars - overlap) // 2)
        self._buffer = ""
        self._base = 0  # offset of the buffer's first character in the channel
        self._start = 0  # these three are indexes into the buffer
        self._fresh = 0
        self._scan = 0
        self._waits = False  # whether the character at `_scan` may end the segment
        self._lead = 0  # end of the open segment's leading white space
        self.in_code = False
        """Whether the text is inside of a fence; then every line is a segment."""
        self._line_is_unit = False  # the current line is a heading or a table row
        self._line_known = False  # whether the first line of the channel has been looked at
        # Characters that the open segment has room for. Negative if `takes` cannot decide by the
        # next text alone: a candidate waits, or the segment is white space so far.
        self._room = -1
        self._ends = _CANDIDATE.search

    @property
    def held(self) -> int:
        """Characters fed and not yet part of a segment."""
        return len(self._buffer) - self._fresh

    @property
    def lead(self) -> int:
        """End of the open segment's leading white space; its start if there is none.

        Text shared with an earlier segment does not count as white space.
        """
        if self._start == self._fresh:
            self._lead = max(self._lead, self._start)
            while self._lead < len(self._buffer) and self._buffer[self._lead].isspace():
                self._lead += 1
            return self._base + self._lead
        return self._base + self._start

    @property
    def open(self) -> str:
        """The text of the open segment so far, and of what may turn out to follow it."""
        return self._buffer[self._start :]

    @property
    def start(self) -> int:
        """Offset of the open segment's first character."""
        return self._base + self._start

    @property
    def closing(self) -> int | None:
        """Offset where the open segment ends if nothing follows; None inside of a sentence."""
        text, at = self._buffer, self._scan
        if not self._waits:
            return None
        if text[at] == "\n":
            ended = text[self._start : at].rstrip(_SPACE)[-1:]
            end = at + 1 if ended and ended in _LINE_STOPS else 0
        else:
            end = self._boundary(at, final=True) or 0
        return self._base + end if end > at and not text[end:].strip() else None

    @property
    def shares(self) -> bool:
        """Whether the open segment begins with text of the one before, after a forced cut."""
        return self._start < self._fresh

    @property
    def least(self) -> int:
        """Characters that a segment cut by force has at least."""
        return self._max - self._slack

    @property
    def sure(self) -> int:
        """Offset up to which text belongs to the open segment, whatever follows."""
        known = max(self._scan + self._waits, self._start)
        return self._base + min(self._start + self.least, known)

    @property
    def fed(self) -> int:
        """Characters fed so far."""
        return self._base + len(self._buffer)

    def takes(self, text: str) -> bool:
        """Add ``text`` if it certainly ends no segment; otherwise return False (call ``feed``)."""
        room = self._room - len(text)
        if room < 0 or self._ends(text) is not None:
            return False
        self._room = room
        self._buffer += text
        self._scan += len(text)
        return True

    def feed(self, text: str) -> list[Segment]:
        """Add ``text`` and return the segments that are now complete."""
        self._buffer += text
        return self._cut(final=False)

    def finish(self) -> list[Segment]:
        """End the open segment; text fed afterwards begins a new one."""
        done = self._cut(final=True)
        if self._fresh < len(self._buffer):
            done.append(self._take(len(self._buffer)))
        self._line_known = False
        self.in_code = False
        self._compact()
        return done

    def skip(self, text: str) -> Segment:
        """Add ``text`` as a segment of its own; call it right after ``finish``."""
        self._buffer += text
        segment = self._take(len(self._buffer))
        self._line_known = False
        self._compact()
        return segment

    def if_finished(self) -> list[Segment]:
        """Return what ``finish`` would return now; the open segment stays open."""
        return copy(self).finish()

    def continue_from(self, text: str) -> None:
        """Begin the next segment with ``text``, which was judged elsewhere.

        That is the end of an earlier channel, the keys of a string, or JSON before prose.

        Call it before the first ``feed``, or right after ``finish``.
        """
        self._buffer = text
        self._base -= len(text)
        self._fresh = len(text)
        self._scan = 0
        self._line_known = True

    def _cut(self, *, final: bool) -> list[Segment]:
        done: list[Segment] = []
        self._waits = False
        if not self._line_known and not self._look_at_line(final):
            self._compact()
            return done
        while True:
            limit = self._start + self._max
            match = (_LINE_END if self.in_code else _CANDIDATE).search(
                self._buffer, self._scan, limit
            )
            if match is not None:
                at = match.start()
                end = self._boundary(at, final)
                if end is None:
                    self._scan, self._waits = at, True
                    break
                if end > at:
                    done.append(self._take(min(end, limit)))
                else:
                    self._scan = -end if end < 0 else at + 1
            elif len(self._buffer) > limit:
                done.append(self._force(limit))
            else:
                self._scan = max(self._scan, len(self._buffer))
                break
        self._compact()
        return done

    def _boundary(self, at: int, final: bool) -> int | None:
        """Return the end of the segment if the candidate at ``at`` ends one.

        Returns 0 if it does not, -n to continue scanning at n, None to wait for more text.
        """
        text = self._buffer
        if text[at] == "\n":
            return self._after_newline(at, final)
        if text[at] == "<":
            block = _BLOCK_END.match(text, at)
            if block is not None:
                return block.end()
            return None if not final and self._begins_tag(at) else 0
        horizon = at + 1 + self._lookahead
        end = at + 1
        while end < len(text) and end < horizon and text[end] in _STOPS + _CJK_STOPS:
            end += 1
        stops = text[at:end]
        while end < len(text) and end < horizon and text[end] in _CLOSERS:
            end += 1
        ends = _ELEMENT_ENDS.match(text, end) if text.startswith("<", end) else None
        if ends is not None and ends.end() < horizon:
            end = ends.end()
            if _BLOCK_END.search(ends.group()):
                return end
        if not final and end < horizon and (end == len(text) or self._begins_tag(end)):
            return None
        if end == len(text):
            return end
        if text[end - 1] in _CJK_STOPS or any(c in _CJK_STOPS for c in stops):
            return end
        if end < horizon and not text[end].isspace():
            return -end  # "3.14", "example.org", "?x=1"
        if end > at + len(stops) and text[end - 1] not in "*_":
            # A quotation may end inside its sentence: "Why?" he asked.
            char = self._next_word(at, end, final)
            if char is None:
                return None
            if char.islower():
                return -end
        if stops in (".", "..", "...", "…", "….") and not text[at + 1 : end].strip("."):
            return self._after_full_stop(at, end, stops, final)
        return end

    def _begins_tag(self, at: int) -> bool:
        """Whether the text ends in what may be a tag that began at ``at``."""
        text = self._buffer
        near = text.startswith("<", at) and len(text) - at < _LONGEST_TAG
        return near and _BEGUN_TAG.match(text, at) is not None

    def _next_word(self, at: int, end: int, final: bool) -> str | None:
        """Return the first character after the spaces at ``end``; "" if none is within reach.

        None means that more text is needed.
        """
        text, horizon = self._buffer, at + 1 + self._lookahead
        while end < len(text) and end < horizon and text[end] in _SPACE:
            end += 1
        if end >= horizon:
            return ""
        if end == len(text):
            return "" if final else None
        return text[end]

    def _after_full_stop(self, at: int, end: int, stops: str, final: bool) -> int | None:
        text = self._buffer
        if stops != ".":
            # A lower-case letter after an ellipsis continues the sentence.
            char = self._next_word(at, end, final)
            if char is None:
                return None
            return -end if char.islower() else end
        word = _WORD_BEFORE.search(text, max(self._start, at - _LOOKBEHIND), at)
        before = word.group() if word else ""
        folded = before.lower()
        numbering = (before.isdigit() and len(before) <= 3) or len(before) == 1
        if numbering and self._line_starts(at - len(before)):
            return -end  # "2. Next": the marker belongs to its item
        if len(before) == 1 and before.isalpha() and before.isupper() and before != "I":
            return -end  # an initial
        if folded in _ABBREVIATIONS:
            return -end
        if folded in _BEFORE_NUMBER or folded == "etc":
            char = self._next_word(at, end, final)
            if char is None:
                return None
            joins = char.isdigit() if folded != "etc" else char.islower()
            return -end if joins else end
        return end

    def _line_starts(self, at: int) -> bool:
        """Whether only white space is between ``at`` and the start of its line or segment."""
        begin = max(self._buffer.rfind("\n", self._start, at) + 1, self._start)
        return not self._buffer[begin:at].strip()

    def _after_newline(self, at: int, final: bool) -> int | None:
        text = self._buffer
        horizon = at + 1 + self._lookahead
        following = at + 1
        while following < len(text) and following < horizon and text[following] in _SPACE:
            following += 1
        enough = following + _HEAD <= len(text) or "\n" in text[following : following + _HEAD]
        if not enough and not final and len(text) < horizon + _HEAD:
            return None
        head = text[following : following + _HEAD]
        was_code, was_unit = self.in_code, self._line_is_unit
        blank = head[:1] in ("\n", "")
        marked = _MARKER.match(head) is not None
        ended = text[self._start : at].rstrip(_SPACE)[-1:]
        self._enter_line(head)
        if was_code or self.in_code or was_unit or blank or marked:
            return at + 1
        if ended in _LINE_STOPS:
            return at + 1
        return 0

    def _look_at_line(self, final: bool) -> bool:
        """Classify the channel's first line; return False while it is too short for that."""
        at, text = self._start, self._buffer
        horizon = at + self._lookahead
        while at < len(text) and at < horizon and text[at] in _SPACE:
            at += 1
        head = text[at : at + _HEAD]
        # One character decides between heading, table row and plain text; some marks are longer.
        if len(head) < {"`": 3, "~": 3, "[": 5}.get(head[:1], 1) and not final:
            return False
        self._enter_line(head)
        self._line_known = True
        return True

    def _enter_line(self, head: str) -> None:
        if _FENCE.match(head):
            self.in_code = not self.in_code
        self._line_is_unit = _UNIT.match(head) is not None

    def _force(self, limit: int) -> Segment:
        low = limit - self._slack
        cut = 0
        for match in _CLAUSE.finditer(self._buffer, low, limit):
            cut = match.end()
        if not cut:
            cut = max(self._buffer.rfind(space, low, limit) for space in (" ", "\n", "\t")) + 1
        cut = cut or limit
        follow = cut - self._overlap
        # Move back to the beginning of a word: the overlap may grow, never shrink.
        floor = max(self._start + 1, follow - self._lookahead)
        word = max(self._buffer.rfind(space, floor, follow) for space in (" ", "\n", "\t"))
        if self._overlap and word >= floor:
            follow = word
        return self._take(cut, follow)

    def _take(self, end: int, follow: int | None = None) -> Segment:
        next_start = end if follow is None else follow
        segment = Segment(
            text=self._buffer[self._start : end],
            start=self._base + self._start,
            fresh=self._base + self._fresh,
            end=self._base + end,
            release=self._base + next_start,
        )
        self._start, self._fresh, self._scan = next_start, end, end
        return segment

    def _compact(self) -> None:
        # Once per feed, not per segment: the cost of a long text fed at once stays linear.
        if self._start:
            self._buffer = self._buffer[self._start :]
            self._base += self._start
            self._fresh -= self._start
            self._scan -= self._start
            self._lead = max(0, self._lead - self._start)
            self._start = 0
        looked = self._line_known and self._scan == len(self._buffer)
        begun = looked and (self._fresh > 0 or not (self._buffer or " ").isspace())
        self._room = self._max - self._scan if begun else -1
        self._ends = (_LINE_END if self.in_code else _CANDIDATE).search


def split(text: str, max_chars: int = 240, overlap: int = 80, lookahead: int = 32) -> list[Segment]:
    """Return the segments of a whole text; equal to any chunked feed of it."""
    segmenter = Segmenter(max_chars, overlap, lookahead)
    return [*segmenter.feed(text), *segmenter.finish()]
