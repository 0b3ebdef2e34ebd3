"""Where the Responses API carries text: one walk over its events, items and whole responses.

A text is known by its place: the output item, the slot in it, and the number of the part. The same
text comes in deltas, in the events that end a part or an item, and in the whole response at the
end; LiteLLM's replay of a whole answer even sends it before its deltas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from enum import Enum
from functools import lru_cache
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
_ITEM = (
    "id",
    "type",
    "status",
    "role",
    "call_id",
    "name",
    "namespace",
    "phase",
    "server_label",
    "container_id",
)
_RESPONSE = set(ResponsesAPIResponse.model_fields) - {"output", "error"}


class Meaning(NamedTuple):
    """What the name of an event says: what happens, to what, and where its text belongs."""

    verb: str
    stem: str
    kind: ChannelKind
    slot: str


@lru_cache(256)
def meaning(name: str) -> Meaning:
    """Return what an event's name says."""
    stem, _, verb = name.removeprefix("response.").rpartition(".")
    return Meaning(verb, stem, *_SLOTS.get(stem, ("content", stem)))


def name_of(event: Any) -> str:
    """Return the name of an event, which LiteLLM gives as a string or an enum."""
    name = event.type
    return str(name.value if isinstance(name, Enum) else name)


def plain(event: Any) -> dict[str, Any]:
    """Return an event as a dict of its own."""
    return {name: _plain(value) for name, value in members(event).items()}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, int)):
        return value
    return value.model_dump(warnings=False) if isinstance(value, BaseModel) else deepcopy(value)


def delta_of(event: Mapping[str, Any], means: Meaning) -> tuple[Place, Any] | None:
    """Return where a delta's text belongs and the text; None where it is no text."""
    if means.verb != "delta" or means.stem in _SOUND:
        return None
    part = event.get("summary_index" if means.slot == "summary" else "content_index") or 0
    return Place(event.get("output_index") or 0, means.slot, part), event.get("delta")


def rewritten(event: Mapping[str, Any], name: str, visit: Visit) -> dict[str, Any]:
    """Return a plain event with each text as ``visit`` gives it, and nothing that could repeat it.

    Raises UsageError on text that is not a string: it cannot be judged, so it cannot go out.
    """
    made = {key: event[key] for key in _EVENT if key in event}
    verb, stem, kind, slot = means = meaning(name)
    item = event.get("output_index") or 0
    part = event.get("summary_index" if "summary" in stem else "content_index") or 0
    if (delta := delta_of(event, means)) is not None:
        made["delta"] = visited(visit, delta[0], kind, delta[1])
    elif verb == "done":
        for field in (*_TEXTS, *CALLS):
            if field in event:
                made[field] = visited(visit, Place(item, slot, part), kind, event[field])
    if stem == "output_text" and verb in ("delta", "done"):
        made["logprobs"] = []
    if isinstance(event.get("item"), Mapping):
        made["item"] = rewritten_item(event["item"], item, visit)
    if isinstance(event.get("part"), Mapping):
        made["part"] = _part(event["part"], item, part, visit, summary="summary" in stem)
    if isinstance(event.get("response"), Mapping):
        response = event["response"]
        output = enumerate(response.get("output") or ())
        made["response"] = {
            **around(response),
            "output": [rewritten_item(one, number, visit) for number, one in output],
        }
    return made


def opens_with_more(event: Mapping[str, Any], read: Mapping[str, Any]) -> bool:
    """Whether the item or part that a plain event opens holds more than was ``read`` of it."""
    opened = {key: event[key] for key in ("item", "part") if key in event}
    return not _all_in(opened, read)


def _all_in(said: Any, read: Any) -> bool:
    if isinstance(said, Mapping):
        known: Mapping[Any, Any] = read if isinstance(read, Mapping) else {}
        return all(_all_in(value, known.get(key)) for key, value in said.items())
    if isinstance(said, (list, tuple)):
        rest: list[Any] = read if isinstance(read, list) else []
        return all(map(_all_in, said, [*rest, *[None] * (len(said) - len(rest))]))
    return not said or bool(said == read)


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
            made[field] = visited(visit, Place(number, field), "tool", item[field])
    if isinstance(action := item.get("action"), Mapping):
        made["action"] = _action(action, number, visit)
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
            made[field] = visited(visit, Place(item, slot, number), kind, part[field])
    if made["type"] == "output_text":
        made |= {"annotations": [], "logprobs": None}
    return made


def _action(action: Mapping[str, Any], item: int, visit: Visit) -> dict[str, Any]:
    """Return what a search asks for: the model's words, which no delta brings."""
    made: dict[str, Any] = {"type": action.get("type")}
    if "query" in action:
        made["query"] = visited(visit, Place(item, "query"), "tool", action["query"])
    for number, query in enumerate(action.get("queries") or ()):
        place = Place(item, "query", number + 1)
        made.setdefault("queries", []).append(visited(visit, place, "tool", query))
    return made


def visited(visit: Visit, place: Place, kind: ChannelKind, text: object) -> Any:
    """Return a text as ``visit`` gives it; one that is empty or missing as it is."""
    if text is None or text == "":
        return text
    if not isinstance(text, str):
        raise UsageError(
            f"A response carries {kind} of type {type(text).__name__}; guard judges text only."
            " Call the provider without guard for this kind of output."
        )
    return visit(place, kind, text)
