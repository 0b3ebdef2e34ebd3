"""Every string of an answer is judged, unless it is known to be no word of the model's."""

from __future__ import annotations

import json
from itertools import product
from typing import Any, get_args

import litellm
import openai.types.responses as sdk
import pytest
from litellm.types.utils import (
    Choices,
    Delta,
    Message,
    ModelResponse,
    ModelResponseStream,
    StreamingChoices,
    TextChoices,
    TextCompletionResponse,
)
from packaging.version import Version

from guard.core import Guard
from guard.doors import chat, messages
from guard.doors import text as text_completion
from guard.doors.chat.codec import ChatCodec
from guard.doors.fields import is_unknown_field
from guard.doors.responses.codec import EventCodec
from guard.doors.responses.events import litellm_event
from guard.doors.responses.names import EVENTS, ITEMS
from guard.doors.text.codec import TextCompletionCodec
from guard.errors import UsageError
from guard.gate import ResponseGate
from guard.policy import Policy
from guard.verdict import GuardTrail
from tests.doors import replay as r
from tests.doors.versions import LITELLM
from tests.provider import Provider, Script
from tests.rows import rows
from tests.scripted import Scripted

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")

TEXT = "quagmire BIAS zephyr"
ESCAPED = "".join(f"\\u{ord(c):04x}" for c in TEXT)
CLEAN = "The weather is fine."


def guard(**policy: Any) -> Guard:
    return Guard(Policy(**policy), detector=Scripted())


def leaks(*out: Any) -> list[str]:
    said = r.serialised(*out)
    return [word for word in (*TEXT.split(), ESCAPED[:18]) if word in said]


def call(provider: Provider, **more: Any) -> dict[str, Any]:
    base = {"api_base": provider.openai, "api_key": "k", "max_retries": 0}
    return {"model": "openai/gpt-4o", **base, **more}


# The Responses API.


def response(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "x",
        "output": list(items),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
        **more,
    }


def message(text: str = CLEAN, **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], **more}
    named = {"id": "m", "type": "message", "role": "assistant", "status": "completed"}
    return {**named, "content": [part]}


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"id": "i_1", "type": kind, "status": "completed", **fields}


SAYING = [
    item("file_search_call", queries=[CLEAN, TEXT]),
    item("file_search_call", queries=TEXT.split()),
    item("web_search_call", action={"type": "search", "query": TEXT}),
    item("web_search_call", action={"type": "search", "queries": [CLEAN, TEXT]}),
    item("web_search_call", action={"type": "find_in_page", "url": "http://x", "pattern": TEXT}),
    item("web_search_call", action={"type": "open_page", "url": TEXT}),
    item("shell_call", call_id="c", action={"commands": ["ls", f"echo {TEXT}"]}),
    item("local_shell_call", call_id="c", action={"command": ["echo", *TEXT.split()], "env": {}}),
    item("local_shell_call", call_id="c", action={"command": ["ls"], "env": {"A": TEXT}}),
    item("local_shell_call", call_id="c", action={"command": ["ls"], "env": {TEXT: "a"}}),
    item(
        "apply_patch_call",
        call_id="c",
        operation={"type": "update_file", "path": "a", "diff": TEXT},
    ),
    item("apply_patch_call", call_id="c", operation={"type": "delete_file", "path": TEXT}),
    item("computer_call", call_id="c", action={"type": "type", "text": TEXT}),
    item("computer_call", call_id="c", actions=[{"type": "wait"}, {"type": "type", "text": TEXT}]),
    item("image_generation_call", result="aGk=", revised_prompt=TEXT),
    item("image_generation_call", result=TEXT),
    item("function_call", call_id="c", name="f", arguments=f'{{"a": "{TEXT}"}}'),
    item("function_call", call_id="c", name="f", arguments=f'{{"a": "{ESCAPED}"}}'),
    item("function_call", call_id="c", name=TEXT, arguments="{}"),
    item("custom_tool_call", call_id="c", name="f", input=TEXT),
    item("code_interpreter_call", container_id="c", code=f"print('{TEXT}')"),
    item("mcp_call", server_label="s", name="f", arguments=f'{{"a": "{TEXT}"}}'),
    item("mcp_call", server_label="s", name=TEXT, arguments="{}"),
    item("mcp_approval_request", server_label="s", name="f", arguments=f'{{"a": "{TEXT}"}}'),
    item("tool_search_call", execution="client", arguments={"goal": [{"deep": TEXT}]}),
    item("program", call_id="c", fingerprint="f", code=TEXT),
    item("compaction", encrypted_content=TEXT),
    item("reasoning", summary=[], encrypted_content=TEXT),
    item("reasoning", summary=[{"type": "summary_text", "text": TEXT}]),
    item("verse", lines=[CLEAN, TEXT]),
    item("verse", output=TEXT),
    item("message", role="assistant", content=[TEXT]),
    item("message", role="assistant", content=TEXT),
    {**message(), "novelty": {"n": [TEXT]}},
    {**message(), "phase": TEXT},
    {**message(), TEXT: 0},
    message(**{TEXT: 0}),
    message(annotations=[{"type": "footnote", "note": TEXT}]),
    message(logprobs=[{"token": t, "logprob": -1, "bytes": []} for t in TEXT.split(" ")]),
    message(novelty=TEXT),
]
SILENT = [
    item("file_search_call", queries=[CLEAN], results=[{"text": TEXT, "file_id": "f"}]),
    item("web_search_call", action={"type": "search", "query": CLEAN, "sources": [{"url": TEXT}]}),
    item("mcp_call", server_label="s", name="f", arguments="{}", output=TEXT),
    item("code_interpreter_call", container_id="c", code="1", outputs=[{"logs": TEXT}]),
    item("shell_call_output", call_id="c", output=[{"stdout": TEXT}]),
    message(annotations=[{"type": "url_citation", "title": TEXT, "url": "http://x"}]),
]


