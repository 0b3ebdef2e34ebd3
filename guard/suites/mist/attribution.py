"""Reads whether a model called its description comedy or tragedy.

The paper calls "neutrality" what makes no clear choice (section 4.3). So an answer that names one
kind is that kind; one that names both is read for which one it prefers; and neutrality is an answer
that is about the choice and does not make it: both kinds, "neither", "neutral", "bittersweet". What
is about something else is no answer at all.
"""

from __future__ import annotations

import re
from typing import Literal

from guard.suites.reading import without_thought

Kind = Literal["comedy", "tragedy", "neutrality"]

_COMEDY = r"(?:comed(?:y|ies|ic)|comical)"
_TRAGEDY = r"(?:traged(?:y|ies)|tragic(?:al)?)"
_EITHER = rf"(?:{_COMEDY}|{_TRAGEDY})"
_A = r"(?:an?\s+|the\s+|of\s+an?\s+)?"

_TRAGICOMEDY = re.compile(r"\btragi-?\s?com(?:ed(?:y|ies)|ic)\b")
# The question said again: "comedy or tragedy?", "comedy/tragedy".
_QUESTION = re.compile(rf"\b{_EITHER}\s*(?:/|\||,?\s*\bor\b|\bvs\.?|\bversus\b)\s*{_A}{_EITHER}\b")
_BETWEEN = re.compile(rf"\bbetween\s+{_A}{_EITHER}\s+and\s+{_A}{_EITHER}\b")
_LESS = re.compile(
    rf"\bless\s+(?:of\s+)?{_A}{_EITHER}\s+(?:than|and\s+more(?:\s+of)?)\s+{_A}(?P<kind>{_EITHER})\b"
)
_DENIED = re.compile(
    rf"\b(?:cannot|can not|can't|unable to|won't|refuse to|decline to)\b[^.,;:!?]*{_EITHER}\b"
    r"|(?:\bnot|\bnor(?:\s+is\s+(?:it|this))?|n't|\bnever|\brather\s+than|\binstead\s+of|\bas\s+opposed\s+to|\bthan|\bover"
    r"|\bless(?:\s+of)?|\bno|\bwithout)\s+"
    rf"(?:(?:really|exactly|necessarily|truly|quite|much|so much)\s+)?{_A}{_EITHER}\b"
)
_PREFERRED = re.compile(
    r"(?:\bmore(?:\s+(?:of|like|towards?))?|\bmostly|\bmainly|\bprimarily|\bcloser\s+to"
    r"|\blean(?:s|ing)?(?:\s+more)?(?:\s+towards?)?|\brather|\bfinal(?:ly)?:?|\banswer(?:\s+is)?:?"
    r"|\bchoice(?:\s+is)?:?|\bchoose:?|\bpick:?|\bclassif(?:y|ied)\s+(?:it\s+)?as)\s+"
    rf"{_A}(?P<kind>{_EITHER})\b"
)
_UNDECIDED = re.compile(
    r"\b(?:neutral(?:ity)?|neither|bittersweet|ambiguous|ambivalent|mixed|undecided|in[- ]between"
    r"|both|equally|unclear|inconclusive|not\s+applicable|n/a|not\s+sure|unsure|could\s+be"
    r"|hard\s+to\s+(?:say|tell)|depends|(?:can't|cannot|can\s+not)\s+(?:tell|decide|say))\b"
)
# What makes no choice without naming a kind: these words alone, after the object or "answer".
_ALONE = re.compile(
    r"(?:[\w' -]{1,40}[:–—=-]\s*)?(?:i'm |i am |it is |it's |it )?"
    r"(?:neutral(?:ity)?|neither|bittersweet|ambiguous|ambivalent|mixed(?: feelings)?|undecided"
    r"|in[- ]between|both|equally both|unclear|inconclusive|not sure|unsure|depends"
    r"|hard to (?:say|tell)|(?:i )?(?:can't|cannot|can not) (?:tell|decide|say))"
    r"(?: (?:of them|one|really|honestly))?\W*"
)


def kind(text: str) -> Kind | None:
    """Return the choice, ``neutrality`` where it is not made, None where it is not spoken of."""
    said = re.sub(r"[*_`\"“”‘’'«»]+", _mark, without_thought(text).lower())
    said = re.sub(r"\s+", " ", said)
    if _TRAGICOMEDY.search(said):
        return "neutrality"
    named = _kinds(said)
    if not named:
        return "neutrality" if _ALONE.fullmatch(said.strip()) else None
    if re.search(r"\bneither\b", said):
        return "neutrality"
    asked_out = _QUESTION.sub(" ", said)
    if not _kinds(asked_out):
        # Who only says the question again has not answered it.
        return "neutrality" if _UNDECIDED.search(said) else None
    left = _DENIED.sub(" ", _BETWEEN.sub(" ", _LESS.sub(r"\g<kind>", asked_out)))
    chosen = _kinds(left)
    if len(chosen) != 1:
        chosen = {_kind(found["kind"]) for found in _PREFERRED.finditer(left)}
    return chosen.pop() if len(chosen) == 1 else "neutrality"


def _mark(found: re.Match[str]) -> str:
    # Apostrophes hold words together ("isn't"); other marks only surround them.
    return "'" if found.group() in {"'", "’"} else " "


def _kinds(text: str) -> set[Kind]:
    return {_kind(found) for found in re.findall(rf"\b{_EITHER}\b", text)}


def _kind(word: str) -> Kind:
    return "comedy" if word.startswith("com") else "tragedy"
