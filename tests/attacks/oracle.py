"""Says what was wrong with what came out of a case: nothing, or findings by kind."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from guard.doors.tools import is_complete
from guard.policy import Policy
from tests.attacks import bound
from tests.attacks.case import Case, Plant
from tests.attacks.reading import (
    Emitted,
    Joined,
    Key,
    ProxyAnswered,
    by_door,
    decoded,
    sent,
    unplaced,
)


class Found(NamedTuple):
    """A fault: its kind, and what shows it."""

    kind: str
    told: str


KINDS = ("leak", "half", "over-block", "order", "missed", "held", "hang", "open", "crash")
"""leak: both halves of a phrase came out, in a channel's text or within one object.
half: one half came out, or the beginning of its sentence, where the bound lets nothing of it out.
over-block: text was kept back or stopped with nothing in it.
order: text came out of order, twice, or text that nobody said.
missed: all of a phrase was said and no finding is on the trail.
held: more was held back than the bound allows.
hang: the call did not end in time. open: the provider's connection outlived a stop.
crash: an error that neither the guard's policy nor the provider explains.
"""
STOPS = ("terminate", "redact", "raise", "rewrite")
_POLICY = Policy()
# What a provider that fails may come out as: errors of these packages, and lost connections.
_TOLD = ("litellm", "openai", "httpx", "httpcore", "aiohttp")
# How what guard itself says begins, wherever the proxy puts it.
_OWN = re.compile(r"\bguard(rail '[^']*')?(: | cannot )")


def judge(case: Case, emitted: Emitted, plain: Callable[[], Emitted]) -> list[Found]:
    """Return what is wrong; ``plain`` makes the same call without a guard, where that is asked."""
    plain = cache(plain)
    texts = emitted.texts(by_door(case.route.door))
    action = case.policy["action"]
    planted = [p for p in case.answer.plants if _complete(case, p)]
    surely = [p for p in planted if not _refuted(case, p)]
    found = []
    if action in STOPS:
        found += _leaks(case, emitted, texts, plain)
    if surely and emitted.findings == 0 and not may_lose(case):
        # LiteLLM loses some text, refusals above all.
        told = _read(case, plain()).values()
        surely = [p for p in surely if not _moved_up(case, p, plain())]
        if any(p.phrase in text for text in told for p in surely):
            found.append(Found("missed", f"{len(surely)} planted, none found"))
    crash = _crash(case, emitted, bool(planted))
    if crash:
        return [*found, crash]
    if action == "flag" or not planted:
        found += _intact(case, emitted, texts, plain)
    elif action != "rewrite":
        found += _ordered(case, emitted, plain)
    return found


def may_lose(case: Case) -> bool:
    """Whether the transport decides how much arrives of what was sent."""
    return case.streamed and case.answer.ending == "drop" and case.route.socket


def _complete(case: Case, plant: Plant) -> bool:
    """Whether all of a phrase was said before the answer ended."""
    return not case.streamed or _holds(decoded(case.answer.said(plant.choice, plant.voice)), plant)


def _refuted(case: Case, plant: Plant) -> bool:
    """Whether what takes a phrase back was said behind it, so that the phrase may go out."""
    said = case.second.said(0, 0)
    if plant in case.answer.plants:
        said = case.answer.said(plant.choice, plant.voice)
    return plant.refuted and plant.refutation in decoded(said)


def _moved_up(case: Case, plant: Plant, plain: Emitted) -> bool:
    """Whether LiteLLM lost text that made a refutation come too late for its phrase."""
    if plant not in case.answer.plants:
        return False
    said = decoded(case.answer.said(plant.choice, plant.voice))
    between = said[said.find(plant.phrase) : said.find(plant.refutation)]
    told = (text for text in _read(case, plain).values() if plant.phrase in text)
    return any(plant.refutation in text and between not in text for text in told)


def _holds(text: str, plant: Plant) -> bool:
    return plant.head in text and plant.tail in text


def _leaks(
    case: Case, emitted: Emitted, texts: dict[Key, str], plain: Callable[[], Emitted]
) -> list[Found]:
    found = []
    places = [decoded(text) for text in (*texts.values(), *emitted.blobs)]
    again = case.second.plants if case.policy["action"] == "rewrite" else ()
    for plant in (*case.answer.plants, *again):
        if _refuted(case, plant):
            continue
        words = [plant.head, plant.tail]
        if plant.fits and case.policy["hold"] == "sentence":
            words.append(plant.lead)
        leaks = [place for place in places if _holds(place, plant)]
        halves = [(p, word) for p in places for word in words if word in p and p not in leaks]
        free: str | None = ""
        if plant not in again:
            halves = halves if _complete(case, plant) and not may_lose(case) else []
            free = _free(case, plant, plain()) if leaks or halves else ""
        if leaks and _moved_up(case, plant, plain()):
            continue
        if free is None:  # LiteLLM lost some of the phrase: what is left of it ties nobody to it
            leaks, halves = [place for place in leaks if plant.phrase in place], []
        found += [Found("leak", _around(place, plant.head)) for place in leaks]
        found += [Found("half", _around(p, word)) for p, word in halves if word not in (free or "")]
    return found[:2]


def _free(case: Case, plant: Plant, plain: Emitted) -> str | None:
    """Return what the bound lets out of a phrase's text; None where LiteLLM lost some of it."""
    key = next((key for key, text in _read(case, plain).items() if plant.phrase in text), None)
    if key is None or not case.streamed:
        return None if key is None else ""
    return bound.free(plant, key, plain.pieces(Joined(case.route.door)), Policy(**case.policy))