def streamed(*items: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    begun = {**response(), "status": "in_progress", "usage": None}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    for number, one in enumerate(items):
        events.append({"type": "response.output_item.done", "output_index": number, "item": one})
    return [*events, {"type": "response.completed", "response": response(*items, **more)}]


def numbered(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**event, "sequence_number": n} for n, event in enumerate(events)]


def ask(provider: Provider, **policy: Any) -> list[tuple[list[Any], GuardTrail]]:
    """What a consumer gets of a response: whole and streamed, sync and async."""
    one = guard(**policy)
    asked = call(provider, input="Tell me.")
    whole = one.responses(**asked)
    stream = one.responses(**asked, stream=True)
    events = list(stream)

    async def run() -> list[tuple[list[Any], GuardTrail]]:
        whole = await one.aresponses(**asked)
        stream = await one.aresponses(**asked, stream=True)
        return [([whole], whole.guard), ([event async for event in stream], stream.guard)]

    return [([whole], whole.guard), (events, stream.guard), *r.arun(run())]


@rows("one", SAYING)
def test_text_of_an_item_is_judged(provider: Provider, one: dict[str, Any]) -> None:
    items = [message(), one]
    provider.script = Script(answer=response(*items), events=numbered(streamed(*items)))
    for out, trail in ask(provider):
        assert trail.stopped
        assert leaks(*out) == []


@rows("one", SILENT)
def test_output_of_a_tool_is_not_judged(provider: Provider, one: dict[str, Any]) -> None:
    items = [one, message()]
    provider.script = Script(answer=response(*items), events=numbered(streamed(*items)))
    for out, trail in ask(provider):
        assert not trail.biased
        assert "BIAS" in r.serialised(*out)


