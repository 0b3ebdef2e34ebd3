"""A response is guarded once, by the outermost door.

Doors call LiteLLM within :func:`inside`. A door entered there (LiteLLM's Router calls
``completion``, a fallback asks another model while its stream is read) finds :func:`guarded`
true and passes the call through.

LiteLLM copies the context to the threads and tasks of its callbacks, which outlive the call. So
the context holds a mark that the call invalidates when it returns. LiteLLM's logging threads,
which may start earlier, never count as guarded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import TypeVar

T = TypeVar("T")

LOGGING = "litellm-logging"
"""Beginning of the names of LiteLLM's logging threads."""


class _CallMark:
    """Marks one call of a door; ``alive`` until it returns."""

    __slots__ = ("alive", "thread")

    def __init__(self) -> None:
        self.alive = True
        self.thread = threading.get_ident()


_inside: ContextVar[_CallMark | None] = ContextVar("guard_inside", default=None)


def guarded() -> bool:
    """Whether an outer door guards the current call."""
    mark = _inside.get()
    if mark is None or not mark.alive:
        return False
    here = threading.current_thread()
    return mark.thread == here.ident or not here.name.startswith(LOGGING)


def call_inside(call: Callable[[], T]) -> T:
    """Return what ``call`` returns, within a mark of its own, in a context of its own.

    The caller's mark may end before the call does.
    """
    mark = _CallMark()
    _inside.set(mark)
    try:
        return call()
    finally:
        mark.alive = False


class inside:  # noqa: N801  (used as `with inside():`; a class, for speed: entered for each chunk)
    """Mark the calls made in this block as guarded."""

    __slots__ = ("_mark", "_token")
    _mark: _CallMark
    _token: Token[_CallMark | None] | None

    def __enter__(self) -> None:
        self._token = None
        if not guarded():  # else the outer door's mark applies
            self._mark = _CallMark()
            self._token = _inside.set(self._mark)

    def __exit__(self, error: object, *_: object) -> None:
        if self._token is None:
            return
        self._mark.alive = False
        if error is GeneratorExit:
            return  # a discarded coroutine, perhaps in a garbage collection: see EndsWhenDropped
        # A discarded coroutine is closed in a context that is not its own.
        try:  # noqa: SIM105  (cheaper than suppress; runs for each chunk)
            _inside.reset(self._token)
        except ValueError:
            pass
