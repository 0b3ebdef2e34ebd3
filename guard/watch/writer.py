"""Writes events to a store from a background thread, so that no stream waits for a database.

Items wait in a queue of at most :data:`QUEUE`. If it is full, or a batch cannot be written at all,
events are dropped and counted; the count is written once the store can be written again. A process
that is killed loses its queue: the items of the last :data:`GATHER_S` seconds while the store keeps
up, and never more than ``QUEUE + BATCH``.
"""

from __future__ import annotations

import logging
import os
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from sqlalchemy.exc import InterfaceError, InternalError, OperationalError, SQLAlchemyError

from guard.background import Worker
from guard.forks import Lock
from guard.watch.events import (
    Decided,
    Ended,
    Row,
    event_row,
    response_row,
    settings_hash,
    settings_row,
)
from guard.watch.store import Store, StoreError

QUEUE = 10_000
"""Items that may wait: each decision is one, and each end of a response."""
BATCH = 500
"""Items of one transaction, at most; a fork may have to wait for it."""
GATHER_S = 0.2
"""Seconds that the first item of a batch waits for more."""
_CLOSE_S = 10.0  # how long the exit of the process waits for its stores
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 30.0
_LONGEST_LOCKED_PAUSE_S = 0.5
_LOCKED_S = 10.0  # a lock that is held for longer is logged
_REPORT_S = 60.0
_UPKEEP_S = 60.0
_PRUNE_S = 3600.0
_PRUNE_BATCH = 50  # responses; a fork may have to wait for them
_DAY_S = 86_400.0
_JUMP_S = 3600.0  # a clock that was set by more is not trusted to delete by age

_log = logging.getLogger("guard")


Item = Decided | Ended | threading.Event | None
"""None closes the writer, an event is set once all before it is written."""


