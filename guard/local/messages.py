"""Converts chat messages for a local model's template: a role and one text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from guard.errors import UsageError

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


def plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return ``messages`` with their text parts joined.

    Raises UsageError if a message has content other than text, or a role that small models do not
    know.
    """
    if not messages:
        raise UsageError("There are no messages to answer.")
    return [_plain_message(message) for message in messages]


def _plain_message(message: Mapping[str, Any]) -> dict[str, str]:
    role = message.get("role")
    if role not in _ROLES or message.get("tool_calls") or message.get("function_call"):
        raise UsageError(
            f"Local models read the roles {', '.join(_ROLES)} and no tool calls, got a message of "
            f"role {role!r}."
        )
    return {"role": _ROLES[role], "content": "".join(_text_parts(message.get("content")))}


def _text_parts(content: Any) -> Iterator[str]:
    for part in [content] if isinstance(content, str) else content or ():
        text = part.get("text") if isinstance(part, Mapping) else part
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise UsageError(f"Local models read text only, got a part of type {kind!r}.")
        yield text
