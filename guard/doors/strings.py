"""The strings of an answer that no door reads by name.

A string counts as the model's text unless it is known not to be. It goes out unjudged only if its
field is known and the string fits the field: a name (a type, a status), data that nobody reads as
text (an id, audio, a signature), or the output of a tool. Every other string is judged, including
those in unknown fields, items and events.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from guard.errors import UsageError

# Fields that hold names, at any depth: a value that is no valid name is judged.
NAMES = frozenset(
    "object type role status model index created_at created finish_reason stop_reason "
    "native_finish_reason stop_sequence service_tier system_fingerprint provider name namespace "
    "phase "
    "server_label server_name execution created_by code param severity language format mime_type "
    "media_type output_format quality size background button fingerprint "
    "encoding version detail input_fidelity memory_limit scroll_direction "
    "expires_at".split()
)
# Fields whose data is not read as text: ids, addresses, audio. It never has white space.
DATA = frozenset(
    "id call_id item_id tool_use_id tool_call_id tool_id file_id container_id response_id "
    "message_id request_id approval_request_id "
    "previous_response_id vector_store_id caller_id completion_id "
    "data signature thought_signature thought_signatures encrypted_content b64_json "
    "partial_image_b64 obfuscation url image_url file_url file_data token_ids encrypted_index "
    "encrypted_stdout reasoning_opaque".split()
)
# Fields of counts and measurements: all strings in them are names, whatever their keys.
MEASURES = frozenset(
    "usage usage_metadata content_filter_results content_filter_result prompt_filter_results "
    "safety_ratings safetyRatings vertex_ai_safety_ratings vertex_ai_safety_results x_groq "
    "cost timings time_info moderation incomplete_details".split()
)
_NAME = re.compile(r"[\w.:/@+=~|#-]{0,128}", re.ASCII)
_DATA = re.compile(r"[!-~]*")


def members(model: Any) -> Mapping[str, Any]:
    """Return a mapping, or a pydantic object's fields and extras.

    ``getattr`` of an absent field of a pydantic object is slow.
    """
    if model is None:
        return {}
    if isinstance(model, Mapping):
        return model
    extra = getattr(model, "__pydantic_extra__", None)
    fields: dict[str, Any] = model.__dict__
    return {**fields, **extra} if extra else fields


def member(owner: Any, name: str) -> Any:
    """Return a value of a mapping or an object by name; None if it is absent."""
    return owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)


def is_name(text: str) -> bool:
    """Whether a string is a valid name: short, without white space or prose."""
    return _NAME.fullmatch(text) is not None


def is_data(text: object) -> bool:
    """Whether a value is not readable text: no string, or one without white space."""
    return not isinstance(text, str) or _DATA.fullmatch(text) is not None


def is_name_or_data(path: str, text: str, measures: bool) -> bool:
    """Whether a string fits the field at ``path``, which is known to hold names or data.

    ``measures``: it is in a field of counts and measurements.
    """
    # The elements of a list have the name of the list.
    name = next((part for part in reversed(path.split(".")) if not part.isdigit()), "")
    if name in DATA:
        return is_data(text)
    return (measures or name in NAMES) and is_name(text)


def not_text(what: str, value: object) -> UsageError:
    """Return the error for a value that should be text: it cannot be judged."""
    return UsageError(
        f"A response carries {what} of type {type(value).__name__}; guard judges text only."
        " Call the provider without guard for this kind of output."
    )


# Values that LiteLLM itself notes of a call: none of them is the model's text.
_NOTES = frozenset(
    "additional_headers headers optional_params response_cost response_cost_details usage "
    "custom_llm_provider region_name model_id litellm_model_name litellm_call_id api_base "
    "cache_key created_at".split()
)


def without_text(hidden: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hidden parameters of a response that was cut, without the model's text.

    They may hold the provider's original answer and fields. Apart from LiteLLM's own notes, only
    values without any string are kept: a single word may be the one that was cut.
    """
    return {k: v for k, v in hidden.items() if k in _NOTES or _textless(v)}


def _textless(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_textless, (*value, *value.values())))
    if isinstance(value, (list, tuple)):
        return all(map(_textless, value))
    return not value or isinstance(value, (int, float))
