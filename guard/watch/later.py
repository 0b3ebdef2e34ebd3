"""Makes calls in a thread of its own.

The garbage collector may close a stream in any thread's midst, also while that thread holds a lock
of the Prometheus client or of OpenTelemetry, and these locks cannot be taken twice. So the end of
a response is only queued where it is seen.
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

_CLOSE_S = 5.0  # for which the end of the process waits

_log = logging.getLogger("guard")


class _Thread:
    def __init__(self) -> None:
        self._starting = Lock(threading.RLock)
        self._fresh()

    def _fresh(self) -> None:
        # A SimpleQueue may be put to wherever the garbage collector runs.
        self._calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._working = threading.Lock()
        self._forking: int | None = None  # the thread that holds it for its fork
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
                # Before what was registered earlier, such as the end of OpenTelemetry's exporters;
                # children of multiprocessing know no atexit.
                atexit.register(flush, _CLOSE_S)
                util.Finalize(None, flush, args=(_CLOSE_S,), exitpriority=10)
                thread = threading.Thread(target=self._run, name="guard-later", daemon=True)
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
        """Wait for the call in hand: a child must not copy the locks that it holds."""
        if self._working.acquire(timeout=LONGEST_WAIT):
            self._forking = threading.get_ident()

    def in_parent(self) -> None:
        if self._forking == threading.get_ident():
            self._forking = None
            self._working.release()


_only = _Thread()


def later(call: Callable[[], object]) -> None:
    """Have ``call`` made soon, in the order of these calls; its error is logged by its type."""
    _only.put(call)


def flush(timeout: float = 10.0) -> bool:
    """Wait until all calls so far are made; return whether they are."""
    return _only.flush(timeout)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_only.before_fork,
        after_in_parent=_only.in_parent,
        after_in_child=_only._fresh,
    )
