"""A tool call goes out whole or not at all, and a stopped answer can be carried on from."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import litellm
import pytest
from hypothesis import given
from hypothesis import strategies as st
from litellm.types.utils import CallTypes, Delta, ModelResponseStream, StreamingChoices
from litellm.utils import return_raw_request

from guard.doors import chat
from guard.doors.responses.codec import EventCodec
from guard.doors.responses.events import litellm_event
from guard.doors.responses.names import RUN, SLOT_OF
from guard.gate import ResponseGate
from guard.policy import Policy
from guard.verdict import Channel
from tests.doors import replay as r
from tests.doors.replay import Replay, Said
from tests.doors.table import TABLE, Row, World, guard_of
from tests.rows import examples, rows
from tests.scripted import Scripted

STOP = Policy().message
FINE, BIASED = '{"to": "Ann", "text": "Fine."}', '{"to": "Bea", "text": "So BIAS is here."}'


def said(*inputs: str, size: int = 3) -> list[Said]:
    """Return a content, then calls in pieces of ``size`` characters."""
    pieces = [Said(0, "content", "Calling. ")]
    for number, text in enumerate(inputs):
        pieces.append(Said(0, "tool", "", number, header=True))
        cut = [text[i : i + size] for i in range(0, len(text), size)]
        pieces += [Said(0, "tool", piece, number) for piece in cut]
    return pieces


def streamed(replay: Replay, pieces: list[Said], policy: Policy | None = None) -> list[Any]:
    chunks = [r.chunk_of(piece) for piece in pieces]
    return r.streamed(replay, chunks, r.session(policy or Policy(), Scripted())).chunks


def calls_in(chunks: list[Any]) -> dict[int, list[Any]]:
    """Return all that chunks have of each call, by its index."""
    found: dict[int, list[Any]] = {}
    for call in (c for one in chunks for c in one.choices[0].delta.tool_calls or ()):
        found.setdefault(call.index, []).append(call)
    return found


def text_of(chunks: list[Any]) -> str:
    return "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)


@given(
    inputs=st.lists(st.sampled_from([FINE, BIASED, "{}", ""]), min_size=1, max_size=4),
    size=st.integers(1, 40),
)
@examples(60)
def test_what_goes_out_of_a_stream_is_whole_calls_in_a_row(
    replay: Replay, inputs: list[str], size: int
) -> None:
    chunks = streamed(replay, said(*inputs, size=size))
    out = {
        number: "".join(call.function.arguments or "" for call in pieces)
        for number, pieces in calls_in(chunks).items()
    }
    assert list(out) == list(range(len(out)))
    assert list(out.values()) == inputs[: len(out)]
    if BIASED in inputs:
        assert len(out) <= inputs.index(BIASED)
        assert text_of(chunks) == f"Calling. {STOP}"
        assert chunks[-1].choices[0].finish_reason == "content_filter"
    else:
        assert len(out) == len(inputs)


@rows("row", [row for row in TABLE if "tool" in row.kinds])
def test_the_calls_before_a_stopped_one_stay_and_it_leaves_nothing(world: World, row: Row) -> None:
    guard = guard_of(Policy(), Scripted())
    row.play(world, [[("tool", 0, FINE), ("tool", 1, BIASED)]], ([5], 0))
    for way in row.ways(world, guard):
        calls = {c: text for c, text in way.texts.items() if c.kind == "tool"}
        left = [json.loads(text) for text in calls.values()]
        assert left == [json.loads(FINE)]
        emitted = r.serialised(*way.chunks)
        assert "Bea" not in emitted
        assert "So " not in emitted
        assert way.ends or way.finish == {0: "content_filter"}


@rows("row", [row for row in TABLE if "tool" in row.kinds])
def test_what_is_redacted_stays_inside_of_its_string(world: World, row: Row) -> None:
    guard = guard_of(Policy(action="redact"), Scripted())
    row.play(world, [[("tool", 0, FINE), ("tool", 1, BIASED)]], ([5], 0))
    for way in row.ways(world, guard):
        calls = {c: text for c, text in way.texts.items() if c.kind == "tool"}
        first, second = calls.values()
        assert json.loads(first) == json.loads(FINE)
        # To a provider of messages an input is an object: what was said is a string in it.
        inside = "{[removed]}" if row.name.startswith("messages") else None
        assert second == inside or json.loads(second) == {"to": "Bea", "text": "[removed]"}
        assert "BIAS" not in r.serialised(*way.chunks)
        assert way.ends or "content_filter" not in way.finish.values()


def test_a_call_is_held_until_its_last_argument_is_judged(replay: Replay) -> None:
    judged: list[str] = []
    chunks = [r.chunk_of(piece) for piece in said(FINE * 3)]
    stream = r.stream(
        replay, chunks, r.session(Policy(), Scripted(before=lambda w: judged.append(w.text)))
    )
    for chunk in stream:
        if chunk.choices[0].delta.tool_calls:
            assert "".join(judged).count("Fine.") == 3


def piece(number: int, text: str, *, name: str | None = None, first: bool = False) -> Any:
    """Return a chunk with a piece of a call."""
    call: dict[str, Any] = {"index": number, "function": {"arguments": text, "name": name}}
    if first:
        call |= {"id": f"call_{number}", "type": "function"}
        call["function"]["name"] = name or "f"
    delta = Delta(tool_calls=[call])
    return ModelResponseStream(choices=[StreamingChoices(index=0, delta=delta)])


def content(text: str) -> Any:
    return r.chunk_of(Said(0, "content", text))


INTERRUPTED: dict[str, Callable[[], list[Any]]] = {
    "by another call": lambda: [
        piece(0, '{"a": ', first=True),
        piece(1, '{"b": "So', first=True),
        piece(0, '"Fine."}'),
        piece(1, ' BIAS is."}'),
    ],
    "by content": lambda: [
        piece(0, '{"a": ', first=True),
        content("So BIAS is here. "),
        piece(0, '"Fine."}'),
    ],
    "in its later part": lambda: [
        piece(0, '{"a": ', first=True),
        piece(1, '{"b": 1}', first=True),
        piece(0, '"So BIAS is."}'),
    ],
    "by its own name": lambda: [
        piece(0, '{"a": 1}', first=True),
        piece(0, "", name="So BIAS is here"),
    ],
}


@rows("hold, chunks", product(["sentence", "association"], INTERRUPTED.values()))
def test_an_interrupted_call_leaves_nothing(
    replay: Replay, chunks: Callable[[], list[Any]], hold: Any
) -> None:
    end = r.chunk_of(finish="tool_calls")
    s = r.session(Policy(hold=hold), Scripted())
    out = r.streamed(replay, [*chunks(), end], s).chunks
    assert calls_in(out) == {}
    assert out[-1].choices[0].finish_reason == "content_filter"
    plain = r.session(Policy(action="flag", hold=hold), Scripted())
    assert len(r.streamed(replay, [*chunks(), end], plain).chunks) >= len(chunks())


def test_a_call_that_goes_on_after_its_end_stops_the_choice(replay: Replay) -> None:
    chunks = [piece(0, '{"a": 1}', first=True), content("Well. "), piece(0, " So. ")]
    s = r.session(Policy(), Scripted())
    out = r.streamed(replay, [*chunks, r.chunk_of(finish="stop")], s).chunks
    assert [c.function.arguments for c in calls_in(out)[0]] == ['{"a": 1}']
    assert out[-1].choices[0].delta.content == Policy().failure_message


def test_what_comes_behind_a_whole_call_is_not_held_to_the_end(replay: Replay) -> None:
    chunks = [piece(0, '{"a": 1}', first=True), *[content("Well. ")] * 30]
    stream = r.stream(replay, chunks, r.session(Policy(), Scripted()))
    next(stream)
    assert len(stream._sent) < 10


def test_calls_with_the_same_number_keep_their_own_input() -> None:
    same = [Said(0, "tool", '{"a": 1}', 0, True), Said(0, "tool", BIASED, 1, True)]
    answer = r.answer_of(same)
    calls = answer.choices[0].message.tool_calls
    answer.choices[0].message.tool_calls = [calls[0], calls[0].model_copy(deep=True), calls[1]]
    for number, call in zip((0, 0, 1), answer.choices[0].message.tool_calls, strict=True):
        call.index = number
    guarded = chat.guard(r.session(Policy(), Scripted()), answer)
    assert not guarded.choices[0].message.tool_calls  # they cannot be told apart


def test_watching_alone_holds_no_call_and_stops_none(replay: Replay) -> None:
    long = json.dumps({"text": "So BIAS is here. " * 100})
    chunks = streamed(replay, said(long), Policy(hold="none", max_tool_chars=1000))
    assert "".join(c.function.arguments or "" for c in calls_in(chunks)[0]) == long


def test_escapes_count_as_they_were_sent(replay: Replay) -> None:
    policy = Policy(max_tool_chars=1000)
    chunks = streamed(replay, said('{"a": "' + "\\u0041" * 300 + '"}', size=50), policy)
    assert calls_in(chunks) == {}
    assert len(calls_in(streamed(replay, said('{"a": "' + "A" * 300 + '"}'), policy))) == 1


@rows("kind", sorted({*RUN, *SLOT_OF}))
def test_no_item_that_a_client_acts_on_is_announced(kind: str) -> None:
    slot = SLOT_OF.get(kind, "operation")
    item = {"id": "i", "type": kind, "call_id": "zeroth", slot: "Fine. So BIAS is here."}
    opened = {**item, slot: ""}
    sent = [
        litellm_event("response.output_item.added", {"output_index": 0, "item": opened}),
        litellm_event("response.output_item.done", {"output_index": 0, "item": item}),
    ]
    for events in (sent, sent[1:]):
        codec = EventCodec()
        gate = ResponseGate(codec, Policy())
        out: list[Any] = []
        s = r.session(Policy(), Scripted())
        for event in events:
            gate.push(codec.read(event))
            s.judge_pending(gate)
            out += [sealed for one in gate.emit() for sealed in codec.seal(one)]
        assert gate.ended_by_guard
        assert "zeroth" not in r.serialised(*out)


@rows("hold", ["sentence", "association"])
def test_an_input_that_is_too_long_ends_the_output(replay: Replay, hold: Any) -> None:
    policy = Policy(hold=hold, max_tool_chars=1000)
    long = json.dumps({"text": "Fine. " * 200})
    chunks = streamed(replay, said(FINE, long, size=50), policy)
    assert list(calls_in(chunks)) == [0]
    assert chunks[-1].choices[0].finish_reason == "content_filter"
    assert text_of(chunks) == f"Calling. {policy.failure_message}"
    whole = r.whole(
        replay,
        [Said(0, "tool", FINE, 0, header=True), Said(0, "tool", long, 1, header=True)],
        r.session(policy, Scripted()),
    )
    assert whole.ends == {0: "content_filter"}
    assert [t for c, t in whole.texts.items() if c == Channel(0, "tool", 1)] == []
    (decision,) = [d for d in whole.trail if d.action != "pass"]
    assert decision.verdict.unjudged == "overload"


def test_what_is_too_long_is_recorded(world: World) -> None:
    guard = guard_of(Policy(max_tool_chars=1000), Scripted())
    told: list[str] = []

    class Recorder:
        def decided(self, session: Any, trail: Any, decision: Any, text: str) -> None:
            told.append(decision.action)

        def ended(self, session: Any, trail: Any, outcome: str) -> None:
            told.append("stopped" if trail.stopped else outcome)

    guard.recorder = Recorder()
    row = TABLE[0]
    row.play(world, [[("tool", 0, json.dumps({"text": "x" * 2000}))]], ([50], 0))
    ways = row.ways(world, guard)
    assert all(way.trail.stopped for way in ways)
    assert told.count("terminate") == told.count("stopped") == len(ways)


MODELS = [
    "openai/gpt-4o",
    "anthropic/claude-sonnet-4-5",
    "gemini/gemini-2.0-flash",
    "bedrock/anthropic.claude-3-sonnet-20240229-v1:0",
    "ollama_chat/llama3",
    "mistral/mistral-large-latest",
]


@pytest.mark.parametrize("model", MODELS)
def test_the_next_turn_is_sent_on(
    replay: Replay, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "k")
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "MISTRAL_API_KEY"):
        monkeypatch.setenv(name, "k")
    monkeypatch.setenv("AWS_REGION_NAME", "us-east-1")
    pieces = [r.chunk_of(piece) for piece in said(FINE, BIASED)]
    s = r.session(Policy(), Scripted())
    gathered = litellm.stream_chunk_builder(list(r.stream(replay, pieces, s)))
    whole = chat.guard(
        s, r.answer_of([Said(0, "tool", FINE, 0, True), Said(0, "tool", BIASED, 1, True)])
    )
    for answer in (gathered, whole):
        message = answer.choices[0].message.model_dump()
        (call,) = message["tool_calls"]
        turns = [
            {"role": "user", "content": "Write to both."},
            message,
            {"role": "tool", "tool_call_id": call["id"], "content": "done"},
            {"role": "user", "content": "Go on."},
        ]
        tool = {"type": "function", "function": {"name": call["function"]["name"]}}
        sent = return_raw_request(
            CallTypes.completion, {"model": model, "messages": turns, "tools": [tool]}
        )
        assert "error" not in sent or sent["error"] is None, sent
        assert sent["raw_request_body"]
