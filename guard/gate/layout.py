"""What stays of a removed line, so that the lines around it are still read as what they are."""

from __future__ import annotations

import re

_OPENING = re.compile(r"\s*(?:(?:[-*+•–·▪◦]|\d{1,3}[.)]|#{1,6}|>)[ \t]+)*\|?")
_BAR = re.compile(r"(?<!\\)\|")


def opening(text: str) -> int:
    """Return the length of a segment's indent and markers: of list, heading, quotation or row.

    >>> opening("  2. So it is."), opening("> - So it is."), opening("| a | b |"), opening("So.")
    (5, 4, 1, 0)
    """
    found = _OPENING.match(text)
    assert found is not None
    if found.end() >= len(text.rstrip()):  # what looks like a marker is all that is said
        return len(text) - len(text.lstrip())
    return found.end()


def bars(text: str) -> list[int]:
    r"""Return where the bars of a table's row are, without the first; nothing if it is no row.

    >>> bars("| a | b |\n"), bars("a | b")
    ([4, 8], [])
    """
    row = text.rstrip()
    if not row.lstrip().startswith("|"):
        return []
    return [found.start() for found in _BAR.finditer(row)][1:]
