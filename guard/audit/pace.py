"""How many calls run at a time: more while they succeed, half when the provider throttles.

Additive increase, multiplicative decrease (Chiu and Jain 1989), with TCP's slow start.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

_FIRST = 8  # calls at a time at the start; doubled with every round of successes
_STEP_S = 0.2  # how often a pause checks whether the run is ending


async def pause(seconds: float, ending: Callable[[], bool]) -> None:
    """Wait ``seconds``, or until ``ending`` returns True."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not ending():
        await asyncio.sleep(min(left, _STEP_S))


class Pace:
    """Limits the calls in flight to 1 to ``most``; used as ``async with pace:`` in one event loop.

    Once ``ending`` returns True no pause is waited for.
    """

    def __init__(
        self, most: int, first: int = _FIRST, ending: Callable[[], bool] = lambda: False
    ) -> None:
        self.most = most
        self._ending = ending
        self.limit = float(min(first, most))
        self.running = 0
        self._doubling = True
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._reduced = 0.0  # when the limit was last halved
        self._until = 0.0  # no call begins before

    async def __aenter__(self) -> float:
        """Wait for a place; return the time at which the call begins, for :meth:`reduce`."""
        while self.running >= int(self.limit):
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except BaseException:
                # A cancelled caller passes its place on.
                if turn.done() and not turn.cancelled():
                    self._wake()
                raise
        self.running += 1
        try:
            while self._until > time.monotonic() and not self._ending():
                await pause(self._until - time.monotonic(), self._ending)
        except BaseException:
            self.running -= 1
            self._wake()
            raise
        return time.monotonic()

    async def __aexit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        self.running -= 1
        if kind is None and self.limit < self.most:
            step = 1.0 if self._doubling else 1.0 / self.limit
            self.limit = min(float(self.most), self.limit + step)
        self._wake()

    def reduce(self, began: float, pause_s: float = 0.0) -> None:
        """Record a rate-limit response to the call that began at ``began``; pause new calls.

        Calls that began before the last reduction do not halve the limit again.
        """
        now = time.monotonic()
        self._until = max(self._until, now + pause_s)
        if began >= self._reduced:
            self.limit, self._doubling, self._reduced = max(1.0, self.limit / 2), False, now

    def _wake(self) -> None:
        free = int(self.limit) - self.running
        while self._waiting and free > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1
