"""Writes events to a store from a thread of its own: no stream waits for a database.

What is to be written waits in a queue of at most :data:`QUEUE` items. Where it is full, or a batch
cannot be written at all, events are dropped and counted; the store is told the count once it can be
written again. A process that is killed loses what waits: what came in the last :data:`GATHER_S`
seconds while the store keeps up, and never more than ``QUEUE + BATCH`` items.
"""

from __future__ import annotations

import logging
import os
import queue
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable
from multiprocessing import util
from typing import NamedTuple

from sqlalchemy.exc import InterfaceError, InternalError, OperationalError, SQLAlchemyError

from guard.forks import LONGEST_WAIT, Lock
from guard.watch.events import (
    Decided,
    Ended,
    Row,
    event_row,
    response_row,
    settings_hash,
    settings_row,
)
from guard.watch.store import Store

QUEUE = 10_000
"""Items that may wait; a decision and the end of a response are one each."""
BATCH = 500
"""Items that are written in one transaction."""
GATHER_S = 0.2
"""Seconds for which the first item of a batch waits for others."""
_CLOSE_S = 10.0  # for which the end of the process waits while the store is slow
_LONGEST_PAUSE_S = 30.0
_REPORT_S = 60.0
_PRUNE_S = 3600.0
_DAY_S = 86_400.0
_JUMP_S = 3600.0  # by which the clock may be set before it is believed no more

_log = logging.getLogger("guard")


class _Flush(NamedTuple):
    done: threading.Event


class _Close(NamedTuple):
    pass


Item = Decided | Ended | _Flush | _Close


