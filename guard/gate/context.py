"""The context of a segment: the segments before it and the heading above it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from copy import copy

#: Context segments where no policy sets another number.
CONTEXT_SEGMENTS = 2
#: A heading is context for this many segments: it applies to its list, not to the whole answer.
UNDER_HEADING = 12
_MOST_WORDS = 10
_MARKS = "*_~` \t\r\n"
_ITEM = re.compile(r"(?:[-*+•–·▪◦]|\d{1,3}[.)]|[a-zA-Z][.)])\s")
_ENDS = tuple(".!?…\"'”’»)]}。！？")


class Context:
    """The last ``most`` segments of a channel, and before them the latest heading.

    A heading is a line that ends with a colon, begins with "#", or is short and has no
    sentence-final punctuation. It frames the lines below it ("Myths:").
    """

    def __init__(self, most: int) -> None:
        self._last: deque[str] = deque(maxlen=most)
        self._heading = ""
        self._since = 0

    def copy(self) -> Context:
        """Return a copy that can be added to by itself."""
        copied = copy(self)
        copied._last = self._last.copy()
        return copied

    def add(self, segment: str) -> None:
        """Add the segment that was judged last."""
        self._since += 1
        if is_heading(segment):
            self._heading, self._since = segment, 0
        self._last.append(segment)

    def shown(self) -> tuple[str, ...]:
        """Return the context of the next segment, oldest first."""
        last = tuple(self._last)
        if last and self._heading and len(last) <= self._since < UNDER_HEADING:
            return (self._heading, *last)
        return last


def in_context(
    segments: Iterable[str], most: int = CONTEXT_SEGMENTS
) -> list[tuple[str, tuple[str, ...]]]:
    """Return each segment of a text with its context."""
    context = Context(most)
    pairs = []
    for segment in segments:
        pairs.append((segment, context.shown()))
        context.add(segment)
    return pairs


def is_heading(segment: str) -> bool:
    """Return whether a segment is a heading."""
    line = segment.strip(_MARKS)
    if not line or line.endswith(_ENDS):
        return False
    return (
        line.endswith(":")
        or line.startswith("#")
        or (not _ITEM.match(line) and len(line.split()) <= _MOST_WORDS)
    )
