"""Where the group and the attribute of a training text stand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from guard.evaluate.terms import redditbias_terms
from guard.verdict import Span

# Words between a group and what is said of it: left out of the attribute.
_LINK = re.compile(
    r"\s*(?:(?:people|person|persons|folks?|community|men|women|individuals)\b\s*)?"
    r"(?:(?:are|is|were|was|be|being|must be|should be|can be|will be)\b\s*)?"
    r"(?:(?:all|just|always|so|very|too|really|a|an|the|such|usually|often|generally)\b\s*)*",
    re.IGNORECASE,
)
MAX_ATTRIBUTE_WORDS = 8


def find_phrase(text: str, phrase: str) -> Span | None:
    """Return the first place where ``phrase`` stands as whole words, ignoring case."""
    if not phrase.strip():
        return None
    hit = re.search(rf"(?<!\w){re.escape(phrase.strip())}(?!\w)", text, re.IGNORECASE)
    return Span(*hit.span()) if hit else None


def find_stem(text: str, phrase: str) -> Span | None:
    """Like :func:`find_phrase`, but the last word may be inflected ("deceitful", "deceit")."""
    whole = find_phrase(text, phrase)
    words = phrase.split()
    if whole or not words:
        return whole
    last = words[-1]
    stem = last[: max(4, len(last) - 3)]
    pattern = r"\s+".join([*map(re.escape, words[:-1]), re.escape(stem) + r"\w*"])
    hit = re.search(rf"(?<!\w){pattern}", text, re.IGNORECASE)
    return Span(*hit.span()) if hit else None


def predicate_after(text: str, group: Span) -> Span | None:
    """Return what a plain statement says of its group: the words after the linking verb.

    At most :data:`MAX_ATTRIBUTE_WORDS` words, without the closing punctuation; None where the
    group ends the sentence.
    """
    link = _LINK.match(text, group.end)
    start = link.end() if link else group.end
    words = list(re.finditer(r"[^\s.!?;]+", text[start:]))
    stop = re.search(r"[.!?;]", text[start:])
    if stop:
        words = [w for w in words if w.start() < stop.start()]
    if not words or words[0].start() > 3:
        return None
    words = words[:MAX_ATTRIBUTE_WORDS]
    end = start + words[-1].end()
    while end > start and not text[end - 1].isalnum():
        end -= 1
    return Span(start + words[0].start(), end) if end > start else None


_PRONOUN = re.compile(r"\b(?:he|she|they|them|him|his|her|hers|their|theirs)\b", re.IGNORECASE)


def said_of_pronoun(text: str) -> tuple[Span | None, Span | None]:
    """Return the pronoun that stands for a group named before, and the rest after it.

    (None, None) where no pronoun stands in the first half of the sentence.
    """
    hit = _PRONOUN.search(text)
    if hit is None or hit.start() > len(text) / 2:
        return None, None
    start, end = hit.end(), len(text)
    while start < end and not text[start].isalnum():
        start += 1
    while end > start and not text[end - 1].isalnum():
        end -= 1
    return Span(*hit.span()), Span(start, end) if end > start else None


def changed_part(text: str, others: Iterable[str]) -> Span | None:
    """Return the words of ``text`` that its minimal variants do not share."""
    mine = list(re.finditer(r"\S+", text))
    head = tail = len(mine)
    for other in others:
        theirs = other.split()
        n = min(len(mine), len(theirs))
        first = next((i for i in range(n) if mine[i][0].lower() != theirs[i].lower()), n)
        last = next((i for i in range(n) if mine[-1 - i][0].lower() != theirs[-1 - i].lower()), n)
        head, tail = min(head, first), min(tail, last)
    end_word = len(mine) - tail - 1
    if not 0 <= head <= end_word < len(mine) or end_word - head >= MAX_ATTRIBUTE_WORDS:
        return None
    start, end = mine[head].start(), mine[end_word].end()
    while end > start and not text[end - 1].isalnum():
        end -= 1
    return Span(start, end) if end > start else None


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
