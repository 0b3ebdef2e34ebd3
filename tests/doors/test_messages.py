"""The messages door beyond what the matrix shows: framing, blocks, calls, what repeats a text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from itertools import product
from typing import Any

import litellm
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from guard.core import Guard
from guard.doors import messages
from guard.doors.messages.door import MessagesStream
from guard.doors.messages.events import Framer
from guard.errors import UsageError
from guard.policy import Policy
from tests.doors import replay as r
from tests.doors.replay import session
from tests.doors.table import arun
from tests.provider import Provider, Script
from tests.rows import examples, rows
from tests.scripted import Scripted

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")

STOP = Policy().message
GONE = Policy().replacement
CALL: dict[str, Any] = {"messages": r.MESSAGES, "max_tokens": 9}


def sse(*events: dict[str, Any], raw: bool = False) -> bytes:
    lines = (f"event: {e['type']}\ndata: {json.dumps(e, ensure_ascii=not raw)}\n\n" for e in events)
    return "".join(lines).encode()


def started(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    block = {"type": kind, **fields}
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stopped(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


START = {
    "type": "message_start",
    "message": {"id": "msg_1", "content": [], "usage": {"input_tokens": 7, "output_tokens": 1}},
}
OVER: list[dict[str, Any]] = [
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
]


def text(index: int, *pieces: str) -> list[dict[str, Any]]:
    said = [delta(index, "text_delta", text=piece) for piece in pieces]
    return [started(index, "text", text=""), *said, stopped(index)]


def call(index: int, *pieces: str) -> list[dict[str, Any]]:
    said = [delta(index, "input_json_delta", partial_json=piece) for piece in pieces]
    named = started(index, "tool_use", id=f"toolu_{index}", name="f", input={})
    return [named, *said, stopped(index)]


def guarded(chunks: Sequence[Any], action: str = "terminate", **more: Any) -> list[Any]:
    """What goes out of a stream of these chunks."""

    async def upstream() -> AsyncIterator[Any]:
        for chunk in chunks:
            yield chunk

    async def run() -> list[Any]:
        policy = Policy(action=action, **more)
        stream = MessagesStream(upstream(), session(policy, Scripted()))
        return [chunk async for chunk in stream]

    return asyncio.run(run())


def events(chunks: Sequence[Any]) -> list[dict[str, Any]]:
    if chunks and isinstance(chunks[0], dict):
        return list(chunks)
    return r.plain(b"".join(c.encode() if isinstance(c, str) else c for c in chunks))


def types(out: Sequence[dict[str, Any]]) -> list[str]:
    return [e["type"].removeprefix("content_block_") for e in out]


def shown(out: Sequence[dict[str, Any]]) -> str:
    deltas = [e["delta"] for e in out if e["type"] == "content_block_delta"]
    return "".join(
        d.get("text") or d.get("thinking") or d.get("partial_json") or "" for d in deltas
    )


# Framing.

HARMLESS = [START, *text(0, "All is well. ", "Só — \u2028\x85 と"), {"type": "ping"}, *OVER]


@given(st.lists(st.integers(1, 50), min_size=1), st.booleans())
@settings(max_examples=30, deadline=None)
def test_any_cut_of_the_bytes_gives_the_same_bytes(sizes: list[int], raw: bool) -> None:
    data, chunks = sse(*HARMLESS, raw=raw), []
    rest, turn = data, 0
    while rest:
        size = sizes[turn % len(sizes)]
        chunks.append(rest[:size])
        rest, turn = rest[size:], turn + 1
    assert b"".join(guarded(chunks)) == data


@given(st.lists(st.integers(1, 50), min_size=1))
@settings(max_examples=30, deadline=None)
def test_a_stop_is_the_same_however_the_bytes_are_cut(sizes: list[int]) -> None:
    data = sse(START, *text(0, "All is well.\u2028 BI", "AS is.", " So it goes."), *OVER, raw=True)
    chunks, turn = [], 0
    while data:
        chunks.append(data[: sizes[turn % len(sizes)]])
        data, turn = data[len(chunks[-1]) :], turn + 1
    out = events(guarded(chunks))
    assert shown(out).split() == ["All", "is", "well.", *STOP.split()]
    assert types(out)[-3:] == ["stop", "message_delta", "message_stop"]


BLOCKS = st.tuples(
    st.sampled_from(["text", "thinking", "call"]),
    st.lists(st.sampled_from(["Fine. ", "So BI", "AS is. ", "."]), min_size=1, max_size=3),
)


def interleaved(blocks: Sequence[tuple[str, list[str]]], order: Sequence[int]) -> list[Any]:
    """The events of blocks; two of different kinds may be open, ``order`` says whose is next."""
    lines: list[tuple[str, list[Any]]] = []
    for index, (kind, pieces) in enumerate(blocks):
        if kind == "text":
            lines.append((kind, text(index, *pieces)))
        elif kind == "call":
            lines.append((kind, call(index, '{"a": "', *pieces, '"}')))
        else:
            thought = [delta(index, "thinking_delta", thinking=piece) for piece in pieces]
            begun = started(index, "thinking", thinking="")
            lines.append((kind, [begun, *thought, stopped(index)]))
    sent = [START]
    for turn in order:
        if len(lines) > 1 and lines[0][0] != lines[1][0]:
            sent.append(lines[turn][1].pop(0))
            lines = [line for line in lines if line[1]]
    return [*sent, *(event for _, line in lines for event in line), *OVER]


def said(out: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The words shown: text and thoughts joined, calls one by one."""
    pieces: dict[str, str] = {}
    for event in out:
        if event["type"] == "content_block_delta":
            ((kind, piece),) = (item for item in event["delta"].items() if item[0] != "type")
            name = f"call {event['index']}" if kind == "partial_json" else kind
            pieces[name] = pieces.get(name, "") + piece
    return {name: " ".join(joined.split()) for name, joined in pieces.items() if joined.strip()}