class Writer(Worker):
    """Writes to ``store``, and deletes from it what is older than ``keep_days``."""

    _queue: queue.SimpleQueue[Item]
    fork_wait_s = 0.05

    def __init__(self, store: Store, keep_days: int | None = None) -> None:
        self.store = store
        self.on_drop: set[Callable[[int], None]] = set()
        self._keep_days = keep_days
        self._counting = Lock(threading.RLock)
        self._inherited: list[object] = []  # keeps the parent's objects alive: they must not close
        self._cut = False  # whether this process cannot use the store: see after_fork_in_child
        super().__init__("guard-events")

    def reset(self) -> None:
        """Start with an empty queue, no thread and no count, as a forked child must."""
        super().reset()
        self._woken = threading.Event()
        self._closing = self._closed = False
        self._close_by = 0.0  # by the monotonic clock
        self._locked_since: float | None = None  # by the same
        self.dropped = 0
        """Events of this process that were not written."""
        self._drops_written = 0  # of self.dropped, those that the store has counted
        self._in_hand = 0  # events taken from the queue and not yet written
        self._reason = "queue full"
        self._reported = -_REPORT_S
        self._upkeep_at = self._prune_at = 0.0
        # The clock went steadily since then, and showed this at monotonic time 0.
        self._steady_since = time.monotonic()
        self._clock = time.time() - self._steady_since
        self._settings: set[str] = set()  # hashes that the store has
        self._prefix = secrets.token_hex(8)  # of the ids of drops

    def put(self, item: Decided | Ended) -> None:
        """Queue ``item``; count it as dropped where the queue is full."""
        if self._cut:
            self._drop(1, "forked during a write")
        elif self._queue.qsize() >= QUEUE or self._closing:
            self._drop(1, "end of process" if self._closing else "queue full")
        else:
            self.enqueue(item)

    def at_exit(self) -> None:
        """Close; all writers of the process end within ten seconds."""
        global _exit_by
        if _exit_by is None:
            _exit_by = time.monotonic() + _CLOSE_S
        for writer in list(_by_store.values()):
            writer._begin_close(_exit_by)
        self.close(max(_exit_by - time.monotonic(), 0.0))

    def close(self, timeout: float = _CLOSE_S) -> None:
        """Write the queue and end; what takes over ``timeout`` seconds counts as dropped."""
        thread = self._thread
        if thread is None or self._closed:
            return
        self._closed = True
        self._begin_close(time.monotonic() + timeout)
        thread.join(timeout)
        unwritten, self._in_hand = self._in_hand, 0
        with suppress(queue.Empty):
            while True:
                unwritten += isinstance(self._queue.get_nowait(), (Decided, Ended))
        self._drop(unwritten, "end of process")
        if self.dropped > self._drops_written:
            lost = self.dropped - self._drops_written
            _log.error("%s: %d events were not written", self.store.name, lost)

    def _begin_close(self, by: float) -> None:
        if self._thread is not None and not self._closing:
            self._close_by = by
            self._closing = True
            self._queue.put(None)
            self._woken.set()

    def run(self) -> None:
        """Write batches until the writer is closed."""
        batch: list[Item] = []
        while None not in batch:
            batch = self._next_batch()
            items = [item for item in batch if isinstance(item, (Decided, Ended))]
            self._in_hand = len(items)
            if items or self._drops_written < self.dropped:
                self._write(items)
            self._in_hand = 0
            for item in batch:
                if isinstance(item, threading.Event):
                    item.set()
            if None not in batch:
                self._upkeep()
        with self.working:
            self.store.disconnect()

    def _next_batch(self) -> list[Item]:
        """Wait for an item, then :data:`GATHER_S` for more; return at most :data:`BATCH`.

        Return nothing if there is none when the store needs upkeep.
        """
        try:
            batch = [self._queue.get(timeout=max(self._upkeep_at - time.monotonic(), 0.0))]
        except queue.Empty:
            return []
        if isinstance(batch[0], (Decided, Ended)) and self._queue.qsize() < BATCH:
            self._woken.wait(GATHER_S)  # returns at once while the process exits
        while len(batch) < BATCH and not self._queue.empty():  # only this thread takes items
            batch.append(self._queue.get())
        return batch

    def _write(self, items: list[Decided | Ended]) -> None:
        """Write a batch; retry while the store cannot be reached."""
        pause = _FIRST_PAUSE_S
        while (left := self._unwritten(items)) is not None:
            # At exit only another writer is waited for.
            if self._closing and (self._locked_since is None or time.monotonic() > self._close_by):
                self._drop(min(len(left), self._in_hand), "store down")  # if close() did not
                return
            items = left
            # SQLite's own wait would hold ``working``, and with it a fork.
            pause = min(pause, _LONGEST_LOCKED_PAUSE_S) if self._locked_since else pause
            time.sleep(pause) if self._closing else self._woken.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _unwritten(self, items: list[Decided | Ended]) -> list[Decided | Ended] | None:
        """Try to write a batch; return what should be tried again, None if nothing."""
        with self.working:
            try:
                self._write_once(items)
                self._locked_since = None
                return None
            except (OperationalError, InterfaceError, InternalError, StoreError) as error:
                self._failed(error)
                return items
            except Exception as error:  # a row of these cannot be written at all
                self.store.disconnect()
                if len(items) <= 1:
                    self._drop(len(items), type(error).__name__)
                    return None
        # Only the row at fault is lost, not those that came with it.
        half = len(items) // 2
        left = [part for part in map(self._unwritten, (items[:half], items[half:])) if part]
        return [item for part in left for item in part] if left else None

    def _failed(self, error: SQLAlchemyError | StoreError) -> None:
        """Disconnect; log the error, unless the store has been locked for a short time only."""
        self.store.disconnect()
        cause = getattr(error, "orig", None) or error
        if self.store.is_sqlite and "locked" in str(cause):
            now = time.monotonic()
            self._locked_since = self._locked_since or now
            if now - self._locked_since < _LOCKED_S:
                return
        else:
            self._locked_since = None
        self._report(type(cause).__name__)

    def _open(self) -> None:
        if self.store.replaced():
            _log.error("%s was deleted, moved or replaced; it is opened anew", self.store.name)
        if not self.store.connected:  # what is there may be another store
            self.store.open(wait=False)
            self._settings.clear()

    def _write_once(self, items: list[Decided | Ended]) -> None:
        self._open()
        began: dict[str, Row] = {}
        ended: dict[str, Row] = {}
        events: list[Row] = []
        policies = {settings_hash(item.response.policy): item.response.policy for item in items}
        settings = [settings_row(policies[new]) for new in policies.keys() - self._settings]
        for item in items:
            response = item.response
            if isinstance(item, Decided):
                row = event_row(item, self.store.key)
                events.append(row)
                if response.id not in began:
                    began[response.id] = response_row(response, row["time"], item.decision.verdict)
            else:
                row = began.pop(response.id, {}) or response_row(response, item.time)
                ended[response.id] = row | item.summary | {"time": item.time}
        dropped = self.dropped
        drops = [self._drop_row(dropped)] if dropped > self._drops_written else []
        self.store.write(settings, list(began.values()), events, list(ended.values()), drops)
        self._drops_written = dropped
        self._settings |= policies.keys()

    def _drop_row(self, dropped: int) -> Row:
        return {
            # If a write fails after its commit, the retry has the same id and replaces the row.
            "id": f"{self._prefix}{self._drops_written:016x}",
            "time": time.time(),
            "process": f"{socket.gethostname()[:200]}:{os.getpid()}",
            "events": dropped - self._drops_written,
            "reason": self._reason[:64],
        }

    def _upkeep(self) -> None:
        """Once a minute, empty the journal of deleted rows; once an hour, delete what is old."""
        now = time.monotonic()
        if now < self._upkeep_at:
            return
        self._upkeep_at = now + _UPKEEP_S
        try:
            if self._keep_days is not None and now >= self._prune_at:
                if self._prune(self._keep_days):
                    self._upkeep_at = now  # after the next batch
                    return
                self._prune_at = now + _PRUNE_S
            with self.working:
                self._open()
                self.store.empty_journal()
        except (SQLAlchemyError, StoreError) as error:
            with self.working:
                self._failed(error)

    def _prune(self, days: int) -> bool:
        """Delete some of what is older than ``days``; return whether more is."""
        now, before = time.time(), time.time() - days * _DAY_S
        if not self._clock_is_right(now, before, days):
            return False
        with self.working:
            self._open()
            return self.store.prune(before, _PRUNE_BATCH) == _PRUNE_BATCH

    def _clock_is_right(self, now: float, before: float, days: int) -> bool:
        """Whether the clock may be trusted to delete what is from before ``before``.

        It may if it has gone steadily for a day, or if the store has responses of all the time
        since then, but for breaks of a quarter of ``days``, at least one day and at most seven.
        """
        monotonic, clock = time.monotonic(), self._clock
        self._clock = now - monotonic
        if abs(self._clock - clock) > _JUMP_S:
            self._steady_since = monotonic
            _log.error(
                "%s: the clock has jumped by more than an hour; nothing is deleted by age",
                self.store.name,
            )
            return False
        if monotonic - self._steady_since >= _DAY_S:
            return True
        gap = min(max(days // 4, 1), 7)
        with self.working:
            self._open()
            if not self.store.has_gap(before, now, gap * _DAY_S):
                return True
        _log.warning(
            "%s: nothing is deleted by age until this process has run for a day, for the clock may "
            "be wrong: it has no response of over %d day(s); if the clock is right, run: guard "
            "events prune --days %d",
            self.store.name,
            gap,
            days,
        )
        return False

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
        """Log that events are not being written, once a minute at most."""
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
        """Wait for the batch in hand, at most ``fork_wait_s`` seconds, and disconnect.

        SQLite keeps a process's locks on an open file in memory: a child with a copy would take
        none of its own, and its parent could remove the journal that the child writes to.
        """
        super().before_fork()
        if self._forking == threading.get_ident():
            self.store.disconnect()

    def after_fork_in_child(self) -> None:
        """Start empty: the parent writes what is queued.

        If the parent was at a call of SQLite that outlasted :meth:`before_fork`, all events of this
        process are dropped: its copy of SQLite takes the parent's locks for its own.
        """
        waited = self._forking == threading.get_ident()
        self._cut = self._cut or (self.store.is_sqlite and not waited)
        self._inherited.append((self._queue, self._thread, self.store.renew()))
        super().after_fork_in_child()


_by_store: dict[tuple[str, int | None], Writer] = {}
_making = Lock(threading.RLock)
_exit_by: float | None = None  # when all writers have to end, by the monotonic clock


def writer_of(url: str, keep_days: int | None) -> Writer:
    """Return this process's one writer to a store; raises ConfigError as :class:`Store` does."""
    store = Store(url)
    with _making:
        key = (store.url.render_as_string(hide_password=False), keep_days)
        if key not in _by_store:
            store.prepare()
            _by_store[key] = Writer(store, keep_days)
        return _by_store[key]
