"""The Responses API: its events, what repeats text in them, and how a stopped response ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import httpx
import litellm
import pytest
from litellm.responses.streaming_iterator import BaseResponsesAPIStreamingIterator
from litellm.types.llms.openai import GenericEvent, OutputTextDoneEvent, ResponsesAPIResponse
from openai import omit
from openai._models import construct_type
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent

from guard.core import Guard
from guard.doors import responses
from guard.doors.responses.codec import EventCodec
from guard.doors.responses.events import event_fields, litellm_event, rewritten
from guard.errors import BiasFound, UsageError
from guard.gate import ResponseGate
from guard.policy import Policy
from guard.verdict import Channel, Window
from tests.doors import replay as r
from tests.provider import Provider, Script
from tests.rows import rows
from tests.scripted import Scripted

# LiteLLM's own, when it counts a response: it puts the usage of a chat into it.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")

STOP = Policy().message
REASONED: list[Any] = [{"reasoning": "Let me"}, {"reasoning": " think."}]
SAID: list[Any] = ["All is well.", " BIAS", " is. More."]
CALLED: list[Any] = [
    {"arguments": '{"q": "QUUX"}', "call": 0},
    {"arguments": '{"q": ', "call": 1},
]


def call(provider: Provider, **more: Any) -> dict[str, Any]:
    base = {"api_base": provider.openai, "api_key": "k", "max_retries": 0}
    return {"model": "openai/gpt-4o", "input": "Tell me.", **base, **more}


def guard(pattern: str = "BIAS", **policy: Any) -> Guard:
    return Guard(Policy(**policy), detector=Scripted(pattern))


def names(events: list[Any]) -> list[str]:
    return [str(getattr(e.type, "value", e.type)).removeprefix("response.") for e in events]


def snapshot(events: list[Any]) -> Any:
    """What OpenAI's own client makes of the events."""
    state: Any = ResponseStreamState(input_tools=omit, text_format=omit)
    whole = None
    for event in events:
        typed: Any = construct_type(
            type_=ResponseStreamEvent, value=event.model_dump(mode="json", warnings=False)
        )
        if typed.type == "response.incomplete":
            whole = typed.response
        else:
            state.handle_event(typed)
    return state._ResponseStreamState__current_snapshot, whole


class TestStopped:
    def test_it_ends_as_an_incomplete_response_does(self, provider: Provider) -> None:
        provider.script = Script([SAID])
        events = list(guard().responses(**call(provider), stream=True))
        assert names(events) == [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "incomplete",
        ]
        assert events[-5].delta == STOP
        assert events[-4].text == "All is well. " + STOP
        last = events[-1].response
        assert (last.id, last.status) == (events[0].response.id, "incomplete")
        assert last.incomplete_details.reason == "content_filter"
        assert last.output_text == "All is well. " + STOP
        assert last.usage.output_tokens > 0
        numbers = [e.sequence_number for e in events]
        assert numbers == sorted(set(numbers))

    @rows(
        "said, found, kinds",
        [
            (SAID, "BIAS", ["message"]),
            ([*REASONED, *SAID], "BIAS", ["reasoning", "message"]),
            ([*REASONED, *SAID], "think", ["reasoning", "message"]),
            ([*SAID, *CALLED], "QUUX", ["message", "message"]),
            ([*CALLED, *SAID], "BIAS", ["function_call", "function_call", "message"]),
            ([{"refusal": "No. "}, {"refusal": "BIAS is."}], "BIAS", ["message"]),
        ],
    )
    def test_openais_client_can_accumulate_it(
        self, provider: Provider, said: list[Any], found: str, kinds: list[str]
    ) -> None:
        provider.script = Script([said])
        events = list(guard(found).responses(**call(provider), stream=True))
        gathered, whole = snapshot(events)
        assert [item.type for item in whole.output] == kinds
        assert [item.type for item in gathered.output] == kinds
        for one, other in zip(gathered.output, whole.output, strict=True):
            assert one.id == other.id
            # Reasoning and refusals it leaves as they were announced.
            if one.type == "message":
                texts = [part.text for part in one.content if part.type == "output_text"]
                assert texts == [p.text for p in other.content if p.type == "output_text"]
            if one.type == "function_call":
                assert one.arguments == other.arguments
        assert found not in r.serialised(*events)

    def test_a_stopped_call_leaves_nothing(self, provider: Provider) -> None:
        provider.script = Script([[{"arguments": '{"q": "Fine. BIAS is."}', "call": 0}]])
        events = list(guard().responses(**call(provider), stream=True))
        whole = guard().responses(**call(provider))
        for response in (events[-1].response, whole):
            (only,) = response.output
            assert only.content[0].text == STOP
        assert "function_call" not in r.serialised(*events)

    def test_a_call_cut_to_nothing_is_left_out_of_a_whole_response(
        self, provider: Provider
    ) -> None:
        provider.script = Script([["Well.", {"arguments": '{"q": "BIAS"}', "call": 0}]])
        whole = guard().responses(**call(provider))
        assert [item.type for item in whole.output] == ["message", "message"]
        assert whole.output_text == "Well." + STOP
        assert whole.output[0].status == "completed"

    def test_raised(self, provider: Provider) -> None:
        provider.script = Script([SAID])
        stream = guard(action="raise").responses(**call(provider), stream=True)
        seen = []
        with pytest.raises(BiasFound) as caught:
            seen.extend(iter(stream))
        assert "BIAS" not in f"{caught.value}{caught.value!r}{r.serialised(*seen)}"
        with pytest.raises(BiasFound):
            guard(action="raise").responses(**call(provider))

    def test_a_whole_one_keeps_its_usage_and_what_litellm_knows_of_it(
        self, provider: Provider
    ) -> None:
        provider.script = Script([[*REASONED, *SAID]])
        whole = guard().responses(**call(provider))
        assert isinstance(whole, ResponsesAPIResponse)
        assert whole.status == "incomplete"
        assert whole.usage.input_tokens == 7
        assert whole._hidden_params["litellm_model_name"]
        assert "BIAS" not in r.serialised(whole) + str(whole._hidden_params)
        assert whole.guard.stopped


