"""Worker threads that call detectors: responses take turns, and hung threads are replaced.

The threads are daemons, because ``concurrent.futures`` joins its threads when the interpreter ends:
one hung detector would keep the process from ending, and would block a thread for good.

Each response has its own queue, and a free thread takes the next window from the next queue. So a
response with many windows delays others by one window per turn. Windows of several queues share a
call if the detector has an attribute ``batch``, the most windows of one call. By that a detector
promises that a score does not depend on the other windows of its call, which guard promises for
every text. The shipped encoder has no ``batch``. A call waits at most :data:`LINGER` for further
windows if a thread is free; while all threads are busy, windows gather for the next call.
Why: docs/decisions/judging-threads.md.
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

from guard.detect.protocol import Detector, DetectorSession, Window
from guard.detect.scoring import Timed, timed_many
from guard.detect.shutdown import leaves_at_exit
from guard.errors import ConfigError

_log = logging.getLogger("guard")
#: Seconds that the first window of a call waits for others.
LINGER = 0.002
#: The result of a window that was not scored.
FAILED = Timed(None, 0.0)
# At most this many hung threads are replaced; beyond that, windows fail by their time limit.
MOST_REPLACED = 32
_here = threading.local()


def on_worker() -> bool:
    """Whether the caller runs on a worker, where waiting for another worker may deadlock."""
    return getattr(_here, "working", False)


def call_deadline() -> float | None:
    """Return when the call that this thread makes is late, of ``time.monotonic()``; None: never."""
    deadline: float | None = getattr(_here, "deadline", None)
    return deadline


@contextlib.contextmanager
def as_worker() -> Iterator[None]:
    """Make the calling thread count as a worker while it calls a detector."""
    before, _here.working = on_worker(), True
    try:
        yield
    finally:
        _here.working = before


def thread_count(detector: Detector) -> int:
    """Return how many windows of ``detector`` are scored at a time: one per core by default.

    A detector that waits for others, as a judge does for its provider, has the attribute
    ``concurrency``, the most calls at a time. Raises ConfigError if it is invalid.
    """
    most = _own_concurrency(detector)
    return os.cpu_count() or 1 if most is None else most


def _own_concurrency(detector: Detector) -> int | None:
    most = getattr(detector, "concurrency", None)
    if most is not None and not _is_count(most):
        raise ConfigError(
            f"Detector {detector.name} has the concurrency {most!r}; it must be the most calls at "
            "a time, a whole number from 1 on, or be left out."
        )
    return most


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def batch_size(detector: Detector) -> int:
    """Return the most windows of one call of ``detector``; raises ConfigError if it is invalid."""
    size = getattr(detector, "batch", 1)
    if not _is_count(size):
        raise ConfigError(
            f"Detector {detector.name} has the batch {size!r}; it must be the most windows of one "
            "call, a whole number from 1 on, or be left out."
        )
    return int(size)


class ScoreRequest:
    """A window to score, with its future.

    ``since`` is the time of the request, ``began`` that of its call, of ``time.monotonic()``.
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

    ``limit`` is the time limit of a call in seconds; None: no limit.
    """

    def __init__(self, detector: Detector, session: DetectorSession, limit: float | None) -> None:
        self.detector = detector  # kept alive, because `key` has its id
        self.session = session
        self.size = batch_size(detector)
        _own_concurrency(detector)  # raises ConfigError now, if it is invalid
        self.limit = limit
        self.key = id(detector), session.index_version  # queues with the same key share calls
        self.pool: _Pool | None = None
        self.waiting: deque[ScoreRequest] = deque()

    @property
    def threads(self) -> int:
        """How many windows of the detector are scored at a time; not read for every response."""
        return thread_count(self.detector)

    def next(self) -> ScoreRequest | None:
        """Return the next window that was not cancelled."""
        while self.waiting:
            request = self.waiting.popleft()
            if request.future.set_running_or_notify_cancel():
                return request
        return None


class _Call:
    """The windows that a thread scores in one call."""

    def __init__(self, first: ResponseQueue) -> None:
        self.key, self.size, self.session = first.key, first.size, first.session
        self.limit = first.limit
        self.requests: list[ScoreRequest] = []
        self.began = 0.0

    @property
    def full(self) -> bool:
        return len(self.requests) >= self.size

    def add(self, request: ScoreRequest, limit: float | None) -> None:
        self.requests.append(request)
        self.limit = None if self.limit is None or limit is None else max(self.limit, limit)

    def run(self) -> None:
        try:
            results = timed_many(self.session, [request.window for request in self.requests])
        except BaseException as error:  # SystemExit, for example, must not reach a reader
            _log.error("detector failed with %s", type(error).__name__)
            failed = Timed(None, (time.monotonic() - self.began) * 1000)
            results = [failed] * len(self.requests)
        for request, result in zip(self.requests, results, strict=True):
            request.future.set_result(result)


class _Pool:
    """The state that the threads of one process share."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.Lock())
        self.wakeups: SimpleQueue[bool] = SimpleQueue()  # one per window; False ends a thread
        # The queues with waiting windows; the first has the next turn.
        self.queues: deque[ResponseQueue] = deque()
        self.gathering: dict[tuple[int, str | None], _Call] = {}  # calls that windows may join
        self.busy: dict[threading.Thread, _Call] = {}
        self.threads: set[threading.Thread] = set()
        self.replaced: set[threading.Thread] = set()  # hung threads that were replaced
        self.count = 0  # threads that are not replaced
        self.overloaded = False
        self.over = False  # the process ends
        leaves_at_exit(self)  # the threads keep it alive, even if the owner of the workers is gone

    def start(self, count: int) -> None:
        for _ in range(count):
            thread = threading.Thread(
                target=_work_in_pool, args=(self,), name="guard-judge", daemon=True
            )
            self.threads.add(thread)
            thread.start()

    def add(self, queue: ResponseQueue, window: Window) -> ScoreRequest:
        request = ScoreRequest(queue, window)
        with self.changed:
            if self.over:
                request.future.set_result(FAILED)
                return request
            if queue.pool is not self:  # of a parent process: the fork has left its threads behind
                queue.pool, queue.waiting = self, deque()
            call = self.gathering.get(queue.key)
            if call is not None:
                request.future.set_running_or_notify_cancel()
                call.add(request, queue.limit)
                if call.full:
                    del self.gathering[queue.key]
                    self.changed.notify_all()
                return request
            if not queue.waiting:
                self.queues.append(queue)
            queue.waiting.append(request)
        self.wakeups.put(True)
        return request

    def drop(self, request: ScoreRequest) -> None:
        """Remove a cancelled window from its queue, so that its text does not stay in memory."""
        queue = request.queue
        with self.changed:
            if queue.pool is not self or request not in queue.waiting:
                return  # a thread has taken it
            queue.waiting.remove(request)
            if not queue.waiting:
                self.queues.remove(queue)
        with contextlib.suppress(Empty):  # a thread has taken the wake-up already
            if not self.wakeups.get_nowait():
                self.wakeups.put(False)

    def next(self) -> _Call | None:
        """Return the next call; None if no window waits."""
        with self.changed:
            while self.queues:
                call = _Call(self.queues[0])
                self._fill_call(call)
                if call.requests:
                    break
            else:
                self.overloaded = False
                return None
            if not call.full:
                self.gathering[call.key] = call
                until = call.requests[0].since + LINGER
                while not call.full and (left := until - time.monotonic()) > 0:
                    self.changed.wait(left)
                if self.gathering.get(call.key) is call:
                    del self.gathering[call.key]
            self.overloaded = self.overloaded and bool(self.queues)
            call.began = time.monotonic()
            for request in call.requests:
                request.began = call.began
            self.busy[threading.current_thread()] = call
            return call

    def _fill_call(self, call: _Call) -> None:
        """Take one window from each queue in turn (round robin) until the call is full."""
        others = []
        while self.queues and not call.full:
            queue = self.queues.popleft()
            if queue.key != call.key:
                others.append(queue)
                continue
            request = queue.next()
            if request is not None:
                call.add(request, queue.limit)
            if queue.waiting:
                self.queues.append(queue)
        self.queues.extendleft(reversed(others))

    def leave(self) -> Iterable[threading.Thread]:
        """Stop all work; return the threads that may still run. Waiting windows fail."""
        with self.changed:
            self.over = True
            for queue in self.queues:
                while (request := queue.next()) is not None:
                    request.future.set_result(FAILED)
            self.queues.clear()
        _end_pool(self)
        return list(self.threads)