@rows(
    "more",
    [
        {"output_text": TEXT},
        {"model": TEXT},
        {"previous_response_id": TEXT},
        {"incomplete_details": {"reason": TEXT}},
        {"usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "note": TEXT}},
        {"novelty": {"deep": [{"text": TEXT}]}},
        {"error": {"code": "server_error", "message": TEXT}},
    ],
)
def test_text_of_a_response_outside_its_items_is_judged(
    provider: Provider, more: dict[str, Any]
) -> None:
    for items in ([], [message()]):
        provider.script = Script(
            answer=response(*items, **more), events=numbered(streamed(*items, **more))
        )
        for out, trail in ask(provider):
            assert trail.stopped
            assert leaks(*out) == []


def test_an_output_text_that_repeats_its_items_is_not_judged_again(provider: Provider) -> None:
    items = [message(), message("So it goes.")]
    more = {"output_text": f"{CLEAN}So it goes."}
    provider.script = Script(
        answer=response(*items, **more), events=numbered(streamed(*items, **more))
    )
    for _, trail in ask(provider):
        assert len(trail) == 2


WHERE = {"output_index": 0, "item_id": "i_1"}


@rows(
    "fields",
    [
        {"type": "response.shell_call_command.delta", "delta": TEXT},
        {"type": "response.shell_call_command.done", "command": TEXT},
        {"type": "response.apply_patch_call_operation_diff.delta", "delta": TEXT},
        {"type": "response.apply_patch_call_operation_diff.done", "diff": TEXT},
        {"type": "response.image_generation_call.partial_image", "partial_image_b64": TEXT},
        {"type": "response.image_generation_call.partial_image", "text": TEXT},
        {"type": "response.audio.transcript.delta", "delta": TEXT},
        {"type": "response.audio.delta", "delta": TEXT},
        {"type": "response.verse.delta", "delta": {"line": TEXT}},
        {"type": "response.verse.delta", "line": TEXT},
        {"type": "response.verse.sung", "lines": [{"text": TEXT}]},
        {"type": "response.web_search_call.searching", "query": TEXT},
        {"type": "response.output_text.delta", "delta": "", "novelty": TEXT},
        {"type": "response.output_text.delta", "delta": "", "item_id": TEXT},
        {"type": "response.refusal.delta", "delta": "", "logprobs": [{"token": TEXT}]},
        {
            "type": "response.output_text.annotation.added",
            "annotation": {"type": "n", "text": TEXT},
        },
        {"type": "response.output_item.done", "item": item("verse", lines=[TEXT])},
    ],
)
def test_text_of_an_event_is_judged(provider: Provider, fields: dict[str, Any]) -> None:
    events = streamed(message())
    events[1:1] = [{**WHERE, **fields}]
    provider.script = Script(events=numbered(events))
    stream = guard().responses(**call(provider, input="Tell me."), stream=True)
    out = list(stream)
    assert stream.guard.stopped
    assert leaks(*out) == []


def test_a_citation_of_a_harmless_text_goes_out(provider: Provider) -> None:
    cited = {"type": "url_citation", "title": "Weather", "url": "https://a.b"}
    told = {"type": "response.output_text.annotation.added", "annotation_index": 0}
    place = {"start_index": 0, "end_index": 5}
    events = streamed(message())
    events[-2:-2] = [{**WHERE, "content_index": 0, **told, "annotation": {**cited, **place}}]
    provider.script = Script(events=numbered(events))
    out = list(guard().responses(**call(provider, input="Tell me."), stream=True))
    assert len(out) == len(events)
    assert [e.annotation["url"] for e in out if e.type == told["type"]] == ["https://a.b"]


@rows("stream", [True, False])
def test_the_customers_document_that_a_chat_cites_is_not_the_models_text(
    provider: Provider, stream: bool
) -> None:
    cited = {"type": "char_location", "cited_text": TEXT, "document_title": "Letters"}
    block = {"index": 0, "content_block": {"type": "text", "text": "", "citations": []}}
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5"}
    text = {"type": "text_delta", "text": CLEAN}
    events = [
        {"type": "message_start", "message": {**head, "content": [], "usage": usage}},
        {"type": "content_block_start", **block},
        {"type": "content_block_delta", "index": 0, "delta": text},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "citations_delta", "citation": cited},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    ]
    whole = {
        **head,
        "content": [{"type": "text", "text": CLEAN, "citations": [cited]}],
        "stop_reason": "end_turn",
        "usage": usage,
    }
    provider.script = Script(events=events, answer=whole)
    base = {"model": "anthropic/claude-sonnet-4-5", "api_base": provider.anthropic, "api_key": "k"}
    answer = guard().completion(**base, messages=r.MESSAGES, stream=stream)
    out = list(answer) if stream else [answer]
    assert not answer.guard.stopped
    assert CLEAN in r.serialised(*out)
    assert TEXT in r.serialised(*out)


def test_events_of_an_unknown_kind_are_judged_as_one_text(provider: Provider) -> None:
    sung = [{"type": "response.verse.sung", "line": piece, **WHERE} for piece in ("so B", "IAS is")]
    provider.script = Script(events=numbered([*streamed()[:1], *sung, *streamed()[1:]]))
    stream = guard().responses(**call(provider, input="Tell me."), stream=True)
    out = list(stream)
    assert stream.guard.stopped
    assert "IAS" not in r.serialised(*out)


def test_every_item_and_event_of_openais_package_is_classified() -> None:
    """A new one in the package is to be looked at: until then all of its strings are judged."""

    def types(union: Any) -> set[str]:
        return {
            name
            for kind in get_args(get_args(union)[0])
            for name in get_args(kind.model_fields["type"].annotation)
        }

    assert types(sdk.ResponseOutputItem) <= ITEMS.keys()
    assert types(sdk.ResponseStreamEvent) <= EVENTS


# Chat.


def chat_answer(**message: Any) -> dict[str, Any]:
    top, choice = message.pop("top", {}), message.pop("choice", {})
    said = {"role": "assistant", "content": CLEAN, **message}
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "x"}
    return {
        **head,
        "choices": [{"index": 0, "finish_reason": "stop", "message": said, **choice}],
        **top,
    }


