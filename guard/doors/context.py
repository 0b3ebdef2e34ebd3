"""A response is guarded once, by the outermost door.

Doors call LiteLLM inside :func:`inside`; a door entered there (LiteLLM's Router calls
``completion``, a fallback asks again while its stream is read) finds :func:`guarded` true and
passes the call through.
"""

from __future__ import annotations

from contextvars import ContextVar, Token

_inside: ContextVar[bool] = ContextVar("guard_inside", default=False)


def guarded() -> bool:
    """Whether a door further out guards what is called now."""
    return _inside.get()


class inside:  # noqa: N801  (read as `with inside():`; a class, as a stream enters it each chunk)
    """Mark the calls made within as guarded already."""

    __slots__ = ("_token",)
    _token: Token[bool]

    def __enter__(self) -> None:
        self._token = _inside.set(True)

    def __exit__(self, *_: object) -> None:
        # A coroutine that is thrown away is closed in another context than its own.
        try:  # noqa: SIM105  (cheaper than suppress, once a chunk)
            _inside.reset(self._token)
        except ValueError:
            pass