class Workers:
    """The threads of a detector (:func:`thread_count`); they start when first needed.

    They end with this object.
    """

    def __init__(self) -> None:
        self.renew()
        _all.add(self)

    def renew(self) -> None:
        """Start again without threads, after a fork."""
        self._lock = threading.Lock()
        self._pool = _Pool()

    def submit(self, queue: ResponseQueue, window: Window) -> ScoreRequest:
        """Add ``window`` to ``queue``; a worker scores it when the queue's turn comes."""
        if not self._pool.count:
            with self._lock:
                if not self._pool.count:
                    self._pool.count = queue.threads
                    self._pool.start(self._pool.count)
                    weakref.finalize(self, _end_pool, self._pool).atexit = False
        return self._pool.add(queue, window)

    def cancel(self, request: ScoreRequest) -> None:
        """Cancel a request; a call that has begun is not interrupted."""
        if request.future.cancel():
            self._pool.drop(request)

    def replace_hung(self) -> bool:
        """Replace each thread whose call exceeds its time limit by a new one.

        A call without a limit may take any time. A replaced thread ends with its call. Returns
        whether any thread is left that does not hang.
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
        """Record an overload; return whether it is the first since the queues were empty."""
        pool = self._pool
        with pool.changed:
            first, pool.overloaded = not pool.overloaded, True
        return first


def _end_pool(pool: _Pool) -> None:
    # One for each thread that may be waiting, so that all of them end.
    for _ in range(pool.count + MOST_REPLACED):
        pool.wakeups.put(False)


def _work_in_pool(pool: _Pool) -> None:
    _here.working = True
    me = threading.current_thread()
    while me not in pool.replaced and pool.wakeups.get():
        call = pool.next()
        if call is not None:
            _here.deadline = None if call.limit is None else call.began + call.limit
            try:
                call.run()
            finally:
                pool.busy.pop(me, None)
        del call  # so that a waiting thread keeps no text alive
    pool.replaced.discard(me)
    pool.threads.discard(me)


_all: weakref.WeakSet[Workers] = weakref.WeakSet()


def _renew_workers() -> None:
    # The child has none of the threads, and the locks in the state of the fork.
    for workers in list(_all):
        workers.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_workers)
