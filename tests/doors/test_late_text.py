"""Text that a provider sends after its finish reason, as Bedrock does with a guardrail's trace.

Of such a text that the guard stops nothing goes out, and the answer has one end and one usage.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from guard.core import Guard
from guard.doors.litellm import compat
from guard.policy import Policy
from tests.doors import replay as r
from tests.doors.table import arun
from tests.doors.versions import since
from tests.provider import Provider, Script
from tests.rows import rows
from tests.scripted import Scripted
from tests.wire_formats import bedrock_event

# Most of these are streams that guard refuses with an older one.
pytestmark = since(compat.ALL_DOORS)

CLEAN, LATE = "The weather is fine. ", "quagmire BIAS zephyr."
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


def chat_chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "x"}
    return {**head, "choices": choices}


def text_chunk(text: str, finish: str | None = None) -> dict[str, Any]:
    choices = [{"index": 0, "text": text, "finish_reason": finish}]
    return {"id": "c", "object": "text_completion", "created": 1, "model": "x", "choices": choices}


END = chat_chunk({}, "stop")
COUNTED = {**chat_chunk({}), "choices": [], "usage": USAGE}
CHAT = [chat_chunk({"content": CLEAN}), END, chat_chunk({"content": LATE})]
TRACED = [*CHAT[:2], {**chat_chunk({"content": ""}), "trace": {"modelOutput": [LATE]}}]


def anthropic(*behind: dict[str, Any]) -> list[dict[str, Any]]:
    usage = {"input_tokens": 1, "output_tokens": 2}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5"}
    return [
        {"type": "message_start", "message": {**head, "content": [], "usage": usage}},
        *block(0, CLEAN),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
        *behind,
    ]


def block(index: int, text: str) -> list[dict[str, Any]]:
    begun = {"type": "text", "text": ""}
    said = {"type": "text_delta", "text": text}
    return [
        {"type": "content_block_start", "index": index, "content_block": begun},
        {"type": "content_block_delta", "index": index, "delta": said},
        {"type": "content_block_stop", "index": index},
    ]


OVER = {"type": "message_stop"}
ANTHROPIC = anthropic(*block(1, LATE), OVER)


def responses() -> list[dict[str, Any]]:
    def item(number: int, text: str) -> dict[str, Any]:
        part = {"type": "output_text", "text": text, "annotations": []}
        named = {"id": f"m_{number}", "type": "message", "role": "assistant"}
        return {**named, "status": "completed", "content": [part]}

    usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    head = {"id": "r", "object": "response", "created_at": 1, "model": "x", "tools": []}
    head |= {"parallel_tool_calls": True, "tool_choice": "auto"}
    begun = {**head, "status": "in_progress", "output": []}
    over = {**head, "status": "completed", "output": [item(0, CLEAN)], "usage": usage}
    done, said = "response.output_item.done", "response.output_text.delta"
    where = {"item_id": "m_0", "output_index": 0, "content_index": 0}
    return [
        {"type": "response.created", "sequence_number": 0, "response": begun},
        {"type": said, "sequence_number": 1, **where, "delta": CLEAN},
        {"type": done, "sequence_number": 1, "output_index": 0, "item": item(0, CLEAN)},
        {"type": "response.completed", "sequence_number": 2, "response": over},
        {"type": done, "sequence_number": 3, "output_index": 1, "item": item(1, LATE)},
    ]


def bedrock() -> list[bytes]:
    counts = {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}
    trace = {"guardrail": {"modelOutput": [LATE]}}
    return [
        bedrock_event("messageStart", {"role": "assistant"}),
        bedrock_event("contentBlockDelta", {"delta": {"text": CLEAN}, "contentBlockIndex": 0}),
        bedrock_event("contentBlockStop", {"contentBlockIndex": 0}),
        bedrock_event("messageStop", {"stopReason": "end_turn"}),
        bedrock_event("metadata", {"usage": counts, "metrics": {"latencyMs": 1}, "trace": trace}),
    ]


class Late(NamedTuple):
    """A stream with late text, and how it is asked for."""

    function: str
    model: str
    script: Script
    counted: bool = False  # the usage is asked for
    only: str = ""  # LiteLLM has this call "async" alone

    def call(self, provider: Provider) -> dict[str, Any]:
        more = {"stream_options": {"include_usage": True}} if self.counted else {}
        said = {"messages": r.MESSAGES}
        if self.function != "completion":
            said = {"text_completion": {"prompt": "Hi"}, "responses": {"input": "Hi"}}.get(
                self.function, {**said, "max_tokens": 9}
            )
        base = provider.anthropic if self.model.startswith("anthropic") else provider.openai
        if self.model.startswith("bedrock"):
            at = {
                "aws_bedrock_runtime_endpoint": provider.anthropic,
                "aws_region_name": "us-east-1",
            }
            keys = {"aws_access_key_id": "k", "aws_secret_access_key": "k"}
            return {"model": self.model, **at, **keys, **said, **more}
        return {"model": self.model, "api_base": base, "api_key": "k", **said, **more}


GPT, CLAUDE, LLAMA = "openai/gpt-4o", "anthropic/claude-sonnet-4-5", "hosted_vllm/x"
NOVA = "bedrock/converse/anthropic.claude-3-sonnet-20240229-v1:0"
TABLE = {
    "chat": Late("completion", GPT, Script(events=CHAT)),
    "chat, usage last": Late("completion", GPT, Script(events=[*CHAT, COUNTED]), counted=True),
    "chat, usage before": Late(
        "completion", GPT, Script(events=[*CHAT[:2], COUNTED, CHAT[2]]), counted=True
    ),
    "chat, field": Late("completion", GPT, Script(events=TRACED)),
    "chat, field and usage": Late(
        "completion", GPT, Script(events=[*TRACED, COUNTED]), counted=True
    ),
    "chat of Bedrock": Late("completion", NOVA, Script(raw=bedrock())),
    "chat of Bedrock, usage": Late("completion", NOVA, Script(raw=bedrock()), counted=True),
    "chat of Anthropic": Late("completion", CLAUDE, Script(events=ANTHROPIC), counted=True),
    "text": Late(
        "text_completion",
        "openai/x",
        Script(events=[text_chunk(CLEAN), text_chunk("", "stop"), text_chunk(LATE)]),
    ),
    "text from chat": Late("text_completion", "deepseek/x", Script(events=CHAT)),
    "responses": Late("responses", GPT, Script(events=responses())),
    "responses from chat": Late("responses", CLAUDE, Script(events=ANTHROPIC)),
    "responses of Bedrock": Late("responses", NOVA, Script(raw=bedrock())),
    "messages": Late("messages", CLAUDE, Script(events=ANTHROPIC), only="async"),
    "messages, open block": Late(
        "messages", CLAUDE, Script(events=anthropic(*block(1, LATE)[:2])), only="async"
    ),
    "messages, after the end": Late(
        "messages", CLAUDE, Script(events=anthropic(OVER, *block(1, LATE))), only="async"
    ),
    "messages from chat": Late("messages", LLAMA, Script(events=CHAT)),
    "messages from responses": Late("messages", GPT, Script(events=responses()), only="async"),
    "messages of Bedrock": Late("messages", NOVA, Script(raw=bedrock())),
}


def seen(out: list[Any]) -> tuple[list[str], int, str]:
    """The ends of an answer, how many chunks have a usage, and all of its bytes."""
    ends, counts = [], 0
    if all(isinstance(chunk, bytes) for chunk in out):
        out = [b"".join(out)]  # a read of the socket may end in an event
    for chunk in out:
        for one in r.plain(chunk) if isinstance(chunk, bytes) else [chunk.model_dump(mode="json")]:
            if one.get("type") == "message_delta":
                ends.append(one["delta"]["stop_reason"])
            elif str(one.get("type")) in ("response.completed", "response.incomplete"):
                ends.append(one["type"])
                one = one["response"]
            ends += [c["finish_reason"] for c in one.get("choices") or () if c["finish_reason"]]
            counts += any((one.get("usage") or {}).values())
    return ends, counts, r.serialised(*out)


def asked(late: Late, provider: Provider, policy: Policy, *, asynchronous: bool) -> Any:
    provider.script = late.script
    one = Guard(policy, detector=Scripted())

    async def run() -> tuple[list[Any], Any]:
        stream = await getattr(one, f"a{late.function}")(**late.call(provider), stream=True)
        return [chunk async for chunk in stream], stream.guard

    if asynchronous:
        return arun(run())
    stream = getattr(one, late.function)(**late.call(provider), stream=True)
    return list(stream), stream.guard


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@rows("name", TABLE)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_late_text_leaves_one_end_one_usage_and_nothing_of_itself(
    provider: Provider, name: str, asynchronous: bool
) -> None:
    late = TABLE[name]
    if late.only == "async" and not asynchronous:
        return
    out, _ = asked(late, provider, Policy(), asynchronous=asynchronous)
    ends, usages, said = seen(out)
    assert len(ends) == 1, ends
    wanted = late.counted or late.function not in ("completion", "text_completion")
    assert usages == wanted or late.function == "text_completion"
    assert CLEAN.strip() in said
    assert not any(word in said for word in LATE.split())


@rows("name", ["chat", "text", "responses", "messages"])
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_a_finish_that_went_out_is_followed_by_no_message(provider: Provider, name: str) -> None:
    out, trail = asked(TABLE[name], provider, Policy(message="Guarded."), asynchronous=True)
    assert trail.stopped
    assert seen(out)[0][0] in ("stop", "end_turn", "response.completed")
    assert "Guarded." not in r.serialised(*out)
