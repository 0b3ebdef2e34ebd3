"""Reads and cuts a choice of a whole chat answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litellm.types.utils import Choices, Function, FunctionCall

from guard.doors.fields import (
    FUNCTION_CALL,
    REFUSAL,
    THINKING,
    around,
    is_custom,
    name_channel,
    parts_of,
    thinking_blocks,
    tool_number,
)
from guard.doors.strings import is_data, is_name
from guard.doors.tools import breaker
from guard.doors.whole import Answer, joined
from guard.gate import Part
from guard.verdict import Channel


def parts_of_choice(choice: Choices, number: int) -> list[Part]:
    """Return what a choice of a chat answer says."""
    return parts_of(choice.message, number) + around(choice, number, "message")


def cut_choice(choice: Choices, said: Answer, out: list[Answer]) -> Choices:
    """Return ``choice`` with the texts of ``out`` and no field that could repeat the others."""
    terminated = any(a.terminated for a in out)
    texts, before = joined(out), joined([said])
    message = choice.message
    calls = list(message.tool_calls or ())
    older = message.function_call
    if terminated:
        numbers = [tool_number(call, position) for position, call in enumerate(calls)]
        ends = [_arguments(Channel(said.choice, "tool", n), texts, before) for n in numbers]
        calls = [
            _with(call, *end)
            for call, number, end in zip(calls, numbers, ends, strict=True)
            if end and _named(call, name_channel(said.choice, number), texts)
        ]
        if older is not None:
            end = _arguments(Channel(said.choice, "tool", FUNCTION_CALL), texts, before)
            if end and not _named(older, name_channel(said.choice, FUNCTION_CALL), texts):
                end = None
            older = FunctionCall(name=older.name, arguments="".join(end)) if end else None
    refusal = texts.get(Channel(said.choice, "content", REFUSAL))
    cut = type(message)(
        content=texts.get(Channel(said.choice)),
        role=message.role,
        tool_calls=calls or None,
        reasoning_content=texts.get(Channel(said.choice, "reasoning")) or None,
        thinking_blocks=thinking_blocks(texts.get(Channel(said.choice, "reasoning", THINKING))),
        provider_specific_fields={"refusal": refusal} if refusal else None,
    )
    cut.function_call = older
    reason = "content_filter" if terminated else choice.finish_reason
    return Choices(finish_reason=reason, index=choice.index, message=cut)


def _arguments(
    channel: Channel, texts: Mapping[Channel, str], before: Mapping[Channel, str]
) -> tuple[str, str] | None:
    """Return a call's released arguments and what breaks them; None drops the call.

    Blank arguments count as cut: some clients read them as an empty object and run the tool.
    """
    text = texts.get(channel, "")
    if not text.strip():
        return None
    return text, breaker(text, complete=text == before[channel])


def _named(call: Any, channel: Channel, texts: Mapping[Channel, str]) -> bool:
    """Whether a call's name may go out: one that reads as text follows its verdict."""
    given = call.custom if is_custom(call) else getattr(call, "function", call)
    name = given.name or ""
    return is_name(name) or texts.get(channel) == name


def _with(call: Any, text: str, more: str) -> Any:
    """Return a call with ``text`` and ``more`` as what it gives the tool, and no further field."""
    identity = call.id if is_data(call.id) else ""
    if is_custom(call):
        payload = type(call.custom)(name=call.custom.name, input=text)
        return type(call)(id=identity, type="custom", custom=payload)
    function = Function(arguments=text + more, name=call.function.name)
    return type(call)(id=identity, type="function", function=function)