@pytest.mark.hypothesis
def test_it_does_not_matter_which_events_come_together() -> None:
    @given(
        st.lists(BLOCKS, min_size=1, max_size=4),
        st.one_of(st.just([]), st.lists(st.integers(0, 1), max_size=30)),
        st.lists(st.integers(1, 9), min_size=1, max_size=12),
        st.sampled_from(["terminate", "redact"]),
    )
    @example([("call", ["."]), ("thinking", ["So BI", "AS is. "])], [], [2, 9], "terminate")
    @example(  # the call's last event, without text, stands behind the text that is found
        [
            ("thinking", ["Fine. ", "Fine. ", "So BI"]),
            ("call", ["Fine. "]),
            ("thinking", ["AS is. "]),
        ],
        [1, 1, 1, 1],
        [4],
        "terminate",
    )
    @examples(400)
    def run(blocks: list[Any], order: list[int], sizes: list[int], action: str) -> None:
        sent, chunks, turn = interleaved(blocks, order), [], 0
        alone = said(events(guarded([sse(event) for event in sent], action)))
        while sent:
            size = sizes[turn % len(sizes)]
            chunks.append(sse(*sent[:size]))
            sent, turn = sent[size:], turn + 1
        together = said(events(guarded(chunks, action)))
        assert together == alone
        for name, joined in together.items():
            assert not name.startswith("call") or json.loads(joined)

    run()


def test_a_chunk_of_whole_events_is_the_providers_own() -> None:
    chunks = [sse(*HARMLESS[:3]), sse(*HARMLESS[3:])]
    assert [*map(id, guarded(chunks))] == [*map(id, chunks)]


@rows("form", [dict, str])
def test_other_forms_stay_what_they_are(form: type[Any]) -> None:
    sent = [START, *text(0, "All is well.", " BIAS is."), *OVER]
    chunks = sent if form is dict else [sse(e).decode() for e in sent]
    out = guarded(chunks)
    assert {type(c) for c in out} == {form}
    assert shown(events(out)) == "All is well. " + STOP


def test_data_that_is_no_event_is_judged() -> None:
    chunks = [sse(START), b"data: All BIAS is.\n\n", sse(*OVER)]
    assert b"BIAS" not in b"".join(guarded(chunks, "redact"))
    chunks[1] = b": keep alive\n\ndata: [DONE]\n\n"
    assert guarded(chunks) == chunks


