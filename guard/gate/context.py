"""What a segment is judged beside: the segments before it, and the heading it stands under."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

#: Segments before it that a text is judged beside where no policy says another number.
CONTEXT_SEGMENTS = 2
# For how many segments a heading is remembered: it colours its list, not the whole answer.
_UNDER = 12
_MOST_WORDS = 10
_MARKS = "*_~` \t\r\n"
_ITEM = re.compile(r"(?:[-*+•–·▪◦]|\d{1,3}[.)]|[a-zA-Z][.)])\s")
_ENDS = tuple(".!?…\"'”’»)]}。！？")


class Context:
    """The last ``most`` segments of a channel, and before them the latest heading.

    A heading is a line that ends with a colon, begins with "#", or is short and without a
    sentence's end. It says how the lines under it are meant ("Myths:"), however many they are.
    """

    def __init__(self, most: int, before: Iterable[str] = ()) -> None:
        self._last: deque[str] = deque(maxlen=most)
        self._heading = ""
        self._since = 0
        for segment in before:
            self.add(segment)

    def add(self, segment: str) -> None:
        """Take the segment that was judged last."""
        self._since += 1
        if is_heading(segment):
            self._heading, self._since = segment, 0
        self._last.append(segment)

    def shown(self) -> tuple[str, ...]:
        """Return what the next segment is judged beside, oldest first."""
        last = tuple(self._last)
        if last and self._heading and len(last) <= self._since < _UNDER:
            return (self._heading, *last)
        return last


def in_context(
    segments: Iterable[str], most: int = CONTEXT_SEGMENTS
) -> list[tuple[str, tuple[str, ...]]]:
    """Return each segment of a text with what it is judged beside."""
    context = Context(most)
    found = []
    for segment in segments:
        found.append((segment, context.shown()))
        context.add(segment)
    return found


def is_heading(segment: str) -> bool:
    """Return whether a segment announces those after it."""
    line = segment.strip(_MARKS)
    if not line or line.endswith(_ENDS):
        return False
    return (
        line.endswith(":")
        or line.startswith("#")
        or (not _ITEM.match(line) and len(line.split()) <= _MOST_WORDS)
    )
