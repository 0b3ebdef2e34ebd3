"""What an audit records of a request: its key, the answer, the guard's reading of it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from guard.suites import (
    Answer,
    Chat,
    GroupTexts,
    Item,
    Judge,
    LogLikelihood,
    Request,
    Role,
    TextScore,
)

Reading = Literal["same", "guarded", "unjudged"]
"""What the guarded arm shows: the answer itself, the guard's text in its place, or an answer that
ends because it could not be judged."""
Line = dict[str, Any]
"""A header or a record as JSON, of which the hash of a run is taken."""


class Slot(NamedTuple):
    """The place of a request: item, sample and turn; the last two count from 0."""

    item: str
    sample: int
    turn: int


@dataclass(frozen=True, slots=True)
class Piece:
    """The text of a recorded chunk, as content or as reasoning."""

    text: str
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a call and its price in US dollars; nan where LiteLLM knows no price."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = math.nan


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply to one request."""

    pieces: tuple[Piece, ...] = ()
    finish_reason: str = "stop"
    first_tokens: Mapping[str, float] = field(default_factory=dict)
    scores: tuple[TextScore, ...] = ()
    usage: Usage = field(default_factory=Usage)

    @property
    def answer(self) -> Answer:
        """The reply as a suite reads it."""
        text = "".join(piece.text for piece in self.pieces if not piece.reasoning)
        return Answer(text, self.finish_reason, self.first_tokens, self.scores)


@dataclass(frozen=True, slots=True)
class Call:
    """A request with its outcome: a reply, or the error of the last attempt.

    ``kind`` is the error's type, empty in runs of earlier versions, ``status`` its HTTP status,
    ``error`` its cause in guard's words, empty where that is not known.
    ``slot`` is the first that asked; equal requests share the call. ``latency_s`` is that of the
    last attempt. ``by`` says who was asked.
    """

    key: str
    slot: Slot
    reply: Reply | None
    error: str = ""
    attempts: int = 1
    latency_s: float = 0.0
    by: Role = "model"
    kind: str = ""
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Guarded:
    """What the guarded arm made of the call ``key``; ``text`` is empty where nothing changed.

    The guard's message follows the first ``own`` characters of ``text``. ``kept`` is the share of
    the model's characters that reached the user, ``stopped`` says whether the guard ended the
    answer, ``seconds`` is the time that the guard took.
    """

    key: str
    reading: Reading
    text: str = ""
    types: tuple[str, ...] = ()
    score: float = math.nan
    own: int = 0
    kept: float = 1.0
    stopped: bool = False
    seconds: float = math.nan


def answer_varies(request: Request) -> bool:
    """Return whether the same request may get another answer, so that each is asked separately."""
    return isinstance(request, Chat) and request.settings.get("temperature") != 0


def key_of(request: Request, item: Item, sample: int, turn: int) -> str:
    """Return the identifier of a request: 24 hexadecimal digits.

    Equal requests whose answer cannot vary (temperature 0, or log-probabilities of a given text)
    share a key; any other request has its own for each slot. The key of an analyst's or scorer's
    request includes its name and settings.
    """
    if isinstance(request, Judge):
        parts: list[Any] = ["judge", request.text, request.user or ""]
    elif isinstance(request, GroupTexts):
        parts = ["unify", request.texts, request.threshold]
    elif isinstance(request, LogLikelihood):
        parts = ["given", request.context, request.continuations]
        parts += [[dict(m) for m in request.messages]] if request.messages else []
    else:
        messages = [dict(m) for m in request.messages]
        parts = ["chat", messages, dict(request.settings), request.logprobs]
        if answer_varies(request):
            parts += [item.id, sample, turn]
        if request.patch is not None:
            parts += [asdict(request.patch)]
    if not isinstance(request, LogLikelihood) and request.by != "model":
        parts += [request.by, request.whom]
    text = json.dumps(parts, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def placeholder(request: Request) -> Answer:
    """Return an empty answer of the right form, to plan a sample's next requests."""
    scores: tuple[TextScore, ...] = ()
    if isinstance(request, LogLikelihood):
        scores = tuple(TextScore(math.nan, 0) for _ in request.continuations)
    return Answer(finish_reason="planned", scores=scores)


def line_of(record: Call | Guarded) -> Line:
    """Return ``record`` as JSON; fields with their default value are left out."""
    if isinstance(record, Guarded):
        line: Line = {"k": "guarded", "key": record.key, "as": record.reading}
        if record.reading != "same":
            line |= {"text": record.text, "types": list(record.types)}
            line |= {"own": record.own, "kept": record.kept, "stopped": record.stopped}
            line |= {} if math.isnan(record.score) else {"score": round(record.score, 4)}
        line |= {} if math.isnan(record.seconds) else {"s": record.seconds}
        return line
    slot = record.slot
    line = {"k": "call", "key": record.key, "id": slot.item, "sample": slot.sample}
    line |= {"turn": slot.turn, "s": round(record.latency_s, 4)}
    if record.by != "model":
        line["by"] = record.by
    if record.attempts != 1:
        line["attempts"] = record.attempts
    if record.reply is None:
        line |= {"kind": record.kind} if record.kind else {}
        line |= {} if record.status is None else {"status": record.status}
        return line | {"error": record.error}
    reply = record.reply
    if reply.scores:
        line["scores"] = [[score.logprob, score.tokens] for score in reply.scores]
    else:
        line["chunks"] = [{"r": p.text} if p.reasoning else p.text for p in reply.pieces]
        line["finish"] = reply.finish_reason
    if reply.first_tokens:
        line["first"] = dict(reply.first_tokens)
    line["tokens"] = [reply.usage.prompt_tokens, reply.usage.completion_tokens]
    if not math.isnan(reply.usage.cost):
        line["cost"] = reply.usage.cost
    return line
