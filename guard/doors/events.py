"""Where the Responses API carries text: one walk over its events, items and whole responses.

A text is known by its place: the output item, the slot in it, and the number of the part. The same
text comes in deltas, in the events that end a part or an item, and in the whole response at the
end; LiteLLM's replay of a whole answer even sends it before its deltas.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from litellm.llms.openai.responses.transformation import OpenAIResponsesAPIConfig
from litellm.types.llms.openai import ResponsesAPIResponse
from pydantic import BaseModel, ValidationError

from guard.doors.fields import members
from guard.errors import UsageError
from guard.verdict import ChannelKind


class Place(NamedTuple):
    """Where a text stands in a response."""

    item: int
    slot: str
    part: int = 0


Visit = Callable[[Place, ChannelKind, str], str]

# What an event says, by its name without "response." and the verb: the channel's kind and the slot.
_SLOTS: Mapping[str, tuple[ChannelKind, str]] = {
    "output_text": ("content", "text"),
    "refusal": ("content", "refusal"),
    "reasoning_summary_text": ("reasoning", "summary"),
    "reasoning_text": ("reasoning", "text"),
    "function_call_arguments": ("tool", "arguments"),
    "mcp_call_arguments": ("tool", "arguments"),
    "custom_tool_call_input": ("tool", "input"),
    "code_interpreter_call_code": ("tool", "code"),
}
STEMS: Mapping[tuple[ChannelKind, str], str] = {v: k for k, v in reversed(list(_SLOTS.items()))}
"""The name of the events that bring a slot's text."""
CALLS: Mapping[str, str] = {
    "arguments": "function_call",
    "input": "custom_tool_call",
    "code": "code_interpreter_call",
}
"""Slots of an item that holds one text, and the type of item."""
# The texts of a part, and of the event that ends one.
_TEXTS = ("text", "refusal", "reasoning", "transcript")
_SOUND = ("audio", "output_audio")  # their deltas are no text; the transcript has its own
TERMINAL = ("response.completed", "response.incomplete", "response.failed", "error")

# All that a rewritten event, item or part keeps beside its texts: none of it can repeat them.
_EVENT = (
    "type",
    "sequence_number",
    "output_index",
    "content_index",
    "summary_index",
    "item_id",
)
_ITEM = ("id", "type", "status", "role", "call_id", "name", "namespace", "phase")
_RESPONSE = set(ResponsesAPIResponse.model_fields) - {"output", "error"}


def name_of(event: Any) -> str:
    """Return the name of an event, which LiteLLM gives as a string or an enum."""
    name = event.type
    return str(getattr(name, "value", name))


def plain(model: Any) -> dict[str, Any]:
    """Return an event or item as a dict of its own."""
    return {
        name: value.model_dump(warnings=False)
        if isinstance(value, BaseModel)
        else copy.deepcopy(value)
        for name, value in members(model).items()
    }


def rewritten(event: Mapping[str, Any], name: str, visit: Visit) -> dict[str, Any]:
    """Return a plain event with each text as ``visit`` gives it, and nothing that could repeat it.

    Raises UsageError on text that is not a string: it cannot be judged, so it cannot go out.
    """
    made = {key: event[key] for key in _EVENT if key in event}
    item, part = event.get("output_index") or 0, event.get("content_index") or 0
    stem, _, verb = name.removeprefix("response.").rpartition(".")
    kind, slot = _SLOTS.get(stem, ("content", stem))
    if slot == "summary":
        part = event.get("summary_index") or 0
    if verb == "delta" and stem not in _SOUND:
        made["delta"] = _visited(visit, Place(item, slot, part), kind, event.get("delta"))
    elif verb == "done":
        for field in (*_TEXTS, *CALLS):
            if field in event:
                made[field] = _visited(visit, Place(item, slot, part), kind, event[field])
    if isinstance(event.get("item"), Mapping):
        made["item"] = rewritten_item(event["item"], item, visit)
    if isinstance(event.get("part"), Mapping):
        summary = "summary" in stem
        part = event.get("summary_index" if summary else "content_index") or 0
        made["part"] = _part(event["part"], item, part, visit, summary=summary)
    if isinstance(event.get("response"), Mapping):
        response = event["response"]
        output = enumerate(response.get("output") or ())
        made["response"] = {
            **around(response),
            "output": [rewritten_item(one, number, visit) for number, one in output],
        }
    return made


def around(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a plain response says beside its output; nothing of it is the model's."""
    return {key: value for key, value in response.items() if key in _RESPONSE}


def rewritten_item(item: Mapping[str, Any], number: int, visit: Visit) -> dict[str, Any]:
    """Return an output item with each text as ``visit`` gives it, and nothing else that speaks."""
    made = {key: item[key] for key in _ITEM if key in item}
    for field in ("summary", "content"):
        if field in item:
            made[field] = [
                _part(
                    part,
                    number,
                    position,
                    visit,
                    summary=field == "summary",
                    reasoning=item.get("type") == "reasoning",
                )
                for position, part in enumerate(item[field] or ())
                if isinstance(part, Mapping)
            ]
    for field in CALLS:
        if field in item:
            made[field] = _visited(visit, Place(number, field), "tool", item[field])
    return made


def made(name: str, fields: Mapping[str, Any], like: Any = None) -> Any:
    """Return LiteLLM's event of that name; None where it cannot be without what was taken off.

    What LiteLLM keeps beside a response is taken over from ``like``, an event.
    """
    kind = OpenAIResponsesAPIConfig.get_event_model_class(name) if like is None else type(like)
    try:
        event: Any = kind(**{**fields, "type": name})
    except ValidationError:
        return None
    response = getattr(like, "response", None)
    if response is not None and getattr(event, "response", None) is not None:
        event.response._hidden_params = hidden(response)
    return event


def hidden(response: Any) -> dict[str, Any]:
    """Return what LiteLLM keeps beside a response, without the provider's answer as it came."""
    kept = getattr(response, "_hidden_params", None)
    return {k: v for k, v in kept.items() if k != "original_response"} if kept else {}


def _part(
    part: Mapping[str, Any],
    item: int,
    number: int,
    visit: Visit,
    *,
    summary: bool = False,
    reasoning: bool = False,
) -> dict[str, Any]:
    made: dict[str, Any] = {"type": part.get("type")}
    kind: ChannelKind = "content"
    if summary or reasoning or part.get("type") == "reasoning_text":
        kind = "reasoning"
    for field in _TEXTS:
        if field in part:
            slot = "summary" if summary else "refusal" if field == "refusal" else "text"
            made[field] = _visited(visit, Place(item, slot, number), kind, part[field])
    if made["type"] == "output_text":
        made |= {"annotations": [], "logprobs": None}
    return made


def _visited(visit: Visit, place: Place, kind: ChannelKind, text: object) -> Any:
    if text is None or text == "":
        return text
    if not isinstance(text, str):
        raise UsageError(
            f"A response carries {kind} of type {type(text).__name__}; guard judges text only."
            " Call the provider without guard for this kind of output."
        )
    return visit(place, kind, text)
