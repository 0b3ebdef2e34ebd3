"""Threads that work through a queue, so that no stream waits for what is recorded of it.

What the garbage collector finds is ended here, too: see :class:`EndsWhenDropped`.
Why: docs/decisions/finalisers-hand-over.md.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import queue
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import Context
from multiprocessing import util
from typing import Any

from guard.forks import LONGEST_WAIT, Lock

_CLOSE_S = 5.0  # how long the exit of the process waits for queued calls
_END_S = 1.0  # and for the end of dropped streams

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
                leave = _call_once(self._leave)
                atexit.register(leave)
                util.Finalize(None, leave, exitpriority=10)
                thread = threading.Thread(target=self.run, name=self._name, daemon=True)
                thread.start()
                self._thread = thread

    def _leave(self) -> None:
        _end_all()  # what ends by it can still be recorded
        self.at_exit()

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


class CallQueue(Worker):
    """Makes the queued calls; logs an error in one by its type, after the words ``lost``."""

    def __init__(self, name: str, lost: str) -> None:
        self._lost = lost
        super().__init__(name)

    def run(self) -> None:
        """Make the queued calls, each in a context of its own, until another thread does."""
        while self._thread in (None, threading.current_thread()):
            call = self._queue.get()
            if isinstance(call, threading.Event):
                call.set()
                continue
            with self._at_work():
                try:
                    Context().run(call)
                except BaseException as error:  # a source's own close() may raise SystemExit
                    _log.error("%s: %s", self._lost, type(error).__name__)
            del call  # or the thread would keep it alive while it waits

    def _at_work(self) -> AbstractContextManager[Any]:
        return self.working

    def close(self) -> None:
        """Wait for the queued calls."""
        self.flush(_CLOSE_S)


class _Ending(CallQueue):
    """Ends dropped streams. One that blocks holds up neither the others nor a fork."""

    fork_wait_s = 0.05

    def reset(self) -> None:
        super().reset()
        self._since: float | None = None  # when the call in hand began
        #: Streams that did not end yet. A forked child has none: its parent reads them.
        self.open: weakref.WeakSet[EndsWhenDropped] = weakref.WeakSet()

    def at_exit(self) -> None:
        pass  # `_end_all` has waited

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        self._since = time.monotonic()
        with self.working:
            yield
        if self._thread is threading.current_thread():
            self._since = None

    def opened(self, stream: EndsWhenDropped | None = None) -> queue.SimpleQueue[Any]:
        """Return the queue, whose thread runs and does not hang."""
        since = self._since
        with contextlib.suppress(RuntimeError):  # at the exit of the process no thread starts
            if self._thread is None:
                self._start()
            elif since is not None and time.monotonic() - since > _END_S:
                self._replace()
        if stream is not None:
            self.open.add(stream)
        return self._queue

    def _replace(self) -> None:
        with self._starting:
            self._since, self.working = None, threading.Lock()
            thread = threading.Thread(target=self.run, name=self._name, daemon=True)
            self._thread = thread
            thread.start()


def _call_once(call: Callable[[], None]) -> Callable[[], None]:
    calls = [call]
    return lambda: calls.pop()() if calls else None


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()
_calls = CallQueue("guard-background", "a metric or a span was lost")
flush = _calls.flush
ending = _Ending("guard-ending", "a dropped stream did not end cleanly")


def call_soon(call: Callable[[], object]) -> None:
    """Queue ``call`` for the background thread; an error in it is logged by its type alone."""
    _calls.enqueue(call)


class EndsWhenDropped:
    """Calls :meth:`_end_dropped` on a thread of guard's own once nothing refers to this object.

    A finaliser may run within any line of any thread: between two lines that hold a lock which
    cannot be taken twice, or with the context of a stranger's task. LiteLLM's reports set context
    variables, and CPython 3.10 and 3.11 do not always survive that in a garbage collection. So the
    finaliser puts the object into a queue (a SimpleQueue allows that anywhere), and does no more.
    """

    _dropped_to: queue.SimpleQueue[Any] | None = None

    def _watch_for_drop(self) -> None:
        # This process's queue: a forked child must not end what its parent reads.
        self._dropped_to = ending.opened(self)

    def _hand_over(self) -> None:
        """Have this object ended soon: its reader may be a coroutine that is being discarded."""
        if self._dropped_to is not None:
            self._dropped_to.put(self._end_dropped)

    def _has_ended(self) -> bool:
        """Return whether nothing is left to end; takes no lock."""
        raise NotImplementedError

    def _end_dropped(self) -> None:
        raise NotImplementedError

    def __del__(self) -> None:
        if self._dropped_to is not None and not self._has_ended():
            self._hand_over()


@_call_once
def _end_all() -> None:
    """End, at the exit of the process, the streams that are still open."""
    for stream in list(ending.open):
        if not stream._has_ended():
            stream._hand_over()
    ending.flush(_END_S)


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
