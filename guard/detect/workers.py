"""Threads that judge: daemons, replaced when one hangs.

``concurrent.futures`` joins its threads when the interpreter ends, so one hung detector would keep
the process from ending; and a thread it holds is lost to everybody else.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
_Job = tuple["Future[Any]", Callable[[], Any]]

# Hung threads that are replaced at a time; beyond that, what is asked fails by its time limit.
MOST_LOST = 32
_here = threading.local()


def on_worker() -> bool:
    """Whether the caller runs on a worker: waiting for another there could wait for itself."""
    return getattr(_here, "working", False)


class _Crew:
    """What the threads of one process share: the jobs, and who is at work since when."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.busy: dict[int, float] = {}  # by thread, time.monotonic()
        self.lost: set[int] = set()  # threads that hang and have been replaced

    def start(self) -> None:
        threading.Thread(target=_work, args=(self,), name="guard-judge", daemon=True).start()


class Workers:
    """As many threads as cores, started when first needed, gone when this object is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._crew = _Crew()

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Have ``job`` run on a worker."""
        with self._lock:
            if self._owner != os.getpid():  # not started yet, or a fork has left the threads behind
                self._owner = os.getpid()
                self._start(os.cpu_count() or 1)
        future: Future[T] = Future()
        self._crew.jobs.put((future, job))
        return future

    def relieve(self, seconds: float) -> None:
        """Start a thread in the place of each that has been at one job for so long.

        A thread that was replaced ends when its job does.
        """
        crew, now = self._crew, time.monotonic()
        with self._lock:
            for thread, since in list(crew.busy.items()):
                if now - since >= seconds and thread not in crew.lost:
                    if len(crew.lost) >= MOST_LOST:
                        return
                    crew.lost.add(thread)
                    crew.start()

    def _start(self, count: int) -> None:
        self._crew = _Crew()
        for _ in range(count):
            self._crew.start()
        # One word for each thread that may be waiting, so that all of them end.
        weakref.finalize(self, _end, self._crew, count + MOST_LOST).atexit = False


def _end(crew: _Crew, count: int) -> None:
    for _ in range(count):
        crew.jobs.put(None)


def _work(crew: _Crew) -> None:
    _here.working = True
    me = threading.get_ident()
    while me not in crew.lost and (item := crew.jobs.get()) is not None:
        future, job = item
        if future.set_running_or_notify_cancel():
            crew.busy[me] = time.monotonic()
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)
            finally:
                crew.busy.pop(me, None)
        del item, future, job  # a waiting thread keeps nothing of the text alive
    crew.lost.discard(me)