class Writer:
    """Writes to ``store``, and deletes from it what is older than ``keep_days``."""

    def __init__(self, store: Store, keep_days: int | None = None) -> None:
        self.store = store
        self.dropped = 0
        """Events of this process that were not written."""
        self.on_drop: set[Callable[[int], None]] = set()
        self._keep_days = keep_days
        # The garbage collector may close a stream, and that drop an event, in any thread's midst.
        self._counting = Lock(threading.RLock)
        self._starting = Lock(threading.RLock)
        self._left: list[object] = []
        self._fresh()
        _writers.add(self)

    def _fresh(self) -> None:
        # A SimpleQueue may be put to wherever the garbage collector closes a stream.
        self._queue: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._writing = threading.Lock()
        self._woken = threading.Event()
        self._forking: int | None = None  # the thread that holds it for its fork
        self._closing = False
        self._told = 0  # of what was dropped, in the store
        self._in_hand = 0
        self._reason = "queue full"
        self._reported = -_REPORT_S
        self._pruned = -_PRUNE_S
        self._clock = time.time() - time.monotonic()
        self._settings: set[str] = set()  # that the store has
        self._name = secrets.token_hex(8)

    def put(self, item: Decided | Ended) -> None:
        """Queue ``item``; count it as dropped where the queue is full."""
        if self._queue.qsize() >= QUEUE or self._closing:
            self._drop(1, "end of process" if self._closing else "queue full")
            return
        self._queue.put(item)
        if self._thread is None:
            self._start()

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until all that was queued so far is written; return whether it is."""
        if self._thread is None:
            return True
        done = threading.Event()
        self._queue.put(_Flush(done))
        return done.wait(timeout)

    def close(self, timeout: float = _CLOSE_S) -> None:
        """Write what waits, and end; what cannot be written in time is counted as dropped."""
        thread = self._thread
        if thread is None or self._closing:
            return
        self._closing = True
        self._queue.put(_Close())
        self._woken.set()
        thread.join(timeout)
        # Where the thread has ended, what came behind the end; else the end itself waits too.
        left = self._queue.qsize() + (self._in_hand - 1 if thread.is_alive() else 0)
        self._drop(max(left, 0), "end of process")
        if self.dropped > self._told:
            lost = self.dropped - self._told
            _log.error("%s: %d events were not written", self.store.name, lost)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                # Runs in children of multiprocessing too, which know no atexit.
                util.Finalize(None, self.close, exitpriority=10)
                thread = threading.Thread(target=self._run, name="guard-events", daemon=True)
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        over = False
        while not over:
            batch = self._gathered()
            over = any(isinstance(item, _Close) for item in batch)
            kept = [item for item in batch if isinstance(item, (Decided, Ended))]
            self._in_hand = len(kept)
            if kept or self._told < self.dropped:
                self._write(kept)
            self._in_hand = 0
            for item in batch:
                if isinstance(item, _Flush):
                    item.done.set()
            if self._keep_days is not None and not over:
                self._prune(self._keep_days)
        with self._writing:
            self.store.disconnect()

    def _gathered(self) -> list[Item]:
        """Return what came, once there is anything; a while later, for others to come."""
        batch = [self._queue.get()]
        if isinstance(batch[0], (Decided, Ended)) and self._queue.qsize() < BATCH:
            self._woken.wait(GATHER_S)  # not once the process ends
        while len(batch) < BATCH and not self._queue.empty():  # no other thread takes
            batch.append(self._queue.get())
        return batch

    def _write(self, items: list[Decided | Ended]) -> None:
        """Write a batch; try again while the store cannot be reached."""
        pause = 0.25
        while not self._written(items):
            if self._closing:
                self._drop(len(items), "store down")
                return
            self._woken.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _written(self, items: list[Decided | Ended]) -> bool:
        """Try to write a batch; return whether that is settled."""
        with self._writing:
            try:
                self._write_once(items)
            except (OperationalError, InterfaceError, InternalError) as error:
                self.store.disconnect()
                self._report(type(error.orig or error).__name__)
                return False
            except Exception as error:  # these rows cannot be written at all
                self.store.disconnect()
                self._drop(len(items), type(error).__name__)
        return True

    def _write_once(self, items: list[Decided | Ended]) -> None:
        began: dict[str, Row] = {}
        ended: dict[str, Row] = {}
        events: list[Row] = []
        settings: dict[str, Row] = {}
        for item in items:
            asked = item.asked
            if isinstance(item, Decided):
                row = event_row(item, self.store.key)
                events.append(row)
                if asked.id not in began:
                    began[asked.id] = response_row(asked, row["time"], item.decision.verdict)
            else:
                known = asked.id in began
                row = began.pop(asked.id) if known else response_row(asked, item.time)
                ended[asked.id] = row | item.summary | {"time": item.time}
            told = settings_hash(asked.policy)
            if told not in self._settings and told not in settings:
                settings[told] = settings_row(asked.policy)
        dropped = self.dropped
        drops = [self._drops(dropped - self._told)] if dropped > self._told else []
        self.store.write(
            list(settings.values()), list(began.values()), events, list(ended.values()), drops
        )
        self._told = dropped
        self._settings |= set(settings)

    def _drops(self, count: int) -> Row:
        return {
            # Told again, where nobody knows whether it was told, it is the same row.
            "id": f"{self._name}{self._told:016x}",
            "time": time.time(),
            "process": f"{socket.gethostname()[:200]}:{os.getpid()}",
            "events": count,
            "reason": self._reason[:64],
        }

    def _prune(self, days: int) -> None:
        if time.monotonic() - self._pruned < _PRUNE_S:
            return
        self._pruned = time.monotonic()
        if abs(time.time() - self._pruned - self._clock) > _JUMP_S:
            _log.error("%s: the clock has jumped; nothing is deleted by age", self.store.name)
            return
        with self._writing:
            try:
                self.store.prune(time.time() - days * _DAY_S)
            except SQLAlchemyError as error:
                self.store.disconnect()
                self._report(type(error).__name__)

    def _drop(self, count: int, reason: str) -> None:
        if not count:
            return
        with self._counting:
            self.dropped += count
        self._reason = reason
        for report in tuple(self.on_drop):
            report(count)
        self._report(reason)

    def _report(self, reason: str) -> None:
        """Say in the log, once a minute at most, that events are not being written."""
        now = time.monotonic()
        if now - self._reported >= _REPORT_S:
            self._reported = now
            _log.error(
                "%s: events cannot be written (%s); %d dropped so far, streams go on",
                self.store.name,
                reason,
                self.dropped,
            )

    def before_fork(self) -> None:
        """Wait a while for the batch in hand, and disconnect.

        A child must not copy a database's locks. SQLite keeps those of an open file in the memory
        of its process: a child that has the copy takes none of its own, and its parent may remove
        the journal that it writes to.
        """
        if self._writing.acquire(timeout=LONGEST_WAIT):
            self._forking = threading.get_ident()
            self.store.disconnect()

    def in_parent(self) -> None:
        """Go on."""
        if self._forking == threading.get_ident():
            self._forking = None
            self._writing.release()

    def in_child(self) -> None:
        """Begin anew; what waits is the parent's to write."""
        self._left.append((self._queue, self._thread, self.store.renew()))
        self.dropped = 0
        self._fresh()


_writers: weakref.WeakSet[Writer] = weakref.WeakSet()
_by_store: dict[tuple[str, int | None], Writer] = {}
_making = Lock(threading.RLock)


def writer_of(url: str, keep_days: int | None) -> Writer:
    """Return the writer to a store, one in a process; raises ConfigError as :class:`Store` does."""
    store = Store(url)
    with _making:
        key = (store.url.render_as_string(hide_password=False), keep_days)
        if key not in _by_store:
            store.prepare()
            _by_store[key] = Writer(store, keep_days)
        return _by_store[key]


def _before() -> None:
    for writer in list(_writers):
        writer.before_fork()


def _in_parent() -> None:
    for writer in list(_writers):
        writer.in_parent()


def _in_child() -> None:
    for writer in list(_writers):
        writer.in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
