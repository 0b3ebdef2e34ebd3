"""The chat door: ``litellm.completion`` and ``litellm.acompletion``, guarded."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import litellm
from litellm.litellm_core_utils.streaming_handler import CustomStreamWrapper
from litellm.types.utils import ModelResponse

from guard.doors import closing, whole
from guard.doors.context import guarded, inside
from guard.doors.session import Session
from guard.doors.stream import GuardedStream
from guard.errors import UsageError


def completion(session: Session, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call ``litellm.completion(*args, **kwargs)`` and guard what it returns.

    Raises what LiteLLM raises; BiasFound and DetectorError under the action ``raise``; UsageError
    on an answer that is not text, and on an ``n`` that is no whole number.
    """
    if guarded():
        return litellm.completion(*args, **kwargs)
    user, n = session.user(args, kwargs), _asked(litellm.completion, args, kwargs)
    with inside():
        response = litellm.completion(*args, **kwargs)
    return guard(session, response, user=user, n=n)


async def acompletion(session: Session, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call ``litellm.acompletion(*args, **kwargs)`` and guard what it returns.

    Raises as :func:`completion` does.
    """
    if guarded():
        return await litellm.acompletion(*args, **kwargs)
    user, n = session.user(args, kwargs), _asked(litellm.acompletion, args, kwargs)
    with inside():
        response = await litellm.acompletion(*args, **kwargs)
    return await aguard(session, response, user=user, n=n)


def guard(session: Session, response: object, *, user: str = "", n: int = 1) -> Any:
    """Guard a chat response of LiteLLM, whole or streamed; a stream is judged as it is read.

    ``n`` is the number of choices that were asked for. A stream that cannot be guarded is closed.
    """
    try:
        if isinstance(response, CustomStreamWrapper):
            return GuardedStream(response, session, user=user, n=n)
        answer = _whole(response)
    except BaseException:
        closing.close(response)
        raise
    said = whole.answers(answer)
    gate = whole.gate_for(session, said, user)
    session.settle(gate)
    return whole.released(answer, said, gate)


async def aguard(session: Session, response: object, *, user: str = "", n: int = 1) -> Any:
    """Guard as :func:`guard` does, without blocking the event loop."""
    try:
        if isinstance(response, CustomStreamWrapper):
            return GuardedStream(response, session, user=user, n=n)
        answer = _whole(response)
    except BaseException:
        await closing.aclose(response)
        raise
    said = whole.answers(answer)
    gate = whole.gate_for(session, said, user)
    await session.asettle(gate)
    return whole.released(answer, said, gate)


def _whole(response: object) -> ModelResponse:
    if isinstance(response, ModelResponse):
        return response
    raise UsageError(
        f"LiteLLM answered a chat call with {type(response).__name__}, which guard cannot read;"
        " call it without guard, or through the door that belongs to it."
    )


def _asked(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Return the number of choices that a call of ``function`` asks for."""
    names = inspect.signature(function).parameters if len(args) > 2 else ()
    n = {**dict(zip(names, args, strict=False)), **kwargs}.get("n")
    if n is None:
        return 1
    if not isinstance(n, int):
        raise UsageError(f"n must be a whole number, got {n!r}.")
    return max(n, 1)