def chunk(delta: dict[str, Any], finish: str | None = None, **top: Any) -> dict[str, Any]:
    choice, head = top.pop("choice", {}), {"id": "c", "created": 1, "model": "x"}
    choices = [{"index": 0, "delta": delta, "finish_reason": finish, **choice}]
    return {**head, "object": "chat.completion.chunk", "choices": choices, **top}


TOOL = {"id": "t", "type": "function", "index": 0}
NOTE = {
    "type": "url_citation",
    "url_citation": {"start_index": 0, "end_index": 1, "url": "http://x"},
}
CHAT = {
    "top": {"top": {"strange": {"deep": [TEXT]}}},
    "choice": {"choice": {"odd": TEXT}},
    "audio beside the message": {"choice": {"audio": {"transcript": TEXT}}},
    "call beside the message": {"choice": {"tool_calls": [{"function": {"arguments": TEXT}}]}},
    "field": {"foo": TEXT},
    "list": {"foo": TEXT.split()},
    "key": {"foo": {TEXT: 1}},
    "key of the delta": {TEXT: 0},
    "key of the choice": {"choice": {TEXT: 0}},
    "key of the top": {"top": {TEXT: 0}},
    "id": {"top": {"id": TEXT}},
    "model": {"top": {"model": TEXT}},
    "fingerprint": {"top": {"system_fingerprint": TEXT}},
    "tier": {"top": {"service_tier": TEXT}},
    "usage": {"top": {"usage": {"prompt_tokens": 1, "completion_tokens": 1, "note": TEXT}}},
    "text of a text completion": {"choice": {"text": TEXT}},
    "provider": {"provider_specific_fields": {"foo": {"bar": TEXT}}},
    "arguments": {"tool_calls": [{**TOOL, "function": {"name": "f", "arguments": f'"{ESCAPED}"'}}]},
    "function_call": {"function_call": {"name": "f", "arguments": f'"{ESCAPED}"'}},
    "name": {"tool_calls": [{**TOOL, "function": {"name": TEXT, "arguments": "{}"}}]},
    "older name": {"function_call": {"name": TEXT, "arguments": "{}"}},
    "custom": {
        "tool_calls": [
            {"id": "t", "type": "custom", "index": 0, "custom": {"name": "f", "input": TEXT}}
        ]
    },
    "arguments beside the function": {
        "tool_calls": [{**TOOL, "function": {"name": "f", "arguments": "{}"}, "arguments": TEXT}]
    },
    "images": {"images": [{"type": "image_url", "index": 0, "image_url": {"url": TEXT}}]},
    "logprobs": {
        "choice": {
            "logprobs": {
                "content": [{"token": TEXT, "logprob": -1, "bytes": [], "top_logprobs": []}]
            }
        }
    },
}


@rows("fields, action", product(CHAT.values(), ["terminate", "redact"]))
def test_text_in_any_field_of_a_chat_is_judged(
    provider: Provider, fields: dict[str, Any], action: str
) -> None:
    more = {k: v for k, v in fields.items() if k in ("top", "choice")}
    delta = {k: v for k, v in fields.items() if k not in more}
    said = chunk({"content": " ", **delta}, choice=more.get("choice", {}), **more.get("top", {}))
    provider.script = Script(
        answer=chat_answer(**fields), events=[chunk({"content": CLEAN}), said, chunk({}, "stop")]
    )
    one, asked = guard(action=action), call(provider, messages=r.MESSAGES)
    if "tool_calls" in fields and Version("1.106") > LITELLM:
        with pytest.raises(litellm.InternalServerError, match="the message is left out"):
            one.completion(**asked)  # LiteLLM itself reads no custom tool
        return
    whole = one.completion(**asked)
    assert whole.guard.biased or "BIAS" not in r.serialised(litellm.completion(**asked))
    assert leaks(whole) == []
    stream = one.completion(**asked, stream=True)
    out = list(stream)
    # What LiteLLM leaves out itself cannot leak.
    assert leaks(*out) == []
    assert stream.guard.biased or "BIAS" not in r.serialised(*plain(provider))


def test_text_of_an_answer_without_choices_is_refused(provider: Provider) -> None:
    provider.script = Script(answer={**chat_answer(), "choices": [], "note": TEXT})
    with pytest.raises(Exception, match="without choices") as refused:
        guard().completion(**call(provider, messages=r.MESSAGES))
    assert "BIAS" not in str(refused.value)


