"""LiteLLM's Router with its completion methods guarded.

Router is guarded from outside: to its fallbacks and retries a stop below it would look like a
failure, and another model would be asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from guard.doors import chat, messages, responses, text_completion
from guard.doors.session import Session
from guard.errors import UsageError

_DOORS = (chat.DOOR, text_completion.DOOR, responses.DOOR)
_SYNC = {door.function: door for door in _DOORS}
_ASYNC = {door.async_function: door for door in _DOORS}
# A Router has one such method, async, by two names.
_ASYNC |= dict.fromkeys(("aanthropic_messages", "anthropic_messages"), messages.DOOR)
# What else of a Router brings text of a model.
_OTHERS = frozenset(
    {
        "abatch_completion",
        "abatch_completion_fastest_response",
        "abatch_completion_one_model_multiple_requests",
        "aadapter_completion",
        "adapter_completion",
        "agenerate_content",
        "agenerate_content_stream",
        "generate_content",
        "generate_content_stream",
        "schedule_acompletion",
    }
)


class GuardedRouter:
    """Stands for a Router; ``isinstance`` takes it for one, and what is not guarded is its own.

    Methods that bring text and have no door raise UsageError: call them on the Router itself.
    """

    def __init__(self, router: Any, session: Callable[[Any], Session]) -> None:
        self._router = router
        self._session = session

    @property  # type: ignore[misc]
    def __class__(self) -> type[Any]:
        return type(self._router)

    def __getattr__(self, name: str) -> Any:
        if name in ("_router", "_session"):  # not there yet: a copy is being made
            raise AttributeError(name)
        router, session = self._router, self._session
        if name in _SYNC:

            def call(*args: Any, guard: Any = None, **kwargs: Any) -> Any:
                return _SYNC[name].call(session(guard), args, kwargs, router)

            return call
        if name in _ASYNC:

            async def acall(*args: Any, guard: Any = None, **kwargs: Any) -> Any:
                return await _ASYNC[name].acall(session(guard), args, kwargs, router)

            return acall
        if name in _OTHERS:
            raise UsageError(
                f"Router.{name} has no door of guard's; call it on the Router itself, unguarded."
            )
        return getattr(router, name)
