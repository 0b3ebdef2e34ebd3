"""Close the provider's connection under a LiteLLM stream.

LiteLLM has no uniform way to close a stream: its stream wrapper has ``aclose()`` but no
``close()``; some provider iterators have neither, and hold the HTTP response in the frame of a
suspended generator. So this module follows the references from a stream down to the response and
closes all objects on the way, innermost first.

Closing never raises, and closing twice is harmless. :data:`TRANSPORTS` lists what cannot be closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import socket
from collections.abc import Coroutine, Iterable, Iterator
from types import AsyncGeneratorType, FrameType, GeneratorType
from typing import Any, NamedTuple, TypeVar

import anyio
import httpx

from guard.doors.litellm.compat import (
    LINKS,
    STREAM_LINKS,
    CustomStreamWrapper,
    end_finaliser,
    under_response,
)

# Upper bound of the objects under a stream, above that of any stream of LiteLLM.
_MOST = 64


class Transport(NamedTuple):
    """Whether streams over one kind of connection can be closed, with a note for users."""

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


def outermost_stream(stream: object, kind: type[T]) -> T | None:
    """Return the outermost object of ``kind`` that ``stream`` reads from, or is."""
    return next((x for x in _objects_under(stream) if isinstance(x, kind)), None)


def generator_local(stream: object, name: str) -> Any:
    """Return a local variable of a suspended generator under ``stream``; None if there is none."""
    frames = (
        getattr(x, "ag_frame", None) or getattr(x, "gi_frame", None) for x in _objects_under(stream)
    )
    return next((f.f_locals[name] for f in frames if f is not None and name in f.f_locals), None)


def connections(stream: object) -> list[httpx.Response]:
    """Return the HTTP responses under ``stream`` that are still open."""
    return _open_responses(_objects_under(stream))


def take_over(stream: object) -> list[httpx.Response]:
    """Return the same, of a stream that guard closes; LiteLLM's finalisers under it do nothing."""
    objects = _objects_under(stream)
    for stream_under in objects:
        if isinstance(stream_under, CustomStreamWrapper):
            end_finaliser(stream_under)
    return _open_responses(objects)


def _open_responses(objects: Iterable[object]) -> list[httpx.Response]:
    return [x for x in objects if isinstance(x, httpx.Response) and not x.is_closed]


def close(
    stream: object,
    loop: asyncio.AbstractEventLoop | None = None,
    known: Iterable[httpx.Response] = (),
) -> None:
    """Close everything under ``stream`` from synchronous code.

    ``known`` are connections found under it earlier: a generator that ended with an exception no
    longer references its connection. Objects that only an event loop can close are closed on
    ``loop``, in which they were opened: in its next iteration if it runs, never if it has ended.
    """
    objects = _objects_under(stream, known)
    _wake_readers(objects)
    late = [x for x in reversed(objects) if _needs_loop(x)]
    for owner in reversed(objects):
        if owner not in late:
            with contextlib.suppress(Exception):
                _close_now(owner)
    if late and loop is not None and not loop.is_closed():
        # A loop that is neither running nor closed may run again, and then makes this call.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: keep_task(loop, _aclose_all(late)))


async def aclose(stream: object, known: Iterable[httpx.Response] = ()) -> None:
    """Close everything under ``stream``; a pending cancellation waits until that is done."""
    with anyio.CancelScope(shield=True):
        objects = _objects_under(stream, known)
        _wake_readers(objects)
        await _aclose_all(list(reversed(objects)))


async def _aclose_all(objects: list[object]) -> None:
    for owner in objects:
        with contextlib.suppress(Exception):
            if hasattr(owner, "aclose") and not _is_sync_response(owner):
                await owner.aclose()
                continue
            result = _close_now(owner)
            if inspect.isawaitable(result):
                await result


_tasks: set[asyncio.Task[Any]] = set()  # a loop holds its tasks weakly


def keep_task(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
    """Start a task that nobody awaits, and keep it until it is done."""
    task = loop.create_task(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def _objects_under(stream: object, known: Iterable[httpx.Response] = ()) -> list[object]:
    """Return ``stream`` and the objects it reads from, outermost first, each once."""
    objects: list[object] = []
    waiting = [stream, *known]
    while waiting and len(objects) < _MOST:
        owner = waiting.pop(0)
        if not any(owner is x for x in objects):
            objects.append(owner)
            response = isinstance(owner, httpx.Response)
            waiting.extend(under_response(owner) if response else _objects_read_by(owner))
    return objects


def _objects_read_by(owner: object) -> Iterator[object]:
    frame: FrameType | None = None
    if isinstance(owner, GeneratorType):
        frame = owner.gi_frame
    elif isinstance(owner, AsyncGeneratorType):
        frame = owner.ag_frame
    if frame is not None:
        for value in list(frame.f_locals.values()):
            streams = isinstance(value, (GeneratorType, AsyncGeneratorType, httpx.Response))
            if streams or _has_link(value, STREAM_LINKS):
                yield value
        return
    fields = getattr(owner, "__dict__", {})
    for name in LINKS:
        value = fields.get(name)
        if value is not None and (_can_close(value) or _has_link(value, LINKS)):
            yield value


def _has_link(owner: object, links: Iterable[str]) -> bool:
    fields = getattr(owner, "__dict__", None)
    return any(link in fields for link in links) if fields else False


def _can_close(owner: object) -> bool:
    return callable(getattr(owner, "aclose", None)) or callable(getattr(owner, "close", None))


def _is_sync_response(owner: object) -> bool:
    return isinstance(owner, httpx.Response) and isinstance(owner.stream, httpx.SyncByteStream)


def _needs_loop(owner: object) -> bool:
    if isinstance(owner, httpx.Response):
        return not _is_sync_response(owner)
    if isinstance(owner, AsyncGeneratorType):
        return True
    close = getattr(owner, "close", None)
    return inspect.iscoroutinefunction(close) or (close is None and hasattr(owner, "aclose"))


def _close_now(owner: Any) -> object:
    if isinstance(owner, httpx.Response) and owner.is_closed:
        return None
    close = getattr(owner, "close", None)
    return close() if callable(close) else None


def _wake_readers(objects: Iterable[object]) -> None:
    """Shut the sockets down before anything is closed.

    Closing an outer object closes its connection; but closing a socket during a blocked read
    neither wakes the reader nor notifies the provider.
    """
    for owner in objects:
        if isinstance(owner, httpx.Response) and _is_sync_response(owner) and not owner.is_closed:
            with contextlib.suppress(Exception):
                _shut_down(owner)


def _shut_down(response: httpx.Response) -> None:
    """Shut down a response's socket, which wakes a thread blocked in a read of it."""
    if response.http_version.startswith("HTTP/2"):
        return
    stream = response.extensions.get("network_stream")
    if stream is not None:
        raw = stream.get_extra_info("socket")
        if isinstance(raw, socket.socket):
            with contextlib.suppress(OSError):
                raw.shutdown(socket.SHUT_RDWR)
