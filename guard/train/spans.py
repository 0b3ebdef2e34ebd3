"""Where the group and the attribute of a RedditBias comment stand."""

from __future__ import annotations

import re
from pathlib import Path

from guard.evaluate.terms import redditbias_terms
from guard.verdict import Span


class TermLists:
    """Target and attribute words of RedditBias, one pair of lists a dimension."""

    def __init__(self, folder: Path) -> None:
        self._lists = redditbias_terms(folder)

    def find(self, dimension: str, text: str, within: Span) -> tuple[Span | None, Span | None]:
        """Return the group and the attribute of ``text``; hits inside ``within`` come first."""
        terms = self._lists[dimension]
        group = _closest(terms.targets, text, within, None)
        return group, _closest(terms.attributes, text, within, group)


def _closest(pattern: re.Pattern[str], text: str, within: Span, other: Span | None) -> Span | None:
    hits = [Span(*m.span()) for m in pattern.finditer(text)]
    if other is not None:
        hits = [h for h in hits if h.end <= other.start or h.start >= other.end]
    inside = [h for h in hits if h.start >= within.start and h.end <= within.end]
    pool = inside or hits
    if not pool:
        return None
    if other is None:
        return pool[0]
    return min(pool, key=lambda h: min(abs(h.start - other.end), abs(other.start - h.end)))