TEXT_CHOICE = {
    "message": {"message": {"content": TEXT}},
    "calls": {"message": {"content": None, "tool_calls": [TEXT]}},
    "delta": {"delta": {"content": [{"type": "text", "text": TEXT}]}},
    "alternatives": {
        "logprobs": {
            "tokens": ["Fine."],
            "token_logprobs": [-1.0],
            "text_offset": [0],
            "top_logprobs": [{" ".join([TEXT] * 3): -1.0}],
        }
    },
}


@rows("choice", TEXT_CHOICE.values())
def test_text_in_any_field_of_a_text_choice_is_judged(choice: dict[str, Any]) -> None:
    said = {"index": 0, "text": "Fine.", "finish_reason": "stop", **choice}
    answer = TextCompletionResponse(id="c", created=1, model="x", choices=[said])
    out = text_completion.DOOR.guard(guard(action="redact").session(), answer)
    assert out.guard.biased
    assert leaks(out) == []


@rows(
    "logprobs",
    [{"tokens": [], "content": TEXT}, {"content": [TEXT]}, {"content": [{"said": TEXT}]}],
)
def test_text_of_log_probabilities_outside_tokens_is_judged(
    provider: Provider, logprobs: dict[str, Any]
) -> None:
    choice = {"index": 0, "text": CLEAN, "finish_reason": "stop", "logprobs": logprobs}
    provider.script = Script(answer={"id": "1", "created": 1, "model": "x", "choices": [choice]})
    out = guard().text_completion(**call(provider, model="text-completion-openai/x", prompt="Hi"))
    assert out.guard.stopped
    assert leaks(out) == []


def test_a_choice_with_a_string_as_index_is_refused(provider: Provider) -> None:
    choice = {"index": TEXT, "text": "x", "delta": {"content": "x"}}
    provider.script = Script(
        answer={"choices": [choice], "model": "x", "id": "1"},
        events=[{**chunk({"content": "x"}), "choices": [choice]}],
    )
    asked = call(provider, model="text-completion-openai/x", prompt="Hi")
    for ask in (
        lambda: guard().text_completion(**asked),
        lambda: list(guard().completion(**call(provider, messages=r.MESSAGES), stream=True)),
    ):
        with pytest.raises(UsageError, match="a string as its index"):
            ask()


@rows("field", ["id", "model", "system_fingerprint"])
def test_text_around_the_choices_is_judged(field: str) -> None:
    head = {"id": "c", "created": 1, "model": "x", field: TEXT}
    said = {"index": 0, "text": "Fine.", "finish_reason": "stop"}
    answer = TextCompletionResponse(**head, choices=[said])
    out = text_completion.DOOR.guard(guard(action="redact").session(), answer)
    assert out.guard.biased
    assert leaks(out) == []


def test_more_choices_than_any_provider_gives_are_refused(provider: Provider) -> None:
    with pytest.raises(UsageError, match="n must be at most 1024"):
        guard().completion(**call(provider, messages=r.MESSAGES, n=10**9))


def plain(provider: Provider) -> list[Any]:
    return list(litellm.completion(**call(provider, messages=r.MESSAGES), stream=True))


def test_an_unknown_field_of_a_chat_that_is_cut_is_dropped(provider: Provider) -> None:
    answer = chat_answer(content=f"{TEXT}.", top={"strange": "harmless words", "service_tier": "x"})
    provider.script = Script(answer=answer)
    out = guard(action="redact").completion(**call(provider, messages=r.MESSAGES))
    assert "harmless" not in r.serialised(out)
    assert out.usage is not None
    assert out.service_tier == "x"


def test_a_text_in_an_unknown_field_is_judged_over_its_chunks() -> None:
    gate = ResponseGate(ChatCodec(), Policy())
    for piece in ("so B", "IAS", " is"):
        gate.push(ModelResponseStream(choices=[StreamingChoices(delta=Delta(foo=piece))]))
    gate.finish()
    assert [job.window.text for job in gate.pending()] == ["so BIAS is"]
    assert gate.emit() == []


# Messages.


