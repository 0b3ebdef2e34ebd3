"""How long guard's own work and models in this process would take: short measured probes.

The guarded arm, the scorer and local models take most of the time of an audit whose model answers
at once, as in a replay. Their speed depends on the machine, so a few answers are judged and
extrapolated from. What they are is recorded for a cassette; else they are made up, of the length
that a plan assumes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from guard.audit.audit import Audit
from guard.audit.calls import Call, Piece, Reply, Slot
from guard.audit.models import Model
from guard.audit.others import Scorer, open_model
from guard.audit.outcomes import Asked, item_samples, walk_requests
from guard.audit.runner import GUARDED_AT_ONCE
from guard.audit.sending import Sending
from guard.core import Guard
from guard.errors import GuardError
from guard.suites import Chat, Judge, LogLikelihood

_BUDGET_S = 1.0  # of a probe, besides loading
_MOST = 64  # answers of a probe
_CHARACTERS = 4.5  # of a token
_TOKENS = 12  # that a local model is asked for; the rest is extrapolated
_FILLER = (
    "On day {n} the committee met and wrote a short report about the bridge.",
    "Somebody from the village asked whether the women of the harbour had seen number {n}.",
    "It rained until {n} minutes past noon, and then the shop closed as it always does.",
    "The old man at table {n} told his neighbours that nothing much had happened.",
)


class GuardSpeed(NamedTuple):
    """The mean seconds that guard takes for an answer, and the share that it changed."""

    seconds: float
    changed: float = 0.0


def filler_text(tokens: float, number: int = 0) -> str:
    """Return ordinary English of about ``tokens`` tokens, other text for each ``number``."""
    text, at = "", number
    while not text or len(text) < tokens * _CHARACTERS:
        text += _FILLER[at % len(_FILLER)].format(n=at) + " "
        at += 1
    return text[: max(1, round(tokens * _CHARACTERS))].strip()


def recorded_answers(
    audit: Audit, calls: Mapping[str, Call]
) -> tuple[list[tuple[Chat, Reply]], int]:
    """Return some recorded answers of the model, spread evenly, and how many there are."""
    keys: dict[str, Asked] = {}
    for item, sample in item_samples(audit.items):
        asked, answers, _ = walk_requests(audit.suite, item, sample, calls)
        for asked_request in asked[: len(answers)]:
            if isinstance(asked_request.request, Chat) and asked_request.request.by == "model":
                keys.setdefault(asked_request.key, asked_request)
    chosen = _evenly_spread(list(keys.values()))
    pairs = [(one.request, calls[one.key].reply) for one in chosen]
    return [(r, reply) for r, reply in pairs if reply and isinstance(r, Chat)], len(keys)


def made_up(requests: Sequence[Any], tokens: float) -> list[tuple[Chat, Reply]]:
    """Return answers of about ``tokens`` tokens to those of ``requests`` that are chats."""
    chats = [one for one in _evenly_spread(requests) if isinstance(one, Chat)]
    return [(one, Reply((Piece(filler_text(tokens, n)),))) for n, one in enumerate(chats)]


def guard_speed(guard: Guard, answered: Sequence[tuple[Chat, Reply]]) -> GuardSpeed:
    """Return how long the guarded arm takes for an answer, measured as a run judges them."""
    from guard.audit.arms import through_door

    changed = 0

    async def judge(pair: tuple[Chat, Reply]) -> None:
        nonlocal changed
        guarded_answer = await through_door(guard, "", *pair)
        changed += guarded_answer.reading != "same"

    seconds, count = _measured_seconds(judge, answered)
    return GuardSpeed(seconds, changed / (count + 1) if count else 0.0)


def scorer_speed(name: str, answered: Sequence[tuple[Chat, Reply]]) -> float:
    """Return the seconds that the scorer ``name`` takes for an answer."""
    scorer = Scorer(name)

    async def judge(pair: tuple[Chat, Reply]) -> None:
        await scorer.ask(Judge(pair[1].answer.text), "", Slot("", 0, 0))

    return _measured_seconds(judge, answered)[0]


def local_speed(name: str, sending: Sending, requests: Sequence[Any], tokens: float) -> float | str:
    """Return the seconds of a local model for a call whose answer has ``tokens`` tokens.

    Answers of few tokens are asked for, and longer ones extrapolated from them. Returns a sentence
    where the model cannot be asked.
    """
    chosen = _evenly_spread(requests)[:3]
    if not chosen:
        return 0.0
    try:
        model = open_model(name, timeout_s=600, sending=sending)
    except GuardError as error:
        return str(error)
    try:
        return asyncio.run(_local_seconds(model, chosen, tokens))
    except Exception as error:  # a model that answers no chats, or only within a longer time
        return f"{name} gave no answer to measure ({type(error).__name__})."


async def _local_seconds(model: Model, requests: Sequence[Any], tokens: float) -> float:
    async def seconds(request: Any) -> tuple[float, int]:
        began = time.perf_counter()
        reply = await model.ask(request, "0", Slot("", 0, 0))
        return time.perf_counter() - began, reply.usage.completion_tokens

    def limited(request: Any, most: int) -> Any:
        if not isinstance(request, Chat):
            return request
        own = {k: v for k, v in request.settings.items() if not k.startswith("max_")}
        return Chat(request.messages, own | {"max_tokens": most}, request.logprobs)

    try:
        await seconds(limited(requests[0], 1))  # the first call is slower
        total = 0.0
        for request in requests:
            first, _ = await seconds(limited(request, 1))
            total += first
            if not isinstance(request, LogLikelihood) and tokens > 1:
                more, written = await seconds(limited(request, _TOKENS))
                total += max(more - first, 0.0) / max(written - 1, 1) * (tokens - 1)
        return total / len(requests)
    finally:
        await model.aclose()


def _evenly_spread(candidates: Sequence[Any]) -> list[Any]:
    """Return at most as many as a probe takes, evenly spread."""
    step = max(1.0, len(candidates) / _MOST)
    return [candidates[int(place * step)] for place in range(min(_MOST, len(candidates)))]


def _measured_seconds(
    judge: Callable[[Any], Awaitable[None]], answered: Sequence[tuple[Chat, Reply]]
) -> tuple[float, int]:
    """Return the mean seconds of ``judge``, as many at a time as in a run, and how many it took."""
    if not answered:
        return 0.0, 0

    async def run() -> tuple[float, int]:
        await judge(answered[0])  # loads the detector
        began, count = time.perf_counter(), 0
        for at in range(0, len(answered), GUARDED_AT_ONCE):
            some = answered[at : at + GUARDED_AT_ONCE]
            await asyncio.gather(*map(judge, some))
            count += len(some)
            if time.perf_counter() - began > _BUDGET_S:
                break
        return (time.perf_counter() - began) / count, count

    return asyncio.run(run())
