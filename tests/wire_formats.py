"""More wire formats of the local provider: OpenAI's text completions and its Responses API.

:func:`bedrock_event` frames an event of Amazon's.

A delta of a script is a text; the Responses API also takes ``{"reasoning": ...}``,
``{"refusal": ...}`` and ``{"arguments": ..., "call": n}``. Each run of deltas of one kind is an
output item of its own.
"""

from __future__ import annotations

import binascii
import json
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.provider import Delta, Script


def usage_of(script: Script) -> dict[str, int]:
    out = sum(len(c) for c in script.choices)
    return {"prompt_tokens": 7, "completion_tokens": out, "total_tokens": 7 + out}


class Text:
    """Text completions; every token has a log probability."""

    @staticmethod
    def events(script: Script, body: dict[str, Any]) -> Iterator[tuple[bool, str]]:
        for turn in range(max(len(c) for c in script.choices)):
            for index, deltas in enumerate(script.choices):
                if turn < len(deltas):
                    yield True, _data(Text._answer([Text._choice(index, str(deltas[turn]))]))
        for _ in range(1 + script.finish_twice):
            for index in range(len(script.choices)):
                yield False, _data(Text._answer([Text._choice(index, "", script.finish)]))
        yield False, "data: [DONE]\n\n"

    @staticmethod
    def whole(script: Script, body: dict[str, Any]) -> dict[str, Any]:
        texts = ["".join(map(str, deltas)) for deltas in script.choices]
        choices = [Text._choice(i, text, script.finish) for i, text in enumerate(texts)]
        return {**Text._answer(choices), "usage": usage_of(script)}

    @staticmethod
    def _answer(choices: list[dict[str, Any]]) -> dict[str, Any]:
        head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "x"}
        return {**head, "choices": choices}

    @staticmethod
    def _choice(index: int, text: str, finish: str | None = None) -> dict[str, Any]:
        told = {
            "tokens": [text],
            "token_logprobs": [-0.1],
            "top_logprobs": None,
            "text_offset": [0],
        }
        return {"index": index, "text": text, "logprobs": told, "finish_reason": finish}


class Responses:
    """The Responses API: one response, its text said again in every event that ends something."""

    @staticmethod
    def events(script: Script, body: dict[str, Any]) -> Iterator[tuple[bool, str]]:
        number = 0

        def event(name: str, **fields: Any) -> str:
            nonlocal number
            number += 1
            return f"event: {name}\n" + _data({"type": name, "sequence_number": number, **fields})

        yield False, event("response.created", response=_response([]))
        yield False, event("response.in_progress", response=_response([]))
        items = []
        for index, (kind, pieces) in enumerate(_runs(script.choices[0])):
            whole = "".join(pieces)
            item = _item(kind, index, "")
            where = {"item_id": item["id"], "output_index": index}
            yield False, event("response.output_item.added", output_index=index, item=item)
            for more in _added(kind):
                name, fields = more
                yield False, event(name, **where, **fields)
            name, fields = _DELTA[kind.rstrip("0123456789")]
            for piece in pieces:
                yield True, event(f"{name}.delta", **where, **fields, delta=piece)
            for name, fields in _done(kind, whole):
                yield False, event(name, **where, **fields)
            items.append(_item(kind, index, whole, "completed"))
            yield (
                False,
                event("response.output_item.done", output_index=index, item=items[-1]),
            )
        response = _response(items, "completed", script)
        for _ in range(1 + script.finish_twice):
            yield False, event("response.completed", response=response)

    @staticmethod
    def whole(script: Script, body: dict[str, Any]) -> dict[str, Any]:
        runs = enumerate(_runs(script.choices[0]))
        items = [_item(kind, i, "".join(pieces), "completed") for i, (kind, pieces) in runs]
        return _response(items, "completed", script)


_CONTENT = {"content_index": 0}
_DELTA: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("response.output_text", {**_CONTENT, "logprobs": []}),
    "refusal": ("response.refusal", _CONTENT),
    "reasoning": ("response.reasoning_summary_text", {"summary_index": 0}),
    "call": ("response.function_call_arguments", {}),
}


def _runs(deltas: Any) -> list[tuple[str, list[str]]]:
    runs: list[tuple[str, list[str]]] = []
    for delta in deltas:
        kind, text = _said(delta)
        if not runs or runs[-1][0] != kind:
            runs.append((kind, []))
        runs[-1][1].append(text)
    return runs


def _said(delta: Delta) -> tuple[str, str]:
    if isinstance(delta, str):
        return "text", delta
    if "arguments" in delta:
        return f"call{delta['call']}", delta["arguments"]
    return next(iter(delta.items()))


def _part(kind: str, text: str) -> dict[str, Any]:
    if kind == "refusal":
        return {"type": "refusal", "refusal": text}
    told = [{"token": text, "logprob": -0.1, "bytes": [], "top_logprobs": []}] if text else []
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": told}


def _item(kind: str, index: int, text: str, status: str = "in_progress") -> dict[str, Any]:
    if kind == "reasoning":
        summary = [{"type": "summary_text", "text": text}] if text else []
        return {"id": f"rs_{index}", "type": "reasoning", "summary": summary}
    if kind.startswith("call"):
        named = {"id": f"fc_{index}", "type": "function_call", "call_id": kind, "name": "f"}
        return {**named, "arguments": text, "status": status}
    message = {"id": f"msg_{index}", "type": "message", "role": "assistant", "status": status}
    return {**message, "content": [_part(kind, text)] if text else []}


def _added(kind: str) -> list[tuple[str, dict[str, Any]]]:
    if kind == "reasoning":
        part = {"type": "summary_text", "text": ""}
        name = "response.reasoning_summary_part.added"
        return [(name, {"summary_index": 0, "part": part})]
    if kind.startswith("call"):
        return []
    return [("response.content_part.added", {**_CONTENT, "part": _part(kind, "")})]


def _done(kind: str, text: str) -> list[tuple[str, dict[str, Any]]]:
    if kind == "reasoning":
        part = {"type": "summary_text", "text": text}
        return [
            ("response.reasoning_summary_text.done", {"summary_index": 0, "text": text}),
            ("response.reasoning_summary_part.done", {"summary_index": 0, "part": part}),
        ]
    if kind.startswith("call"):
        return [("response.function_call_arguments.done", {"arguments": text})]
    name, field = {"text": ("output_text", "text"), "refusal": ("refusal", "refusal")}[kind]
    return [
        (f"response.{name}.done", {**_CONTENT, field: text}),
        ("response.content_part.done", {**_CONTENT, "part": _part(kind, text)}),
    ]


def _response(
    items: list[dict[str, Any]], status: str = "in_progress", script: Script | None = None
) -> dict[str, Any]:
    usage = None
    if script is not None:
        told = usage_of(script)
        usage = {
            "input_tokens": told["prompt_tokens"],
            "output_tokens": told["completion_tokens"],
            "total_tokens": told["total_tokens"],
        }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": "x",
        "output": items,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
    }


def _data(fields: dict[str, Any]) -> str:
    return f"data: {json.dumps(fields)}\n\n"


def bedrock_event(kind: str, fields: dict[str, Any]) -> bytes:
    """Return an event of Amazon's ``vnd.amazon.eventstream``."""
    named = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        bytes([len(name)]) + name.encode() + struct.pack(">BH", 7, len(value)) + value.encode()
        for name, value in named.items()
    )
    body = json.dumps(fields).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    message = prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + body
    return message + struct.pack(">I", binascii.crc32(message))
