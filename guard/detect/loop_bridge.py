"""Passes results of worker threads to the event loops that wait for them.

``asyncio.wrap_future`` writes to the loop's socket for every result. Each write releases the GIL,
and a thread waits up to 5 ms to get it back from a busy loop; so a loop with many streams would
get some 200 verdicts a second from a thread, however fast its detector. Here one wake-up of the
loop delivers all results that are ready by then.
Why: docs/decisions/results-reach-the-loop-together.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, TypeVar

from guard.forks import Lock

T = TypeVar("T")


class _LoopQueue:
    """The bridges of one loop whose future is done."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._done: deque[Bridge[Any]] = deque()
        self._called = False  # whether a wake-up of the loop is scheduled

    def put(self, bridge: Bridge[Any], _: object) -> None:
        """Queue ``bridge``, whose future is done; from any thread."""
        self._done.append(bridge)
        if not self._called:
            self._called = True
            loop = self._loop()
            if loop is not None:
                with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
                    loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._called = False  # first: the loop below may miss later results
        while self._done:
            self._done.popleft().wake(True)


_queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopQueue] = (
    weakref.WeakKeyDictionary()
)
_lock = Lock()


class Bridge(Generic[T]):
    """Waits for ``future`` on the running loop; adds one callback to it, however often it waits.

    One task waits at a time.
    """

    def __init__(self, future: Future[T]) -> None:
        self._future = future
        # Never holds an exception: its traceback would be a reference cycle.
        self._waiter: asyncio.Future[bool] | None = None
        if not future.done():
            loop = asyncio.get_running_loop()
            with _lock:
                queue = _queues.get(loop)
                if queue is None:
                    queue = _queues[loop] = _LoopQueue(loop)
            future.add_done_callback(partial(queue.put, self))

    async def result(self, seconds: float | None) -> T:
        """Return the result of the future, or raise its error.

        Raises:
            asyncio.TimeoutError: it takes longer than ``seconds``; the future is not cancelled.
            asyncio.CancelledError: the future was cancelled.

        """
        if not self._future.done() and not await self._woken(seconds):
            raise asyncio.TimeoutError
        if self._future.cancelled():
            raise asyncio.CancelledError
        return self._future.result()

    async def _woken(self, seconds: float | None) -> bool:
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, self.wake, False)
        try:
            return await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def wake(self, in_time: bool) -> None:
        """Wake the waiting task; call it on the loop."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(in_time)
