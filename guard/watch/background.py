"""Runs calls in a background thread, in order.

The garbage collector may close a stream in any thread, even while that thread holds a lock of the
Prometheus client or of OpenTelemetry. Neither lock can be taken twice, so metrics and spans are not
written where a response ends: the call that writes them is queued for this thread.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
from collections.abc import Callable
from multiprocessing import util

from guard.forks import LONGEST_WAIT, Lock

_CLOSE_S = 5.0  # how long the exit of the process waits for queued calls

_log = logging.getLogger("guard")


class _Worker:
    def __init__(self) -> None:
        self._starting = Lock(threading.RLock)
        self.reset()

    def reset(self) -> None:
        """Start with an empty queue and no thread, as a forked child must."""
        # A SimpleQueue may be put to wherever the garbage collector runs.
        self._calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._working = threading.Lock()
        self._forking: int | None = None  # the thread that holds _working while it forks
        self._thread: threading.Thread | None = None

    def put(self, call: Callable[[], object]) -> None:
        self._calls.put(call)
        if self._thread is None:
            self._start()

    def flush(self, timeout: float) -> bool:
        if self._thread is None:
            return True
        done = threading.Event()
        self._calls.put(done.set)
        return done.wait(timeout)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                # atexit runs last in, first out, so this flush precedes the shutdown of exporters
                # that OpenTelemetry registered earlier. Children of multiprocessing skip atexit.
                atexit.register(flush, _CLOSE_S)
                util.Finalize(None, flush, args=(_CLOSE_S,), exitpriority=10)
                thread = threading.Thread(target=self._run, name="guard-background", daemon=True)
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        while True:
            call = self._calls.get()
            with self._working:
                try:
                    call()
                except Exception as error:
                    _log.error("a metric or a span was lost: %s", type(error).__name__)

    def before_fork(self) -> None:
        """Wait for the running call to end: a child must not copy the locks that it holds."""
        if self._working.acquire(timeout=LONGEST_WAIT):
            self._forking = threading.get_ident()

    def after_fork_in_parent(self) -> None:
        if self._forking == threading.get_ident():
            self._forking = None
            self._working.release()


_worker = _Worker()


def call_soon(call: Callable[[], object]) -> None:
    """Queue ``call`` for the background thread; an error in it is logged by its type alone."""
    _worker.put(call)


def flush(timeout: float = 10.0) -> bool:
    """Wait at most ``timeout`` seconds for the queued calls; return whether all have run."""
    return _worker.flush(timeout)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_worker.before_fork,
        after_in_parent=_worker.after_fork_in_parent,
        after_in_child=_worker.reset,
    )
