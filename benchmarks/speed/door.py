"""What gate and chat door cost a chunk: ``door.py``, or ``guard bench door`` in a checkout.

The chunks are made before and replayed from a list, and judges cost nothing.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from litellm.types.utils import Delta, ModelResponseStream, StreamingChoices

from guard.bench import CostFigure
from guard.core import Guard
from guard.doors import chat
from guard.doors.litellm.compat import CustomStreamWrapper
from guard.doors.session import DoorSession
from guard.policy import DEFAULT_POINTS, Policy
from guard.verdict import Scores, Verdict, Window

TEXT = (
    "Start with a clear question, then collect data that could prove you wrong. Plot before you "
    "compute, and report the interval as well as the mean. Your train leaves at 9:42 from platform "
    "3 and takes about two hours. If you miss it, there is another at 10:12. To reset the router, "
    "hold the small button on the back for ten seconds. The lights will blink and go out. Green "
    "tea should be brewed at about 80 degrees, because boiling water makes it bitter. Two minutes "
    "are enough for most kinds. Use a hash map when you need fast lookups by key. A balanced tree "
    "keeps the keys in order, which helps with ranges. The moon pulls on the oceans and raises two "
    "bulges of water. As the earth turns below them, most coasts see two high tides a day. "
)
"""Harmless text of ordinary sentences, 2 to 15 words each."""

_TOKEN = re.compile(r"\s*(?:\w+|[^\w\s]+)")


@lru_cache(16)
def chunks(count: int, begin: int = 0) -> tuple[ModelResponseStream, ...]:
    """Return ``count`` chunks as LiteLLM gives them: a token each, the last with the end.

    ``begin`` is the token of :data:`TEXT` to begin with, so that streams differ.
    """
    tokens = _TOKEN.findall(f" {TEXT.rstrip()}")
    pieces = []
    for i in range(count):
        token = tokens[(begin + i) % len(tokens)]
        ends = i == count - 1
        delta = Delta(
            content=None if ends else token if i else token.lstrip(),
            role=None if i else "assistant",
        )
        choice = StreamingChoices(index=0, delta=delta, finish_reason="stop" if ends else None)
        pieces.append(
            ModelResponseStream(id="chatcmpl-bench", created=1, model="bench", choices=[choice])
        )
    return tuple(pieces)


class Replay(CustomStreamWrapper):
    """A stream of LiteLLM's that hands out chunks made before, and costs nothing itself."""

    def __init__(self, chunks: Sequence[ModelResponseStream]) -> None:
        # The constructor of LiteLLM's class is left out: it would want a call.
        self.chunks = []
        self.completion_stream = None
        self._next = iter(chunks).__next__

    def __iter__(self) -> Any:
        return self

    def __aiter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return self._next()

    async def __anext__(self) -> Any:
        try:
            return self._next()
        except StopIteration:
            raise StopAsyncIteration from None


class Silent:
    """A detector that finds nothing and costs nothing."""

    name = "silent"
    operating_points = DEFAULT_POINTS
    index_version = ""

    def snapshot(self) -> Silent:
        """Return itself."""
        return self

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        """Return the lowest score of each."""
        return [Scores(0.0, "social")] * len(windows)


class _Ready:
    """A judge whose verdict is there before it is asked for."""

    def __init__(self, policy: Policy) -> None:
        self._verdict = policy.verdict(
            Scores(0.0, "social"),
            DEFAULT_POINTS,
            detector="ready",
            index_version="",
            elapsed_ms=0.0,
        )

    def judge(self, windows: Sequence[Window]) -> list[Verdict]:
        return [self._verdict] * len(windows)

    async def ajudge(self, windows: Sequence[Window]) -> list[Verdict]:
        return self.judge(windows)


def ready(policy: Policy) -> DoorSession:
    """Return a session whose verdicts cost nothing, so that gate and door are left."""
    judge: Any = _Ready(policy)
    return DoorSession(policy, judge)


#: Chunks per stream; the cost per chunk is compared between the longest and the shortest.
SIZES = (250, 500, 1000, 2000, 4000)
_ENDS = re.compile(r"[.!?]").search


def figures(
    sizes: Sequence[int] = SIZES, rounds: int = 15, progress: Callable[[], None] = lambda: None
) -> list[CostFigure]:
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
        runs["bare", size] = partial(_timed, lambda pieces: _bare(Replay(pieces)), size)
        runs["sync", size] = partial(_timed, lambda pieces: _guarded(ready(policy), pieces), size)
        runs["aplain", size] = partial(_atimed, Replay, size)
        runs["async", size] = partial(_atimed, lambda pieces: _guarded(ready(policy), pieces), size)
    for kind, timed in {"judged": _timed, "ajudged": _atimed}.items():
        runs[kind, middle] = partial(
            timed, lambda pieces: _guarded(guard.session(), pieces), middle
        )
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            best[name] = min(best[name], run())
        progress()

    def cost(kind: str, size: int) -> float:
        plain = best["plain" if kind in ("sync", "bare") else "aplain", size]
        return (best[kind, size] - plain) / size * 1e6

    measured = []
    for kind in ("sync", "async"):
        costs = [cost(kind, size) for size in sizes]
        measured += [
            CostFigure(f"gate + door, {kind}, {size} chunks", each, "us/chunk", "<= 5")
            for size, each in zip(sizes, costs, strict=True)
        ]
        spread = max(costs) / min(costs)
        name = f"gate + door, {kind}, largest / smallest"
        measured.append(CostFigure(name, spread, "ratio", "<= 1.15"))
    segments = _segments(ready(policy), middle)
    ways = {"sync": ("judged", "sync"), "async": ("ajudged", "async")}
    for kind, (with_verdicts, without) in ways.items():
        more = best[with_verdicts, middle] - best[without, middle]
        measured.append(
            CostFigure(f"a verdict's way, {kind}", more / segments * 1e6, "us/segment", "apart")
        )
    bare = cost("bare", middle)
    measured.append(CostFigure("bare hold until a full stop", bare, "us/chunk", "for comparison"))
    ratio = cost("sync", middle) / bare
    measured.append(CostFigure("gate + door, sync : bare hold", ratio, "ratio", ""))
    return measured


def _guarded(session: DoorSession, pieces: Sequence[Any]) -> Any:
    return chat.guard(session, Replay(pieces))


def _timed(stream: Callable[[Sequence[Any]], Any], size: int) -> float:
    pieces = chunks(size)
    begin = time.thread_time()
    for _ in stream(pieces):
        pass
    return time.thread_time() - begin


def _atimed(stream: Callable[[Sequence[Any]], Any], size: int) -> float:
    pieces = chunks(size)

    async def read() -> float:
        begin = time.thread_time()
        async for _ in stream(pieces):
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


if __name__ == "__main__":
    from guard.cli.bench import show

    show(figures(), as_json=False)
