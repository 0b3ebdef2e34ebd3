"""Waits for a provider's next chunk, for a limited time while a second look needs it.

A finding must not wait for ever for the segment after it: see ``second_look_ms``. A call that is
late is neither cancelled nor repeated; the next wait is for the same call. Only time spent here
counts, not the time that the reader takes.

An asynchronous call stays in the reader's own task, because scopes and context variables that a
generator holds over a ``yield`` belong to it. A synchronous call of a door takes a thread. A
source of the caller's own may not be used in another thread: there the limit is looked at between
two chunks.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextvars import copy_context
from functools import partial
from typing import Any

import anyio

from guard.doors.context import call_inside
from guard.gate import ResponseGate
from guard.gate.second_look import SecondLook
from guard.policy import Policy

LATE: Any = object()
"""Stands for a chunk that did not come in time."""


class Waits:
    """The calls for the next chunk of one stream, one at a time.

    ``threads``: whether synchronous calls may be made in a thread; they are those of a door.
    """

    def __init__(self, policy: Policy, *, threads: bool = False) -> None:
        self._threads = threads
        # Nothing is held in the mode that only watches.
        limited = policy.hold != "none" and policy.second_look_ms is not None
        self._limit = (policy.second_look_ms or 0.0) / 1000 if limited else None
        self._spent = 0.0  # seconds waited while a second look needed text
        self._until: dict[SecondLook, float] = {}  # the `_spent` at which each is given up
        self._thread: Future[tuple[Any, BaseException | None]] | None = None
        self._call: _Parts | None = None

    @property
    def under_way(self) -> bool:
        """Whether there is a call whose answer was not taken."""
        return self._thread is not None or self._call is not None

    def needed(self, gate: ResponseGate[Any]) -> bool:
        """Whether the next chunk must be waited for here."""
        return self.under_way or (self._limit is not None and bool(gate.awaited))

    def next(self, call: Callable[[], Any], gate: ResponseGate[Any]) -> Any:
        """Return what ``call`` returns or raise what it raises; LATE if that takes too long."""
        left = self._time_left(gate)
        if self._thread is None:
            if left is None:
                return call()
            if left <= 0:
                return LATE
        begun = time.monotonic()
        try:
            return self._in_thread(call, left) if self._threads else call()
        finally:
            self._spent += time.monotonic() - begun

    def _in_thread(self, call: Callable[[], Any], left: float | None) -> Any:
        if self._thread is None:
            try:
                self._thread = _started(call)
            except RuntimeError:  # no thread can be started
                return LATE
        try:
            chunk, error = self._thread.result(left)
        except FutureTimeoutError:
            return LATE
        self._thread = None
        if error is not None:
            raise error
        return chunk

    async def anext(self, call: Callable[[], Awaitable[Any]], gate: ResponseGate[Any]) -> Any:
        """Do the same as :meth:`next` for an asynchronous ``call``."""
        left = self._time_left(gate)
        if self._call is None:
            if left is None:
                return await call()
            if left <= 0:
                return LATE
            self._call = _Parts(call())
        begun = time.monotonic()
        try:
            chunk = await self._call.run(left)
        except GeneratorExit:  # the reading coroutine is discarded; `leave` ends the call
            raise
        except BaseException:
            self._call = None
            raise
        finally:
            self._spent += time.monotonic() - begun
        if chunk is not LATE:
            self._call = None
        return chunk

    def leave(self, close: Callable[[], object]) -> None:
        """End a late call; ``close`` is called once a thread's has ended. For any thread.

        A thread cannot be interrupted: what it reads from must be closed.
        """
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.add_done_callback(partial(_closed, close))
        call, self._call = self._call, None
        if call is not None and not call.loop.is_closed():
            with contextlib.suppress(RuntimeError):  # closed since
                call.loop.call_soon_threadsafe(call.end_soon)

    async def aleave(self) -> None:
        """End a late asynchronous call and wait until it has ended; for its own event loop."""
        call, self._call = self._call, None
        if call is not None and call.loop is asyncio.get_running_loop():
            with anyio.CancelScope(shield=True):
                await call.end()

    def _time_left(self, gate: ResponseGate[Any]) -> float | None:
        """Return how many seconds the next chunk may take; None: as long as it takes."""
        if self._limit is None:
            return None
        awaited = gate.awaited
        if not awaited:
            return None
        end = self._spent + self._limit
        self._until = {look: self._until.get(look, end) for look in awaited}
        return max(0.0, min(self._until.values()) - self._spent)


class _Parts:
    """An awaitable that one task awaits in several parts."""

    def __init__(self, awaitable: Awaitable[Any]) -> None:
        self.loop = asyncio.get_running_loop()
        self._steps = _awaited(awaitable)
        self._yielded: Any = None  # what it waits for
        self._began = False
        self._ending: asyncio.Task[None] | None = None

    async def run(self, limit: float | None) -> Any:
        """Return its result, or LATE if there is none after ``limit`` seconds."""
        end = None if limit is None else time.monotonic() + limit
        error: BaseException | None = None
        while True:
            if self._began:
                left = None if end is None else max(0.0, end - time.monotonic())
                try:
                    if not await self._wait(left):
                        return LATE
                except asyncio.CancelledError as cancelled:
                    self._cancel()
                    error = cancelled
            self._began = True
            try:
                step = self._steps
                self._yielded = step.send(None) if error is None else step.throw(error)
            except StopIteration as done:
                return done.value
            error = None

    async def _wait(self, left: float | None) -> bool:
        """Wait for what it waits for; return whether that is there in time."""
        yielded = self._yielded
        if not asyncio.isfuture(yielded):  # such as a sleep of no time
            await _Bare(yielded)
            return left is None or left > 0
        # As a task does with the future that it is given, before it waits for it.
        yielded._asyncio_future_blocking = False
        done, _ = await asyncio.wait([yielded], timeout=left)
        return bool(done)

    def _cancel(self) -> None:
        if asyncio.isfuture(self._yielded):
            self._yielded.cancel()

    async def end(self) -> None:
        """Cancel it and wait until it has ended."""
        self._cancel()
        try:
            self._yielded = self._steps.throw(asyncio.CancelledError())
            await self.run(None)
        except (StopIteration, StopAsyncIteration, asyncio.CancelledError):
            pass
        except Exception:  # nobody waits for it any more
            pass

    def end_soon(self) -> None:
        """Do the same in a task."""
        self._ending = self.loop.create_task(self.end())


class _Bare:
    """Yields a value to the event loop as it is."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, Any, None]:
        yield self._value


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _started(call: Callable[[], Any]) -> Future[tuple[Any, BaseException | None]]:
    """Start ``call`` in a thread; return its result and its error."""
    outcome: Future[tuple[Any, BaseException | None]] = Future()

    def run() -> None:
        try:
            chunk = call_inside(call)
        except BaseException as raised:
            outcome.set_result((None, raised))
        else:
            outcome.set_result((chunk, None))

    context = copy_context()
    # A daemon: the process may end while a provider says nothing.
    threading.Thread(target=context.run, args=(run,), name="guard-next", daemon=True).start()
    return outcome


def _closed(close: Callable[[], object], _: object) -> None:
    with contextlib.suppress(Exception):  # it would be logged with what it quotes
        close()
