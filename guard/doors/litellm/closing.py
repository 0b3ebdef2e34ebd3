"""Close the provider's connection under a LiteLLM stream.

LiteLLM closes unevenly: its stream wrapper has ``aclose()`` and no ``close()``; some provider
iterators have neither, and hide the HTTP response in the frame of a suspended generator. So the
objects under a stream are walked down to the response, and closed from the bottom up: the
connection first, then whatever stands on it.

Closing never raises, and closing twice is harmless. What is out of reach, :data:`TRANSPORTS` says.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import socket
from collections.abc import Iterable, Iterator
from types import AsyncGeneratorType, FrameType, GeneratorType
from typing import Any, NamedTuple, TypeVar

import anyio
import httpx

from guard.doors.litellm.compat import LINKS, STREAM_LINKS

# Deeper than any chain in LiteLLM; a bound, should objects ever be chained in earnest.
_MOST = 64


class Transport(NamedTuple):
    """Whether streams over one kind of connection can be closed, and what to know about it."""

    name: str
    closes: bool
    note: str


TRANSPORTS: tuple[Transport, ...] = (
    Transport("httpx, sync", True, "OpenAI-compatible and LiteLLM's own iterators over HTTP/1.1"),
    Transport("httpx, async", True, "the same, where aiohttp is switched off"),
    Transport("aiohttp, async", True, "LiteLLM's default for async calls"),
    Transport("generator", True, "mock_response, custom providers: closed by its close()"),
    Transport("Router", True, "through its fallback wrapper, to whichever model answers"),
    Transport(
        "HTTP/2",
        False,
        "httpx sends no reset for one stream of a shared connection; LiteLLM does not use it",
    ),
    Transport(
        "sync generator running in another thread",
        False,
        "Python cannot close a running generator; it ends at its next chunk",
    ),
    Transport(
        "whole answer replayed as a stream",
        False,
        "the provider had finished before the first chunk came; there is nothing left to stop",
    ),
    Transport(
        "async stream abandoned after its event loop ended",
        False,
        "only its loop can close it; the connection goes when the client is collected",
    ),
    Transport("vendor SDK (boto3, gRPC)", False, "its close() is called; not proved at the socket"),
)
"""What ``guard doctor`` reports about closing."""


T = TypeVar("T")


def under(stream: object, kind: type[T]) -> T | None:
    """Return the outermost object of ``kind`` that ``stream`` reads from, or is."""
    return next((x for x in _under(stream) if isinstance(x, kind)), None)


def local(stream: object, name: str) -> Any:
    """Return a variable of a generator that is suspended under ``stream``; None without one."""
    frames = (getattr(x, "ag_frame", None) or getattr(x, "gi_frame", None) for x in _under(stream))
    return next((f.f_locals[name] for f in frames if f is not None and name in f.f_locals), None)


def connections(stream: object) -> list[httpx.Response]:
    """Return the HTTP responses under ``stream`` that are still open."""
    return [x for x in _under(stream) if isinstance(x, httpx.Response) and not x.is_closed]


def close(
    stream: object,
    loop: asyncio.AbstractEventLoop | None = None,
    known: Iterable[httpx.Response] = (),
) -> None:
    """Close everything under ``stream`` from synchronous code.

    ``known`` are connections found under it earlier: a generator that an exception has ended no
    longer leads to the one it read from. Parts that only an event loop can close are closed on
    ``loop``, the one they were opened in: at once by its next turn if it runs, never if it has
    ended.
    """
    parts = _under(stream, known)
    _wake_readers(parts)
    late = [x for x in reversed(parts) if _needs_loop(x)]
    for part in reversed(parts):
        if part not in late:
            with contextlib.suppress(Exception):
                _close_now(part)
    if late and loop is not None and not loop.is_closed():
        # A loop that is neither running nor closed may run again; the call then waits for it.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_spawn, loop, late)


async def aclose(stream: object, known: Iterable[httpx.Response] = ()) -> None:
    """Close everything under ``stream``; a pending cancellation waits until that is done."""
    with anyio.CancelScope(shield=True):
        parts = _under(stream, known)
        _wake_readers(parts)
        await _aclose_all(list(reversed(parts)))


async def _aclose_all(parts: list[object]) -> None:
    for part in parts:
        with contextlib.suppress(Exception):
            if hasattr(part, "aclose") and not _is_sync_response(part):
                await part.aclose()
                continue
            result = _close_now(part)
            if inspect.isawaitable(result):
                await result


_closing: set[asyncio.Task[None]] = set()  # a loop holds its tasks weakly


def _spawn(loop: asyncio.AbstractEventLoop, parts: list[object]) -> None:
    task = loop.create_task(_aclose_all(parts))
    _closing.add(task)
    task.add_done_callback(_closing.discard)


def _under(stream: object, known: Iterable[httpx.Response] = ()) -> list[object]:
    """Return ``stream`` and the objects it reads from, outermost first, each once."""
    found: list[object] = []
    waiting = [stream, *known]
    while waiting and len(found) < _MOST:
        part = waiting.pop(0)
        if not any(part is x for x in found):
            found.append(part)
            if not isinstance(part, httpx.Response):
                waiting.extend(_below(part))
    return found


def _below(part: object) -> Iterator[object]:
    frame: FrameType | None = None
    if isinstance(part, GeneratorType):
        frame = part.gi_frame
    elif isinstance(part, AsyncGeneratorType):
        frame = part.ag_frame
    if frame is not None:
        for value in list(frame.f_locals.values()):
            streams = isinstance(value, (GeneratorType, AsyncGeneratorType, httpx.Response))
            if streams or _leads_on(value, STREAM_LINKS):
                yield value
        return
    fields = getattr(part, "__dict__", {})
    for name in LINKS:
        value = fields.get(name)
        if value is not None and (_can_close(value) or _leads_on(value, LINKS)):
            yield value


def _leads_on(part: object, links: Iterable[str]) -> bool:
    fields = getattr(part, "__dict__", None)
    return any(link in fields for link in links) if fields else False


def _can_close(part: object) -> bool:
    return callable(getattr(part, "aclose", None)) or callable(getattr(part, "close", None))


def _is_sync_response(part: object) -> bool:
    return isinstance(part, httpx.Response) and isinstance(part.stream, httpx.SyncByteStream)


def _needs_loop(part: object) -> bool:
    if isinstance(part, httpx.Response):
        return not _is_sync_response(part)
    if isinstance(part, AsyncGeneratorType):
        return True
    close = getattr(part, "close", None)
    return inspect.iscoroutinefunction(close) or (close is None and hasattr(part, "aclose"))


def _close_now(part: Any) -> object:
    if isinstance(part, httpx.Response) and part.is_closed:
        return None
    close = getattr(part, "close", None)
    return close() if callable(close) else None


def _wake_readers(parts: Iterable[object]) -> None:
    """Shut the sockets down before anything is closed.

    What stands on a connection closes it; and a socket closed under a blocked read neither wakes
    the reader nor tells the provider.
    """
    for part in parts:
        if isinstance(part, httpx.Response) and _is_sync_response(part) and not part.is_closed:
            with contextlib.suppress(Exception):
                _shut_down(part)


def _shut_down(response: httpx.Response) -> None:
    """Wake a thread that is blocked in a read of ``response``: closing its socket would not."""
    if response.http_version.startswith("HTTP/2"):
        return
    stream = response.extensions.get("network_stream")
    if stream is not None:
        raw = stream.get_extra_info("socket")
        if isinstance(raw, socket.socket):
            with contextlib.suppress(OSError):
                raw.shutdown(socket.SHUT_RDWR)
