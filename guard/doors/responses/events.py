"""The events of the Responses API, and the places of their texts.

A text is identified by its place: the output item, the slot in it, and the number of the part.
The same text comes in deltas, in the events that end a part or an item, and in the whole response
at the end. LiteLLM's replay of a whole answer also sends it before its deltas.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from enum import Enum
from typing import Any

from pydantic import BaseModel, ValidationError

from guard.doors.litellm.compat import OpenAIResponsesAPIConfig, hidden_params, set_hidden_params
from guard.doors.responses.shapes import ITEM, Meaning, event_shape, meaning, place_of
from guard.doors.strings import members, without_text
from guard.doors.walk import TextPlace, Visit, Walk


def name_of(event: Any) -> str:
    """Return the name of an event, which LiteLLM gives as a string or an enum."""
    name = event.type
    return str(name.value if isinstance(name, Enum) else name)


def event_fields(event: Any) -> dict[str, Any]:
    """Return a copy of an event as a dict."""
    # Leaves out attributes that LiteLLM sets on the object itself; its dump has none of them.
    extra = getattr(event, "__pydantic_extra__", None) or {}
    fields = members(event).items()
    return {name: _plain(v) for name, v in fields if not name.startswith("_") or name in extra}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, int)):
        return value
    return value.model_dump(warnings=False) if isinstance(value, BaseModel) else deepcopy(value)


def walk_event(event: Mapping[str, Any], means: Meaning, walk: Walk) -> dict[str, Any]:
    """Return a plain event with its texts replaced by ``walk``, without fields that repeat them.

    Raises UsageError on text that is not a string: it cannot be judged, so it cannot go out.
    """
    place = place_of(event, means)._replace(slot=means.stem)
    fields: dict[str, Any] = walk.over(event, event_shape(event, means), place)
    return fields


def rewritten(event: Mapping[str, Any], name: str, visit: Visit) -> dict[str, Any]:
    """Return a plain event with each text replaced by ``visit``."""
    return walk_event(event, meaning(name), Walk(visit, strips=True))


def rewritten_item(item: Mapping[str, Any], number: int, visit: Visit) -> dict[str, Any]:
    """Return an output item with each text replaced by ``visit``, without outputs of tools."""
    fields: dict[str, Any] = Walk(visit, strips=True).over(item, ITEM, TextPlace(number, ""))
    return fields


def litellm_event(name: str, fields: Mapping[str, Any], like: Any = None) -> Any:
    """Return LiteLLM's event of that name; None if the remaining fields are not valid.

    The class and the response's hidden parameters are those of the event ``like``.
    """
    kind = OpenAIResponsesAPIConfig.get_event_model_class(name) if like is None else type(like)
    try:
        event: Any = kind(**{**fields, "type": name})
    except ValidationError:
        return None
    response = getattr(like, "response", None)
    # In an event that LiteLLM does not model, the response is a dict.
    if isinstance(getattr(event, "response", None), BaseModel):
        set_hidden_params(event.response, hidden_without_text(response))
    return event


def hidden_without_text(response: Any) -> dict[str, Any]:
    """Return a response's hidden parameters without the model's text."""
    noted = hidden_params(response)
    return without_text(noted) if noted else {}
