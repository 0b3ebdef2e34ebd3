"""What gate and chat door cost a chunk, on chunks made before and replayed from a list."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from guard.bench.figures import Figure
from guard.bench.replay import Replay, Silent, chunks, ready
from guard.core import Guard
from guard.doors import chat
from guard.doors.session import DoorSession
from guard.policy import Policy

#: Chunks per stream; the cost per chunk is compared between the longest and the shortest.
SIZES = (250, 500, 1000, 2000, 4000)
_ENDS = re.compile(r"[.!?]").search


def figures(
    sizes: Sequence[int] = SIZES, rounds: int = 15, progress: Callable[[], None] = lambda: None
) -> list[Figure]:
    """Return microseconds of CPU time of this thread a chunk, the best of ``rounds``.

    Each is the time to read a guarded stream less that to read the same chunks unguarded. Verdicts
    are there before they are asked for: what is left is gate and door, the decisions on segments
    and the making of the stream included. What a verdict adds that costs its detector nothing, its
    way to the worker threads and back, is given apart, a segment; and so is a bare loop that holds
    chunks until one has a full stop, which is the least that any guard of sentences does.
    ``progress`` is called after every round.
    """
    policy = Policy()
    guard = Guard(policy, detector=Silent(), events="none")
    middle = sizes[len(sizes) // 2]
    # Streams of all sizes, guarded and not, in turn: what else the machine does meets all alike.
    runs: dict[tuple[str, int], Callable[[], float]] = {}
    for size in sizes:
        runs["plain", size] = partial(_timed, Replay, size)
        runs["bare", size] = partial(_timed, lambda made: _bare(Replay(made)), size)
        runs["sync", size] = partial(_timed, lambda made: _guarded(ready(policy), made), size)
        runs["aplain", size] = partial(_atimed, Replay, size)
        runs["async", size] = partial(_atimed, lambda made: _guarded(ready(policy), made), size)
    for kind, timed in {"judged": _timed, "ajudged": _atimed}.items():
        runs[kind, middle] = partial(timed, lambda made: _guarded(guard.session(), made), middle)
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            best[name] = min(best[name], run())
        progress()

    def cost(kind: str, size: int) -> float:
        plain = best["plain" if kind in ("sync", "bare") else "aplain", size]
        return (best[kind, size] - plain) / size * 1e6

    found = []
    for kind in ("sync", "async"):
        costs = [cost(kind, size) for size in sizes]
        found += [
            Figure(f"gate + door, {kind}, {size} chunks", each, "us/chunk", "<= 5")
            for size, each in zip(sizes, costs, strict=True)
        ]
        spread = max(costs) / min(costs)
        found.append(Figure(f"gate + door, {kind}, largest / smallest", spread, "ratio", "<= 1.15"))
    segments = _segments(ready(policy), middle)
    ways = {"sync": ("judged", "sync"), "async": ("ajudged", "async")}
    for kind, (with_verdicts, without) in ways.items():
        more = best[with_verdicts, middle] - best[without, middle]
        found.append(
            Figure(f"a verdict's way, {kind}", more / segments * 1e6, "us/segment", "apart")
        )
    bare = cost("bare", middle)
    found.append(Figure("bare hold until a full stop", bare, "us/chunk", "for comparison"))
    found.append(Figure("gate + door, sync : bare hold", cost("sync", middle) / bare, "ratio", ""))
    return found


def _guarded(session: DoorSession, made: Sequence[Any]) -> Any:
    return chat.guard(session, Replay(made))


def _timed(stream: Callable[[Sequence[Any]], Any], size: int) -> float:
    made = chunks(size)
    begin = time.thread_time()
    for _ in stream(made):
        pass
    return time.thread_time() - begin


def _atimed(stream: Callable[[Sequence[Any]], Any], size: int) -> float:
    made = chunks(size)

    async def read() -> float:
        begin = time.thread_time()
        async for _ in stream(made):
            pass
        return time.thread_time() - begin

    return asyncio.run(read())


def _bare(stream: Any) -> Iterator[Any]:
    held = []
    for chunk in stream:
        held.append(chunk)
        if _ENDS(chunk.choices[0].delta.content or ""):
            yield from held
            held.clear()
    yield from held


def _segments(session: DoorSession, size: int) -> int:
    stream = _guarded(session, chunks(size))
    for _ in stream:
        pass
    return len(stream.guard)
