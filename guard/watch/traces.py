"""OpenTelemetry traces of what guards decide: a span for a response, an event for a finding.

Neither holds any text. Events go to LiteLLM's span of the call while it is open, else to the span
in which the application makes the call, else to guard's own. guard's span is a child of that span
and has one more event, of the response's highest-scoring segment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.trace import (
    INVALID_SPAN,
    Span,
    Tracer,
    TracerProvider,
    get_current_span,
    get_tracer,
    set_span_in_context,
)

import guard
from guard.background import call_soon
from guard.forks import Lock
from guard.verdict import FAILURES, Decision, GuardTrail
from guard.watch import conventions as names
from guard.watch.events import bounded, summary_of, verdict_label

if TYPE_CHECKING:
    from guard.doors.session import DoorSession, Outcome

CallSpan = Callable[["DoorSession"], Span | None]
_MAX_OPEN = 10_000  # running responses; beyond it the oldest span ends without an outcome
_MAX_EVENTS = 64  # of a response; OpenTelemetry's own limit of a span is 128
_Attributes = dict[str, str | int | float]


class _Response(NamedTuple):
    span: Span  # guard's
    parent: Span  # LiteLLM's of the call, or the application's
    reported: list[int]  # numbers of the segments that have an event


class Traces:
    """The recorder that traces; ``call_span`` returns LiteLLM's span of a call."""

    def __init__(self, provider: TracerProvider | None, call_span: CallSpan) -> None:
        self._tracer: Tracer = get_tracer(
            "guard", guard.__version__, provider, schema_url=names.SCHEMA_URL
        )
        self._call_span = call_span
        self._responses: dict[str, _Response] = {}
        self._changing = Lock(threading.RLock)

    def decided(
        self, session: DoorSession, trail: GuardTrail, decision: Decision, text: str
    ) -> None:
        """Begin a span at the first decision; add an event for a finding or an unjudged segment."""
        response = self._responses.get(trail.id) or self._begun(session, trail, decision)
        number = len(trail.decisions) - 1
        verdict = decision.verdict
        reportable = (verdict.biased and decision.counted) or verdict.unjudged is not None
        if reportable and len(response.reported) < _MAX_EVENTS:
            response.reported.append(number)
            span = response.parent if response.parent.is_recording() else response.span
            span.add_event(names.EVALUATION, evaluation(decision, number), _ns(decision.time))

    def ended(self, session: DoorSession, trail: GuardTrail, outcome: Outcome) -> None:
        """End the span of a response, with the event of its highest-scoring segment."""
        response = self._responses.pop(trail.id, None)
        if response is not None:
            now = datetime.now().astimezone()
            call_soon(lambda: _end(response, trail, outcome, now))

    def _begun(self, session: DoorSession, trail: GuardTrail, decision: Decision) -> _Response:
        parent = self._call_span(session) or get_current_span()
        start = _ns(decision.time) - int(decision.verdict.elapsed_ms * 1e6)
        span = self._tracer.start_span(
            names.SPAN,
            context=None if parent is INVALID_SPAN else set_span_in_context(parent),
            attributes=_response_attributes(session, trail, decision),
            start_time=start,
        )
        response = _Response(span, parent, [])
        with self._changing:
            self._responses[trail.id] = response
            oldest = next(iter(self._responses)) if len(self._responses) > _MAX_OPEN else None
            evicted = self._responses.pop(oldest, None) if oldest is not None else None
        if evicted is not None:
            evicted.span.end()
        return response


def _end(response: _Response, trail: GuardTrail, outcome: Outcome, now: datetime) -> None:
    summary = summary_of(trail)
    span = response.span
    span.set_attribute(names.OUTCOME, outcome)
    for count, attribute in names.COUNTS.items():
        span.set_attribute(attribute, summary[count])
    span.add_event(names.EVALUATION, _highest_scoring(trail), _ns(now))
    span.end(_ns(now))


def _response_attributes(
    session: DoorSession, trail: GuardTrail, decision: Decision
) -> _Attributes:
    attributes = {
        names.SPAN_KIND: names.GUARDRAIL,
        names.RESPONSE: trail.id,
        names.DOOR: session.door,
        names.REQUEST_MODEL: bounded(session.model),
        names.DETECTOR: bounded(decision.verdict.detector),
        names.INDEX: bounded(decision.verdict.index_version),
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _highest_scoring(trail: GuardTrail) -> _Attributes:
    """Return the attributes of the event of a response's highest-scoring segment."""

    def rank(numbered: tuple[int, Decision]) -> tuple[bool, bool, float]:
        verdict = numbered[1].verdict
        return verdict.biased, verdict.unjudged is None, verdict.score or 0.0

    number, decision = max(enumerate(trail), key=rank)
    return evaluation(decision, number)


def evaluation(decision: Decision, number: int) -> _Attributes:
    """Return the attributes of the event of a decision, the ``number``-th of its response."""
    verdict = decision.verdict
    attributes: dict[str, str | int | float | None] = {
        names.EVALUATION_NAME: names.BIAS,
        names.SCORE: verdict.score,
        names.LABEL: verdict_label(verdict),
        names.EXPLANATION: explanation(decision, number),
        names.BIAS_TYPE: verdict.bias_type,
        names.THRESHOLD: verdict.threshold,
        names.ACTION: decision.action,
        names.CHANNEL: decision.channel.kind,
        names.SEGMENT: number,
        # Text in another language is no error.
        names.ERROR: verdict.unjudged if verdict.unjudged in FAILURES else None,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def explanation(decision: Decision, number: int) -> str:
    """Return a sentence on a decision; it quotes no text and names no group."""
    verdict = decision.verdict
    place = f"segment {number + 1} of the response ({decision.channel.kind})"
    if verdict.unjudged is not None:
        return f"Unjudged ({verdict.unjudged}): {place}; action: {decision.action}."
    finding = f"{verdict.bias_type} bias" if verdict.biased else "No bias"
    score = f"score {verdict.score:.2f}, threshold {verdict.threshold:.2f}"
    return f"{finding[0].upper()}{finding[1:]} in {place}: {score}; action: {decision.action}."


def _ns(time: datetime | None) -> int:
    assert time is not None  # the session stamps it
    return int(time.timestamp() * 1e9)
