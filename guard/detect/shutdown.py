"""Ends the guard's daemon threads before the interpreter is taken down.

Python ends a daemon thread that comes back from native code meanwhile by unwinding its stack. Where
C++ stands on that, ``std::terminate`` is called and the process ends by SIGABRT. So calls that run
are waited for, and what ends a thread in C++ code all the same is made to leave it where it is.
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

# Seconds for which the end of the process waits for calls that run.
_LAST_CALLS = 0.4


class _Leaves(Protocol):
    def leave(self) -> Iterable[threading.Thread]:
        """End all work; return the threads that may not be done yet."""
        ...


_leaving: weakref.WeakSet[_Leaves] = weakref.WeakSet()


def leaves_at_exit(one: _Leaves) -> None:
    """Have the threads of ``one`` ended before the interpreter is taken down."""
    _leaving.add(one)


@atexit.register
def _leave() -> None:
    until = time.monotonic() + _LAST_CALLS
    threads = [thread for one in list(_leaving) for thread in one.leave()]
    with contextlib.suppress(KeyboardInterrupt):  # who presses it again is in a hurry
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        _park_what_ends()


def _park_what_ends() -> None:
    """Have threads that Python ends in C++ code wait for the end of the process in its place.

    So does Python itself from 3.14 on, for all threads. Elsewhere than on Linux with glibc ending a
    thread unwinds nothing.
    """
    if sys.platform != "linux" or sys.version_info >= (3, 14):
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        # Only where it is loaded already: else there is no C++ to unwind.
        cpp = ctypes.CDLL("libstdc++.so.6", mode=os.RTLD_NOLOAD)
        set_terminate = cpp._ZSt13set_terminatePFvvE
        set_terminate.argtypes, set_terminate.restype = [ctypes.c_void_p], ctypes.c_void_p
        set_terminate(ctypes.cast(ctypes.CDLL(None).pause, ctypes.c_void_p))


if hasattr(os, "register_at_fork"):
    # A fork leaves all threads behind. Registered before what workers.py registers, so that it runs
    # first in the child: else the child's new pool would be cleared too.
    os.register_at_fork(after_in_child=_leaving.clear)
