"""Waits for a provider's next chunk, for a limited time while a second look needs it.

A finding must not wait for ever for the segment after it: see ``second_look_ms``. A call that is
late goes on, in a task or in a thread of its own; the next wait is for the same call. Only time
spent here counts, not the time that the reader takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextvars import copy_context
from functools import partial
from typing import Any

import anyio

from guard.doors.context import call_inside, call_inside_async
from guard.gate import ResponseGate
from guard.gate.second_look import Look
from guard.policy import Policy

LATE: Any = object()
"""Stands for a chunk that did not come in time."""
_CANCEL_S = 5.0  # how long a cancelled call may take to end


class Waits:
    """The calls for the next chunk of one stream, one at a time.

    ``inside``: they are calls of a door, as in :func:`guard.doors.context.inside`.
    """

    def __init__(self, policy: Policy, *, inside: bool = False) -> None:
        self._inside = inside
        # Nothing is held in the mode that only watches.
        limited = policy.hold != "none" and policy.second_look_ms is not None
        self._limit = (policy.second_look_ms or 0.0) / 1000 if limited else None
        self._spent = 0.0  # seconds waited while a second look needed text
        self._until: dict[Look, float] = {}  # when that is too much for each of them
        self._thread: Future[tuple[Any, BaseException | None]] | None = None
        self._left: Future[tuple[Any, BaseException | None]] | None = None  # nobody waits for it
        self._task: asyncio.Future[Any] | None = None

    @property
    def under_way(self) -> bool:
        """Whether there is a late call whose answer was not taken."""
        return self._thread is not None or self._task is not None

    @property
    def reads(self) -> bool:
        """Whether a thread reads the source, or may be about to."""
        return self._thread is not None or not (self._left is None or self._left.done())

    def needed(self, gate: ResponseGate[Any]) -> bool:
        """Whether the next chunk must be waited for here."""
        return self.under_way or (self._limit is not None and bool(gate.awaited))

    def next(self, call: Callable[[], Any], gate: ResponseGate[Any]) -> Any:
        """Return what ``call`` returns or raise what it raises; LATE if that takes too long."""
        left = self._time_left(gate)
        if self._thread is None:
            if left is None:
                return call()
            try:
                self._thread = _started(partial(call_inside, call) if self._inside else call)
            except RuntimeError:  # no thread can be started
                return LATE
        begun = time.monotonic()
        try:
            chunk, error = self._thread.result(left)
        except FutureTimeoutError:
            return LATE
        finally:
            self._spent += time.monotonic() - begun
        self._thread = None
        if error is not None:
            raise error
        return chunk

    async def anext(self, call: Callable[[], Awaitable[Any]], gate: ResponseGate[Any]) -> Any:
        """Do the same as :meth:`next` for an asynchronous ``call``."""
        left = self._time_left(gate)
        if self._task is None:
            if left is None:
                return await call()
            if self._inside:
                call = partial(call_inside_async, call)
            self._task = asyncio.ensure_future(call())
            self._task.add_done_callback(_note)
        begun = time.monotonic()
        try:
            done, _ = await asyncio.wait([self._task], timeout=left)
        finally:
            self._spent += time.monotonic() - begun
        if not done:
            return LATE
        task, self._task = self._task, None
        return task.result()

    def leave(self, close: Callable[[], object] | None = None) -> None:
        """End a late call; ``close`` is called once it has ended. May be called by any thread.

        A thread cannot be interrupted: what it reads from must be closed.
        """
        thread, self._thread = self._thread, None
        if thread is not None:
            self._left = thread
            if close is not None:
                thread.add_done_callback(partial(_closed, close))
        task, self._task = self._task, None
        if task is not None and not task.done():
            loop = task.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(task.cancel)

    async def aleave(self) -> None:
        """End a late call and wait until it has ended."""
        task, self._task = self._task, None
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task], timeout=_CANCEL_S)

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


def _started(call: Callable[[], Any]) -> Future[tuple[Any, BaseException | None]]:
    """Start ``call`` in a thread; return its result and its error."""
    outcome: Future[tuple[Any, BaseException | None]] = Future()

    def run() -> None:
        try:
            answer = call(), None
        except BaseException as error:
            answer = None, error
        outcome.set_result(answer)

    context = copy_context()
    # A daemon: the process may end while a provider says nothing.
    threading.Thread(target=context.run, args=(run,), name="guard-next", daemon=True).start()
    return outcome


def _closed(close: Callable[[], object], _: object) -> None:
    with contextlib.suppress(Exception):  # it would be logged with what it quotes
        close()


def _note(task: asyncio.Future[Any]) -> None:
    """Take an error that nobody waits for any more."""
    if not task.cancelled():
        task.exception()
