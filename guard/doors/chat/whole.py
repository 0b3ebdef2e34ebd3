"""Reads and cuts a choice of a whole chat answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litellm.types.utils import Choices, Function, FunctionCall

from guard.doors.fields import (
    FUNCTION_CALL,
    REFUSAL,
    THINKING,
    arguments_of,
    is_custom,
    name_channel,
    parts_around,
    parts_of,
    thinking_blocks,
    tool_number,
)
from guard.doors.strings import is_data, is_name, members
from guard.doors.tools import is_complete
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
    numbered = [(tool_number(call, n), call) for n, call in enumerate(calls)]
    if terminated:

        def input_of(call: Any, number: int) -> str:
            """Return the input of a call that may go out, which is a whole one; else ""."""
            channel = Channel(read.choice, "tool", number)
            text = texts.get(channel, "")
            whole = not is_custom(call) and is_complete(text) and text == before[channel]
            named = _may_name(call, name_channel(read.choice, number), texts)
            # Its own: two calls may have the same number.
            own = call.arguments if number == FUNCTION_CALL else arguments_of(call)
            return own or "" if whole and named else ""

        calls = [_with(call, text) for n, call in numbered if (text := input_of(call, n))]
        if older is not None:
            text = input_of(older, FUNCTION_CALL)
            older = FunctionCall(name=older.name, arguments=text) if text else None
    else:
        calls = [
            redacted
            for number, call in numbered
            if (redacted := _redacted(call, Channel(read.choice, "tool", number), texts, before))
        ]
        if older is not None:
            channel = Channel(read.choice, "tool", FUNCTION_CALL)
            older = FunctionCall(name=older.name, arguments=texts.get(channel, ""))
    refusal = texts.get(Channel(read.choice, "content", REFUSAL)) or None
    # A field of the message since LiteLLM 1.110, where reading one that is missing raises.
    own: dict[str, Any] = {"refusal": refusal} if "refusal" in members(message) else {}
    cut = type(message)(
        content=texts.get(Channel(read.choice)),
        role=message.role,
        tool_calls=calls or None,
        reasoning_content=texts.get(Channel(read.choice, "reasoning")) or None,
        thinking_blocks=thinking_blocks(texts.get(Channel(read.choice, "reasoning", THINKING))),
        provider_specific_fields={"refusal": refusal} if refusal and not own else None,
        **own,
    )
    cut.function_call = older
    reason = "content_filter" if terminated else choice.finish_reason
    return Choices(finish_reason=reason, index=choice.index, message=cut)


def _may_name(call: Any, channel: Channel, texts: Mapping[Channel, str]) -> bool:
    """Whether a call's name may go out: one that is no valid name is judged as text."""
    function = call.custom if is_custom(call) else getattr(call, "function", call)
    name = function.name or ""
    return is_name(name) or texts.get(channel) == name


def _redacted(
    call: Any, channel: Channel, texts: Mapping[Channel, str], before: Mapping[Channel, str]
) -> Any:
    """Return a call with its released input; None if its number is another's, too."""
    text = texts.get(channel, "")
    if text == before.get(channel, ""):
        return call
    return _with(call, text) if arguments_of(call) == before[channel] else None


def _with(call: Any, text: str) -> Any:
    """Return a call with the input ``text`` and no other text."""
    identity = call.id if is_data(call.id) else ""
    if is_custom(call):
        payload = type(call.custom)(name=call.custom.name, input=text)
        return type(call)(id=identity, type="custom", custom=payload)
    function = Function(arguments=text, name=call.function.name)
    return type(call)(id=identity, type="function", function=function)
