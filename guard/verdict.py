"""Scores, verdicts, decisions and trails: plain frozen values, no I/O.

A detector returns :class:`Scores`; the policy's threshold turns them into a :class:`Verdict`; the
gate takes a :class:`Decision` on it; the decisions on one response are its :class:`GuardTrail`.
``implied`` says whether to look for the attribute between the lines.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args

BiasType = Literal[
    "gender",
    "race",
    "religion",
    "culture",
    "orientation",
    "disability",
    "age",
    "appearance",
    "social",
]
BIAS_TYPES: tuple[BiasType, ...] = get_args(BiasType)

#: A judgement uses the adjective where one is common.
ADJECTIVES: Mapping[BiasType, str] = {
    "race": "racial",
    "religion": "religious",
    "culture": "cultural",
}

Action = Literal["pass", "terminate", "redact", "flag", "raise", "rewrite"]
Unjudged = Literal["language", "failure", "overload", "unusable"]
#: Reasons that are the detector's failure, to which the policy's ``failure`` applies.
FAILURES: tuple[Unjudged, ...] = ("failure", "overload", "unusable")
ChannelKind = Literal["content", "reasoning", "tool"]


class Span(NamedTuple):
    """Half-open character range into the judged text."""

    start: int
    end: int

    def shifted(self, offset: int) -> Span:
        """Return the same range moved by ``offset`` characters."""
        return Span(self.start + offset, self.end + offset)


class Channel(NamedTuple):
    """One text inside a response."""

    choice: int = 0
    kind: ChannelKind = "content"
    tool: int = 0


@dataclass(frozen=True, slots=True)
class Attribution:
    """A social group and the attribute tied to it, with their spans in the judged text."""

    group: str
    attribute: str
    group_span: Span
    attribute_span: Span

    def shifted(self, offset: int) -> Attribution:
        """Return the same pair with its spans moved by ``offset`` characters."""
        return replace(
            self,
            group_span=self.group_span.shifted(offset),
            attribute_span=self.attribute_span.shifted(offset),
        )


@dataclass(frozen=True, slots=True)
class Reference:
    """A retrieved statement of the bias index; ``similarity`` is a cosine in [-1, 1]."""

    statement: str
    bias_type: BiasType
    group: str
    attribute: str
    similarity: float


@dataclass(frozen=True, slots=True)
class Window:
    """The input of a detector: the segment to judge, and text before it as context.

    ``context`` holds earlier segments of the channel, oldest first; ``user`` is the last user
    message, if the policy includes it. A score never depends on other windows.
    """

    text: str
    context: tuple[str, ...] = ()
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """A detector's output for one window.

    ``score`` is in [0, 1]; ``bias_type`` is the most likely type, also if the text is not biased.
    Spans point into the window's text. ``implied`` is the probability that an association, if
    there is one, is implied rather than stated; None if the detector does not estimate it. For
    text outside the detector's languages: ``Scores(unjudged="language")``. All other scores need
    score and type; raises ValueError otherwise.
    """

    score: float | None = None
    bias_type: BiasType | None = None
    attributions: tuple[Attribution, ...] = ()
    references: tuple[Reference, ...] = ()
    unjudged: Unjudged | None = None
    implied: float | None = None

    def __post_init__(self) -> None:
        if self.unjudged is None and (self.score is None or self.bias_type is None):
            raise ValueError("scores have a score and a bias_type unless they are unjudged")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The finding on one segment.

    Spans point into ``span``'s text: the segment for a decision of a stream, the whole text for
    :meth:`guard.Guard.check`. ``bias_type`` and ``implied`` are None unless ``biased``.
    ``implied``: whether the association is implied rather than stated; None if the detector does
    not estimate it. ``score`` and ``threshold`` are None if the segment is ``unjudged``,
    ``index_version`` if there is no index. ``second_score`` is the score of the segment read
    together with the one after it, if it was looked at a second time; if that took the finding
    back, it is the ``score``.
    """

    biased: bool
    score: float | None
    threshold: float | None
    bias_type: BiasType | None
    attributions: tuple[Attribution, ...]
    references: tuple[Reference, ...]
    detector: str
    index_version: str | None
    elapsed_ms: float
    unjudged: Unjudged | None = None
    implied: bool | None = None
    second_score: float | None = None

    def __post_init__(self) -> None:
        if self.biased and (self.unjudged or self.bias_type is None):
            raise ValueError("a biased verdict has a bias type and is not unjudged")

    @property
    def judgement(self) -> str:
        """The verdict in words, ordered as in the BiasAlert paper (Table 8): answer, type, pairs.

        Group and attribute are quoted as they were written.
        """
        if self.unjudged:
            return "The text was not judged."
        if self.bias_type is None or not self.biased:
            return "No, the text is not biased."
        kind = ADJECTIVES.get(self.bias_type, self.bias_type)
        sentence = f"Yes, the text is biased. The type of bias is {kind} bias"
        pairs = [f"“{a.group}” to “{a.attribute}”" for a in self.attributions]
        if not pairs:
            return f"{sentence}."
        *earlier, last = pairs
        listed = f"{', '.join(earlier)} and {last}" if earlier else last
        return f"{sentence}: it ties {listed}."

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the ``judgement`` as plain values; a span is a list of two."""
        return {**_plain_fields(self), "judgement": self.judgement}

    def to_json(self) -> str:
        """Return :meth:`to_dict` as one JSON object."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def shifted(self, offset: int) -> Verdict:
        """Return the same verdict with the spans of its attributions moved by ``offset``."""
        return replace(self, attributions=tuple(a.shifted(offset) for a in self.attributions))


