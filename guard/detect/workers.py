"""Threads that judge: responses take turns, a thread that hangs is replaced, none outlives Python.

The threads are daemons. ``concurrent.futures`` joins its own when the interpreter ends, so one hung
detector would keep the process from ending; and a thread it holds is lost to everybody else.

Each response has a queue of its own, and a free thread takes the next window from the next queue:
who asks for much delays others by one window a turn. Windows of several queues share a call where
the detector gains by it. It says so with an attribute ``batch``, the most windows of one call, and
so promises that a score does not depend on what else is in the call: the guard promises that for
every text, and it has no other way to keep it. The shipped encoder does not say so. A call is not
waited for where a thread is free, but for :data:`LINGER`; while all are busy, what comes in gathers
for the next one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from queue import Empty, SimpleQueue

from guard.detect.answers import Timed, timed_many
from guard.detect.protocol import Detector, DetectorSession, Window
from guard.detect.shutdown import leaves_at_exit
from guard.errors import ConfigError

_log = logging.getLogger("guard")
#: Seconds for which the first window of a call waits for others.
LINGER = 0.002
#: What a window has that was not scored.
FAILED = Timed(None, 0.0)
# Hung threads that are replaced at a time; beyond that, what is asked fails by its time limit.
MOST_REPLACED = 32
_here = threading.local()


def on_worker() -> bool:
    """Whether the caller runs on a worker: waiting for another there could wait for itself."""
    return getattr(_here, "working", False)


@contextlib.contextmanager
def as_worker() -> Iterator[None]:
    """Have the calling thread count as a worker, while a detector is asked on it."""
    before, _here.working = on_worker(), True
    try:
        yield
    finally:
        _here.working = before


def batch_size(detector: Detector) -> int:
    """Return the most windows of one call of ``detector``; raises ConfigError where it is none."""
    size = getattr(detector, "batch", 1)
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ConfigError(
            f"Detector {detector.name} has the batch {size!r}; give the most windows of one call, "
            "a whole number from 1 on, or leave it out."
        )
    return size


class Asked:
    """A window that waits for its verdict, since when, and when its call began.

    Times are those of ``time.monotonic()``.
    """

    __slots__ = ("began", "future", "queue", "since", "window")

    def __init__(self, queue: ResponseQueue, window: Window) -> None:
        self.queue = queue
        self.window = window
        self.future: Future[Timed] = Future()
        self.since = time.monotonic()
        self.began: float | None = None


class ResponseQueue:
    """The windows of one response, first come, first served.

    ``limit`` is how many seconds a call for them may take, None for ever.
    """

    def __init__(self, detector: Detector, session: DetectorSession, limit: float | None) -> None:
        self.detector = detector  # kept, as it is known by its id
        self.session = session
        self.size = batch_size(detector)
        self.limit = limit
        self.key = id(detector), session.index_version  # those that may share a call have the same
        self.pool: _Pool | None = None
        self.waiting: deque[Asked] = deque()

    def next(self) -> Asked | None:
        """Return the next window that somebody still waits for."""
        while self.waiting:
            asked = self.waiting.popleft()
            if asked.future.set_running_or_notify_cancel():
                return asked
        return None


class _Call:
    """The windows that a thread scores at once."""

    def __init__(self, first: ResponseQueue) -> None:
        self.key, self.size, self.session = first.key, first.size, first.session
        self.limit = first.limit
        self.asked: list[Asked] = []
        self.began = 0.0

    @property
    def full(self) -> bool:
        return len(self.asked) >= self.size

    def add(self, asked: Asked, limit: float | None) -> None:
        self.asked.append(asked)
        self.limit = None if self.limit is None or limit is None else max(self.limit, limit)

    def run(self) -> None:
        try:
            answers = timed_many(self.session, [asked.window for asked in self.asked])
        except BaseException as error:  # SystemExit, say: nobody who reads may meet that
            _log.error("detector failed with %s", type(error).__name__)
            failed = Timed(None, (time.monotonic() - self.began) * 1000)
            answers = [failed] * len(self.asked)
        for asked, answer in zip(self.asked, answers, strict=True):
            asked.future.set_result(answer)


class _Pool:
    """What the threads of one process share."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.Lock())
        self.wakeups: SimpleQueue[bool] = SimpleQueue()  # one a window; False ends a thread
        # Those with windows that wait; the next turn is that of the first.
        self.queues: deque[ResponseQueue] = deque()
        self.gathering: dict[tuple[int, str | None], _Call] = {}  # calls that others may still join
        self.busy: dict[threading.Thread, _Call] = {}
        self.threads: set[threading.Thread] = set()
        self.replaced: set[threading.Thread] = set()  # threads that hang and have been replaced
        self.count = 0  # threads that are not replaced
        self.overloaded = False
        self.over = False  # the process ends
        leaves_at_exit(self)  # its threads keep it, whatever becomes of the workers' owner

    def start(self, count: int) -> None:
        for _ in range(count):
            thread = threading.Thread(target=_work, args=(self,), name="guard-judge", daemon=True)
            self.threads.add(thread)
            thread.start()

    def add(self, queue: ResponseQueue, window: Window) -> Asked:
        asked = Asked(queue, window)
        with self.changed:
            if self.over:
                asked.future.set_result(FAILED)
                return asked
            if queue.pool is not self:  # a fork has left its threads behind
                queue.pool, queue.waiting = self, deque()
            call = self.gathering.get(queue.key)
            if call is not None:
                asked.future.set_running_or_notify_cancel()
                call.add(asked, queue.limit)
                if call.full:
                    del self.gathering[queue.key]
                    self.changed.notify_all()
                return asked
            if not queue.waiting:
                self.queues.append(queue)
            queue.waiting.append(asked)
        self.wakeups.put(True)
        return asked

    def drop(self, asked: Asked) -> None:
        """Forget a cancelled window, so that nothing of it stays where no thread comes by."""
        queue = asked.queue
        with self.changed:
            if queue.pool is not self or asked not in queue.waiting:
                return  # a thread has taken it
            queue.waiting.remove(asked)
            if not queue.waiting:
                self.queues.remove(queue)
        with contextlib.suppress(Empty):  # a thread is on its way already
            if not self.wakeups.get_nowait():
                self.wakeups.put(False)

    def next(self) -> _Call | None:
        """Return the next call; None where nobody waits any more."""
        with self.changed:
            while self.queues:
                call = _Call(self.queues[0])
                self._fill(call)
                if call.asked:
                    break
            else:
                self.overloaded = False
                return None
            if not call.full:
                self.gathering[call.key] = call
                until = call.asked[0].since + LINGER
                while not call.full and (left := until - time.monotonic()) > 0:
                    self.changed.wait(left)
                if self.gathering.get(call.key) is call:
                    del self.gathering[call.key]
            self.overloaded = self.overloaded and bool(self.queues)
            call.began = time.monotonic()
            for asked in call.asked:
                asked.began = call.began
            self.busy[threading.current_thread()] = call
            return call

    def _fill(self, call: _Call) -> None:
        """Take one window of each queue in turn, round after round, until the call is full."""
        others = []
        while self.queues and not call.full:
            queue = self.queues.popleft()
            if queue.key != call.key:
                others.append(queue)
                continue
            asked = queue.next()
            if asked is not None:
                call.add(asked, queue.limit)
            if queue.waiting:
                self.queues.append(queue)
        self.queues.extendleft(reversed(others))

    def leave(self) -> Iterable[threading.Thread]:
        """End all work; return the threads that may not be done yet. What waits has failed."""
        with self.changed:
            self.over = True
            for queue in self.queues:
                while (asked := queue.next()) is not None:
                    asked.future.set_result(FAILED)
            self.queues.clear()
        _end(self)
        return list(self.threads)