@rows(
    "form, more",
    product(
        [bytes, str],
        [
            b": All BIAS is.\n\n",
            b": All BIAS is.\n",
            b"id: All BIAS is.\n",
            b"retry: All BIAS is.\n",
            b"novelty: All BIAS is.\n",
            b"event: All BIAS is.\n",
            b"All BIAS is.\n\n",
            b'data: {"type": "ping", "type": "All BIAS is.", "type": "ping"}\n\n',
            b'data: {"type": "ping", "a": {"b": "All BIAS is.", "b": "x"}}\n\n',
        ],
    ),
)
def test_bytes_outside_of_events_do_not_go_out(more: bytes, form: type[Any]) -> None:
    sent = [START, *text(0, "All is well."), *OVER]
    chunks: list[Any] = [more + sse(e) for e in sent]
    out = guarded(chunks if form is bytes else [c.decode() for c in chunks])
    assert "BIAS" not in str(out)
    assert {type(c) for c in out} == {form}
    assert [e for e in events(out) if e["type"] != "ping"] == sent


def test_an_end_without_its_empty_line() -> None:
    data = sse(START, *text(0, "All is well."), *OVER)[:-2]
    framer = Framer()
    assert [len(f.events) for f in [*framer.feed(data), *framer.rest()]] == [5, 1]
    assert b"".join(guarded([data])) == data


# Blocks.


def test_a_phrase_split_over_text_blocks_is_one() -> None:
    out = events(
        guarded([sse(e) for e in [START, *text(0, "Well. BI"), *text(1, "AS is."), *OVER]])
    )
    assert "BI" not in shown(out)
    assert shown(out).split(" ", 1) == ["Well.", STOP]


def test_parallel_calls_are_channels_of_their_own() -> None:
    sent = [START, *call(0, '{"a": "', 'fine"}'), *call(1, '{"b": "BI', 'AS"}'), *OVER]
    out = events(guarded([sse(e) for e in sent]))
    pieces: dict[int, str] = {}
    for e in out:
        if e["type"] == "content_block_delta" and "partial_json" in e["delta"]:
            pieces[e["index"]] = pieces.get(e["index"], "") + e["delta"]["partial_json"]
    assert json.loads(pieces[0]) == {"a": "fine"}
    assert list(pieces) == [0]
    assert [e["content_block"]["type"] for e in out if e["type"] == "content_block_start"] == [
        "tool_use",
        "text",
    ]
    assert types(out)[-6:] == ["stop", "start", "delta", "stop", "message_delta", "message_stop"]
    assert out[-2]["delta"]["stop_reason"] == "refusal"
    assert "stop_details" not in out[-2]["delta"]


def test_nothing_of_a_chunk_follows_a_call_that_was_stopped() -> None:
    tool = call(1, '{"b": "So BI', 'AS is."}')
    for sent in ([sse(START, *text(0, "Hello. "), *tool, *text(2, "More."), *OVER)],):
        out = events(guarded(sent))
        assert types(out)[-4:] == ["delta", "stop", "message_delta", "message_stop"]
        assert [e["delta"]["stop_reason"] for e in out if e["type"] == "message_delta"] == [
            "refusal"
        ]
        assert "tool_use" not in json.dumps(out)
        assert "More" not in json.dumps(out)


def test_a_call_that_goes_on_in_a_block_without_a_name_is_judged_whole() -> None:
    """LiteLLM makes such blocks of a chat's call where something comes between."""
    more = [started(2, "tool_use", id="x", name="", input={})]
    more += [delta(2, "input_json_delta", partial_json=piece) for piece in ("AS", ' is."}')]
    sent = [START, *call(0, '{"a": "So long BI'), *text(1, " "), *more, stopped(2), *OVER]
    out = shown(events(guarded([sse(e) for e in sent])))
    assert out.strip() == STOP
    whole = shown(events(guarded([sse(e) for e in sent], "flag")))
    assert whole == '{"a": "So long BI AS is."}'


