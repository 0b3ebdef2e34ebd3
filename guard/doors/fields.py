"""Where chat answers carry text: one table for a chunk's delta and a whole answer's message.

A field is one channel. Besides content, reasoning and tool arguments, a choice can speak in a
refusal and in the transcript of its audio; both are content, told apart by their number.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from guard.errors import UsageError
from guard.gate import Part
from guard.verdict import Channel, ChannelKind

REFUSAL, TRANSCRIPT = 1, 2  # numbers of the two further content channels
THINKING = 1  # number of the thinking blocks among the reasoning channels, where they differ
FUNCTION_CALL = -1  # number of the older `function_call` among the tool channels

# Fields other than content that can carry text, or hold what does.
_OTHERS = (
    "reasoning_content",
    "thinking_blocks",
    "refusal",
    "provider_specific_fields",
    "audio",
    "tool_calls",
    "function_call",
)


@lru_cache(1024)
def channel_of(choice: int, kind: ChannelKind = "content", number: int = 0) -> Channel:
    """Return the channel; the same few come with every chunk."""
    return Channel(choice, kind, number)


def parts_of(speech: Any, choice: int) -> list[Part]:
    """Return the texts of a delta or message in reading order, empty ones left out.

    Raises UsageError on text that is not a string: it cannot be judged, so it cannot go out.
    """
    said = members(speech)
    content = said.get("content")
    if type(content) is str and not any(map(said.get, _OTHERS)):
        return [Part(channel_of(choice), content)] if content else []
    parts: list[Part] = []

    def add(text: object, kind: ChannelKind, number: int = 0) -> None:
        if text is None or text == "":
            return
        if not isinstance(text, str):
            raise UsageError(
                f"A response carries {kind} of type {type(text).__name__}; guard judges text only."
                " Call the provider without guard for this kind of output."
            )
        parts.append(Part(channel_of(choice, kind, number), text))

    reasoning, thinking = said.get("reasoning_content"), _thinking(said)
    # LiteLLM fills both alike; a provider that fills only the blocks still speaks.
    add(reasoning or thinking, "reasoning")
    if reasoning and thinking != reasoning:
        add(thinking, "reasoning", THINKING)
    add(content, "content")
    add(_refusal(said), "content", REFUSAL)
    add(_member(said.get("audio"), "transcript"), "content", TRANSCRIPT)
    for position, call in enumerate(said.get("tool_calls") or ()):
        add(_arguments(call), "tool", tool_number(call, position))
    add(_member(said.get("function_call"), "arguments"), "tool", FUNCTION_CALL)
    return parts


def members(model: Any) -> Mapping[str, Any]:
    """Return a pydantic object's fields and extras; asking it for an absent one is slow."""
    if model is None:
        return {}
    extra = getattr(model, "__pydantic_extra__", None)
    fields: dict[str, Any] = model.__dict__
    return {**fields, **extra} if extra else fields


def tool_number(call: Any, position: int) -> int:
    """Return the index a tool call is known by; a whole message's calls have only a position."""
    index = getattr(call, "index", None)
    return position if index is None else int(index)


def is_custom(call: Any) -> bool:
    """Whether a tool call carries free text (``custom.input``) in place of JSON arguments."""
    return getattr(call, "custom", None) is not None


def _arguments(call: Any) -> object:
    if is_custom(call):
        return _member(call.custom, "input")
    return _member(getattr(call, "function", None), "arguments")


def _thinking(said: Mapping[str, Any]) -> object:
    """Return the text of the thinking blocks; of blocks that hold no text, what they hold."""
    texts = [_member(block, "thinking") for block in said.get("thinking_blocks") or ()]
    texts = [text for text in texts if text]
    other = [text for text in texts if not isinstance(text, str)]
    return other[0] if other else "".join(texts)


def thinking_blocks(text: str | None) -> list[Any] | None:
    """Return what a delta or message carries ``text`` in; a signature would not fit a cut one."""
    return [{"type": "thinking", "thinking": text}] if text else None


def _refusal(said: Mapping[str, Any]) -> object:
    # A delta has it as an attribute, a whole message among the provider's fields.
    return said.get("refusal") or _member(said.get("provider_specific_fields"), "refusal")


def _member(owner: Any, name: str) -> Any:
    return owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)
