"""The chat door: ``litellm.completion`` and ``litellm.acompletion``, guarded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from litellm.types.utils import ModelResponse

from guard.doors.chat.stream import ChatStream
from guard.doors.chat.whole import cut_choice, parts_of_choice
from guard.doors.door import Arguments, Door, Whole, last_message, number_of_choices, unreadable
from guard.doors.litellm.compat import CustomStreamWrapper
from guard.doors.session import DoorSession
from guard.doors.whole import WholeAnswer


def _wrap(response: object, session: DoorSession, user: str, n: int) -> ChatStream | Whole:
    if isinstance(response, CustomStreamWrapper):
        return ChatStream(response, session, user=user, n=n)
    if isinstance(response, ModelResponse):
        return WholeAnswer(response, session, user, parts_of_choice, cut_choice)
    raise unreadable(response, "chat")


def _continuation(call: Arguments, released: str, instruction: str) -> dict[str, Any]:
    answer = [{"role": "assistant", "content": released}] if released else []
    asked = {"role": "user", "content": instruction}
    return {**call, "messages": [*call["messages"], *answer, asked]}


DOOR = Door(
    "chat",
    "completion",
    "acompletion",
    _wrap,
    user=lambda call: last_message(call.get("messages")),
    choices=number_of_choices,
    continuation=_continuation,
)


def call_arguments(
    completions: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of LiteLLM's ``completions.create(*args, **kwargs)``.

    LiteLLM itself stores the arguments of a call in ``completions.params`` for all later calls.
    This does not, or ``guard``, ``stream`` and the call's records would leak into other calls.
    """
    own = {**dict(zip(("messages", "model"), args, strict=False)), **kwargs}
    model = own.get("model") or completions.params.get("model")
    return {**completions.params, **own, "model": model}


completion, acompletion, guard, aguard = DOOR.call, DOOR.acall, DOOR.guard, DOOR.aguard
