"""LiteLLM's functions as the default guard has them, and that guard.

It is made at the first call, with its settings from ``guard.toml``, ``[tool.guard]`` and
``BIASGUARD_*``.
"""

from __future__ import annotations

import asyncio
import threading
from functools import cache
from typing import Any

from guard.core import Guard
from guard.errors import UsageError
from guard.forks import Lock

# Threads that ask at the same time for what is not made yet get one and the same.
_making = Lock(threading.RLock)


def completion(*args: Any, **kwargs: Any) -> Any:
    """Call ``litellm.completion`` and guard what it returns, by the default guard.

    The default guard's settings are those of ``guard.toml``, ``[tool.guard]``, ``BIASGUARD_*``.
    """
    return default().completion(*args, **kwargs)


async def acompletion(*args: Any, **kwargs: Any) -> Any:
    """Call ``litellm.acompletion`` and guard what it returns, by the default guard."""
    return await (await _adefault()).acompletion(*args, **kwargs)


def batch_completion(*args: Any, **kwargs: Any) -> list[Any]:
    """Call ``litellm.batch_completion`` and guard its answers, by the default guard."""
    return default().batch_completion(*args, **kwargs)


def text_completion(*args: Any, **kwargs: Any) -> Any:
    """Call ``litellm.text_completion`` and guard what it returns, by the default guard."""
    return default().text_completion(*args, **kwargs)


async def atext_completion(*args: Any, **kwargs: Any) -> Any:
    """Call ``litellm.atext_completion`` and guard what it returns, by the default guard."""
    return await (await _adefault()).atext_completion(*args, **kwargs)


def responses(*args: Any, **kwargs: Any) -> Any:
    """Call ``litellm.responses`` and guard what it returns, by the default guard."""
    return default().responses(*args, **kwargs)


async def aresponses(*args: Any, **kwargs: Any) -> Any:
    """Call ``litellm.aresponses`` and guard what it returns, by the default guard."""
    return await (await _adefault()).aresponses(*args, **kwargs)


def messages(*args: Any, **kwargs: Any) -> Any:
    """Call ``litellm.anthropic.messages.create``, and guard the message by the default guard."""
    return default().messages(*args, **kwargs)


async def amessages(*args: Any, **kwargs: Any) -> Any:
    """Call ``litellm.anthropic.messages.acreate``, and guard the message by the default guard."""
    return await (await _adefault()).amessages(*args, **kwargs)


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
