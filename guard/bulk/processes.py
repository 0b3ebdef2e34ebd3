"""Judges blocks in processes of this machine, one a core; one that ends is replaced.

They are forked where that is safe, after the detector is loaded, so that they share its memory. Not
threads: half of a verdict's time is Python, of which one thread runs at a time.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from guard.bulk.judging import BlockJudge, JudgedRows
from guard.bulk.planning import InputBlock
from guard.errors import DetectorError, GuardError

_Task = tuple[InputBlock, int, bool]
# Blocks that a process has at a time: the next one is there when one is done.
_AHEAD = 2
# How often a row may end its process before it gets a reason in place of a verdict.
_TRIES = 3
# How often processes may end, for each of them, before any judges a row.
_MOST_DEATHS = 10


def judged_by_processes(
    make_judge: Callable[[], BlockJudge],
    todo: Iterator[tuple[InputBlock, int]],
    workers: int,
    crashed: Callable[[], bytes],
    may_go_on: Callable[[], bool],
) -> Iterator[JudgedRows]:
    """Yield the verdicts on blocks as they come.

    ``todo`` has the blocks, and the row each begins at; ``crashed`` makes the line of a row that
    ends its process each time; no further block is begun while ``may_go_on`` is false, but for one
    where none is being judged. Raises the error of a process that cannot judge, and DetectorError
    if processes keep ending.
    """
    pool = _ProcessPool(make_judge, todo, crashed, may_go_on)
    try:
        yield from pool.run(workers)
    finally:
        pool.end()


class _BulkWorker:
    """A process, the driver's end of its pipe, and what it was asked to do."""

    def __init__(self, process: Any, pipe: Connection) -> None:
        self.process, self.pipe = process, pipe
        self.tasks: deque[_Task] = deque()
        self.ready = False  # it has loaded the detector


class _ProcessPool:
    def __init__(
        self,
        make_judge: Callable[[], BlockJudge],
        todo: Iterator[tuple[InputBlock, int]],
        crashed: Callable[[], bytes],
        may_go_on: Callable[[], bool],
    ) -> None:
        self._make_judge, self._todo, self._crashed = make_judge, todo, crashed
        self._may_go_on = may_go_on
        self._again: deque[_Task] = deque()  # blocks of processes that ended
        self._deaths: Counter[tuple[int, int]] = Counter()  # by block and row
        self._idle_deaths = 0  # since a row was judged
        self._workers: dict[Connection, _BulkWorker] = {}
        forks = sys.platform == "linux"
        self._context: Any = multiprocessing.get_context("fork" if forks else "spawn")

    def run(self, count: int) -> Iterator[JudgedRows]:
        """Yield the verdicts until every block is done."""
        for _ in range(count):
            self._start()
        while True:
            for worker in list(self._workers.values()):
                self._give_tasks(worker)
            if not any(worker.tasks for worker in self._workers.values()):
                return
            for pipe in wait(list(self._workers)):
                assert isinstance(pipe, Connection)
                yield from self._receive(self._workers[pipe], count)

    def _start(self) -> None:
        ours, theirs = self._context.Pipe()
        forks = self._context.get_start_method() == "fork"
        others = [ours, *self._workers] if forks else []
        process = self._context.Process(
            target=_work, args=(self._make_judge, theirs, others), daemon=True
        )
        with warnings.catch_warnings():
            # Of threads at a fork: guard.forks waits for those that are in native code.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        self._workers[ours] = _BulkWorker(process, ours)

    def _give_tasks(self, worker: _BulkWorker) -> None:
        while len(worker.tasks) < _AHEAD:
            if self._again:
                task = self._again.popleft()
            elif self._may_begin() and (fresh := next(self._todo, None)):
                task = (*fresh, False)
            else:
                return
            with suppress(OSError):  # it has ended, as the next message tells
                worker.pipe.send(task)
            worker.tasks.append(task)

    def _may_begin(self) -> bool:
        # Where nothing is being judged the next block is the first: it lets the others move up.
        idle = not any(worker.tasks for worker in self._workers.values())
        return idle or self._may_go_on()

    def _receive(self, worker: _BulkWorker, count: int) -> Iterator[JudgedRows]:
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            yield from self._replace(worker, count)
            return
        if isinstance(message, GuardError):
            raise message
        worker.ready = True
        if message is None:
            return
        assert isinstance(message, JudgedRows)
        self._idle_deaths = 0
        block, start, careful = worker.tasks.popleft()
        start = message.start + len(message.lines)
        if start < block.rows:
            worker.tasks.appendleft((block, start, careful))
        yield message

    def _replace(self, worker: _BulkWorker, count: int) -> Iterator[JudgedRows]:
        """Start another process for one that ended, and give its blocks away again."""
        del self._workers[worker.pipe]
        worker.pipe.close()
        worker.process.join()
        self._idle_deaths += 1
        if self._idle_deaths > _MOST_DEATHS * count:
            code = worker.process.exitcode
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise DetectorError(
                f"The judging processes end before they judge anything ({how}); is there memory "
                "for them? Run the same command again, with fewer --workers."
            )
        for number, (block, start, _) in enumerate(worker.tasks):
            blamed = worker.ready and number == 0
            if blamed:
                self._deaths[block.number, start] += 1
                if self._deaths[block.number, start] >= _TRIES:
                    yield JudgedRows(block.number, start, [self._crashed()])
                    start += 1
            if start < block.rows:
                # By single rows, so that one that ends the process is told from its neighbours.
                self._again.append((block, start, blamed))
        self._start()

    def end(self) -> None:
        """End the processes; they keep nothing."""
        for worker in self._workers.values():
            worker.process.kill()
        for worker in self._workers.values():
            worker.process.join()
            worker.pipe.close()


def _work(make_judge: Callable[[], BlockJudge], pipe: Connection, others: list[Connection]) -> None:
    """Judge what the driver asks for, until it is gone, which closes its end of the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver's: it ends this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:  # else the driver's ends would stay open here when it is gone
        other.close()
    try:
        judge = make_judge()
        pipe.send(None)
        while True:
            for rows in judge.judged(*pipe.recv()):
                pipe.send(rows)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except GuardError as error:
        with suppress(OSError):
            pipe.send(error)
