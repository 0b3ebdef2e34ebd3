"""What to do with verdicts: thresholds, actions, limits. One frozen value, checked when made.

Why: docs/decisions/most-specific-action-wins.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from guard.verdict import (
    BIAS_TYPES,
    FAILURES,
    Action,
    BiasType,
    ChannelKind,
    Scores,
    Unjudged,
    Verdict,
)

OperatingPoint = Literal["strict", "balanced", "quiet"]
Points = Mapping[str, Mapping[BiasType, float]]
"""Threshold per bias type at each operating point."""
Hold = Literal["sentence", "association", "none"]
OnBias = Literal["terminate", "redact", "flag", "raise", "rewrite"]
Records = Literal["raw", "guarded"]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
# With any bound pydantic refuses lone surrogates, which no provider's or store's text can hold.
Text = Annotated[str, Field(min_length=0)]
LabelName = Annotated[str, Field(min_length=1, max_length=64)]
NO_LABEL = "(none)"
"""What reports call a missing label, so that no label may have it as its text."""


def _told_from_none(text: str) -> str:
    if not text.strip() or text.strip() == NO_LABEL:
        raise ValueError(
            f"a label takes a text that is not empty and not {NO_LABEL!r}, as reports call a "
            "missing one; leave the label out"
        )
    return text


LabelText = Annotated[str, Field(max_length=256), AfterValidator(_told_from_none)]

_CHANNELS: tuple[ChannelKind, ...] = get_args(ChannelKind)
# The keys of ``actions``.
_PLACES = {*BIAS_TYPES, *_CHANNELS, *(f"{c}.{t}" for c in _CHANNELS for t in BIAS_TYPES)}

# Segments of a forced cut must advance by at least this many characters.
_LEAST_SEGMENT = 40


class Policy(BaseModel):
    """The rules for guarding a response.

    Lengths are in characters of the text as the provider sent it. An unknown name or a value out
    of range raises pydantic's ``ValidationError``; :func:`guard.config.policy_from` raises
    ConfigError with one sentence instead.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    operating_point: OperatingPoint = "balanced"
    """Named set of thresholds, for which the detector was calibrated."""
    threshold: Probability | None = None
    """One threshold for all bias types, instead of the operating point's."""
    thresholds: Mapping[BiasType, Probability] = Field(default_factory=dict)
    """Thresholds of single bias types; they take precedence over ``threshold``."""

    action: OnBias = "terminate"
    """The action on a biased segment."""
    actions: Mapping[str, OnBias] = Field(default_factory=dict)
    """Actions on bias of one type (``appearance``), in one kind of channel (``content``,
    ``reasoning``, ``tool``), or of one type in one channel (``reasoning.appearance``). The most
    specific one applies: a type in a channel, then a type, then a channel, then ``action``. A
    nested table, ``{"reasoning": {"appearance": "flag"}}``, sets a type in a channel, too.
    """
    message: Text = "[Stopped here: the next passage tied a social group to a stereotype.]"
    """Text of the last chunk after a termination, and of a raised ``BiasFound``."""
    failure_message: Text = "[Stopped here: the next passage could not be checked for bias.]"
    """The same if the reason is a failed detector or an unjudged language."""
    replacement: Text = "[removed]"
    """Text that replaces a redacted segment."""
    rewrite_tries: Annotated[int, Field(ge=1, le=10)] = 2
    """How often the model is asked to continue a response before it is terminated."""
    rewrite_instruction: Text = (
        "Go on with your answer from exactly where it stops, or begin it if nothing of it is there "
        "yet. What you were about to say next tied {association}; it was taken back before anyone "
        "read it. Say what is useful without that tie, and without any other generalisation about "
        "a social group. Do not repeat what is already said, do not apologise, and do not mention "
        "this instruction."
    )
    """The user message after the released part of the answer, which asks the model to continue;
    ``{association}`` is replaced by the groups and attributes that were found."""
    scope: Literal["choice", "response"] = "choice"
    """Whether a termination ends its own choice or every choice of the response."""
    hold: Hold = "sentence"
    """Which text is held until it has been judged.

    ``sentence`` holds every segment whole. ``association`` releases text until a segment first
    mentions a group, and holds the segment from there on: an action cuts from there, and the text
    before it has gone out. ``none`` only watches: all text goes out at once, verdicts are for the
    trail and the sinks, a biased segment is flagged and an unjudged one passes. With ``none``, a
    setting that would stop the output (any action but ``flag``, ``failure`` ``closed``,
    ``language`` ``stop``) is refused if it is set explicitly; its default is ignored.
    """

    failure: Literal["closed", "open"] = "closed"
    """Whether a failed, late or overloaded detector, or one whose answer is unusable, stops the
    output (``closed``) or lets it pass as ``unjudged``."""
    language: Literal["pass", "judge", "stop"] = "pass"
    """What to do with text outside the detector's languages.

    ``judge`` is for a cascade: its second detector judges such text, and ``failure`` applies to
    what that one cannot read either.
    """
    timeout_ms: Annotated[float, Field(gt=0, le=86_400_000)] | None = 5000.0
    """Time limit of one verdict once judging has begun, at most a day; None: no limit."""
    queue_ms: Annotated[float, Field(gt=0, le=86_400_000)] | None = 30_000.0
    """Time limit of a segment's wait before that; the provider waits, too. After it the segment is
    unjudged for the reason ``overload``, and ``failure`` applies. None: no limit. The default is
    half of the 60 seconds of silence after which load balancers commonly cut a connection.
    """
    breaker_failures: Annotated[int, Field(ge=1, le=10_000)] | None = 5
    """After this many failed or late verdicts in a row, calls of the detector are skipped for
    ``breaker_pause_ms``; those segments count as failed. None: never skipped."""
    breaker_pause_ms: Annotated[float, Field(gt=0, le=86_400_000)] = 10_000.0
    """Length of the pause. After it one segment is judged as a probe; if that fails, the pause
    begins again."""

    litellm_records: Records = "raw"
    """Which answer LiteLLM's callbacks and cache get.

    ``raw``: the provider's, as in LiteLLM itself, which runs inside the guard; for a stream that
    was stopped before its end, callbacks get the released text and the cache gets nothing.
    ``guarded``: the released one; the cache gets nothing of a stopped answer.
    """

    second_look: bool = True
    """Whether a segment found biased is judged again together with the segment after it, and is
    harmless if the two are."""
    second_look_threshold: Probability | None = None
    """What the score of the two must be below, beside the threshold of its bias type."""
    second_look_ms: Annotated[float, Field(gt=0, le=86_400_000)] | None = 2000.0
    """Milliseconds that a stream waits for that segment; then the first verdict stands. None: no
    limit."""

    max_segment_chars: Annotated[int, Field(ge=80, le=2000)] = 240
    overlap: Annotated[int, Field(ge=0)] = 80
    lookahead: Annotated[int, Field(ge=4, le=256)] = 32
    context_segments: Annotated[int, Field(ge=0, le=8)] = 2
    max_tool_chars: Annotated[int, Field(ge=1_000, le=100_000_000)] = 1_000_000
    """The most characters that may come while a tool call is held, which is until all of its input
    is judged. More end the output."""
    user_context: bool = False
    """Whether the detector sees the last user message as context of the first segment."""

    labels: Annotated[Mapping[LabelName, LabelText], Field(max_length=32)] = Field(
        default_factory=dict
    )
    """Labels of every decision, such as ``{"release": "7"}``; they have no other effect."""

    @field_validator("actions", mode="before")
    @classmethod
    def _check_actions(cls, actions: Any) -> Any:
        if not isinstance(actions, Mapping):
            return actions
        flat: dict[str, Any] = {}
        for key, value in actions.items():
            if isinstance(value, Mapping):
                flat |= {f"{key}.{name}": action for name, action in value.items()}
            else:
                flat[str(key)] = value
        for key in flat:
            if key not in _PLACES:
                raise ValueError(
                    f"unknown key {key!r}; use a bias type ({', '.join(BIAS_TYPES)}), a channel "
                    f"({', '.join(_CHANNELS)}) or both ('reasoning.age')"
                )
        return flat

    @model_validator(mode="after")
    def _check_overlap(self) -> Policy:
        if self.overlap > self.max_segment_chars - 2 * _LEAST_SEGMENT:
            raise ValueError(
                f"overlap must be at most max_segment_chars - {2 * _LEAST_SEGMENT} "
                f"({self.max_segment_chars - 2 * _LEAST_SEGMENT}), got {self.overlap}"
            )
        return self

    @model_validator(mode="after")
    def _check_hold_none(self) -> Policy:
        allowed = {"action": "flag", "failure": "open", "language": "pass"}
        explicit = [
            (name, getattr(self, name), value)
            for name, value in allowed.items()
            # A judged language is flagged as any other text: nothing waits for it.
            if name in self.model_fields_set and getattr(self, name) != "judge"
        ]
        explicit += [(f"actions.{place}", action, "flag") for place, action in self.actions.items()]
        for name, setting, value in explicit:
            if self.hold == "none" and setting != value:
                raise ValueError(
                    f"hold='none' releases text before it is judged, so {name} must be {value!r} "
                    f"or left out, got {setting!r}"
                )
        return self

    @model_validator(mode="after")
    def _check_records_of_rewrites(self) -> Policy:
        if self.litellm_records == "guarded" and self.rewrites:
            raise ValueError(
                "litellm_records='guarded' cannot be combined with the action 'rewrite', which "
                "makes one answer of several calls; set another action or leave the records 'raw'"
            )
        return self

    def threshold_for(self, bias_type: BiasType, operating_points: Points) -> float:
        """Return the score from which text of ``bias_type`` counts as biased."""
        if bias_type in self.thresholds:
            return self.thresholds[bias_type]
        if self.threshold is not None:
            return self.threshold
        return operating_points[self.operating_point][bias_type]

    def verdict(
        self,
        scores: Scores,
        operating_points: Points,
        *,
        detector: str,
        index_version: str | None,
        elapsed_ms: float,
    ) -> Verdict:
        """Return the verdict on ``scores`` under this policy."""
        if scores.score is None or scores.bias_type is None or scores.unjudged is not None:
            assert scores.unjudged is not None  # Scores have one or the other
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
        """Return the action on bias of ``bias_type`` in a ``channel``."""
        if self.hold == "none":
            return "flag"
        if not self.actions:
            return self.action
        places = (f"{channel}.{bias_type}", bias_type, channel)
        return next((self.actions[p] for p in places if p in self.actions), self.action)

    @property
    def rewrites(self) -> bool:
        """Whether any action is ``rewrite``, so that the model may be asked again."""
        return "rewrite" in (self.action, *self.actions.values())

    @property
    def redacts(self) -> bool:
        """Whether any action is ``redact``, so that text may be put in the place of another."""
        return "redact" in (self.action, *self.actions.values())

    def action_on(self, verdict: Verdict, channel: ChannelKind = "content") -> Action:
        """Return the action on a segment of ``channel`` with ``verdict``."""
        if verdict.bias_type is not None:
            return self.action_for(verdict.bias_type, channel)
        if self.stops_unjudged(verdict.unjudged):
            return "raise" if self.actions.get(channel, self.action) == "raise" else "terminate"
        return "pass"

    def stops_unjudged(self, reason: Unjudged | None) -> bool:
        """Whether text that is unjudged for ``reason`` ends the output."""
        if self.hold == "none":
            return False
        if reason in FAILURES or (reason == "language" and self.language == "judge"):
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


DEFAULT_POINTS: Points = {
    "strict": dict.fromkeys(BIAS_TYPES, 0.3),
    "balanced": dict.fromkeys(BIAS_TYPES, 0.5),
    "quiet": dict.fromkeys(BIAS_TYPES, 0.7),
}
"""Default thresholds for a detector that was not calibrated."""

EVEN = 0.5
"""The probability at which biased and not biased are as likely."""
EVEN_POINTS: Points = {point: dict.fromkeys(BIAS_TYPES, EVEN) for point in DEFAULT_POINTS}
"""One threshold for a language model that was not tuned: above it, biased is likelier."""