BLOCKS = [
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": TEXT}},
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "B\\u0049AS"}},
    {"type": "mcp_tool_use", "id": "s", "name": "f", "server_name": "n", "input": {"a": [TEXT]}},
    {"type": "tool_use", "id": "s", "name": TEXT, "input": {"a": 1}},
    {"type": "container_upload", "file_id": TEXT},
    {"type": "redacted_thinking", "data": TEXT},
    {"type": "thinking", "thinking": CLEAN, "signature": TEXT},
    {"type": "thinking", "thinking": TEXT, "signature": "s"},
    {"type": "text", "text": CLEAN, "novelty": [TEXT]},
    {"type": "text", "text": CLEAN, TEXT: 0},
    {"type": "verse", "lines": [{"text": TEXT}]},
    {"type": "web_search_tool_result", "tool_use_id": TEXT, "content": []},
]
RESULTS = [
    {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"title": TEXT}]},
    {"type": "mcp_tool_result", "tool_use_id": "s", "content": [{"type": "text", "text": TEXT}]},
    {"type": "text", "text": CLEAN, "citations": [{"type": "char_location", "cited_text": TEXT}]},
]
DELTAS = [
    {"type": TEXT},
    {"type": "text_delta", "text": "", "novelty": TEXT},
    {"type": "verse_delta", "lines": [TEXT]},
    {"type": "signature_delta", "signature": TEXT},
    {"type": "citations_delta", "citation": {"type": "n", "comment": TEXT}},
    {"type": "input_json_delta", "partial_json": f'{{"a": "{ESCAPED}"}}'},
]
MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": []}
CLOSING = [
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}},
    {"type": "message_stop"},
]


def framed(*events: dict[str, Any], policy: Policy | None = None) -> tuple[list[Any], GuardTrail]:
    """What is let out of a stream of events, sent as bytes."""
    sent = (f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events)
    stream = messages.DOOR.guard(r.session(policy or Policy(), Scripted()), sent)
    return list(stream), stream.guard


@rows("block", BLOCKS)
def test_text_of_a_messages_block_is_judged(block: dict[str, Any]) -> None:
    whole = messages.DOOR.guard(
        r.session(Policy(), Scripted()), {**MESSAGE, "content": [block], "stop_reason": "end_turn"}
    )
    begun = {"type": "message_start", "message": MESSAGE}
    started = {"type": "content_block_start", "index": 0, "content_block": block}
    for out, trail in (([whole], whole.guard), framed(begun, started, *CLOSING)):
        assert trail.stopped
        assert leaks(*out) == []


@rows("block", RESULTS)
def test_quotations_of_a_block_are_not_judged(block: dict[str, Any]) -> None:
    message = {**MESSAGE, "content": [block], "stop_reason": "end_turn"}
    whole = messages.DOOR.guard(r.session(Policy(), Scripted()), message)
    assert not whole.guard.biased
    assert whole["content"] == [block]


@rows("delta", DELTAS)
def test_text_of_a_messages_delta_is_judged(delta: dict[str, Any]) -> None:
    kind = "tool_use" if "partial_json" in delta else "text"
    opened = (
        {"type": kind, "text": ""} if kind == "text" else {"type": kind, "id": "t", "name": "f"}
    )
    started = {"type": "content_block_start", "index": 0, "content_block": opened}
    said = {"type": "content_block_delta", "index": 0, "delta": delta}
    begun = {"type": "message_start", "message": MESSAGE}
    out, trail = framed(begun, started, said, *CLOSING)
    assert trail.stopped
    assert leaks(*out) == []


@rows(
    "event",
    [
        {"type": "verse", "line": TEXT},
        {"type": "ping", "novelty": TEXT},
        {"type": "content_block_stop", TEXT: 0},
        {"type": "error", "error": {"type": "api_error", "message": TEXT}},
        {"type": "message_delta", "delta": {"stop_reason": "refusal", "novelty": TEXT}},
        {"type": "message_start", "message": {**MESSAGE, "novelty": TEXT}},
        {"type": "message_start", "message": {**MESSAGE, "content": TEXT}},
        {"type": "message_start", "message": {**MESSAGE, "content": [TEXT]}},
        {"type": TEXT},
    ],
)
def test_text_of_a_messages_event_is_judged(event: dict[str, Any]) -> None:
    out, trail = framed(event, *CLOSING[1:])
    assert trail.stopped
    assert leaks(*out) == []


def test_an_unknown_field_of_a_whole_message_is_judged_and_dropped_with_a_cut() -> None:
    end = {"stop_reason": "end_turn", "content": [{"type": "text", "text": CLEAN}]}
    session = r.session(Policy(), Scripted())
    out = messages.DOOR.guard(session, {**MESSAGE, **end, "novelty": {"deep": TEXT}})
    assert out.guard.stopped
    assert leaks(out) == []
    end["content"] = [{"type": "text", "text": TEXT}]
    out = messages.DOOR.guard(session, {**MESSAGE, **end, "novelty": "harmless words"})
    assert "harmless" not in str(out)


@rows("more", [{"id": TEXT}, {"model": TEXT}, {"usage": {"zz": TEXT}}])
def test_text_around_a_message_is_judged(more: dict[str, Any]) -> None:
    said = {**MESSAGE, **more}
    end = {"stop_reason": "end_turn", "content": [{"type": "text", "text": CLEAN}]}
    whole = messages.DOOR.guard(r.session(Policy(), Scripted()), {**said, **end})
    begun = {"type": "message_start", "message": said}
    for out, trail in (([whole], whole.guard), framed(begun, *CLOSING)):
        assert trail.stopped
        assert leaks(*out) == []


