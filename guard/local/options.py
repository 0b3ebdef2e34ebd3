"""The options of a call of a local model; unsupported ones raise an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from guard.errors import UsageError

DEFAULT_MAX_TOKENS = 256
"""Default limit of an answer's tokens: a small model does not always end by itself."""

# They do not affect the text of the answer, so they are ignored.
_HARMLESS = frozenset(
    "extra_headers max_retries metadata parallel_tool_calls prompt_cache_key safety_identifier "
    "service_tier store stream stream_options user".split()
)
# They have no effect at these values.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "extra_body": ({},),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none",),
    "function_call": ("none",),
    "modalities": (["text"],),
    "response_format": ({"type": "text"},),
}


class GenerationOptions(NamedTuple):
    """How to generate. ``temperature`` 0 means greedy decoding."""

    max_tokens: int = DEFAULT_MAX_TOKENS
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    timeout_s: float | None = None  # seconds of generating, the consumer's pauses not counted
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0


class NotOffered(UsageError):
    """The call has an option that local models do not support."""


def read_options(params: Mapping[str, Any]) -> GenerationOptions:
    """Return the options in LiteLLM's ``optional_params``.

    Raises:
        NotOffered: a parameter would change the answer and is not supported.
        UsageError: a value is out of range.

    """
    present = {key: value for key, value in params.items() if value is not None}
    if "max_completion_tokens" in present:
        present["max_tokens"] = present.pop("max_completion_tokens")
    known: dict[str, Any] = {}
    for key, value in present.items():
        if key in _CHECKS:
            known[key] = _CHECKS[key](key, value)
        elif key not in _HARMLESS and value not in _NEUTRAL.get(key, ()):
            raise NotOffered(
                f"Local models do not offer {key}={value!r}; they take {', '.join(_CHECKS)}."
            )
    return GenerationOptions(**known)


def _number_within(key: str, value: Any, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise UsageError(f"{key} must be a number from {low:g} to {high:g}, got {value!r}.")
    return float(value)


def _read_temperature(key: str, value: Any) -> float:
    return _number_within(key, value, 0, 2)


def _read_penalty(key: str, value: Any) -> float:
    return _number_within(key, value, -2, 2)


def _read_share(key: str, value: Any) -> float:
    share = _number_within(key, value, 0, 1)
    if not share:
        raise UsageError(f"{key} must be above 0.")
    return share


def _read_whole(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{key} must be a whole number, got {value!r}.")
    return value


def _read_count(key: str, value: Any) -> int:
    if _read_whole(key, value) < 1:
        raise UsageError(f"{key} must be at least 1, got {value!r}.")
    return int(value)


def _read_stops(key: str, value: Any) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, Sequence) or not all(isinstance(t, str) and t for t in texts):
        raise UsageError(f"{key} must be a text or a list of texts, none empty, got {value!r}.")
    return tuple(texts)


_CHECKS = {
    "max_tokens": _read_count,
    "temperature": _read_temperature,
    "top_p": _read_share,
    "top_k": _read_count,
    "frequency_penalty": _read_penalty,
    "presence_penalty": _read_penalty,
    "seed": _read_whole,
    "stop": _read_stops,
}
