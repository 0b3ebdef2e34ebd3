"""How long an event loop's turns take: the time in which nothing else on it can run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any


@contextmanager
def turns() -> Iterator[list[float]]:
    """Gather the seconds of every turn of an event loop within, asyncio's own alone.

    A turn is one callback, or one step of a task up to where it waits. Time in which another
    thread or process had the processor counts, as it does for whoever waits for the loop.
    """
    gathered: list[float] = []
    run: Any = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        begin = perf_counter()
        run(handle)
        gathered.append(perf_counter() - begin)

    handles: Any = asyncio.Handle
    handles._run = timed
    try:
        yield gathered
    finally:
        handles._run = run
