"""Measures the time of an embedded detector's verdict, and its verdicts per second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from guard.bench.figures import Figure, percentile
from guard.core import Guard
from guard.gate import split
from guard.gate.context import CONTEXT_SEGMENTS, in_context
from guard.verdict import Window

# What a verdict may take, in the median and at the 99th percentile, and what a second is to hold.
_BOUNDS = {"encoder": ("<= 18", "<= 40", ""), "encoder-small": ("<= 6", "<= 15", ">= 500")}
#: Windows of one call where the throughput is measured.
BATCH = 32


def windows_of(texts: Iterable[str], context: int = CONTEXT_SEGMENTS) -> list[Window]:
    """Return the windows of ``texts`` as a stream asks for them, with their context."""
    return [
        Window(segment, before)
        for text in texts
        for segment, before in in_context(
            (s.text for s in split(text) if not s.text.isspace()), context
        )
    ]


def figures(
    texts: Iterable[str],
    detector: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Figure]:
    """Time single verdicts on ``texts``, references included, one after the other in one thread.

    ``detector`` names the embedded one, by default that of the settings. ``progress`` is called
    with the number of windows judged, and of all.
    """
    judge = Guard(detector=detector, events="none").detector
    median, longest, least = _BOUNDS.get(judge.name.rpartition("-")[0], ("", "", ""))
    session = judge.snapshot()
    windows = windows_of(texts)
    session.score(windows[:20])
    times: list[float] = []
    busy: list[float] = []
    for done, window in enumerate(windows):
        begin, cpu = time.perf_counter(), time.thread_time()
        session.score([window])
        times.append((time.perf_counter() - begin) * 1000)
        busy.append((time.thread_time() - cpu) * 1000)
        if done % BATCH == 0:
            progress(done, len(windows))
    begin = time.perf_counter()
    lots = [windows[i : i + BATCH] for i in range(0, min(len(windows), 20 * BATCH), BATCH)]
    for lot in lots:
        session.score(lot)
    rate = sum(map(len, lots)) / (time.perf_counter() - begin)
    times.sort()
    busy.sort()
    return [
        Figure(f"verdict, median of {len(times)}", percentile(times, 0.5), "ms", median),
        Figure("verdict, 99th percentile", percentile(times, 0.99), "ms", longest),
        Figure("  of it CPU time, median", percentile(busy, 0.5), "ms", "where others are at work"),
        Figure("  of it CPU time, 99th percentile", percentile(busy, 0.99), "ms"),
        Figure(f"lots of {BATCH}, all cores", rate, "segments/s", least),
    ]
