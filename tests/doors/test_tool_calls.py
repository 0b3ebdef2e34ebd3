"""A tool call goes out whole or not at all, and a stopped answer can be carried on from."""

from __future__ import annotations

import json
from typing import Any

import litellm
import pytest
from hypothesis import given
from hypothesis import strategies as st
from litellm.types.utils import CallTypes
from litellm.utils import return_raw_request

from guard.doors import chat
from guard.policy import Policy
from guard.verdict import Channel
from tests.doors import replay as r
from tests.doors.replay import Replay, Said
from tests.doors.table import TABLE, Row, World, guard_of
from tests.rows import examples
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


@pytest.mark.parametrize("row", [row for row in TABLE if "tool" in row.kinds], ids=lambda r: r.name)
def test_the_calls_before_a_stopped_one_stay_and_it_leaves_nothing(world: World, row: Row) -> None:
    guard = guard_of(Policy(), Scripted())
    row.play(world, [[("tool", 0, FINE), ("tool", 1, BIASED)]], ([5], 0))
    for way in row.ways(world, guard):
        calls = {c: text for c, text in way.texts.items() if c.kind == "tool"}
        assert [json.loads(text) for text in calls.values()] == [json.loads(FINE)]
        emitted = r.serialised(*way.chunks)
        assert "Bea" not in emitted
        assert "So " not in emitted
        assert way.ends or way.finish == {0: "content_filter"}


def test_a_call_is_held_until_its_last_argument_is_judged(replay: Replay) -> None:
    judged: list[str] = []
    chunks = [r.chunk_of(piece) for piece in said(FINE * 3)]
    stream = r.stream(
        replay, chunks, r.session(Policy(), Scripted(before=lambda w: judged.append(w.text)))
    )
    for chunk in stream:
        if chunk.choices[0].delta.tool_calls:
            assert "".join(judged).count("Fine.") == 3


def test_a_call_that_goes_on_behind_another_is_whole(replay: Replay) -> None:
    mixed = [
        Said(0, "tool", '{"a": ', 0, header=True),
        Said(0, "tool", '{"b": 1}', 1, header=True),
        Said(0, "tool", '"So BIAS is."}', 0),
    ]
    assert calls_in(streamed(replay, mixed)) == {}
    mixed[2] = Said(0, "tool", '"Fine."}', 0)
    assert len(calls_in(streamed(replay, mixed))) == 2


def test_watching_alone_holds_no_call(replay: Replay) -> None:
    chunks = streamed(replay, said(BIASED), Policy(hold="none"))
    assert "".join(c.function.arguments or "" for c in calls_in(chunks)[0]) == BIASED


@pytest.mark.parametrize("hold", ["sentence", "association"])
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