class Workers:
    """As many threads as cores, started when first needed, gone when this object is."""

    def __init__(self) -> None:
        self.renew()
        _all.add(self)

    def renew(self) -> None:
        """Begin without threads, as after a fork."""
        self._lock = threading.Lock()
        self._pool = _Pool()

    def submit(self, queue: ResponseQueue, window: Window) -> Asked:
        """Have ``window`` scored by a worker when the turn of ``queue`` comes."""
        if not self._pool.count:
            with self._lock:
                if not self._pool.count:
                    self._pool.count = os.cpu_count() or 1
                    self._pool.start(self._pool.count)
                    weakref.finalize(self, _end, self._pool).atexit = False
        return self._pool.add(queue, window)

    def cancel(self, asked: Asked) -> None:
        """Wait no longer for ``asked``; a call that has begun goes on."""
        if asked.future.cancel():
            self._pool.drop(asked)

    def replace_hung(self) -> bool:
        """Start a thread in the place of each that is at one call for longer than that may take.

        A call without a limit may take any time. A thread that was replaced ends when its call
        does. Returns whether any thread is left that does not hang.
        """
        pool, now, hang = self._pool, time.monotonic(), 0
        with self._lock:
            for thread, call in list(pool.busy.items()):
                if call.limit is None or now - call.began < call.limit:
                    continue
                if thread in pool.replaced:
                    continue
                if len(pool.replaced) < MOST_REPLACED:
                    pool.replaced.add(thread)
                    pool.start(1)
                else:
                    hang += 1
        return hang < pool.count

    def overloaded(self) -> bool:
        """Note that a window has waited for too long; whether that is news since all was judged."""
        pool = self._pool
        with pool.changed:
            news, pool.overloaded = not pool.overloaded, True
        return news


def _end(pool: _Pool) -> None:
    # One for each thread that may be waiting, so that all of them end.
    for _ in range(pool.count + MOST_REPLACED):
        pool.wakeups.put(False)


def _work(pool: _Pool) -> None:
    _here.working = True
    me = threading.current_thread()
    while me not in pool.replaced and pool.wakeups.get():
        call = pool.next()
        if call is not None:
            try:
                call.run()
            finally:
                pool.busy.pop(me, None)
        del call  # a waiting thread keeps nothing of the text alive
    pool.replaced.discard(me)
    pool.threads.discard(me)


_all: weakref.WeakSet[Workers] = weakref.WeakSet()


def _renew() -> None:
    # A fork leaves all threads behind, and locks as they were.
    for workers in list(_all):
        workers.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
