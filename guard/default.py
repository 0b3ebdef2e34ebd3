"""LiteLLM's functions as the default guard has them, and that guard.

It is made at the first call, with its settings from ``guard.toml``, ``[tool.guard]`` and
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

# Threads that ask at the same time for what is not made yet get one and the same.
_making = Lock(threading.RLock)


def _by_default(method: C) -> C:
    """Return the function that calls a method of :class:`Guard` on the default guard."""
    of: Any = method
    name, signature = of.__name__, inspect.signature(of)

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(default(), name)(*args, **kwargs)

    async def acall(*args: Any, **kwargs: Any) -> Any:
        return await getattr(await _adefault(), name)(*args, **kwargs)

    function: Any = acall if inspect.iscoroutinefunction(of) else call
    function.__name__ = function.__qualname__ = name
    function.__doc__ = of.__doc__
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
    """Guard every call of LiteLLM's in this process, and return the guard that does.

    That is ``guard``, or one made of ``settings`` as :class:`Guard` takes them, or the default one.
    Installed again, the newer is in force until :func:`uninstall`. Raises UsageError where both
    are given, ConfigError for a LiteLLM that is not as expected.
    """
    if guard is not None and settings:
        raise UsageError("install() takes a Guard or the settings of one, not both.")
    if guard is None:
        guard = Guard(**settings) if settings else default()
    guard.install()
    return guard


def uninstall() -> None:
    """Take back the last :func:`install`; with the last of all, LiteLLM is as it was."""
    from guard.doors.litellm import install

    install.uninstall()


def default() -> Guard:
    """Return the default guard."""
    with _making:
        return _made()


async def _adefault() -> Guard:
    # The first call loads the weights, which takes longer than an event loop may wait.
    return await asyncio.to_thread(default)


@cache
def _made() -> Guard:
    return Guard()
