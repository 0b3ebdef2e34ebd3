"""A fork meets no native call at work, and leaves the child no lock that nobody opens again.

A fork copies every lock as it is, and of the threads only the one that forks. ONNX Runtime, FAISS
and OpenBLAS have locks that nobody can renew from outside, and OpenBLAS ends its threads at a fork
even where they have a product in hand. So a fork waits until the calls into them have ended, and
what is called meanwhile waits for the fork. Locks of the guard's own are made anew in the child.
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

#: Seconds for which a fork waits; a verdict takes milliseconds, to load the weights a second.
LONGEST_WAIT = 10.0
_CUT = (
    "This process was forked while a native call of its parent would not end, and cannot judge; "
    "fork it before the parent judges, or spawn it."
)


class Native(ContextDecorator):
    """What is called in such a block, or a function so decorated, is not cut through by a fork.

    Blocks may be nested. Raises DetectorError in a child whose parent was forked all the same.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0  # threads
        self._forks = 0  # that wait or are under way
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
        """Wait for the calls of other threads; let none begin."""
        own = bool(self._depth)  # a signal's handler forks: native code has returned to it
        with self._changed:
            self._forks += 1
            self._changed.wait_for(lambda: self._inside <= own, LONGEST_WAIT)

    def in_parent(self) -> None:
        """Go on."""
        with self._changed:
            self._forks -= 1
            self._changed.notify_all()

    def in_child(self) -> None:
        """Go on with the one thread there is."""
        own = bool(self._depth)
        self._changed = threading.Condition(threading.Lock())
        self._cut = self._cut or self._inside > own
        self._inside, self._forks = int(own), 0
        if self._cut:
            _log.error(_CUT)


class Lock:
    """A lock that is open in a forked child; of any ``kind`` that ``threading`` has."""

    def __init__(self, kind: Callable[[], Any] = threading.Lock) -> None:
        self._kind = kind
        self.renew()
        _locks.add(self)

    def renew(self) -> None:
        """Forget who holds it."""
        self._lock = self._kind()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()
native = Native()


def _renew() -> None:
    for lock in list(_locks):
        lock.renew()
    native.in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=native.before_fork, after_in_parent=native.in_parent, after_in_child=_renew
    )
