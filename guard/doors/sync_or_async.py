"""One body for a synchronous and an asynchronous function.

The body is a coroutine that awaits nothing but its parameter ``call``, which takes a function, its
async twin and their arguments. :data:`call_sync` calls the function and never suspends, so
:func:`run_without_loop` runs the body to its end. :data:`call_async` awaits the twin.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
SyncOrAsync = Callable[..., Awaitable[Any]]


async def call_sync(function: Callable[..., T], twin: object, *args: Any, **kwargs: Any) -> T:
    """Call ``function``."""
    return function(*args, **kwargs)


async def call_async(
    function: object, twin: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any
) -> T:
    """Await ``twin``."""
    return await twin(*args, **kwargs)


def run_without_loop(body: Coroutine[Any, Any, T]) -> T:
    """Return the result of a body called with :data:`call_sync`."""
    try:
        body.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    body.close()
    raise RuntimeError("A body run without a loop awaited something other than `call`.")