def test_every_block_that_began_ends_and_the_message_is_text() -> None:
    sent = [START, started(0, "thinking", thinking="", signature="")]
    sent += [delta(0, "thinking_delta", thinking="Let me see. BIAS is."), *OVER]
    out = events(guarded([sse(e) for e in sent]))
    assert types(out)[-5:] == ["start", "delta", "stop", "message_delta", "message_stop"]
    assert out[-4]["delta"] == {"type": "text_delta", "text": STOP}
    assert sum(t == "start" for t in types(out)) == sum(t == "stop" for t in types(out)) == 2


def test_a_message_cut_in_its_first_chunk_has_a_beginning() -> None:
    out = events(guarded([sse(START, *text(0, "BIAS is."), *OVER)]))
    assert types(out) == [
        "message_start", "start", "delta", "stop", "message_delta", "message_stop"
    ]  # fmt: skip
    assert out[0] == START


def test_a_redaction_ends_no_other_text_of_its_chunk() -> None:
    thought = [started(0, "thinking", thinking="", signature="")]
    thought += [delta(0, "thinking_delta", thinking="Let me see. BIAS is. Well."), stopped(0)]
    chunk = sse(START, *thought, *text(1, "So it is. ", "BIAS is. On."), *OVER)
    out = events(guarded([chunk], actions={"reasoning": "redact"}))
    assert shown(out) == f"Let me see. {GONE} Well.So it is. {STOP}"
    assert types(out)[-3:] == ["stop", "message_delta", "message_stop"]


def thought(index: int, said: str, signature: str = "") -> list[dict[str, Any]]:
    block = [started(index, "thinking", thinking="", signature="")]
    block.append(delta(index, "thinking_delta", thinking=said))
    if signature:
        block.append(delta(index, "signature_delta", signature=signature))
    return [*block, stopped(index)]


def test_a_thought_that_text_interrupts_is_held_until_it_is_judged_whole() -> None:
    """LiteLLM makes blocks of a chat whose texts take turns."""
    sent = [
        START,
        *thought(0, "Fine. So long BI"),
        *text(1, "Yes. No"),
        *thought(2, "AS is."),
        *OVER,
    ]
    assert shown(events(guarded([sse(e) for e in sent]))) == f"Fine. {STOP}"


@rows("signature", ["sig", ""])
def test_only_a_signed_thought_does_not_wait_for_what_may_follow(signature: str) -> None:
    out_by: list[int] = []  # how many events had been asked for when the thought left
    sent = [START, *thought(0, "Let me see", signature), *text(1, "Yes", " so"), *OVER]
    asked = 0

    async def upstream() -> AsyncIterator[bytes]:
        nonlocal asked
        for event in sent:
            asked += 1
            yield sse(event)

    async def run() -> None:
        stream = MessagesStream(upstream(), session(Policy(), Scripted()))
        out_by.extend([asked async for chunk in stream if b"Let me see" in chunk])

    asyncio.run(run())
    ends = next(n for n, event in enumerate(sent, 1) if event["type"] == "content_block_stop")
    over = sent.index(OVER[0]) + 1
    assert out_by == [ends if signature else over]


def test_a_signature_leaves_with_its_thoughts() -> None:
    def sent(thought: str) -> list[bytes]:
        block = [started(0, "thinking", thinking="", signature="")]
        block += [delta(0, "thinking_delta", thinking=thought)]
        block += [delta(0, "signature_delta", signature="sig"), stopped(0)]
        return [sse(e) for e in [START, *block, *text(1, "So."), *OVER]]

    assert b'"sig"' in b"".join(guarded(sent("Fine."), "redact"))
    out = guarded(sent("BIAS is."), "redact")
    assert b'"sig"' not in b"".join(out)
    assert shown(events(out)) == GONE + "So."


def test_a_refusals_explanation_is_cut_with_the_text() -> None:
    def sent(explanation: str) -> list[bytes]:
        details = {"type": "refusal", "category": None, "explanation": explanation}
        ends = {
            "type": "message_delta",
            "delta": {"stop_reason": "refusal", "stop_details": details},
        }
        return [sse(e) for e in [START, *text(0, "Well. BIAS is."), ends, OVER[1]]]

    assert b"BIAS" not in b"".join(guarded(sent("Well. BIAS is."), "redact"))
    assert b"Other BIAS" not in b"".join(guarded(sent("Other BIAS."), "redact"))
    assert b"explanation" in b"".join(guarded(sent("Well. BIAS is."), "flag"))