class TestRedacted:
    def test_every_event_that_repeats_the_text_is_cut_alike(self, provider: Provider) -> None:
        provider.script = Script([[*REASONED, *SAID, *CALLED]])
        events = list(guard(action="redact").responses(**call(provider), stream=True))
        assert "BIAS" not in r.serialised(*events)
        text = "All is well. [removed] More."
        by = dict(zip(names(events), events, strict=True))
        assert by["output_text.done"].text == text
        assert by["content_part.done"].part.text == text
        assert by["completed"].response.output_text == text
        assert by["completed"].response.status == "completed"
        deltas = [e.delta for e in events if names([e]) == ["output_text.delta"]]
        assert "".join(deltas) == text
        gathered, _ = snapshot(events[:-1])
        assert gathered.output_text == text

    def test_log_probabilities_and_annotations_go(self, provider: Provider) -> None:
        provider.script = Script([SAID])
        plain_ = guard("$none").responses(**call(provider))
        assert "BIAS" in str(plain_.output[0].content[0].logprobs)
        whole = guard(action="redact").responses(**call(provider))
        assert not whole.output[0].content[0].logprobs

    def test_unknown_fields_and_events_lose_text_that_could_repeat_it(self) -> None:
        codec = EventCodec()
        delta = litellm_event(
            "response.output_text.delta", {**WHERE, "delta": "BIAS is.", "raw": "BIAS"}
        )
        heard = codec.read(delta)
        cut = codec.cut(heard, 0, {Channel(): "[removed]"})
        ((first),) = codec.seal(cut)
        assert first.delta == "[removed]"
        done = litellm_event(
            "response.output_text.done", {**WHERE, "text": "BIAS is.", "raw": "BIAS"}
        )
        later = [
            done,
            GenericEvent(type="response.note", note="BIAS", output_index=0),
            litellm_event("response.output_text.annotation.added", {**WHERE, **NOTE}),
        ]
        out = [e for event in later for e in codec.seal(codec.read(event))]
        assert names(out) == ["output_text.done", "note"]
        assert "BIAS" not in r.serialised(first, *out)
        assert done.text == "BIAS is."


WHERE = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
EMPTY = {"type": "output_text", "text": ""}
NOTE = {"annotation_index": 0, "annotation": {"title": "BIAS"}}


