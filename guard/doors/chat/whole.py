"""Reads and cuts a choice of a whole chat answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litellm.types.utils import Choices, Function, FunctionCall

from guard.doors.fields import (
    FUNCTION_CALL,
    REFUSAL,
    THINKING,
    is_custom,
    name_channel,
    parts_around,
    parts_of,
    thinking_blocks,
    tool_number,
)
from guard.doors.strings import is_data, is_name
from guard.doors.tools import breaking_suffix
from guard.doors.whole import ChoiceText, joined
from guard.gate import Part
from guard.verdict import Channel


def parts_of_choice(choice: Choices, number: int) -> list[Part]:
    """Return the texts of a choice of a chat answer."""
    return parts_of(choice.message, number) + parts_around(choice, number, "message")


def cut_choice(choice: Choices, read: ChoiceText, out: list[ChoiceText]) -> Choices:
    """Return ``choice`` with the texts of ``out`` and no field that could repeat the others."""
    terminated = any(a.terminated for a in out)
    texts, before = joined(out), joined([read])
    message = choice.message
    calls = list(message.tool_calls or ())
    older = message.function_call
    if terminated:
        numbers = [tool_number(call, position) for position, call in enumerate(calls)]
        ends = [_arguments(Channel(read.choice, "tool", n), texts, before) for n in numbers]
        calls = [
            _with(call, *end)
            for call, number, end in zip(calls, numbers, ends, strict=True)
            if end and _may_name(call, name_channel(read.choice, number), texts)
        ]
        if older is not None:
            end = _arguments(Channel(read.choice, "tool", FUNCTION_CALL), texts, before)
            if end and not _may_name(older, name_channel(read.choice, FUNCTION_CALL), texts):
                end = None
            older = FunctionCall(name=older.name, arguments="".join(end)) if end else None
    refusal = texts.get(Channel(read.choice, "content", REFUSAL))
    cut = type(message)(
        content=texts.get(Channel(read.choice)),
        role=message.role,
        tool_calls=calls or None,
        reasoning_content=texts.get(Channel(read.choice, "reasoning")) or None,
        thinking_blocks=thinking_blocks(texts.get(Channel(read.choice, "reasoning", THINKING))),
        provider_specific_fields={"refusal": refusal} if refusal else None,
    )
    cut.function_call = older
    reason = "content_filter" if terminated else choice.finish_reason
    return Choices(finish_reason=reason, index=choice.index, message=cut)


def _arguments(
    channel: Channel, texts: Mapping[Channel, str], before: Mapping[Channel, str]
) -> tuple[str, str] | None:
    """Return a call's released arguments and the text that makes them unparseable.

    None: leave the call out.

    Blank arguments count as cut: some clients read them as an empty object and run the tool.
    """
    text = texts.get(channel, "")
    if not text.strip():
        return None
    return text, breaking_suffix(text, complete=text == before[channel])


def _may_name(call: Any, channel: Channel, texts: Mapping[Channel, str]) -> bool:
    """Whether a call's name may go out: one that is no valid name is judged as text."""
    function = call.custom if is_custom(call) else getattr(call, "function", call)
    name = function.name or ""
    return is_name(name) or texts.get(channel) == name


def _with(call: Any, text: str, more: str) -> Any:
    """Return a call with the arguments ``text + more`` and no other text."""
    identity = call.id if is_data(call.id) else ""
    if is_custom(call):
        payload = type(call.custom)(name=call.custom.name, input=text)
        return type(call)(id=identity, type="custom", custom=payload)
    function = Function(arguments=text + more, name=call.function.name)
    return type(call)(id=identity, type="function", function=function)
