"""Finds the spans of the group and the attribute in a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable

from guard.verdict import Span

# Words between a group and its attribute; they belong to neither.
_LINK = re.compile(
    r"\s*(?:(?:people|person|persons|folks?|community|men|women|individuals)\b\s*)?"
    r"(?:(?:are|is|were|was|be|being|must be|should be|can be|will be)\b\s*)?"
    r"(?:(?:all|just|always|so|very|too|really|a|an|the|such|usually|often|generally)\b\s*)*",
    re.IGNORECASE,
)
MAX_ATTRIBUTE_WORDS = 8


def find_phrase(text: str, phrase: str) -> Span | None:
    """Return the first place where ``phrase`` occurs as whole words, ignoring case."""
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


def predicate_after(text: str, group: Span, *, most: int = MAX_ATTRIBUTE_WORDS) -> Span | None:
    """Return the predicate of a simple statement: the words after the group and the linking verb.

    At most ``most`` words, without closing punctuation; None if the group ends the sentence.
    """
    link = _LINK.match(text, group.end)
    start = link.end() if link else group.end
    words = list(re.finditer(r"[^\s.!?;]+", text[start:]))
    stop = re.search(r"[.!?;]", text[start:])
    if stop:
        words = [w for w in words if w.start() < stop.start()]
    if not words or words[0].start() > 3:
        return None
    words = words[:most]
    end = start + words[-1].end()
    while end > start and not text[end - 1].isalnum():
        end -= 1
    return Span(start + words[0].start(), end) if end > start else None


_PERSONS = r"he|she|they|them|him|his|her|hers|their|theirs"
_PRONOUN = re.compile(rf"\b(?:{_PERSONS})\b", re.IGNORECASE)
_PRONOUN_OR_IT = re.compile(rf"\b(?:{_PERSONS}|it)\b", re.IGNORECASE)


def find_pronoun(text: str, *, it: bool = False) -> Span | None:
    """Return the first pronoun of a person, or also "it", in the first half of ``text``."""
    hit = (_PRONOUN_OR_IT if it else _PRONOUN).search(text)
    return Span(*hit.span()) if hit and hit.start() <= len(text) / 2 else None


def pronoun_and_predicate(text: str) -> tuple[Span | None, Span | None]:
    """Return the pronoun that refers to a group named before, and the rest after it.

    (None, None) if there is no pronoun in the first half of the sentence.
    """
    pronoun = find_pronoun(text)
    if pronoun is None:
        return None, None
    start, end = pronoun.end, len(text)
    while start < end and not text[start].isalnum():
        start += 1
    while end > start and not text[end - 1].isalnum():
        end -= 1
    return pronoun, Span(start, end) if end > start else None


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