class TestRepeated:
    """Text that only an event says that should repeat it is judged all the same."""

    @staticmethod
    def heard(*events: Any) -> list[list[tuple[Channel, str]]]:
        codec = EventCodec()
        return [[tuple(p) for p in codec.parts(codec.read(e))] for e in events]

    def test_a_repeated_text_is_not_judged_again(self) -> None:
        delta = litellm_event("response.output_text.delta", {**WHERE, "delta": "Fine."})
        done = litellm_event("response.output_text.done", {**WHERE, "text": "Fine."})
        assert self.heard(delta, done) == [[(Channel(), "Fine.")], []]

    def test_text_beyond_the_repeat_is_judged(self) -> None:
        delta = litellm_event("response.output_text.delta", {**WHERE, "delta": "Fine."})
        done = litellm_event("response.output_text.done", {**WHERE, "text": "Fine. BIAS"})
        assert self.heard(delta, done)[1] == [(Channel(), " BIAS")]

    def test_another_text_at_the_same_place_is_judged(self) -> None:
        delta = litellm_event("response.output_text.delta", {**WHERE, "delta": "Fine."})
        done = litellm_event("response.output_text.done", {**WHERE, "text": "BIAS"})
        assert self.heard(delta, done)[1] == [(Channel(0, "content", 1), "BIAS")]

    def test_a_text_sent_before_its_deltas_is_judged_once(self) -> None:
        part = {"type": "output_text", "text": "Fine.", "annotations": []}
        added = litellm_event("response.content_part.added", {**WHERE, "part": part})
        deltas = [
            litellm_event("response.output_text.delta", {**WHERE, "delta": t})
            for t in ("Fi", "ne.", " More")
        ]
        assert self.heard(added, *deltas) == [
            [(Channel(), "Fine.")],
            [],
            [],
            [(Channel(), " More")],
        ]

    @rows(
        "name, opened, more",
        [
            ("content_part", EMPTY, {"logprobs": [{"token": "BIAS"}]}),
            ("content_part", EMPTY, {"novelty": {"n": ["BIAS"]}}),
            ("content_part", EMPTY, {"logprobs": [{"bytes": [66]}]}),
            ("content_part", {"type": "verse"}, {"verse": "BIAS"}),
            ("reasoning_summary_part", {"type": "summary_text", "text": ""}, {"novelty": "BIAS"}),
            ("output_item", {"id": "m", "type": "message", "content": []}, {"novelty": "BIAS"}),
            ("output_item", {"id": "m", "type": "verse"}, {"lines": ["BIAS"]}),
        ],
    )
    def test_an_opening_event_has_no_text_in_unknown_fields(
        self, name: str, opened: dict[str, Any], more: dict[str, Any]
    ) -> None:
        field = "item" if name == "output_item" else "part"
        place = {**WHERE, "summary_index": 0}
        codec = EventCodec()

        def sealed(fields: dict[str, Any]) -> tuple[Any, list[Any]]:
            event = litellm_event(f"response.{name}.added", {**place, field: fields})
            heard = codec.read(event)
            assert codec.parts(heard) == []  # nothing holds it back
            return event, codec.seal(heard)

        event, (out,) = sealed({**opened, **more})
        assert type(out) is type(event)
        kept = event_fields(out)[field]
        assert {k: kept[k] for k in opened} == opened
        assert "BIAS" not in r.serialised(out)
        assert "66" not in r.serialised(out)
        assert event_fields(event)[field].keys() >= more.keys()  # the provider's own is as it was
        event, (out,) = sealed(opened)
        assert out is event

    def test_fields_beside_a_text_go_out_with_it(self) -> None:
        part = {"type": "output_text", "text": "Fine.", "logprobs": [{"token": "Fine."}]}
        event = litellm_event("response.content_part.added", {**WHERE, "part": part})
        codec = EventCodec()
        heard = codec.read(event)
        assert [p.text for p in codec.parts(heard)] == ["Fine."]
        assert codec.seal(heard) == [event]

    def test_a_delta_of_an_unknown_kind_is_judged(self) -> None:
        event = GenericEvent(type="response.verse.delta", delta="BIAS", output_index=0)
        assert self.heard(event) == [[(Channel(), "BIAS")]]

    def test_audio_is_not_text(self) -> None:
        event = GenericEvent(type="response.audio.delta", delta="UklGRg==")
        assert self.heard(event) == [[]]

    @rows("delta", [3, ["BIAS"], {"text": "BIAS"}])
    def test_content_that_is_not_text_is_refused(self, delta: Any) -> None:
        event = GenericEvent(type="response.output_text.delta", delta=delta)
        with pytest.raises(UsageError, match="judges text only"):
            EventCodec().read(event)


