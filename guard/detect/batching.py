"""Has windows of concurrent responses scored in one call, where the detector gains by it.

A detector says so with an attribute ``batch``, the most windows of one call. By saying so it
promises that a score does not depend on what else is in the call: the guard promises that for every
text, and it has no other way to keep it. The shipped encoder does not say so.

A call is not waited for where a thread is free, but for :data:`LINGER`; while all are busy, what
comes in gathers for the next one. So an idle guard adds next to nothing, and a loaded one asks in
full batches.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from guard.detect.answers import Timed, timed_many
from guard.detect.protocol import Detector, Session, Window
from guard.detect.workers import Workers
from guard.errors import ConfigError

#: Seconds for which the first window of a call waits for others.
LINGER = 0.002


class _Waiting(NamedTuple):
    """A window to score, and since when it waits (``time.monotonic()``)."""

    future: Future[Timed]
    session: Session
    window: Window
    since: float


class _Line:
    """What waits for one detector and index version, and the calls that were asked for."""

    def __init__(self, detector: Detector, size: int) -> None:
        self.detector = detector  # kept, as it is known by its id
        self.size = size
        self.waiting: deque[_Waiting] = deque()
        self.calls = 0  # to come; always enough of them for all that waits


def batch_size(detector: Detector) -> int:
    """Return the most windows of one call of ``detector``; raises ConfigError where it is none."""
    size = getattr(detector, "batch", 1)
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ConfigError(
            f"Detector {detector.name} has the batch {size!r}; give the most windows of one call, "
            "a whole number from 1 on, or leave it out."
        )
    return size


class Batches:
    """The windows of one guard that wait to be scored together. Thread-safe."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._owner = os.getpid()
        self._changed = threading.Condition()
        self._lines: dict[tuple[int, str], _Line] = {}

    def submit(
        self, workers: Workers, detector: Detector, size: int, session: Session, window: Window
    ) -> Future[Timed]:
        """Have ``window`` scored by a worker, with others that have come for the same index."""
        if self._owner != os.getpid():  # a fork has left the threads behind, and what they held
            self._begin()
        waiting = _Waiting(Future(), session, window, time.monotonic())
        key = (id(detector), session.index_version)
        with self._changed:
            line = self._lines.get(key)
            if line is None:
                line = self._lines[key] = _Line(detector, size)
            line.waiting.append(waiting)
            new = len(line.waiting) > line.calls * size
            line.calls += new
            if len(line.waiting) >= size:
                self._changed.notify_all()
        if new:
            workers.submit(partial(self._call, key))
        return waiting.future

    def _call(self, key: tuple[int, str]) -> None:
        batch = self._taken(key)
        if not batch:
            return
        answers = timed_many(batch[0].session, [one.window for one in batch])
        for one, answer in zip(batch, answers, strict=True):
            one.future.set_result(answer)

    def _taken(self, key: tuple[int, str]) -> list[_Waiting]:
        """Return the windows of the next call; those that nobody waits for any more are left."""
        with self._changed:
            line = self._lines[key]
            until = line.waiting[0].since + LINGER if line.waiting else 0.0
            while len(line.waiting) < line.size and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            taken = [line.waiting.popleft() for _ in range(min(line.size, len(line.waiting)))]
            line.calls -= 1
            if not line.calls:
                del self._lines[key]
        return [one for one in taken if one.future.set_running_or_notify_cancel()]
