"""Reads an asynchronous source on while a verdict on what came before is out.

A provider behind a socket goes on whatever its reader does. One in the same process (a local model,
a custom provider) does nothing until it is asked: without this, a slow detector's time would be
added to its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import anyio

from guard.doors.context import inside

#: Seconds that a verdict may be out before its source is read on. Quicker detectors pay nothing.
PATIENCE = 0.01
# Seconds that a source has to end once it is cancelled, before it is closed as it is.
_GRACE = 1.0


class Read(NamedTuple):
    """What one read of a source gave: a chunk, or the error that ended it (``StopAsyncIteration``).

    The error is a value, so that a read that nobody takes any more says nothing when collected.
    """

    chunk: Any
    error: Exception | None


class Reading:
    """The read of a source that is under way, if any; at most one.

    It refers to the source alone: a stream that is dropped meanwhile is collected, and closes it.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[Read] | None = None
        self._failed: Exception | None = None  # what taking a read ahead raised

    @property
    def under_way(self) -> bool:
        """Whether a read was begun that has not been taken; it comes before any other."""
        return self._task is not None or self._failed is not None

    async def next(self, source: Any) -> Read:
        """Return what was read meanwhile, else the next of ``source``.

        Raises what could not be taken meanwhile: what came before it has gone out by now.
        """
        if self._failed is not None:
            raise self._failed
        if self._task is None:
            return await _next(source)
        # A reader who is cancelled here cancels the read as well, and waits for its end.
        try:
            return await self._task
        finally:
            self._task = None

    async def during(
        self,
        judging: Awaitable[None],
        source: Any,
        wants: Callable[[], bool],
        take: Callable[[Read], object],
    ) -> None:
        """Await ``judging``; once that takes long, ``take`` what comes as long as ``wants``.

        What ``take`` raises ends that, and is raised by the next read.
        """
        meanwhile = _Meanwhile(self, source, wants, take)
        timer = asyncio.get_running_loop().call_later(PATIENCE, meanwhile.go_on)
        try:
            await judging
        finally:
            timer.cancel()
            meanwhile.end()

    def begin(self, source: Any) -> asyncio.Task[Read]:
        """Begin a read, or return the one under way."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(_next(source))
        return self._task

    def taken(self, task: asyncio.Task[Read], take: Callable[[Read], object]) -> bool:
        """``take`` what ``task`` read; return False where that failed, or it was given up."""
        if self._task is not task or task.cancelled():
            return False
        self._task = None
        try:
            take(task.result())
        except Exception as error:
            self._failed = error
        return self._failed is None

    async def stop(self) -> None:
        """Give up the read under way, and wait until its source has let go."""
        task, self._task, self._failed = self._task, None, None
        if task is not None and not task.done():
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({task}, timeout=_GRACE)

    def drop(self) -> None:
        """Give it up from synchronous code, of any thread."""
        task, self._task, self._failed = self._task, None, None
        if task is not None and not task.done():
            with contextlib.suppress(RuntimeError):  # its loop has ended, and the read with it
                task.get_loop().call_soon_threadsafe(task.cancel)


class _Meanwhile:
    """Reads while one lot of verdicts is out; lets go of its stream when they are there."""

    def __init__(
        self,
        reading: Reading,
        source: Any,
        wants: Callable[[], bool],
        take: Callable[[Read], object],
    ) -> None:
        self._reading = reading
        self._source = source
        self._wants: Callable[[], bool] | None = wants
        self._take: Callable[[Read], object] | None = take

    def go_on(self) -> None:
        if self._wants is not None and (self._reading.under_way or self._wants()):
            self._reading.begin(self._source).add_done_callback(self._arrived)

    def _arrived(self, task: asyncio.Task[Read]) -> None:
        if self._take is not None and self._reading.taken(task, self._take):
            self.go_on()

    def end(self) -> None:
        self._source = self._wants = self._take = None


async def _next(source: Any) -> Read:
    try:
        with inside():
            return Read(await source.__anext__(), None)
    except Exception as error:
        return Read(None, error)