class TestSparse:
    """Providers that leave out events: what is there is judged, and a stop is whole."""

    HEAD: ClassVar[dict[str, Any]] = {"id": "resp_1", "created_at": 1, "object": "response"}
    TEXT = "All is well. BIAS is. More."

    @staticmethod
    def played(*events: Any, action: str = "terminate") -> list[Any]:
        """The events that leave, each judged as soon as it came."""
        codec, s = EventCodec(), guard(action=action).session()
        gate, out = ResponseGate(codec, s.policy), []
        for event in events:
            gate.push(codec.read(event))
            s.judge_pending(gate)
            out += [e for heard in gate.emit() for e in codec.seal(heard)]
        gate.finish()
        s.judge_pending(gate)
        return out + [e for heard in gate.emit() for e in codec.seal(heard)]

    def item(self, text: str, kind: str = "message") -> dict[str, Any]:
        if kind == "function_call":
            return {"id": "fc_1", "type": kind, "call_id": "c", "name": "f", "arguments": text}
        part = {"type": "output_text", "text": text, "annotations": []}
        item = {"id": "msg_1", "type": kind, "role": "assistant", "status": "completed"}
        return {**item, "content": [part]}

    def completed(self, *items: dict[str, Any]) -> Any:
        response = {**self.HEAD, "status": "completed", "output": list(items)}
        return litellm_event("response.completed", {"response": response})

    def assert_stopped(self, events: list[Any], text: str = "All is well. ") -> None:
        assert "BIAS" not in r.serialised(*events)
        deltas = [e.delta for e in events if names([e]) == ["output_text.delta"]]
        assert "".join(deltas) == text + STOP
        assert events[-1].response.output_text == text + STOP
        assert names(events)[-2:] == ["output_item.done", "incomplete"]

    def test_deltas_alone(self) -> None:
        pieces = ["All is well.", " BIAS is.", " More."]
        deltas = [
            litellm_event("response.output_text.delta", {**WHERE, "delta": p}) for p in pieces
        ]
        self.assert_stopped(self.played(*deltas))

    def test_the_end_of_a_text_alone(self) -> None:
        done = litellm_event("response.output_text.done", {**WHERE, "text": self.TEXT})
        self.assert_stopped(self.played(done, self.completed(self.item(self.TEXT))))

    def test_an_item_alone(self) -> None:
        fields = {"output_index": 0, "item": self.item(self.TEXT)}
        for name in ("added", "done"):
            self.assert_stopped(self.played(litellm_event(f"response.output_item.{name}", fields)))

    def test_the_response_alone(self) -> None:
        self.assert_stopped(self.played(self.completed(self.item(self.TEXT))))
        (event,) = self.played(self.completed(self.item(self.TEXT)), action="redact")
        assert event.response.output_text == "All is well. [removed] More."

    def test_a_response_with_more_text_than_its_deltas(self) -> None:
        delta = litellm_event("response.output_text.delta", {**WHERE, "delta": "All is well. "})
        events = self.played(delta, self.completed(self.item(self.TEXT)))
        self.assert_stopped(events)

    def test_items_behind_the_cut_are_gone_and_those_before_it_stay(self) -> None:
        call = self.item('{"q": "Fine."}', "function_call")
        second = {**self.item("More."), "id": "msg_2"}
        events = self.played(self.completed(call, self.item(self.TEXT), second))
        assert [item.type for item in events[-1].response.output] == ["function_call", "message"]
        assert events[-1].response.output[0].arguments == '{"q": "Fine."}'
        self.assert_stopped(events)

    @rows("name", ["query", "queries"])
    def test_search_queries_are_judged(self, name: str) -> None:
        asked = {"query": "Fine.", "queries": ["Fine."]}
        asked[name] = "BIAS" if name == "query" else ["Fine.", "BIAS"]
        search = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
        search["action"] = {"type": "search", **asked}  # type: ignore[assignment]
        fields = {"output_index": 0, "item": search}
        self.assert_stopped(self.played(litellm_event("response.output_item.done", fields)), "")
        self.assert_stopped(self.played(self.completed(search)), "")

    def test_a_redacted_item_before_the_cut_stays_redacted(self) -> None:
        call = self.item('{"BIAS": "q"}', "function_call")
        events = self.played(self.completed(self.item(self.TEXT), call), action="redact")
        assert "BIAS" not in r.serialised(*events)
        response = events[-1].response
        assert response.output_text == "All is well. [removed] More." + STOP
        assert [item.type for item in response.output] == ["message", "message"]


def test_thoughts_that_text_interrupts_are_held_until_they_are_judged_whole() -> None:
    """LiteLLM ends a chat's thoughts where text comes between, and goes on with them."""
    thought = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}
    text = {**WHERE, "output_index": 1}
    summary = "response.reasoning_summary_text"
    events = [
        litellm_event(f"{summary}.delta", {**thought, "delta": "Fine. So long BI"}),
        litellm_event(f"{summary}.done", {**thought, "text": "Fine. So long BI"}),
        litellm_event("response.output_text.delta", {**text, "delta": "Yes"}),
        litellm_event(f"{summary}.delta", {**thought, "delta": "AS is."}),
    ]
    said = "".join(getattr(e, "delta", "") for e in TestSparse.played(*events))
    assert said == f"Fine. {STOP}"


