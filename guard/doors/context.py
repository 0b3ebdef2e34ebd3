"""A response is guarded once, by the outermost door.

Doors call LiteLLM inside :func:`inside`; a door entered there (LiteLLM's Router calls
``completion``, a fallback asks again while its stream is read) finds :func:`guarded` true and
passes the call through.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

_inside: ContextVar[bool] = ContextVar("guard_inside", default=False)


def guarded() -> bool:
    """Whether a door further out guards what is called now."""
    return _inside.get()


@contextmanager
def inside() -> Iterator[None]:
    """Mark the calls made within as guarded already."""
    token = _inside.set(True)
    try:
        yield
    finally:
        # A coroutine that is thrown away is closed in another context than its own.
        with suppress(ValueError):
            _inside.reset(token)
