"""Threads that judge: daemons, replaced when one hangs.

``concurrent.futures`` joins its threads when the interpreter ends, so one hung detector would keep
the process from ending; and a thread it holds is lost to everybody else.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
_Job = tuple["Future[Any]", Callable[[], Any]]

# Hung threads that are replaced; beyond that, what is asked of them fails by its time limit.
MOST_LOST = 32
_here = threading.local()


def on_worker() -> bool:
    """Whether the caller runs on a worker: waiting for another there could wait for itself."""
    return getattr(_here, "working", False)


class Workers:
    """As many threads as cores, started when first needed, gone when this object is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._lost = 0
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Have ``job`` run on a worker."""
        with self._lock:
            if self._owner != os.getpid():  # not started yet, or a fork has left the threads behind
                self._owner = os.getpid()
                self._start(os.cpu_count() or 1)
        future: Future[T] = Future()
        self._jobs.put((future, job))
        return future

    def replace(self) -> None:
        """Start a thread in the place of one that hangs."""
        with self._lock:
            if self._lost < MOST_LOST:
                self._lost += 1
                _thread(self._jobs)

    def _start(self, count: int) -> None:
        self._jobs = queue.SimpleQueue()
        for _ in range(count):
            _thread(self._jobs)
        # One word for each thread that may be waiting, so that all of them end.
        weakref.finalize(self, _end, self._jobs, count + MOST_LOST).atexit = False


def _thread(jobs: queue.SimpleQueue[_Job | None]) -> None:
    threading.Thread(target=_work, args=(jobs,), name="guard-judge", daemon=True).start()


def _end(jobs: queue.SimpleQueue[_Job | None], count: int) -> None:
    for _ in range(count):
        jobs.put(None)


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    _here.working = True
    while (item := jobs.get()) is not None:
        future, job = item
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)
        del item, future, job  # a waiting thread keeps nothing of the text alive