def test_reading_changes_nothing() -> None:
    event = litellm_event("response.output_text.annotation.added", {**WHERE, **NOTE})
    before = event.model_dump()
    copy = event_fields(event)
    copy["annotation"]["title"] = "x"
    rewritten(copy, "response.output_text.annotation.added", lambda *_: "")
    assert event.model_dump() == before


class TestCall:
    def test_the_last_user_message_is_context_where_the_policy_says_so(
        self, provider: Provider
    ) -> None:
        provider.script = Script([["Fine."]])
        windows: list[Window] = []
        g = Guard(Policy(user_context=True), detector=Scripted(before=windows.append))
        parts = [{"type": "input_text", "text": "Last."}]
        asked = [{"role": "user", "content": "First."}, {"role": "user", "content": parts}]
        g.responses(**call(provider, input=asked))
        g.responses(**call(provider, input="Tell me."))
        assert [w.user for w in windows] == ["Last.", "Tell me."]

    def test_an_answer_of_another_kind_is_refused(self) -> None:
        with pytest.raises(UsageError, match="EmbeddingResponse"):
            responses.DOOR.guard(guard().session(), litellm.EmbeddingResponse())

    def test_a_providers_error_comes_after_the_text(self, provider: Provider) -> None:
        provider.script = Script([["All is well.", " BIAS is. Fine.", " More"]], drop_after=2)
        stream = guard(action="redact").responses(**call(provider), stream=True)
        seen: list[Any] = []
        with pytest.raises((httpx.HTTPError, litellm.APIConnectionError)) as caught:
            seen.extend(iter(stream))
        deltas = [e.delta for e in seen if names([e]) == ["output_text.delta"]]
        assert "".join(deltas) == "All is well. [removed] Fine."
        assert "BIAS" not in f"{caught.value}{caught.value!r}{vars(caught.value)}"

    def test_litellms_accumulated_text_is_not_available(self, provider: Provider) -> None:
        provider.script = Script([SAID])
        stream = guard().responses(**call(provider), stream=True)
        assert isinstance(stream, BaseResponsesAPIStreamingIterator)
        assert stream.model == "gpt-4o"
        assert stream.logging_obj is not None
        for name in ("_generated_content", "_created_response", "response", "no_such_thing"):
            with pytest.raises(AttributeError):
                getattr(stream, name)
        assert stream.completed_response is None
        events = _until(stream, "output_text.delta")
        partial = stream.partial_response_on_disconnect()
        assert "BIAS" not in r.serialised(partial)
        assert partial.response.status == "incomplete"
        events += list(stream)
        assert stream.completed_response is events[-1]
        assert stream.partial_response_on_disconnect() is None


def _until(stream: Iterator[Any], name: str) -> list[Any]:
    events = [next(stream)]
    while names(events)[-1] != name:
        events.append(next(stream))
    return events


def test_a_done_event_keeps_its_class() -> None:
    codec = EventCodec()
    delta = litellm_event("response.output_text.delta", {**WHERE, "delta": "BIAS"})
    codec.seal(codec.cut(codec.read(delta), 0, {Channel(): "x"}))
    done = litellm_event("response.output_text.done", {**WHERE, "text": "BIAS"})
    (out,) = codec.seal(codec.read(done))
    assert type(out) is OutputTextDoneEvent
    assert out.text == "x"


class Traced:
    """A tracer's proxy of a stream, which says that it is of the class of the stream."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattribute__(self, name: str) -> Any:
        stream = object.__getattribute__(self, "_stream")
        return stream if name == "_stream" else getattr(stream, name)

    def __iter__(self) -> Traced:
        return self

    def __next__(self) -> Any:
        return next(self._stream)


def test_a_stream_that_a_tracer_wraps_is_guarded(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.script = Script([SAID])
    plain_call = litellm.responses
    monkeypatch.setattr(litellm, "responses", lambda **more: Traced(plain_call(**more)))
    stream = guard().responses(**call(provider), stream=True)
    assert isinstance(stream, BaseResponsesAPIStreamingIterator)
    out = list(stream)
    assert stream.guard.stopped
    assert "BIAS" not in r.serialised(*out)
