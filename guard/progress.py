"""Progress where there is no terminal, as in the log of a build: a line every 30 seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

LINE_S = 30.0
"""Seconds between two lines."""


@contextmanager
def telling_lines(line: Callable[[], str], file: IO[str]) -> Iterator[None]:
    """Write a line every LINE_S seconds, also while nothing goes on."""
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(LINE_S):
            print(line(), file=file, flush=True)

    thread = threading.Thread(target=tell, name="guard-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def duration_text(seconds: float) -> str:
    """Return a time in seconds, minutes, or hours and minutes.

    >>> duration_text(59), duration_text(300), duration_text(5000)
    ('59 s', '5 min', '1 h 23 min')
    """
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min"
