"""Where the group and the attribute of a training text stand."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from guard.evaluate.terms import redditbias_terms
from guard.retrieve.spans import (
    changed_part,
    find_phrase,
    find_stem,
    predicate_after,
    said_of_pronoun,
)
from guard.verdict import Span

__all__ = [
    "TermLists",
    "changed_part",
    "find_phrase",
    "find_stem",
    "predicate_after",
    "said_of_pronoun",
]

# What a name of the group begins with, wider than the published lists.
_GROUP_STEMS: dict[str, tuple[str, ...]] = {
    "gender_female": ("wom[ae]n", "female", "girl", "ladies", "lady", "wives", "wife", "mother"),
    "race_black": ("black", "african", "afro", "nigg", "negro"),
    "religion1_jews": ("jew", "juda", "hebrew", "semit", "anti-?semit", "israel", "zion", "rabbi",
                       "kike", "synagog"),
    "religion2_muslims": ("muslim", "moslem", "islam", "muzz", "jihad", "quran", "koran", "mosque",
                          "hijab", "burka"),
    "orientation_lgbtq": ("gay", "lesbian", "homo", "queer", "lgbt", "bisexual", "pansexual",
                          "asexual", "trans", "nonbinary", "non-binary", "fag", "dyke", "drag"),
}  # fmt: skip


class TermLists:
    """Target and attribute words of RedditBias, one pair of lists a dimension."""

    def __init__(self, folder: Path) -> None:
        self._lists = redditbias_terms(folder)

    def naming(self, dimensions: Sequence[str]) -> Callable[[str], bool]:
        """Return whether a text names a group of one of ``dimensions``, however inflected.

        "muslim women", "islamic" and "gays" count as well as the lists' own entries.
        Raises KeyError for an unknown dimension.
        """
        stems: set[str] = set()
        for dimension in dimensions:
            stems.update(_GROUP_STEMS[dimension])
        stemmed = re.compile(rf"(?<!\w)(?:{'|'.join(sorted(stems))})", re.IGNORECASE)
        lists = [self._lists[d].targets for d in dimensions]
        return lambda text: bool(stemmed.search(text)) or any(p.search(text) for p in lists)

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
