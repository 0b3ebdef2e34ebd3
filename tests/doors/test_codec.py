"""The chat codec alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from litellm.types.utils import Delta, ModelResponseStream, Usage
from litellm.types.utils import StreamingChoices as Choice
from pydantic import ValidationError

from guard.doors.chat.codec import ChatCodec
from guard.doors.fields import REFUSAL, THINKING, TRANSCRIPT
from guard.doors.tools import CallEnds
from guard.errors import UsageError
from guard.gate import Part
from guard.policy import Policy
from guard.verdict import Channel
from tests.doors import replay as r
from tests.doors.replay import Replay, Said, chunk_of
from tests.rows import rows
from tests.scripted import Scripted

CONTENT, THOUGHT = Channel(), Channel(0, "reasoning")


def chunk(*choices: Choice, **fields: Any) -> ModelResponseStream:
    return ModelResponseStream(id="c", created=1, model="x", choices=list(choices), **fields)


def rich() -> ModelResponseStream:
    """A chunk whose text stands in every field that LiteLLM repeats it in."""
    delta = Delta(
        role="assistant",
        content="Hello BIAS",
        reasoning_content="Think BIAS",
        thinking_blocks=[{"type": "thinking", "thinking": "Think BIAS"}],
        reasoning_items=[{"id": "1", "summary": [{"text": "Think BIAS"}]}],
        provider_specific_fields={"raw": "BIAS"},
        annotations=[{"note": "BIAS"}],
        tool_calls=[
            {
                "index": 2,
                "id": "i",
                "type": "function",
                "function": {"name": "f", "arguments": "BIAS"},
            }
        ],
        novelty="BIAS",
    )
    logprobs = {"content": [{"token": "BIAS", "logprob": 0.0, "top_logprobs": []}]}
    made = chunk(Choice(delta=delta, logprobs=logprobs), provider_specific_fields={"r": "BIAS"})
    made.citations = ["BIAS"]
    made._hidden_params = {"provider_specific_fields": {"r": "BIAS"}, "model_id": "m"}
    return made


def test_parts_come_in_reading_order() -> None:
    assert ChatCodec().parts(rich()) == [
        Part(THOUGHT, "Think BIAS"),
        Part(CONTENT, "Hello BIAS"),
        Part(Channel(0, "tool", 2), "BIAS"),
    ]


@rows(
    "delta, part",
    [
        (Delta(thinking_blocks=[{"type": "thinking", "thinking": "t"}]), Part(THOUGHT, "t")),
        (Delta(refusal="no"), Part(Channel(0, "content", REFUSAL), "no")),
        (Delta(audio={"transcript": "a"}), Part(Channel(0, "content", TRANSCRIPT), "a")),
        (Delta(function_call={"arguments": "x"}), Part(Channel(0, "tool", -1), "x")),
        (Delta(reasoning="r"), Part(THOUGHT, "r")),
    ],
)
def test_every_field_with_text_is_read(delta: Delta, part: Part) -> None:
    made = chunk(Choice(delta=delta))
    assert ChatCodec().parts(made) == [part]
    cut = ChatCodec().cut(made, 0, {part.channel: ""})
    assert cut is None or ChatCodec().parts(cut) == []


def test_thinking_blocks_are_a_channel_of_their_own_if_they_differ() -> None:
    blocks = [{"type": "thinking", "thinking": t, "signature": "s"} for t in ("Fine. ", "BIAS")]
    alike = Delta(reasoning_content="Fine. BIAS", thinking_blocks=blocks)
    assert ChatCodec().parts(chunk(Choice(delta=alike))) == [Part(THOUGHT, "Fine. BIAS")]
    made = chunk(Choice(delta=Delta(reasoning_content="Well.", thinking_blocks=blocks)))
    blocked = Channel(0, "reasoning", THINKING)
    assert ChatCodec().parts(made) == [Part(THOUGHT, "Well."), Part(blocked, "Fine. BIAS")]
    cut = ChatCodec().cut(made, 0, {THOUGHT: "Well.", blocked: "Fine. "})
    assert cut is not None
    assert ChatCodec().parts(cut) == [Part(THOUGHT, "Well."), Part(blocked, "Fine. ")]
    assert "BIAS" not in r.serialised(cut)


def test_thinking_that_is_not_text_is_refused() -> None:
    delta = Delta(reasoning_content="Well.", thinking_blocks=[{"thinking": ["BIAS"]}])
    with pytest.raises(UsageError, match="judges text only"):
        ChatCodec().parts(chunk(Choice(delta=delta)))


def test_thinking_blocks_of_their_own_are_judged_in_a_stream(replay: Replay) -> None:
    block = {"type": "thinking", "thinking": "Fine. BIAS is.", "signature": "s"}
    sent = [chunk(Choice(delta=Delta(reasoning_content="All is well.", thinking_blocks=[block])))]
    outcome = r.streamed(replay, sent, r.session(Policy(), Scripted()))
    assert outcome.ends == {0: "content_filter"}
    assert outcome.texts[THOUGHT] == "All is well."
    assert "BIAS" not in r.serialised(*outcome.chunks)
    assert "Fine. " in r.serialised(*outcome.chunks)


def test_a_custom_tools_input_is_read_and_cut() -> None:
    call = {"index": 1, "type": "custom", "custom": {"name": "n", "input": "x"}}
    try:
        made = chunk(Choice(delta=Delta(tool_calls=[call])))
    except ValidationError:
        pytest.skip("this version of LiteLLM knows no custom tools")
    channel = Channel(0, "tool", 1)
    assert ChatCodec().parts(made) == [Part(channel, "x")]
    cut = ChatCodec().cut(made, 0, {channel: ""})
    assert cut is not None
    assert ChatCodec().parts(cut) == []
    assert cut.choices[0].delta.tool_calls[0].custom.name == "n"


@rows("content", [["a"], 3, {"text": "a"}])
def test_content_that_is_not_text_is_refused(content: Any) -> None:
    with pytest.raises(UsageError, match="judges text only"):
        ChatCodec().parts(chunk(Choice(delta=Delta(content=content))))


def test_a_changed_copy_repeats_nothing() -> None:
    made = rich()
    before = r.serialised(made)
    texts = {THOUGHT: "Think", CONTENT: "Hello", Channel(0, "tool", 2): ""}
    cut = ChatCodec().cut(made, 0, texts)
    assert cut is not None
    assert "BIAS" not in r.serialised(cut)
    assert "BIAS" not in str(cut._hidden_params)
    assert cut.choices[0].delta.role == "assistant"
    assert cut.choices[0].delta.tool_calls[0].function.name == "f"
    assert ChatCodec().parts(cut) == [Part(THOUGHT, "Think"), Part(CONTENT, "Hello")]
    assert r.serialised(made) == before
    assert (cut.id, cut.created, cut.model) == (made.id, made.created, made.model)


def test_an_unchanged_choice_of_a_split_chunk_keeps_all_its_fields() -> None:
    made = rich()
    made.choices.append(Choice(index=1, delta=Delta(content="Other")))
    texts = {p.channel: p.text for p in ChatCodec().parts(made) if p.channel.choice == 0}
    cut = ChatCodec().cut(made, 0, texts)
    assert cut is not None
    assert cut.model_dump()["choices"] == [made.model_dump()["choices"][0]]
    assert len(made.choices) == 2


def test_a_copy_without_text_is_left_out() -> None:
    codec = ChatCodec()
    assert codec.cut(chunk(Choice(delta=Delta(content="BIAS"))), 0, {CONTENT: ""}) is None
    finish = chunk(Choice(delta=Delta(content="BIAS"), finish_reason="stop"))
    kept = codec.cut(finish, 0, {CONTENT: ""})
    assert kept is not None
    assert kept.choices[0].finish_reason == "stop"
    assert codec.cut(finish, 0, {CONTENT: ""}, ends=True) is None


def test_usage_alone_belongs_to_no_choice() -> None:
    codec = ChatCodec()
    usage = Usage(prompt_tokens=1, completion_tokens=1, total_tokens=2)
    assert codec.choices(chunk(Choice(delta=Delta()), usage=usage)) == []
    assert codec.choices(chunk(Choice(delta=Delta(content="x")), usage=usage)) == [0]
    assert codec.choices(chunk(Choice(delta=Delta()))) == [0]
    assert codec.finished(chunk(Choice(index=1, finish_reason="stop"))) == [1]


def test_the_last_chunk() -> None:
    codec = ChatCodec()
    last = codec.last(rich(), 3, "Stopped.")
    assert [(c.index, c.delta.content, c.finish_reason) for c in last.choices] == [
        (3, "Stopped.", "content_filter")
    ]
    assert "BIAS" not in r.serialised(last)
    assert codec.seal(last, []).choices[0].delta.role == "assistant"


def test_later_chunks_do_not_repeat_what_was_replaced(replay: Replay) -> None:
    echo = Delta(
        content=" And on.", reasoning_items=[{"id": "1", "summary": [{"text": "BIAS is."}]}]
    )
    sent = [chunk_of(Said(0, "content", t)) for t in ("Fine.", " BIAS is.", " More.")]
    sent.append(chunk(Choice(delta=echo)))
    outcome = r.streamed(replay, sent, r.session(Policy(action="redact"), Scripted()))
    assert outcome.texts == {CONTENT: "Fine. [removed] More. And on."}
    assert "BIAS" not in r.serialised(*outcome.chunks)


@rows("place", ["chunk", "choice", "delta"])
def test_a_later_chunk_goes_out_without_fields_that_could_repeat_the_cut_text(place: str) -> None:
    codec = ChatCodec()
    codec.cut(chunk(Choice(delta=Delta(content="BIAS"))), 0, {CONTENT: "[removed]"})
    later = chunk(Choice(delta=Delta(content=" More.")))
    assert codec.seal(later, []) is later
    owner: Any = {"chunk": later, "choice": later.choices[0], "delta": later.choices[0].delta}
    owner[place].echo = ["BIAS"]
    sealed = codec.seal(later, [])
    assert "BIAS" not in r.serialised(sealed)
    assert sealed.choices[0].delta.content == " More."


FIRST, NEXT = Channel(0, "tool", 0), Channel(0, "tool", 1)


@given(st.lists(st.text('{}[]"a1 ,:', max_size=4), max_size=4), st.booleans())
def test_a_call_ends_where_something_else_begins_if_its_input_is_whole(
    pieces: list[str], content: bool
) -> None:
    ends = CallEnds()
    for piece in pieces:
        assert ends.before(0, {FIRST: piece}) == []
    try:
        json.loads("".join(pieces))
    except json.JSONDecodeError:
        known: list[Channel] = []
    else:
        known = [FIRST]
    assert ends.before(0, {}) == ends.before(1, {Channel(1, "tool", 0): "{}"}) == []
    if content:
        assert ends.before(0, {}, more=True) == known
    else:
        assert ends.before(0, {NEXT: ""}) == known


def test_of_free_text_nobody_knows_where_it_ends() -> None:
    ends = CallEnds()
    assert ends.before(0, {FIRST: None}) == ends.before(0, {NEXT: None}) == []
    assert ends.before(0, {}, more=True) == []


# The fast path of the gate: chunks that carry one content text and nothing else.

TOKEN = {"token": "x", "logprob": 0.0, "bytes": None, "top_logprobs": []}
TOOL = {"index": 0, "id": "1", "type": "function", "function": {"name": "f", "arguments": "{"}}


def said(index: int = 0, finish: str | None = None, **fields: Any) -> Choice:
    return Choice(index=index, delta=Delta(**fields), finish_reason=finish)


def test_the_fast_path_reads_litellms_own_chunks() -> None:
    for fields in ({}, {"role": "assistant"}):
        read = ChatCodec().only_text(chunk(said(content="a word", **fields)), Channel())
        assert read == "a word"


@rows(
    "other",
    [
        chunk(said(content="")),
        chunk(said(content=None)),
        chunk(said(1, content="x")),
        chunk(said(finish="stop", content="x")),
        chunk(Choice(index=0, delta=Delta(content="x"), logprobs={"content": [TOKEN]})),
        chunk(said(content="x", tool_calls=[TOOL])),
        chunk(said(content="x", function_call={"name": "f", "arguments": "{"})),
        chunk(said(content="x", audio={"transcript": "said"})),
        chunk(said(content="x", reasoning_content="why")),
        chunk(said(content="x", thinking_blocks=[{"type": "thinking", "thinking": "why"}])),
        chunk(said(content="x", refusal="no")),
        chunk(said(content="x", provider_specific_fields={"refusal": "no"})),
        chunk(said(content="x", unheard_of="text")),
        chunk(),
        chunk(*(said(i, content="x") for i in range(2))),
        chunk(said(content="x"), provider_specific_fields={"note": "text"}),
    ],
)
def test_a_chunk_with_other_fields_takes_the_full_path(other: ModelResponseStream) -> None:
    codec = ChatCodec()
    assert codec.only_text(other, Channel()) == ""
    assert codec.only_text(chunk(said(content="a word")), Channel()) == "a word"
    assert codec.only_text(other, Channel()) == ""  # also once the response is known
