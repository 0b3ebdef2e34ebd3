"""Where Anthropic's Messages API carries text: the shapes of its events, blocks and deltas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from guard.doors.fields import CITATION
from guard.doors.messages.events import MessageEvent
from guard.doors.tools import is_complete
from guard.doors.walk import NamedText, Remains, Shape, TextPlace, Visit, Walk
from guard.verdict import ChannelKind

STOPPED: Mapping[str, Any] = {"stop_reason": "refusal", "stop_sequence": None}
"""The end of a stopped message: Anthropic's own stop reason for interventions of its classifiers.

It has no ``stop_details``: LiteLLM would take them for a provider's refusal and fall back.
"""
MESSAGE = frozenset({"id", "type", "role", "model", "usage", "stop_reason", "stop_sequence"})
"""The fields, beside its blocks, of a rewritten message: none of them can repeat the texts."""
ERROR = "error"
"""The slot of an error's message, which is no text of the message."""
CALL = "input"
"""The slot of a tool call's input."""

# The fields, beside its texts, of a rewritten block.
_BLOCK = frozenset({"type", "id", "name", "server_name", "caller"})
_CITING: Mapping[str, Shape] = {"citation": CITATION, "citations": CITATION}


def _delta(kind: ChannelKind, name: str = "", slot: str = "") -> Shape:
    """Return the shape of a delta whose field ``name`` is a text."""
    texts = {name: NamedText(kind, slot or name)} if name else {}
    type_only = frozenset({"type"})
    return Shape(texts, _CITING, kept=type_only, kind=kind, remains=_text_left)


def _text_left(delta: Remains) -> Any:
    said = any(value for name, value in delta.after.items() if name != "type")
    return delta.after if said else None


def _block(kind: ChannelKind, name: str, slot: str = "", **more: Any) -> Shape:
    """Return the shape of a block whose field ``name`` is a text."""
    return Shape({name: NamedText(kind, slot or name)}, _CITING, kept=_BLOCK, kind=kind, **more)


def _unsigned(block: Remains) -> Any:
    return {**block.after, "signature": ""}  # a signature is invalid after a cut


def _input(block: Mapping[str, Any]) -> str:
    """Return a tool call's input as JSON; empty if it comes in deltas."""
    value = block[CALL]
    if not value or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def _whole_call(block: Remains) -> Any:
    """Return a tool call whose input was changed: it goes out whole or not at all."""
    text = block.after[CALL]
    if block.rest_changed or not is_complete(text):
        return None
    return {**block.before, CALL: text if isinstance(block.before[CALL], str) else json.loads(text)}


_DELTAS: Mapping[str, Shape] = {
    "text_delta": _delta("content", "text"),
    "thinking_delta": _delta("reasoning", "thinking"),
    "input_json_delta": _delta("tool", "partial_json", CALL),
    "compaction_delta": _delta("content", "content", "compaction"),
    "signature_delta": _delta("reasoning"),
}
_CALL = Shape(
    {CALL: NamedText("tool", CALL, _input)}, kept=_BLOCK, kind="tool", remains=_whole_call
)
_UNKNOWN_BLOCK, _UNKNOWN_DELTA = Shape(kept=_BLOCK), _delta("content")
_BLOCKS: Mapping[str, Shape] = {
    "text": _block("content", "text"),
    "thinking": _block("reasoning", "thinking", remains=_unsigned),
    "compaction": _block("content", "content", "compaction"),
    "redacted_thinking": Shape(kept=_BLOCK, kind="reasoning"),
    # Their content is a tool's output.
    **dict.fromkeys(
        (
            "web_search_tool_result web_fetch_tool_result code_execution_tool_result "
            "bash_code_execution_tool_result text_editor_code_execution_tool_result "
            "mcp_tool_result tool_search_tool_result tool_result"
        ).split(),
        Shape(skipped=frozenset({"content"}), kept=_BLOCK),
    ),
}


def _block_shape(block: Mapping[str, Any]) -> Shape:
    unknown = _CALL if CALL in block else _UNKNOWN_BLOCK
    return _BLOCKS.get(str(block.get("type")), unknown)


def _event(name: str = "", inner: Shape | None = None) -> Shape:
    """Return the shape of an event whose field ``name`` holds an object of the shape ``inner``."""
    return Shape(
        inner={name: inner} if inner is not None else {},
        kept=frozenset({"type", "index", name}),
        remains=lambda event: (
            None if name in event.before and name not in event.after else event.after
        ),
    )


_CONTENT = Shape(
    variant=_block_shape,
    at=lambda place, number, block: TextPlace(place.item if number is None else number, "block"),
)
# Details of a refusal may quote the refused text.
_DETAILS = Shape({"explanation": NamedText("content", "explanation")}, remains=lambda details: None)
_EVENTS: Mapping[str, Shape] = {
    "message_start": _event(
        "message", Shape(inner={"content": _CONTENT}, kept=MESSAGE | {"content"})
    ),
    "content_block_start": _event("content_block", _CONTENT),
    "content_block_delta": _event(
        "delta", Shape(variant=lambda d: _DELTAS.get(str(d.get("type")), _UNKNOWN_DELTA))
    ),
    "content_block_stop": _event(),
    "message_delta": _event(
        "delta", Shape(inner={"stop_details": _DETAILS}, kept=frozenset({"stop_reason"}))
    ),
    "message_stop": _event(),
    "ping": _event(),
    "error": _event(
        "error", Shape({"message": NamedText("content", ERROR)}, kept=frozenset({"type"}))
    ),
}
_UNKNOWN_EVENT = Shape(remains=lambda event: None)
KNOWN = _EVENTS.keys()


def walk_event(event: MessageEvent, visit: Visit) -> Mapping[str, Any] | None:
    """Return an event's fields with each text replaced by ``visit``.

    If ``visit`` changes a text, fields of its block or delta that could repeat it are removed.
    Returns None if nothing is left to send. Raises UsageError on text that is not a string: it
    cannot be judged, so it cannot go out.
    """
    walk = Walk(visit)
    if event.fields is None:
        walk.text(event.data, TextPlace(0, "other"), "content")
        return None
    shape = _EVENTS.get(event.type, _UNKNOWN_EVENT)
    walked: Mapping[str, Any] | None = walk.over(
        event.fields, shape, TextPlace(event.block, event.type)
    )
    return walked


def without_details(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message delta without ``stop_details``, which may quote the refused text."""
    delta = {key: value for key, value in fields["delta"].items() if key != "stop_details"}
    return {**fields, "delta": delta}
