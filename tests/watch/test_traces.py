"""Traces: a span for a response, an event for a finding, on the span of the call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="run: pip install opentelemetry-sdk")

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from guard import Guard, background
from guard.policy import Policy
from guard.watch import conventions as names
from guard.watch import traces
from tests.provider import Provider, Script, serving
from tests.scripted import Scripted, failing

SAID = ["All is ", "well. ", "BIA", "S is ", "here. ", "And so on. "]
MESSAGES: Any = [{"role": "user", "content": "Tell me."}]


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracers(exporter: InMemorySpanExporter) -> Iterator[TracerProvider]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider
    provider.shutdown()


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with serving(Script([SAID])) as provider:
        yield provider


def guard_of(tracers: TracerProvider, action: Any = "redact", **settings: Any) -> Guard:
    detector = settings.pop("detector", None) or Scripted()
    return Guard(Policy(action=action, **settings), detector=detector, traces=tracers)


def exported(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    """The spans by name; all are over."""
    assert background.flush()
    return {span.name: span for span in exporter.get_finished_spans()}


def results(span: ReadableSpan) -> list[dict[str, Any]]:
    return [dict(e.attributes or {}) for e in span.events if e.name == names.EVALUATION]


def called(guard: Guard, provider: Provider, **settings: Any) -> str:
    stream = guard.completion(
        model="openai/of-traces",
        api_base=provider.openai,
        api_key="k",
        messages=MESSAGES,
        stream=True,
        **settings,
    )
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def test_a_response_is_a_span_of_the_kind_guardrail(
    tracers: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    guard = guard_of(tracers)
    stream = guard.stream(SAID)
    list(stream)
    (span,) = exported(exporter).values()
    attributes = dict(span.attributes or {})
    assert attributes["openinference.span.kind"] == "GUARDRAIL"
    assert attributes[names.OUTCOME] == "completed"
    assert attributes[names.RESPONSE] == stream.guard.id
    assert (attributes[names.COUNTS["judged"]], attributes[names.COUNTS["found"]]) == (3, 1)
    finding, whole = results(span)
    assert finding == whole
    assert finding == {
        "gen_ai.evaluation.name": "social_bias",
        "gen_ai.evaluation.score.value": 0.9,
        "gen_ai.evaluation.score.label": "biased",
        "gen_ai.evaluation.explanation": (
            "Gender bias in segment 2 of the response (content): score 0.90, threshold 0.50; "
            "action: redact."
        ),
        names.BIAS_TYPE: "gender",
        names.THRESHOLD: 0.5,
        names.ACTION: "redact",
        names.CHANNEL: "content",
        names.SEGMENT: 1,
    }
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.start_time <= span.events[0].timestamp <= span.end_time


def test_where_nothing_is_found_one_event_says_so(
    tracers: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    list(guard_of(tracers).stream(["All is well. ", "And so on."]))
    (span,) = exported(exporter).values()
    (result,) = results(span)
    assert result[names.LABEL] == "unbiased"
    assert result[names.SCORE] == 0.1
    assert names.BIAS_TYPE not in result


def test_a_segment_that_was_not_judged_is_told_with_its_reason(
    tracers: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    list(guard_of(tracers, detector=Scripted(before=failing)).stream(["All is well."]))
    (span,) = exported(exporter).values()
    for result in results(span):
        assert (result[names.LABEL], result[names.ERROR]) == ("unjudged", "failure")
        assert names.SCORE not in result
    assert dict(span.attributes or {})[names.OUTCOME] == "stopped"


def test_findings_are_events_of_the_applications_span(
    tracers: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    with tracers.get_tracer("app").start_as_current_span("app"):
        list(guard_of(tracers).stream(SAID))
        found = exported(exporter)
    assert set(found) == {names.SPAN}
    found = exported(exporter)
    app, own = found["app"], found[names.SPAN]
    assert own.parent is not None
    assert own.parent.span_id == app.get_span_context().span_id  # type: ignore[union-attr]
    assert [r[names.SEGMENT] for r in results(app)] == [1]
    assert [r[names.SEGMENT] for r in results(own)] == [1]  # of the whole response


def test_the_span_that_a_call_names_for_litellm_is_the_parent(
    tracers: TracerProvider, exporter: InMemorySpanExporter, provider: Provider
) -> None:
    named = tracers.get_tracer("app").start_span("named")
    guard = guard_of(tracers)
    assert "[removed]" in called(guard, provider, metadata={"litellm_parent_otel_span": named})
    named.end()
    found = exported(exporter)
    own = found[names.SPAN]
    assert own.parent is not None
    assert own.parent.span_id == named.get_span_context().span_id
    assert [r[names.SEGMENT] for r in results(found["named"])] == [1]
    assert dict(own.attributes or {})[names.REQUEST_MODEL] == "openai/of-traces"


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_findings_are_events_of_litellms_own_span_of_the_call(
    way: str,
    tracers: TracerProvider,
    exporter: InMemorySpanExporter,
    provider: Provider,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import litellm

    from guard.doors.litellm.compat import internals, missing

    (internal,) = [i for i in internals() if "_open_llm_calls" in i.names]
    logger = pytest.importorskip(internal.homes[0].partition(":")[0])
    assert missing(internal._replace(optional=False)) == []
    callback = logger.OpenTelemetryV2(tracer_provider=tracers)
    for kind in ("callbacks", "input_callback", "success_callback", "_async_success_callback"):
        monkeypatch.setattr(litellm, kind, [])
    monkeypatch.setattr(litellm, "callbacks", [callback])
    guard = guard_of(tracers)
    with tracers.get_tracer("app").start_as_current_span("app"):
        if way == "sync":
            called(guard, provider)
        else:
            stream = await guard.acompletion(
                model="openai/of-traces",
                api_base=provider.openai,
                api_key="k",
                messages=MESSAGES,
                stream=True,
            )
            async for _ in stream:
                pass
    own = exported(exporter)[names.SPAN]
    assert own.parent is not None
    end = time.monotonic() + 30
    while way == "async" and len(exporter.get_finished_spans()) < 3 and time.monotonic() < end:
        await asyncio.sleep(0.05)  # LiteLLM calls back from a task
    found = [s for s in exporter.get_finished_spans() if s.name != names.SPAN]
    around = {s.get_span_context().span_id: s for s in found}  # type: ignore[union-attr]
    if way == "async":  # of a synchronous call, LiteLLM's callback ends no span
        assert around[own.parent.span_id].name.startswith("chat")
        assert [r[names.SEGMENT] for r in results(around[own.parent.span_id])] == [1]
    (app,) = [s for s in found if s.name == "app"]
    assert own.parent.span_id != app.get_span_context().span_id  # type: ignore[union-attr]
    assert results(app) == []


def test_a_long_response_makes_no_events_without_end(
    tracers: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    list(guard_of(tracers, "flag").stream(["BIAS is here. "] * 100))
    (span,) = exported(exporter).values()
    assert len(results(span)) == traces._MAX_EVENTS + 1
    assert dict(span.attributes or {})[names.COUNTS["found"]] == 100


def test_responses_that_never_end_are_bounded(
    tracers: TracerProvider, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "_MAX_OPEN", 5)
    guard = guard_of(tracers)
    streams = [guard.stream(["One. ", "Two. "]) for _ in range(8)]
    for stream in streams:
        next(stream)
    assert len(exporter.get_finished_spans()) == 3
    for stream in streams:
        stream.close()
    assert background.flush()
    assert len(exporter.get_finished_spans()) == 8


def test_without_a_tracer_provider_nothing_is_recorded_and_nothing_fails() -> None:
    assert not trace.get_current_span().is_recording()
    guard = Guard(Policy(action="redact"), detector=Scripted(), traces=True)
    assert "".join(guard.stream(SAID)) == "All is well. [removed] And so on. "
    assert background.flush()
    assert guard.recorder.recorders[0]._responses == {}  # type: ignore[union-attr]


def test_off_by_default() -> None:
    assert Guard(Policy(), detector=Scripted()).recorder is None
