"""A response is guarded once, by the outermost door.

Doors call LiteLLM inside :func:`inside`; a door entered there (LiteLLM's Router calls
``completion``, a fallback asks again while its stream is read) finds :func:`guarded` true and
passes the call through.

LiteLLM copies the context into what it starts for its callbacks, where it outlives the call. So
the context holds a mark that the call itself takes back: a copy of it guards nothing any more.
On LiteLLM's logging threads, which may begin before the call returns, it never does.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar, Token

_LOGGING = "litellm-logging"  # how the names of LiteLLM's logging threads begin


class _Mark:
    """Stands for one call of a door; ``alive`` until it returns."""

    __slots__ = ("alive", "thread")

    def __init__(self) -> None:
        self.alive = True
        self.thread = threading.get_ident()


_inside: ContextVar[_Mark | None] = ContextVar("guard_inside", default=None)


def guarded() -> bool:
    """Whether a door further out guards what is called now."""
    mark = _inside.get()
    if mark is None or not mark.alive:
        return False
    here = threading.current_thread()
    return mark.thread == here.ident or not here.name.startswith(_LOGGING)


class inside:  # noqa: N801  (read as `with inside():`; a class, as a stream enters it each chunk)
    """Mark the calls made within as guarded already."""

    __slots__ = ("_mark", "_token")
    _mark: _Mark
    _token: Token[_Mark | None] | None

    def __enter__(self) -> None:
        self._token = None
        if not guarded():  # else the door further out speaks for what is called here
            self._mark = _Mark()
            self._token = _inside.set(self._mark)

    def __exit__(self, *_: object) -> None:
        if self._token is None:
            return
        self._mark.alive = False
        # A coroutine that is thrown away is closed in another context than its own.
        try:  # noqa: SIM105  (cheaper than suppress, once a chunk)
            _inside.reset(self._token)
        except ValueError:
            pass
