"""Fork safety: a fork waits for native calls to end, and the child gets new locks.

A fork copies every lock in its present state, but only the thread that forks. A lock held by
another thread would stay locked for ever in the child. The locks inside ONNX Runtime, FAISS and
OpenBLAS cannot be replaced from outside, and OpenBLAS ends its threads at a fork even during a
product. So a fork waits until calls into these libraries have ended, and new calls wait for the
fork. Guard's own locks are replaced in the child.
Why: docs/decisions/forks-wait.md.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any

from guard.errors import DetectorError

_log = logging.getLogger("guard")

#: Seconds that a fork waits at most; a verdict or loading the weights takes a second at most.
LONGEST_WAIT = 10.0
_CUT = (
    "This process was forked during a native call of its parent that did not end in time, so it "
    "cannot judge; fork it before the parent judges, or spawn it."
)


class Native(ContextDecorator):
    """A block, or a decorated function, that no fork interrupts.

    Blocks may be nested. Raises DetectorError in a child that was forked during such a block.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0  # number of threads in a block
        self._forks = 0  # number of forks that wait or are under way
        self._here = threading.local()
        self._cut = False

    @property
    def _depth(self) -> int:
        return getattr(self._here, "depth", 0)

    def __enter__(self) -> None:
        if self._cut:
            raise DetectorError(_CUT)
        if not self._depth:
            with self._changed:
                while self._forks:
                    self._changed.wait()
                self._inside += 1
        self._here.depth = self._depth + 1

    def __exit__(self, *_: object) -> None:
        self._here.depth -= 1
        if not self._here.depth:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def before_fork(self) -> None:
        """Wait until the other threads have left their blocks; let none enter one."""
        own = bool(self._depth)  # a signal handler forks: this thread is not in native code
        with self._changed:
            self._forks += 1
            self._changed.wait_for(lambda: self._inside <= own, LONGEST_WAIT)

    def in_parent(self) -> None:
        """Let other threads enter blocks again."""
        with self._changed:
            self._forks -= 1
            self._changed.notify_all()

    def in_child(self) -> None:
        """Start again with the child's only thread."""
        own = bool(self._depth)
        self._changed = threading.Condition(threading.Lock())
        self._cut = self._cut or self._inside > own
        self._inside, self._forks = int(own), 0
        if self._cut:
            _log.error(_CUT)


class Lock:
    """A lock of any ``kind`` of ``threading`` that is free in a forked child."""

    def __init__(self, kind: Callable[[], Any] = threading.Lock) -> None:
        self._kind = kind
        self.renew()
        _locks.add(self)

    def renew(self) -> None:
        """Replace it by a free one."""
        self._lock = self._kind()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()
native = Native()


def _renew_locks() -> None:
    for lock in list(_locks):
        lock.renew()
    native.in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=native.before_fork, after_in_parent=native.in_parent, after_in_child=_renew_locks
    )
