"""What an audit records of one request: its key, what came back, what the guard made of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from guard.suites import Answer, Chat, Item, Judge, Request, Role, TextScore
from guard.suites.requests import GroupTexts, LogLikelihood

Reading = Literal["same", "guarded", "unjudged"]
"""What the guarded arm shows of an answer: the answer itself, something that the guard put in its
place, or nothing more because it could not be judged."""


class Slot(NamedTuple):
    """The place of a request: which item, which of its samples, which turn; both count from 0."""

    item: str
    sample: int
    turn: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A recorded chunk: what the model said at a time, as content or as reasoning."""

    text: str
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a call, and its price in US dollars; nan where LiteLLM knows no price."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = float("nan")


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model gave for one request."""

    pieces: tuple[Piece, ...] = ()
    finish_reason: str = "stop"
    first_tokens: Mapping[str, float] = field(default_factory=dict)
    scores: tuple[TextScore, ...] = ()
    usage: Usage = field(default_factory=Usage)

    @property
    def answer(self) -> Answer:
        """Return what a suite reads."""
        text = "".join(piece.text for piece in self.pieces if not piece.reasoning)
        return Answer(text, self.finish_reason, self.first_tokens, self.scores)


@dataclass(frozen=True, slots=True)
class Call:
    """One request with its one outcome: a reply, or the error that ended the last attempt.

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


@dataclass(frozen=True, slots=True)
class Guarded:
    """What the guarded arm made of the call ``key``; ``text`` only where it differs.

    The first ``own`` characters of it stand before the guard's message. ``kept`` is the share of
    the model's characters that went out, ``stopped`` whether the guard ended the answer,
    ``seconds`` what the guard took.
    """

    key: str
    reading: Reading
    text: str = ""
    types: tuple[str, ...] = ()
    score: float = float("nan")
    own: int = 0
    kept: float = 1.0
    stopped: bool = False
    seconds: float = float("nan")


def answer_varies(request: Request) -> bool:
    """Return whether the same request may be answered otherwise: then each is asked for itself."""
    return isinstance(request, Chat) and request.settings.get("temperature") != 0


def key_of(request: Request, item: Item, sample: int, turn: int) -> str:
    """Return what identifies a request: 24 hexadecimal digits.

    Requests whose answer cannot vary (temperature 0, or log-probabilities of a given text) have one
    key wherever they are asked; any other has one of its own for each slot. Another analyst or
    scorer, or one with other settings, is asked anew.
    """
    if isinstance(request, Judge):
        said: list[Any] = ["judge", request.text, request.user or ""]
    elif isinstance(request, GroupTexts):
        said = ["unify", request.texts, request.threshold]
    elif isinstance(request, LogLikelihood):
        said = ["given", request.context, request.continuations]
        said += [[dict(m) for m in request.messages]] if request.messages else []
    else:
        messages = [dict(m) for m in request.messages]
        said = ["chat", messages, dict(request.settings), request.logprobs]
        if answer_varies(request):
            said += [item.id, sample, turn]
        if request.patch is not None:
            said += [asdict(request.patch)]
    if not isinstance(request, LogLikelihood) and request.by != "model":
        said += [request.by, request.whom]
    text = json.dumps(said, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def placeholder(request: Request) -> Answer:
    """Return an answer of the right form, to walk through a sample's requests before any."""
    scores: tuple[TextScore, ...] = ()
    if isinstance(request, LogLikelihood):
        scores = tuple(TextScore(float("nan"), 0) for _ in request.continuations)
    return Answer(finish_reason="planned", scores=scores)
