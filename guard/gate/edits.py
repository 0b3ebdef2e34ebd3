"""What of a channel's text goes out, and what stands in the place of the rest."""

from __future__ import annotations

from typing import NamedTuple

from guard.gate.escapes import Escapes
from guard.gate.layout import Marks, opening, stretches
from guard.gate.segmenter import Segment
from guard.verdict import Span


class TextEdit(NamedTuple):
    """What to do with the next ``length`` characters: keep them, or put ``text`` in their place.

    The characters are those of the text as the provider sent it. ``text`` is None for "keep".
    """

    length: int
    text: str | None = None


class Edits:
    """Decides on the text of one channel, in order.

    Offsets are those of the text with its escapes decoded. ``removes``: whether segments may be
    removed, so that the marks before them are followed.
    """

    def __init__(self, escapes: Escapes, *, removes: bool) -> None:
        self.to = 0
        """Offset up to which everything is decided."""
        self._escapes = escapes
        self._edits: list[TextEdit] = []
        self._sent_to = 0  # the same as ``to`` in the text as sent
        self._marks = Marks() if removes else None
        self._marked_to = 0  # offset up to which it has read
        self._removed_to = -1  # the end of the last removed segment, if its line goes on

    @property
    def holds_space(self) -> bool:
        """Whether a segment was removed last: the space behind it goes if the next is, too."""
        return self._removed_to == self.to

    def take(self) -> list[TextEdit]:
        """Return the edits decided since the last call, in order of the text."""
        edits, self._edits = self._edits, []
        return edits

    def drop_sent(self, length: int) -> None:
        """Drop the next ``length`` characters as sent, which are not part of the decoded text."""
        self._edits.append(TextEdit(length, ""))
        self._sent_to += length

    def keep(self, upto: int) -> None:
        """Let text go out up to an offset."""
        self._decide(upto, None)

    def keep_sent(self, upto: int, text: str | None = None) -> None:
        """Decide on the text as sent up to an offset: keep it, or put ``text`` in its place."""
        if upto > self._sent_to:
            self._edits.append(TextEdit(upto - self._sent_to, text))
            self._sent_to = upto

    def keep_structure(self, upto: int) -> None:
        """Let what is between the strings of JSON go out; it has no marks, and ends all."""
        self.keep(upto)
        self._marked_to = upto
        if self._marks is not None:
            self._marks = Marks()

    def remove(self, segment: Segment, begin: int, mark: str) -> None:
        """Put ``mark`` in the place of a segment's text from ``begin`` on, but keep its layout.

        If nothing but spaces is out since the last removed segment, its mark stands for both.
        """
        assert self._marks is not None
        text, start = segment.text, segment.start
        own = text[begin - start :]
        blank = len(own) - len(own.lstrip())
        # Inside of the overlap with a removed segment: its mark stands for both.
        joins = self._removed_to == self.to and start < self.to
        # Nothing but spaces is out since the last one. A line break is a segment of its own.
        follows = begin == self._removed_to and self.to <= begin + blank
        if follows:
            self._decide(begin + blank, "")
        elif not joins:
            self.keep(begin + opening(own))
        if self.to >= segment.end:
            return
        marks, at = self._marks.copy(), self.to - start
        marks.read(text, max(begin, self._marked_to) - start, at)
        ends_line = text.endswith("\n") and segment.release == segment.end  # else it goes on
        said = text.rstrip() if ends_line else text
        removed = list(stretches(said, at, marks.read(said, at))) or [(Span(at, len(said)), True)]
        mark = "" if joins or follows else mark
        for number, ((first, last), marked) in enumerate(removed):
            self._decide(start + first, "" if joins and number == 0 else None)
            self._decide(start + last, mark if marked else "")
        self.keep(segment.end)
        self._removed_to = -1 if ends_line else segment.end

    def end(self, segment: Segment, begin: int) -> None:
        """Note that a segment is over, whose own text begins at ``begin``."""
        begin = max(begin, self._marked_to)
        if self._marks is not None and segment.release > begin:
            start = segment.start
            self._marks.read(segment.text, begin - start, segment.release - start)
            self._marked_to = segment.release
        self._escapes.forget(min(segment.release, self.to))

    def _decide(self, upto: int, text: str | None) -> None:
        if upto > self.to:
            self.to = upto
            self.keep_sent(self._escapes.sent(upto), text)
