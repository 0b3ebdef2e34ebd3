"""Ends the guard's daemon threads before the interpreter shuts down.

When a daemon thread returns from native code during shutdown, Python ends it by unwinding its
stack. With C++ frames on that stack, ``std::terminate`` is called and the process dies of SIGABRT.
So running calls are awaited; threads that still end inside C++ are parked instead.
Why: docs/decisions/end-of-process.md.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterable
from typing import Protocol

# Seconds that the end of the process waits for running calls.
_LAST_CALLS = 0.4


class _Leaves(Protocol):
    def leave(self) -> Iterable[threading.Thread]:
        """Stop all work; return the threads that may still run."""
        ...


_leaving: weakref.WeakSet[_Leaves] = weakref.WeakSet()


def leaves_at_exit(worker: _Leaves) -> None:
    """Register ``one``: its threads are ended before the interpreter shuts down."""
    _leaving.add(worker)


@atexit.register
def _leave_all() -> None:
    until = time.monotonic() + _LAST_CALLS
    threads = [thread for one in list(_leaving) for thread in one.leave()]
    with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl-C skips the wait
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        _park_ending_threads()


def _park_ending_threads() -> None:
    """Make ``std::terminate`` park the calling thread until the process ends.

    Python 3.14 parks all such threads itself. Except on Linux with glibc, ending a thread does not
    unwind its stack.
    """
    if sys.platform != "linux" or sys.version_info >= (3, 14):
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        # Only if it is loaded already: otherwise there are no C++ frames.
        cpp = ctypes.CDLL("libstdc++.so.6", mode=os.RTLD_NOLOAD)
        set_terminate = cpp._ZSt13set_terminatePFvvE
        set_terminate.argtypes, set_terminate.restype = [ctypes.c_void_p], ctypes.c_void_p
        set_terminate(ctypes.cast(ctypes.CDLL(None).pause, ctypes.c_void_p))


if hasattr(os, "register_at_fork"):
    # The child has none of the threads. Registered before the hook of workers.py, so that it runs
    # first in the child; otherwise it would remove the child's new pool, too.
    os.register_at_fork(after_in_child=_leaving.clear)
