"""The strings of an answer that no door reads by name.

A string is the model's word until it is known not to be. It goes out unjudged only where its
field is known and it looks like what the field is for: the name of a thing (a type, a status), data
that is not read as text (an id, sound, a signature), or what a tool answered. Every other string is
judged, those of fields, items and events of an unknown kind too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from pydantic import BaseModel

from guard.errors import UsageError

Visit = Callable[[str, str], str]
"""Takes the path of a string and the string; returns what is to stand in its place."""

# Fields that name a thing, wherever they stand: what is no name is judged.
NAMES = frozenset(
    "object type role status model index created_at created finish_reason stop_reason "
    "native_finish_reason stop_sequence service_tier system_fingerprint provider name namespace "
    "phase "
    "server_label server_name execution created_by code param severity language format mime_type "
    "media_type output_format quality size background button fingerprint "
    "encoding version detail input_fidelity memory_limit scroll_direction "
    "expires_at".split()
)
# Fields whose data is not read as text: ids, places, sound. None of it has white space.
DATA = frozenset(
    "id call_id item_id tool_use_id tool_call_id tool_id file_id container_id response_id "
    "message_id request_id approval_request_id "
    "previous_response_id vector_store_id caller_id completion_id "
    "data signature thought_signature thought_signatures encrypted_content b64_json "
    "partial_image_b64 obfuscation url image_url file_url file_data token_ids encrypted_index "
    "encrypted_stdout reasoning_opaque".split()
)
# What is counted and measured: the values in it name things, whatever they are called.
MEASURES = frozenset(
    "usage usage_metadata content_filter_results content_filter_result prompt_filter_results "
    "safety_ratings safetyRatings vertex_ai_safety_ratings vertex_ai_safety_results x_groq "
    "cost timings time_info moderation incomplete_details".split()
)
_NAME = re.compile(r"[\w.:/@+=~|#-]{0,128}", re.ASCII)
_DATA = re.compile(r"[!-~]*")


def members(model: Any) -> Mapping[str, Any]:
    """Return a pydantic object's fields and extras; asking it for an absent one is slow."""
    if model is None:
        return {}
    extra = getattr(model, "__pydantic_extra__", None)
    fields: dict[str, Any] = model.__dict__
    return {**fields, **extra} if extra else fields


def member(owner: Any, name: str) -> Any:
    """Return a value of a mapping or an object, None where it has none of that name."""
    return owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)


def is_name(text: str) -> bool:
    """Whether a string can be the name of a thing: no prose, and nothing long."""
    return _NAME.fullmatch(text) is not None


def is_data(text: object) -> bool:
    """Whether a value is no text that could be read: it has no white space."""
    return not isinstance(text, str) or _DATA.fullmatch(text) is not None


def not_text(what: str, value: object) -> UsageError:
    """Return the error for a value where a text was to be: it cannot be judged."""
    return UsageError(
        f"A response carries {what} of type {type(value).__name__}; guard judges text only."
        " Call the provider without guard for this kind of output."
    )


def walked(value: Any, path: str, visit: Visit, *, measures: bool = False) -> Any:
    """Return ``value`` with each string that has to be judged as ``visit`` gives it.

    ``path`` is the name of the field that holds it, and those around that. Strings of one list are
    one text, joined with spaces, and keys that are no names are texts too; where ``visit`` changes
    such a text nothing of it is kept. Raises UsageError on what is no JSON: it cannot be judged.
    """
    if value is None or isinstance(value, (bool, int, float)):
        return value
    measures = measures or path in MEASURES
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return value if not value or _known(path, value, measures) else visit(path, value)
    if isinstance(value, BaseModel):
        value = members(value)
    if isinstance(value, Mapping):
        made = {}
        for key, one in value.items():
            inner = f"{path}.{key}" if path else str(key)
            if is_name(str(key)) or visit(f"{inner}.key", str(key)) == key:
                made[key] = walked(one, inner, visit, measures=measures or key in MEASURES)
        return made
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(one, str) for one in value):
            if all(not one or _known(path, one, measures) for one in value):
                return list(value)
            whole = " ".join(value)
            return list(value) if visit(path, whole) == whole else []
        return [walked(v, f"{path}.{n}", visit, measures=measures) for n, v in enumerate(value)]
    raise not_text(path or "an answer", value)


def says(name: str, value: Any) -> bool:
    """Whether a string in a field has to be judged."""
    found: list[str] = []

    def visit(path: str, text: str) -> str:
        found.append(text)
        return text

    walked(value, name, visit)
    return bool(found)


def without_prose(name: str, value: Any) -> Any:
    """Return a field's value; where a string in it has to be judged, "" or None in its place."""
    if not says(name, value):
        return value
    return "" if isinstance(value, str) else None


# What LiteLLM itself notes of a call: none of it is the model's.
_NOTES = frozenset(
    "additional_headers headers optional_params response_cost response_cost_details usage "
    "custom_llm_provider region_name model_id litellm_model_name litellm_call_id api_base "
    "cache_key created_at".split()
)


def without_text(hidden: Mapping[str, Any]) -> dict[str, Any]:
    """Return what LiteLLM keeps beside a response that was cut, without what the model said.

    That is the provider's answer as it came and the fields of its own; a value that LiteLLM did not
    note itself stays only where it holds no string: a single word can be the one that was cut.
    """
    return {k: v for k, v in hidden.items() if k in _NOTES or _textless(v)}


def _textless(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_textless, (*value, *value.values())))
    if isinstance(value, (list, tuple)):
        return all(map(_textless, value))
    return not value or isinstance(value, (int, float))


def _known(path: str, text: str, measures: bool) -> bool:
    parts = path.split(".")
    # A list's fields have the name of the list.
    name = next((part for part in reversed(parts) if not part.isdigit()), "")
    if name in DATA:
        return is_data(text)
    return (measures or name in NAMES) and is_name(text)