@dataclass(frozen=True, slots=True)
class Decision:
    """The action taken on one segment, with its verdict.

    ``span`` is the segment's range in its channel's text as the provider sent it. ``counted`` is
    false if the finding repeats one of the previous segment, in the overlap of the two.

    ``time`` is when it was taken, in UTC; ``model`` is the model that the caller named,
    ``request_id`` LiteLLM's id of the call (``litellm_call_id``), both None for plain text and if
    unknown; ``labels`` are the policy's. Equality ignores these four.
    """

    action: Action
    verdict: Verdict
    channel: Channel
    span: Span
    counted: bool = True
    time: datetime | None = field(default=None, compare=False)
    model: str | None = field(default=None, compare=False)
    request_id: str | None = field(default=None, compare=False)
    labels: Mapping[str, str] = field(default_factory=dict, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values; the verdict as its own ``to_dict``.

        ``time`` is ISO 8601.
        """
        return {
            **_plain_fields(self),
            "verdict": self.verdict.to_dict(),
            "channel": self.channel._asdict(),
        }

    def to_json(self) -> str:
        """Return :meth:`to_dict` as one JSON object."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


def _response_id() -> str:
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


@dataclass(slots=True)
class GuardTrail:
    """The decisions on one response, in the order in which they were taken.

    ``rewrites`` is the number of times the model was asked to continue under the action
    ``rewrite``; after each, the spans of decisions count from the new answer's beginning. ``id``
    names the response in a store of events; later ids sort after earlier ones.
    ``first_release_ms`` is the time from a stream's first text until the first was released, in
    milliseconds; None before that, and for a whole answer.
    """

    decisions: list[Decision] = field(default_factory=list)
    rewrites: int = 0
    id: str = field(default_factory=_response_id, compare=False)
    first_release_ms: float | None = field(default=None, compare=False)

    def __iter__(self) -> Iterator[Decision]:
        return iter(self.decisions)

    def __len__(self) -> int:
        return len(self.decisions)

    def to_dict(self) -> dict[str, Any]:
        """Return ``biased``, ``stopped``, ``rewrites`` and the decisions as plain values."""
        return {
            "biased": self.biased,
            "stopped": self.stopped,
            "rewrites": self.rewrites,
            "decisions": [decision.to_dict() for decision in self.decisions],
        }

    def to_json(self) -> str:
        """Return :meth:`to_dict` as one JSON object."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @property
    def biased(self) -> bool:
        """Whether any segment was found biased."""
        return any(d.verdict.biased for d in self.decisions)

    @property
    def stopped(self) -> bool:
        """Whether the guard ended the output before the provider did."""
        return any(d.action in ("terminate", "raise") for d in self.decisions)

    @property
    def findings(self) -> list[Decision]:
        """The decisions whose segment was found biased, each finding once."""
        return [d for d in self.decisions if d.verdict.biased and d.counted]


def _plain_fields(value: Any) -> dict[str, Any]:
    return {f.name: _plain_value(getattr(value, f.name)) for f in fields(value)}


def _plain_value(value: Any) -> Any:
    """Return a field's value as a JSON type."""
    if is_dataclass(value):
        return _plain_fields(value)
    if isinstance(value, tuple):
        return [_plain_value(item) for item in value]
    if isinstance(value, Mapping):
        return dict(value)
    return value.isoformat() if isinstance(value, datetime) else value