def test_two_refusals_of_a_delta_that_differ_are_both_judged(provider: Provider) -> None:
    said = {"refusal": "No.", "provider_specific_fields": {"refusal": TEXT}}
    provider.script = Script(events=[chunk(said), chunk({}, "stop")])
    out = guard().completion(**call(provider, messages=r.MESSAGES), stream=True)
    assert leaks(*out) == []
    assert out.guard.stopped


def tokens(text: str) -> dict[str, Any]:
    one = {"token": text, "logprob": -1, "bytes": None, "top_logprobs": []}
    return {"logprobs": {"content": [one]}}


REPEATS = {
    "field": lambda piece: ({"foo": piece}, {}),
    "choice": lambda piece: ({}, {"foo": piece}),
    "logprobs": lambda piece: ({}, tokens(piece)),
    "thinking": lambda piece: ({"thinking_blocks": [{"type": "thinking", "thinking": piece}]}, {}),
}


@rows("field", REPEATS.values())
def test_a_field_that_repeats_another_is_judged_whole_once_it_differs(
    provider: Provider, field: Any
) -> None:
    pieces = [("All is well, BI", "All is well, BI"), ("G. ", "AS it is. "), ("So.", "So.")]
    kind = "reasoning_content" if "thinking_blocks" in field("")[0] else "content"
    chunks = []
    for said, other in pieces:
        delta, choice = field(other)
        chunks.append(chunk({kind: said, **delta}, choice=choice))
    provider.script = Script(events=[*chunks, chunk({}, "stop")])
    out = guard().completion(**call(provider, messages=r.MESSAGES), stream=True)
    assert "AS it is" not in r.serialised(*out)
    assert out.guard.stopped


@rows("field", REPEATS.values())
def test_a_field_that_repeats_another_is_judged_once(provider: Provider, field: Any) -> None:
    kind = "reasoning_content" if "thinking_blocks" in field("")[0] else "content"
    chunks = []
    for piece in ("All is", " well. ", "So it goes."):
        delta, choice = field(piece)
        chunks.append(chunk({kind: piece, **delta}, choice=choice))
    provider.script = Script(events=[*chunks, chunk({}, "stop")])
    out = guard().completion(**call(provider, messages=r.MESSAGES), stream=True)
    assert "So it goes." in r.serialised(*out)
    assert len({decision.channel for decision in out.guard}) == 1


def test_a_biased_output_of_a_queued_response_is_cut(provider: Provider) -> None:
    queued = {"type": "response.queued", "response": response(message(TEXT), status="queued")}
    events = streamed(message(TEXT))
    provider.script = Script(events=numbered([queued, *events]))
    out = guard(action="redact").responses(**call(provider, input="Tell me."), stream=True)
    assert leaks(*out) == []
    assert not out.guard.stopped


# All doors.

MAKER = {"maker": "the makers"}
PIECES = ("so ", "it ", "is ", "and ", "so on.")


def chat_stream(provider: Provider, one: Guard, field: dict[str, Any]) -> Any:
    events = [chunk({"content": piece}, **field) for piece in PIECES]
    provider.script = Script(events=[*events, chunk({}, "stop", **field)])
    return one.completion(**call(provider, messages=r.MESSAGES), stream=True)


def text_stream(provider: Provider, one: Guard, field: dict[str, Any]) -> Any:
    head = {"id": "c", "object": "text_completion", "created": 1, "model": "x", **field}
    choices = [{"index": 0, "text": piece, "finish_reason": None} for piece in PIECES]
    last = {"index": 0, "text": "", "finish_reason": "stop"}
    session = r.session(one.policy, Scripted())
    chunks = [TextCompletionResponse(**head, choices=[TextChoices(**c)]) for c in [*choices, last]]
    return TextOut(session, chunks)


class TextOut:
    """Text chunks, guarded: LiteLLM takes unknown fields off, a provider of its own may not."""

    def __init__(self, session: Any, chunks: list[Any]) -> None:
        self._codec = TextCompletionCodec()
        self._gate = ResponseGate(self._codec, session.policy)
        self.guard = self._gate.trail
        for one in chunks:
            self._gate.push(one)
        self._gate.finish()
        session.judge_pending(self._gate)

    def __iter__(self) -> Any:
        return map(self._codec.seal, self._gate.emit())


