"""Progress: whether a bar can be drawn, and else, as in the log of a build, lines now and then."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

LINE_S = 30.0
"""Seconds between two lines."""


def bar_console() -> Console:
    """Return standard error as a console, which is a terminal if a bar can be drawn there.

    Rich itself also takes a file for a terminal if FORCE_COLOR is set, as in many builds.
    """
    from rich.console import Console

    drawable = sys.stderr is not None and sys.stderr.isatty()
    drawable = drawable and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
    return Console(stderr=True, highlight=False, force_terminal=drawable)


def write_line(line: str, file: IO[str]) -> None:
    """Write a line of progress; the work goes on where nobody reads the log any more."""
    with suppress(OSError):
        print(line, file=file, flush=True)


@contextmanager
def repeated(work: Callable[[], object], seconds: float) -> Iterator[None]:
    """Do ``work`` in a thread every so many seconds, until the block ends."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            work()

    thread = threading.Thread(target=repeat, name="guard-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def telling_lines(line: Callable[[], str], file: IO[str]) -> AbstractContextManager[None]:
    """Write a line every LINE_S seconds, also while nothing goes on."""
    return repeated(lambda: write_line(line(), file), LINE_S)


def duration_text(seconds: float) -> str:
    """Return a time in seconds, minutes, or hours and minutes.

    >>> duration_text(59), duration_text(300), duration_text(5000)
    ('59 s', '5 min', '1 h 23 min')
    """
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min"
