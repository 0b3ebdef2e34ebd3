"""The results of an importer: statements, or reasons why one is left out."""

from __future__ import annotations

import re
from typing import NamedTuple

from guard.retrieve.phrases import find_phrase, find_stem, predicate_after
from guard.retrieve.statement import BiasStatement, fold_words
from guard.verdict import BiasType, Span

NO_TYPE = "unknown bias type"
NO_GROUP = "no group is named"
NO_ATTRIBUTE = "no attribute of the group"

MOST_WORDS = 12
_SHORT = 4
_ENDING = re.compile(r"(?:ish|s)$", re.IGNORECASE)
# Words of a group's name that do not distinguish it from others.
_PLAIN = frozenset(
    "a all an and any are as at be by folk folks for from in individuals is like most no not of on "
    "or other people peoples person persons that the their to who with without".split()
)
# A statement that begins with one of these has no subject.
_PREDICATE = re.compile(
    r"(?:are|aren't|can|can't|cannot|could|deserve|do|don't|have|haven't|must|need|should"
    r"|shouldn't|were|will|won't|would)\b",
    re.IGNORECASE,
)
_PEOPLE = re.compile(
    r"\s+(?:boys?|communit(?:y|ies)|folks?|girls?|guys?|individuals|ladies|lady|man|men|people"
    r"|persons?|wom[ae]n)\b(?!['’-])",
    re.IGNORECASE,
)
_TRAILING = re.compile(
    r"(?:^|\s+)(?:a|all|an|and|any|at|by|for|from|in|most|many|of|on|the|these|those|to|with)$",
    re.IGNORECASE,
)


class LeftOut(NamedTuple):
    """A stereotype of the source that cannot become a statement, and why."""

    reason: str


Found = BiasStatement | LeftOut


def find_mention(text: str, group: str) -> Span | None:
    """Return where ``text`` names ``group``: by the whole name, or by a distinguishing word.

    "black people" names the group "black folks".
    """
    if (whole := find_phrase(text, group)) is not None:
        return with_people(text, whole)
    for word in re.findall(r"[^\W_][\w'-]*", group):
        if word.casefold() not in _PLAIN and (hit := _inflected_word(text, word)) is not None:
            return with_people(text, hit)
    return None


def with_people(text: str, group: Span) -> Span:
    """Return the group with the noun after it, if there is one: "Bengali woman"."""
    more = _PEOPLE.match(text, group.end)
    return Span(group.start, more.end()) if more else group


def _inflected_word(text: str, word: str) -> Span | None:
    stem = _ENDING.sub("", word)
    if len(stem) > _SHORT:
        return find_stem(text, word)
    # The stem of a short word begins many others: "men" is not mentioned in "mental".
    hit = re.search(rf"(?<!\w){re.escape(stem)}(?:e?s|ish)?(?!\w)", text, re.IGNORECASE)
    return Span(*hit.span()) if hit else None


def predicate_of(text: str, group: Span) -> Span | None:
    """Return the attribute of the group in a sentence: the words after it, else those before."""
    owns = 2 if text[group.end : group.end + 2] in ("'s", "’s") else 0
    name = Span(group.start, group.end + owns)
    if (after := predicate_after(text, name, most=MOST_WORDS)) is not None:
        return after
    before = text[: group.start].rstrip()
    while (shorter := _TRAILING.sub("", before)) != before:
        before = shorter
    words = list(re.finditer(r"\S+", before))[-MOST_WORDS:]
    if not words or not fold_words(before):
        return None
    return Span(words[0].start(), words[-1].end())


def explicit_statement(
    text: str, kind: BiasType, group: Span, attribute: Span | None, note: str
) -> Found:
    """Return the statement whose group and attribute occur in ``text``."""
    if attribute is None or not fold_words(text[slice(*attribute)]):
        return LeftOut(NO_ATTRIBUTE)
    return BiasStatement(text, kind, text[slice(*group)], text[slice(*attribute)], note=note)


def implied_statement(text: str, kind: BiasType, group: str, note: str) -> Found:
    """Return the statement of ``text``, which annotators wrote: what a post implies of ``group``.

    If the text does not name the group, the whole text is the attribute and the statement is
    implicit. A text without a subject gets the group's name before it.
    """
    if not fold_words(text) or not fold_words(group):
        return LeftOut(NO_GROUP if fold_words(text) else NO_ATTRIBUTE)
    named = find_mention(text, group)
    if named is None and _PREDICATE.match(text):
        text = f"{group[0].upper()}{group[1:]} {text}"
        named = find_phrase(text, group)
    if named is None:
        return BiasStatement(text, kind, group, text.rstrip(" .!?"), implicit=True, note=note)
    return explicit_statement(text, kind, named, predicate_of(text, named), note)
