"""One body for a synchronous and an asynchronous function.

The body is a coroutine that awaits nothing but its parameter ``either``, which takes a function,
its async twin and their arguments. :data:`sync` calls the function and never suspends, so
:func:`run` runs the body to its end. :data:`asynchronous` awaits the twin.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
Either = Callable[..., Awaitable[Any]]


async def sync(function: Callable[..., T], twin: object, *args: Any, **kwargs: Any) -> T:
    """Call ``function``."""
    return function(*args, **kwargs)


async def asynchronous(
    function: object, twin: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any
) -> T:
    """Await ``twin``."""
    return await twin(*args, **kwargs)


def run(body: Coroutine[Any, Any, T]) -> T:
    """Return the result of a body called with :data:`sync`."""
    try:
        body.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    body.close()
    raise RuntimeError("A body run synchronously awaited something other than `either`.")
