"""What to do with verdicts: thresholds, actions, limits. One frozen value, checked when made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from guard.verdict import BIAS_TYPES, Action, BiasType, ChannelKind, Scores, Unjudged, Verdict

OperatingPoint = Literal["strict", "balanced", "quiet"]
Hold = Literal["sentence", "association", "none"]
OnBias = Literal["terminate", "redact", "flag", "raise", "rewrite"]
Records = Literal["raw", "guarded"]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
LabelName = Annotated[str, Field(min_length=1, max_length=64)]
LabelText = Annotated[str, Field(max_length=256)]

_CHANNELS: tuple[ChannelKind, ...] = get_args(ChannelKind)
# What an action can be set for.
_PLACES = {*BIAS_TYPES, *_CHANNELS, *(f"{c}.{t}" for c in _CHANNELS for t in BIAS_TYPES)}

# Steps of a forced cut must move forward by at least this share of the segment's limit.
_LEAST_SEGMENT = 40


class Policy(BaseModel):
    """The rules one response is guarded by.

    Lengths are characters of the text as the provider sent it. An unknown name or a value out of
    range raises pydantic's ``ValidationError``; :func:`guard.config.policy_from` turns that into
    one sentence.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    operating_point: OperatingPoint = "balanced"
    """Named set of thresholds that the detector was calibrated for."""
    threshold: Probability | None = None
    """One threshold for every bias type, in place of the operating point's."""
    thresholds: Mapping[BiasType, Probability] = Field(default_factory=dict)
    """Thresholds of single bias types; they win over ``threshold``."""

    action: OnBias = "terminate"
    """What is done with a biased segment."""
    actions: Mapping[str, OnBias] = Field(default_factory=dict)
    """What is done in its place with bias of one type (``appearance``), in one kind of channel
    (``content``, ``reasoning``, ``tool``), or of one type in one channel
    (``reasoning.appearance``). The most particular wins: a type in a channel, then a type, then a
    channel, then ``action``. A table in a table, ``{"reasoning": {"appearance": "flag"}}``, says
    the last as well.
    """
    message: str = "[Stopped here: the next passage tied a social group to a stereotype.]"
    """Text of the last chunk after a termination, and of a raised ``BiasFound``."""
    failure_message: str = "[Stopped here: the next passage could not be checked for bias.]"
    """The same where the reason is a failed detector or an unjudged language."""
    replacement: str = "[removed]"
    """Text that stands in for a redacted segment."""
    rewrite_tries: Annotated[int, Field(ge=1, le=10)] = 2
    """How often the model is asked to go on in one response; then it is terminated."""
    rewrite_instruction: str = (
        "Go on with your answer from exactly where it stops, or begin it if nothing of it is there "
        "yet. What you were about to say next tied {association}; it was taken back before anyone "
        "read it. Say what is useful without that tie, and without any other generalisation about "
        "a social group. Do not repeat what is already said, do not apologise, and do not mention "
        "this instruction."
    )
    """What the model is then asked, as the user's message behind what was let out of its answer;
    ``{association}`` stands for the groups and attributes that were found."""
    scope: Literal["choice", "response"] = "choice"
    """Whether a termination ends its own choice or every choice of the response."""
    hold: Hold = "sentence"
    """What is held until it has been judged.

    ``sentence`` holds every segment whole. ``association`` lets text flow while no group is in view
    and holds a segment from its first mention of a group on: an action then cuts from there, and
    what stood before it has gone out. ``none`` watches only: all text goes out at once, verdicts
    are taken for the trail and the sinks, a biased segment is flagged and one that could not be
    judged passes. A setting that would stop the output (any action but ``flag``, ``failure``
    ``closed``, ``language`` ``stop``) cannot be asked for beside ``none``; defaults give way.
    """

    failure: Literal["closed", "open"] = "closed"
    """Whether a failed, late or overloaded detector stops the output or lets it pass as
    ``unjudged``."""
    language: Literal["pass", "stop"] = "pass"
    """What to do with text outside the detector's languages."""
    timeout_ms: Annotated[float, Field(gt=0, le=86_400_000)] | None = 5000.0
    """Time one verdict may take once its judging has begun, a day at most; None waits for ever."""
    queue_ms: Annotated[float, Field(gt=0, le=86_400_000)] | None = 30_000.0
    """Time a segment may wait for its turn before that, while the provider waits too; then it is
    unjudged for the reason ``overload``, and ``failure`` says what follows. None waits for ever.
    The default is half the minute of silence after which load balancers commonly cut a connection.
    """
    breaker_failures: Annotated[int, Field(ge=1, le=10_000)] | None = 5
    """After so many failed or late verdicts in a row the detector is not called for
    ``breaker_pause_ms``; those segments count as failed. None calls it every time."""
    breaker_pause_ms: Annotated[float, Field(gt=0, le=86_400_000)] = 10_000.0
    """How long it is then left alone; afterwards one segment is tried, and so on."""

    litellm_records: Records = "raw"
    """What LiteLLM's callbacks and cache get of an answer.

    ``raw`` is what LiteLLM itself does: it sits inside the guard, so they get what the provider
    said, but of a stream that was stopped before its end only what went out, and the cache nothing.
    ``guarded`` gives them what went out, and of an answer that was stopped the cache nothing.
    """

    max_segment_chars: Annotated[int, Field(ge=80, le=2000)] = 240
    overlap: Annotated[int, Field(ge=0)] = 80
    lookahead: Annotated[int, Field(ge=4, le=256)] = 32
    context_segments: Annotated[int, Field(ge=0, le=8)] = 2
    user_context: bool = False
    """Whether the last user message is shown to the detector beside the first segment."""

    labels: Annotated[Mapping[LabelName, LabelText], Field(max_length=32)] = Field(
        default_factory=dict
    )
    """What every decision is to carry, such as ``{"release": "7"}``; nothing is done by them."""

    @field_validator("actions", mode="before")
    @classmethod
    def _actions_name_types_and_channels(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        flat: dict[str, Any] = {}
        for key, value in given.items():
            if isinstance(value, Mapping):
                flat |= {f"{key}.{name}": action for name, action in value.items()}
            else:
                flat[str(key)] = value
        for key in flat:
            if key not in _PLACES:
                raise ValueError(
                    f"unknown key {key!r}; give a bias type ({', '.join(BIAS_TYPES)}), a channel "
                    f"({', '.join(_CHANNELS)}) or both ('reasoning.age')"
                )
        return flat

    @model_validator(mode="after")
    def _forced_cuts_move_on(self) -> Policy:
        if self.overlap > self.max_segment_chars - 2 * _LEAST_SEGMENT:
            raise ValueError(
                f"overlap must be at most max_segment_chars - {2 * _LEAST_SEGMENT} "
                f"({self.max_segment_chars - 2 * _LEAST_SEGMENT}), got {self.overlap}"
            )
        return self

    @model_validator(mode="after")
    def _watching_stops_nothing(self) -> Policy:
        allowed = {"action": "flag", "failure": "open", "language": "pass"}
        said = [
            (name, getattr(self, name), value)
            for name, value in allowed.items()
            if name in self.model_fields_set
        ]
        said += [(f"actions.{place}", action, "flag") for place, action in self.actions.items()]
        for name, given, value in said:
            if self.hold == "none" and given != value:
                raise ValueError(
                    f"hold='none' lets text out before it is judged, so {name} must be {value!r} "
                    f"or left out, got {given!r}"
                )
        return self

    @model_validator(mode="after")
    def _rewritten_answers_have_no_records(self) -> Policy:
        if self.litellm_records == "guarded" and self.rewrites:
            raise ValueError(
                "litellm_records='guarded' cannot be asked for beside the action 'rewrite', which "
                "makes one answer of several calls; take another action or leave the records 'raw'"
            )
        return self

    def threshold_for(
        self, bias_type: BiasType, operating_points: Mapping[str, Mapping[BiasType, float]]
    ) -> float:
        """Return the score from which text of ``bias_type`` counts as biased."""
        if bias_type in self.thresholds:
            return self.thresholds[bias_type]
        if self.threshold is not None:
            return self.threshold
        return operating_points[self.operating_point][bias_type]

    def verdict(
        self,
        scores: Scores,
        operating_points: Mapping[str, Mapping[BiasType, float]],
        *,
        detector: str,
        index_version: str | None,
        elapsed_ms: float,
    ) -> Verdict:
        """Return the verdict that ``scores`` amount to under this policy."""
        if scores.score is None or scores.bias_type is None or scores.unjudged is not None:
            assert scores.unjudged is not None  # a value of Scores has either
            return unjudged_verdict(
                scores.unjudged,
                detector=detector,
                index_version=index_version,
                elapsed_ms=elapsed_ms,
            )
        threshold = self.threshold_for(scores.bias_type, operating_points)
        biased = scores.score >= threshold
        return Verdict(
            biased=biased,
            score=scores.score,
            threshold=threshold,
            bias_type=scores.bias_type if biased else None,
            attributions=scores.attributions if biased else (),
            references=scores.references,
            detector=detector,
            index_version=index_version,
            elapsed_ms=elapsed_ms,
            implied=scores.implied >= 0.5 if biased and scores.implied is not None else None,
        )

    def action_for(self, bias_type: BiasType, channel: ChannelKind) -> OnBias:
        """Return what is done with bias of ``bias_type`` found in a ``channel``."""
        if self.hold == "none":
            return "flag"
        if not self.actions:
            return self.action
        places = (f"{channel}.{bias_type}", bias_type, channel)
        return next((self.actions[p] for p in places if p in self.actions), self.action)

    @property
    def rewrites(self) -> bool:
        """Whether the model may have to be asked again."""
        return "rewrite" in (self.action, *self.actions.values())

    def action_on(self, verdict: Verdict, channel: ChannelKind = "content") -> Action:
        """Return what is done with a segment of ``channel`` that got ``verdict``."""
        if verdict.bias_type is not None:
            return self.action_for(verdict.bias_type, channel)
        if self.stops_unjudged(verdict.unjudged):
            return "raise" if self.actions.get(channel, self.action) == "raise" else "terminate"
        return "pass"

    def stops_unjudged(self, reason: Unjudged | None) -> bool:
        """Whether text that could not be judged for ``reason`` ends the output."""
        if self.hold == "none":
            return False
        if reason in ("failure", "overload"):
            return self.failure == "closed"
        return reason == "language" and self.language == "stop"


def unjudged_verdict(
    reason: Unjudged, *, detector: str, index_version: str | None, elapsed_ms: float
) -> Verdict:
    """Return the verdict on text that could not be judged."""
    return Verdict(
        biased=False,
        score=None,
        threshold=None,
        bias_type=None,
        attributions=(),
        references=(),
        detector=detector,
        index_version=index_version,
        elapsed_ms=elapsed_ms,
        unjudged=reason,
    )


PolicyLike = Policy | Mapping[str, Any] | str
"""A policy, some of its settings, or the name of an operating point."""


DEFAULT_POINTS: Mapping[str, Mapping[BiasType, float]] = {
    "strict": dict.fromkeys(BIAS_TYPES, 0.3),
    "balanced": dict.fromkeys(BIAS_TYPES, 0.5),
    "quiet": dict.fromkeys(BIAS_TYPES, 0.7),
}
"""Thresholds of a detector that was not calibrated."""
