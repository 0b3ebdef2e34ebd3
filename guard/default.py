"""The default guard, and LiteLLM's functions guarded by it.

It is created at the first call, with settings from ``guard.toml``, ``[tool.guard]`` and
``BIASGUARD_*``.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from functools import cache
from typing import Any, cast

from guard.core import Guard
from guard.errors import UsageError
from guard.forks import Lock
from guard.signatures import C

# Threads that need the default guard at the same time create it once.
_making = Lock(threading.RLock)


def _by_default(method: C) -> C:
    """Return the function that calls a method of :class:`Guard` on the default guard."""
    default_of: Any = method
    name, signature = default_of.__name__, inspect.signature(default_of)

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(default_guard(), name)(*args, **kwargs)

    async def acall(*args: Any, **kwargs: Any) -> Any:
        return await getattr(await _default_guard_async(), name)(*args, **kwargs)

    function: Any = acall if inspect.iscoroutinefunction(default_of) else call
    function.__name__ = function.__qualname__ = name
    function.__doc__ = default_of.__doc__
    function.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])
    return cast(C, function)


completion = _by_default(Guard.completion)
acompletion = _by_default(Guard.acompletion)
batch_completion = _by_default(Guard.batch_completion)
text_completion = _by_default(Guard.text_completion)
atext_completion = _by_default(Guard.atext_completion)
responses = _by_default(Guard.responses)
aresponses = _by_default(Guard.aresponses)
messages = _by_default(Guard.messages)
amessages = _by_default(Guard.amessages)


def install(guard: Guard | None = None, **settings: Any) -> Guard:
    """Guard every LiteLLM call in this process, and return the guard.

    That is ``guard``, or a new one with ``settings`` (those of :class:`Guard`), or the default
    one. A second install takes precedence until :func:`uninstall`. Raises UsageError if both are
    given, ConfigError if LiteLLM is not as expected.
    """
    if guard is not None and settings:
        raise UsageError("install() takes a Guard or the settings of one, not both.")
    if guard is None:
        guard = Guard(**settings) if settings else default_guard()
    guard.install()
    return guard


def uninstall() -> None:
    """Undo the last :func:`install`; after the first is undone, LiteLLM is unpatched."""
    from guard.doors.litellm import install

    install.uninstall()


def default_guard() -> Guard:
    """Return the default guard."""
    with _making:
        return _make_default()


async def _default_guard_async() -> Guard:
    # In a thread: the first call loads the weights, which would block the event loop.
    return await asyncio.to_thread(default_guard)


@cache
def _make_default() -> Guard:
    return Guard()