def _read(case: Case, plain: Emitted) -> dict[Key, str]:
    """Return what LiteLLM made of the answer, as it is read."""
    said: dict[Key, str] = {}
    for key, text in plain.pieces(Joined(case.route.door)):
        said[key] = said.get(key, "") + text
    return {key: decoded(text) for key, text in said.items()}


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
    fails = case.streamed and case.answer.ending in ("drop", "error", "early", "unfinished")
    if fails and _providers(case, error):
        return None
    return Found("crash", f"{name}: {error}"[:300])


def _providers(case: Case, error: BaseException) -> bool:
    """Whether an error can be the provider's, as LiteLLM or its proxy tell it."""
    if isinstance(error, ProxyAnswered):
        return _OWN.search(error.text) is None
    if isinstance(error, RuntimeError):  # the replayed provider's own
        return not case.route.socket
    told = type(error).__module__.split(".")[0] in _TOLD
    return told or isinstance(error, ConnectionError)


def _intact(
    case: Case, emitted: Emitted, texts: dict[Key, str], plain: Callable[[], Emitted]
) -> list[Found]:
    """Return where text is missing or other than said; LiteLLM's own changes are not counted."""
    ending = case.answer.ending if case.streamed else "whole"
    told = sent(case)
    if ending in ("whole", "stall", "unfinished") and unplaced(texts) == unplaced(told):
        return []
    told = plain().texts(by_door(case.route.door))
    if may_lose(case):
        told = {key: _cut(told.get(key, ""), text) for key, text in texts.items()}
    if told == texts:
        return []
    if over := [k for k, text in told.items() if _goes_on_after(texts.get(k, ""), text)]:
        # The call goes out, and what LiteLLM put behind it ends the answer.
        texts = {key: text.removesuffix(_POLICY.failure_message) for key, text in texts.items()}
        told = told | {key: texts[key] for key in over}
        if told == texts:
            return []
    key = next(k for k in [*told, *texts] if told.get(k) != texts.get(k))
    return [Found("over-block", f"{key}: {texts.get(key)!r} of {told.get(key)!r}")]


def _goes_on_after(text: str, said: str) -> bool:
    """Whether ``text`` is whole JSON with which ``said`` begins, and more follows."""
    return text != said and said.startswith(text) and is_complete(text)


def _cut(told: str, text: str) -> str:
    return text if told.startswith(text) else told


def _ordered(case: Case, emitted: Emitted, plain: Callable[[], Emitted]) -> list[Found]:
    """Return where what came is not what was said, in order, with or without what was cut."""
    found = _disorder(case, emitted.texts(by_door(case.route.door)), sent(case))
    if found:
        # LiteLLM itself leaves out and moves some text.
        blocks = Joined(case.route.door)
        said = plain().texts(blocks)
        found = _disorder(case, emitted.texts(blocks.as_read), said)
    return found


def _same_keys(text: str, other: str) -> bool:
    """Whether two texts are JSON objects with the same keys in the same order."""
    if not (is_complete(text) and is_complete(other)):
        return False
    one, two = json.loads(text), json.loads(other)
    return isinstance(one, dict) and isinstance(two, dict) and list(one) == list(two)


def _disorder(case: Case, texts: dict[Key, str], said: dict[Key, str]) -> list[Found]:
    fails = case.streamed and case.answer.ending != "whole"
    for key, text in texts.items():
        alike = ["", *(said[k] for k in said if k[:2] == key[:2])]
        # LiteLLM at times goes on after whole JSON: the call goes out, the rest stops the answer.
        whole = any(_goes_on_after(text, one) for one in alike)
        if case.policy["action"] == "redact":
            # Only strings in it are replaced. LiteLLM at times mixes two calls: these are no JSON.
            mixed = _POLICY.replacement in text and any(
                _follows(text, one) for one in alike[1:] if not is_complete(one)
            )
            whole = whole or mixed or any(_same_keys(text, one) for one in alike)
        if key[1] == "tool" and text not in alike and not (fails or whole):
            return [Found("order", f"{key}: a part {text!r} of the call {alike[1:]!r}")]
        if not any(_follows(text, one) for one in alike):
            return [Found("order", f"{key}: {text!r} of {alike[1:]!r}")]
    if case.policy["scope"] == "response" or case.policy["action"] == "raise" or fails:
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
    at = 0
    # The space between two removed passages stays where the second ends a line.
    for piece in text.replace(f"{_POLICY.replacement} \n", f"{_POLICY.replacement}\n").split(
        _POLICY.replacement
    ):
        place = said.find(piece, at)
        if place < 0:
            return False
        at = place + len(piece)
    return True