def test_an_error_that_quotes_is_silenced() -> None:
    error = {"type": "error", "error": {"type": "api_error", "message": "at 'long BIAS, a word'"}}
    chunks = [sse(e) for e in [START, *text(0, "Such long BIAS, a word. Well."), error]]
    out = events(guarded(chunks, "redact"))
    assert out[-1]["error"]["type"] == "api_error"
    assert "BIAS" not in json.dumps(out)
    assert events(guarded(chunks, "flag"))[-1] == error


def test_text_that_is_no_string_is_refused() -> None:
    with pytest.raises(UsageError, match="content of type list"):
        guarded([sse(START, delta(0, "text_delta", text=["a"]))])


# Whole messages.


def whole(content: list[Any], action: str = "terminate") -> Any:
    message = {"type": "message", "content": content, "stop_reason": "tool_use", "id": "msg_1"}
    policy = Policy(action=action)
    return messages.DOOR.guard(session(policy, Scripted()), message)


class TestWhole:
    TEXT = ({"type": "text", "text": "All is well.", "citations": [{"cited_text": "x"}]},)

    def test_a_cut_call_is_left_out(self) -> None:
        calls = [
            {"type": "tool_use", "id": i, "name": "f", "input": {"a": i}} for i in ("x", "BIAS")
        ]
        out = whole([*self.TEXT, *calls])
        assert out["content"] == [*self.TEXT, calls[0], {"type": "text", "text": STOP}]
        assert out["content"][0] is self.TEXT[0]
        assert (out["stop_reason"], out["id"]) == ("refusal", "msg_1")

    def test_a_redacted_message_keeps_its_end(self) -> None:
        thought = {"type": "thinking", "thinking": "BIAS is.", "signature": "sig"}
        out = whole([thought, *self.TEXT], "redact")
        cut = {"type": "thinking", "thinking": GONE, "signature": ""}
        assert out["content"] == [cut, *self.TEXT]
        assert out["stop_reason"] == "tool_use"

    def test_it_is_a_dict_with_a_trail(self) -> None:
        out = whole([*self.TEXT])
        assert isinstance(out, dict)
        assert "guard" not in json.dumps(out)
        assert len(out.guard) == 1


# LiteLLM's own ways.


@rows("model", ["anthropic/claude-sonnet-4-5", "openai/gpt-4o"])
def test_a_router_makes_one_call(provider: Provider, model: str) -> None:
    provider.served.clear()
    provider.script = Script([["All is well.", " BIAS is.", *[" So it goes."] * 600]], 0.01)
    base = provider.anthropic if "claude" in model else provider.openai
    named = {"model": model, "api_base": base, "api_key": "k"}
    deployments = [{"model_name": n, "litellm_params": named} for n in ("first", "second")]
    router: Any = litellm.Router(
        model_list=deployments,
        fallbacks=[{"first": ["second"]}],
        content_policy_fallbacks=[{"first": ["second"]}],
        num_retries=2,
    )
    wrapped: Any = Guard(Policy(), detector=Scripted()).wrap(router)

    async def run() -> list[Any]:
        stream = await wrapped.aanthropic_messages(model="first", stream=True, **CALL)
        return [chunk async for chunk in stream]

    out = events(arun(run()))
    router.discard()
    assert shown(out) == "All is well. " + STOP
    assert out[-2]["usage"]["output_tokens"] > 0
    assert provider.last.over.wait(5)
    assert (len(provider.served), provider.last.disconnected) == (1, True)


def test_a_synchronous_call_of_the_native_api_is_litellms_error(provider: Provider) -> None:
    named = {"model": "anthropic/claude-sonnet-4-5", "api_base": provider.anthropic, "api_key": "k"}
    with pytest.raises(ValueError, match="not implemented for sync"):
        Guard(detector=Scripted()).messages(**CALL, **named)
