"""Brings what worker threads found back to the event loops that wait for it.

``asyncio.wrap_future`` writes to the loop's socket for every result. Each write lets go of the
interpreter's lock, and a thread that wants it back from a busy loop waits for 5 ms; so a loop with
many streams would get some 200 verdicts a second from a thread, however quick its detector. Here
results gather while the loop is on its way to them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

T = TypeVar("T")


class _Desk:
    """Who is to be told by one loop that their future is done."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._done: deque[asyncio.Future[bool]] = deque()
        self._called = False  # whether the loop is on its way

    def bring(self, waiter: asyncio.Future[bool], _: object) -> None:
        """Note that what ``waiter`` waits for is done; from any thread."""
        self._done.append(waiter)
        if not self._called:
            self._called = True
            loop = self._loop()
            if loop is not None:
                with contextlib.suppress(RuntimeError):  # it has ended: nobody waits
                    loop.call_soon_threadsafe(self._hand_out)

    def _hand_out(self) -> None:
        self._called = False  # first: what comes from now on may be missed below
        while self._done:
            _tell(self._done.popleft(), True)


_desks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Desk] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


async def result(future: Future[T], seconds: float | None) -> T:
    """Return the result of ``future``, or raise its error.

    Raises:
        TimeoutError: of asyncio, where it takes longer than ``seconds``; the future goes on.
        CancelledError: of asyncio, where the future was cancelled.

    """
    loop = asyncio.get_running_loop()
    with _lock:
        desk = _desks.get(loop)
        if desk is None:
            desk = _desks[loop] = _Desk(loop)
    # It carries no error: that would hold the frames that hold it.
    waiter: asyncio.Future[bool] = loop.create_future()
    timer = None if seconds is None else loop.call_later(seconds, _tell, waiter, False)
    future.add_done_callback(partial(desk.bring, waiter))
    try:
        in_time = await waiter
    finally:
        if timer is not None:
            timer.cancel()
    if not in_time:
        raise asyncio.TimeoutError
    if future.cancelled():
        raise asyncio.CancelledError
    return future.result()


def _tell(waiter: asyncio.Future[bool], in_time: bool) -> None:
    if not waiter.done():
        waiter.set_result(in_time)
