"""Threads that work through a queue, so that no stream waits for what is recorded of it.

The garbage collector may close a stream in any thread, even while that thread holds a lock of the
Prometheus client, of OpenTelemetry or of a database driver. Such locks cannot be taken twice, so
the end of a response only queues what has to be done.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from multiprocessing import util
from typing import Any

from guard.forks import LONGEST_WAIT, Lock

_CLOSE_S = 5.0  # how long the exit of the process waits for queued calls

_log = logging.getLogger("guard")


class Worker(ABC):
    """A queue and its thread, which the first item starts and a forked child starts anew.

    The thread calls :meth:`run`, which must hold ``working`` unless it waits for items, and must
    set each event that it takes from the queue.
    """

    fork_wait_s = LONGEST_WAIT
    """Seconds that a fork waits at most for the work in hand."""

    def __init__(self, name: str) -> None:
        self._name = name
        # Reentrant, as all that the garbage collector may enter a second time.
        self._starting = Lock(threading.RLock)
        self.reset()
        _workers.add(self)

    def reset(self) -> None:
        """Start with an empty queue and no thread, as a forked child must."""
        # A SimpleQueue may be put to wherever the garbage collector runs.
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.working = threading.Lock()
        self._forking: int | None = None  # the thread that holds ``working`` while it forks

    @abstractmethod
    def run(self) -> None:
        """Work through the queue."""

    @abstractmethod
    def close(self) -> None:
        """Finish what is queued."""

    def at_exit(self) -> None:
        """Finish, at the exit of the process."""
        self.close()

    def enqueue(self, item: object) -> None:
        """Add an item to the queue."""
        self._queue.put(item)
        if self._thread is None:
            self._start()

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait at most ``timeout`` seconds for the queued items; return whether all are done."""
        if self._thread is None:
            return True
        done = threading.Event()
        self._queue.put(done)
        return done.wait(timeout)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                # atexit runs last in, first out: before the shutdown of exporters that
                # OpenTelemetry registered earlier. Children of multiprocessing skip atexit.
                atexit.register(self.at_exit)
                util.Finalize(None, self.at_exit, exitpriority=10)
                thread = threading.Thread(target=self.run, name=self._name, daemon=True)
                thread.start()
                self._thread = thread

    def before_fork(self) -> None:
        """Wait for the work in hand, at most ``fork_wait_s`` seconds.

        A child must not copy the locks that it holds.
        """
        if self.working.acquire(timeout=self.fork_wait_s):
            self._forking = threading.get_ident()

    def after_fork_in_parent(self) -> None:
        """Resume work."""
        if self._forking == threading.get_ident():
            self._forking = None
            self.working.release()

    def after_fork_in_child(self) -> None:
        """Start empty: the parent does what is queued."""
        self.reset()


class _Calls(Worker):
    def run(self) -> None:
        while True:
            call = self._queue.get()
            if isinstance(call, threading.Event):
                call.set()
                continue
            with self.working:
                try:
                    call()
                except Exception as error:
                    _log.error("a metric or a span was lost: %s", type(error).__name__)

    def close(self) -> None:
        self.flush(_CLOSE_S)


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()
_calls = _Calls("guard-background")
flush = _calls.flush


def call_soon(call: Callable[[], object]) -> None:
    """Queue ``call`` for the background thread; an error in it is logged by its type alone."""
    _calls.enqueue(call)


def _of_all(method: Callable[[Worker], None]) -> Callable[[], None]:
    def call() -> None:
        for worker in list(_workers):
            method(worker)

    return call


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_of_all(lambda worker: worker.before_fork()),
        after_in_parent=_of_all(lambda worker: worker.after_fork_in_parent()),
        after_in_child=_of_all(lambda worker: worker.after_fork_in_child()),
    )
