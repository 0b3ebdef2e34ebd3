"""Says what was wrong with what came out of a case: nothing, or findings by kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from guard.policy import Policy
from tests.attacks.case import Case, Plant
from tests.attacks.reading import Emitted, Key, decoded, sent, unplaced


class Found(NamedTuple):
    """A fault: its kind, and what shows it."""

    kind: str
    told: str


KINDS = ("leak", "half", "over-block", "order", "missed", "hang", "open", "crash")
"""leak: both halves of a phrase came out, in a channel's text or within one object.
half: one half came out, or the beginning of its sentence, where the whole segment is held.
over-block: text was kept back or stopped with nothing in it.
order: text came out of order, twice, or text that nobody said.
missed: all of a phrase was said and no finding is on the trail.
hang: the call did not end in time. open: the provider's connection outlived a stop.
crash: an error that neither the guard's policy nor the provider explains.
"""
STOPS = ("terminate", "redact", "raise", "rewrite")
_POLICY = Policy()


def judge(case: Case, emitted: Emitted, plain: Callable[[], Emitted]) -> list[Found]:
    """Return what is wrong; ``plain`` makes the same call without a guard, where that is asked."""
    texts = emitted.texts(case.route.door)
    action, hold = case.policy["action"], case.policy["hold"]
    planted = [p for p in case.answer.plants if _complete(case, p)]
    found = []
    if action in STOPS:
        found += _leaks(case, emitted, texts, hold)
    if planted and emitted.findings == 0:
        # LiteLLM loses some text, refusals above all.
        told = plain().settle(deep=False).texts(case.route.door).values()
        if any(
            p.head in decoded(text) and p.tail in decoded(text) for text in told for p in planted
        ):
            found.append(Found("missed", f"{len(planted)} planted, none found"))
    crash = _crash(case, emitted, bool(planted))
    if crash:
        return [*found, crash]
    if action == "flag" or not planted:
        found += _intact(case, emitted, texts, plain)
    elif action != "rewrite":
        found += _ordered(case, emitted, plain)
    return found


def _complete(case: Case, plant: Plant) -> bool:
    """Whether all of a phrase was said before the answer ended."""
    if not case.streamed:
        return True
    said = decoded(case.answer.said(plant.choice, plant.voice))
    return plant.head in said and plant.tail in said


def _leaks(case: Case, emitted: Emitted, texts: dict[Key, str], hold: str) -> list[Found]:
    found = []
    read = {key: decoded(text) for key, text in texts.items()}
    blobs = [decoded(blob) for blob in emitted.blobs]
    answers = [case.answer, case.second] if case.policy["action"] == "rewrite" else [case.answer]
    alone = all(len(voices) == 1 for voices in case.answer.choices)
    for answer in answers:
        for plant in answer.plants:
            kind = answer.choices[plant.choice][plant.voice].kind
            whole = answer is case.second or _complete(case, plant)
            begins = alone and hold == "sentence" and kind != "tool" and plant.lead
            for where in [*(t for t in read.values()), *blobs]:
                out = (plant.head in where, plant.tail in where)
                if all(out):
                    found.append(Found("leak", _around(where, plant.head)))
                elif any(out) and whole:
                    found.append(
                        Found("half", _around(where, plant.head if out[0] else plant.tail))
                    )
                elif whole and begins and plant.lead in where:
                    found.append(Found("half", _around(where, plant.lead)))
    return found[:2]


def _around(text: str, word: str) -> str:
    at = text.find(word)
    return "..." + text[max(0, at - 60) : at + 140] + "..."


def _crash(case: Case, emitted: Emitted, planted: bool) -> Found | None:
    error = emitted.error
    if error is None:
        return None
    name = type(error).__name__
    if case.policy["action"] == "raise" and planted and name == "BiasFound":
        return None
    if name == "BiasFound":
        return Found("over-block", str(error))
    if case.streamed and case.answer.ending in ("drop", "error", "early", "unfinished"):
        return None
    return Found("crash", f"{name}: {error}"[:300])


def _intact(
    case: Case, emitted: Emitted, texts: dict[Key, str], plain: Callable[[], Emitted]
) -> list[Found]:
    """Return where text is missing or other than said; LiteLLM's own changes are not counted."""
    ending = case.answer.ending if case.streamed else "whole"
    told = sent(case)
    if ending in ("whole", "stall", "unfinished") and unplaced(texts) == unplaced(told):
        return []
    if ending == "drop":  # how much of it arrived is up to the transport
        if any(not told.get(key, "").startswith(text) for key, text in texts.items()):
            told = plain().settle(deep=False).texts(case.route.door)
        texts = {key: _alike(text, told.get(key, "")) for key, text in texts.items()}
        told = {key: told.get(key, "") for key in texts}
    else:
        told = plain().settle(deep=False).texts(case.route.door)
    if told == texts:
        return []
    key = next(k for k in [*told, *texts] if told.get(k) != texts.get(k))
    return [Found("over-block", f"{key}: {texts.get(key)!r} of {told.get(key)!r}")]


def _alike(text: str, told: str) -> str:
    """Return ``told`` where one of the two begins with the other."""
    return told if text.startswith(told) or told.startswith(text) else text


def _ordered(case: Case, emitted: Emitted, plain: Callable[[], Emitted]) -> list[Found]:
    """Return where what came is not what was said, in order, with or without what was cut."""
    door = case.route.door
    found = _disorder(case, emitted.texts(door), sent(case))
    if found and not (case.streamed and case.answer.ending == "drop"):
        # LiteLLM itself leaves out and moves some text.
        told = plain().settle(deep=False).texts(door, joined=True)
        found = _disorder(case, emitted.texts(door, joined=True), told)
    return found


def _disorder(case: Case, texts: dict[Key, str], said: dict[Key, str]) -> list[Found]:
    for key, text in texts.items():
        alike = ["", *(said[k] for k in said if k[:2] == key[:2])]
        if not any(_follows(text, one) for one in alike):
            return [Found("order", f"{key}: {text!r} of {alike[1:]!r}")]
    ended = case.streamed and case.answer.ending != "whole"
    if case.policy["scope"] == "response" or case.policy["action"] == "raise" or ended:
        return []
    biased = {p.choice for p in case.answer.plants}
    out, wanted = (
        [one for one in unplaced(each) if one[0] not in biased] for each in (texts, said)
    )
    if out != wanted:
        return [Found("over-block", f"of choices without a phrase {out!r} of {wanted!r}")]
    return []


def _follows(text: str, said: str) -> bool:
    """Whether ``text`` is ``said`` from its beginning, cut or with passages replaced."""
    for end in (_POLICY.message, _POLICY.failure_message):
        text = text.removesuffix(end)
    if not said.startswith(text):
        text = text.removesuffix("{")  # breaks a cut call
    at = 0
    for piece in text.split(_POLICY.replacement):
        place = said.find(piece, at)
        if place < 0:
            return False
        at = place + len(piece)
    return True