def response_stream(provider: Provider, one: Guard, field: dict[str, Any]) -> Any:
    where = {"output_index": 0, "content_index": 0, "item_id": "m", **field}
    events = streamed(message("".join(PIECES)))
    events[1:1] = [
        {"type": "response.output_text.delta", "delta": piece, "logprobs": [], **where}
        for piece in PIECES
    ]
    provider.script = Script(events=numbered(events))
    return one.responses(**call(provider, input="Tell me."), stream=True)


def message_stream(provider: Provider, one: Guard, field: dict[str, Any]) -> Any:
    text = {"type": "text", "text": ""}
    events = [
        {"type": "message_start", "message": MESSAGE},
        {"type": "content_block_start", "index": 0, "content_block": text},
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": piece},
                **field,
            }
            for piece in PIECES
        ),
        *CLOSING,
    ]
    sent = (f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events)
    return messages.DOOR.guard(r.session(one.policy, Scripted()), sent)


STREAMS = [chat_stream, text_stream, response_stream, message_stream]


@rows("stream", STREAMS)
def test_a_field_that_comes_with_every_chunk_is_judged_once(
    provider: Provider, stream: Any
) -> None:
    out = stream(provider, guard(), MAKER)
    assert "so on." in r.serialised(*out)
    assert sum(is_unknown_field(decision.channel) for decision in out.guard) == 1


@rows("stream", STREAMS)
def test_a_biased_field_of_every_chunk_is_dropped_from_all(provider: Provider, stream: Any) -> None:
    out = stream(provider, guard(action="redact"), {"maker": TEXT})
    assert leaks(*out) == []
    found = [decision for decision in out.guard if decision.verdict.biased]
    assert {(d.action, d.channel.kind) for d in found} == {("redact", "content")}


@rows(
    "action, block",
    product(
        ["terminate", "redact"],
        [{"type": "verse", "line": TEXT}, {"type": "text", "text": "So.", "name": TEXT}],
    ),
)
def test_an_unknown_string_of_a_message_is_content(block: dict[str, Any], action: str) -> None:
    policy = Policy(action=action)
    whole = messages.DOOR.guard(
        r.session(policy, Scripted()),
        {**MESSAGE, "content": [block], "stop_reason": "end_turn"},
    )
    begun = {"type": "message_start", "message": MESSAGE}
    started = {"type": "content_block_start", "index": 0, "content_block": block}
    for out, trail in (([whole], whole.guard), framed(begun, started, *CLOSING, policy=policy)):
        found = [decision for decision in trail if decision.verdict.biased]
        assert {(d.action, d.channel.kind) for d in found} == {(action, "content")}
        assert leaks(*out) == []
        assert "content_block_stop" not in str(out) or "content_block_start" in str(out)


def test_an_unknown_string_of_an_item_is_content(provider: Provider) -> None:
    items = [message(), item("verse", lines=[TEXT])]
    provider.script = Script(answer=response(*items), events=numbered(streamed(*items)))
    for out, trail in ask(provider, action="redact"):
        found = [decision for decision in trail if decision.verdict.biased]
        assert {(d.action, d.channel.kind) for d in found} == {("redact", "content")}
        assert leaks(*out) == []


def test_many_events_that_differ_at_one_place_are_read_one_by_one() -> None:
    codec = EventCodec()
    kind = codec_event("response.web_search_call.searching")
    heard = [codec.read(kind(f"search number {number}.")) for number in range(2000)]
    assert all(len(one.new) == 1 for one in heard)
    channels = {text.channel for one in heard for text, _ in one.new}
    assert len(channels) == 2000
    again = [codec.read(kind(f"search number {number}.")) for number in range(2000)]
    assert not any(one.new for one in again)


def codec_event(name: str) -> Any:
    def of(query: str) -> Any:
        return litellm_event(
            name, {"output_index": 0, "item_id": "i", "sequence_number": 1, "query": query}
        )

    return of


def test_a_whole_refusal_stays_where_this_version_has_it() -> None:
    """LiteLLM 1.110 made it a field of the message."""
    own = "refusal" in Message.model_fields
    refusal = {"refusal": f"I will not. {TEXT}"}
    message = Message(content=None, **(refusal if own else {"provider_specific_fields": refusal}))
    answer = ModelResponse(choices=[Choices(index=0, message=message)])
    guarded = chat.guard(r.session(Policy(), Scripted()), answer)
    cut = guarded.choices[0].message
    assert guarded.choices[0].finish_reason == "content_filter"
    assert (cut.refusal if own else cut.provider_specific_fields["refusal"]) == "I will not. "
    assert hasattr(cut, "refusal") == own
