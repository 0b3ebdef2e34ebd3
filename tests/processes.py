"""The processes that a process has started, by their titles."""

from __future__ import annotations

from contextlib import suppress

import psutil


def started_by(pid: int, title: str) -> list[int]:
    """Those whose command line has ``title``, among all that ``pid`` and its own have started."""
    pids = []
    with suppress(psutil.NoSuchProcess):
        for each in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if title in " ".join(each.cmdline()):
                    pids.append(each.pid)
    return sorted(pids)
