"""Many guarded streams at once, beside the same ones unguarded."""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from guard.bench.figures import percentile
from guard.bench.loop import turns
from guard.bench.replay import Replay, Silent, chunks
from guard.core import Guard
from guard.doors import chat

Progress = Callable[[int], None]
_STATM = Path("/proc/self/statm")


@dataclass
class Arm:
    """What was seen of all streams of one arm; times are milliseconds, memory megabytes.

    ``latency`` is from the moment in which a chunk came from the source to that in which its
    reader had it. ``pause`` is the longest turn of the event loop. ``memory`` is what the process
    held at most beyond what it held before, None where the system does not say.
    """

    seconds: float
    cpu_seconds: float
    latency_p50: float
    latency_p99: float
    pause: float
    pause_p999: float
    memory: float | None
    segments: int

    def rates(self, streams: int, chunks: int) -> dict[str, float]:
        """Return what was done in a second."""
        return {
            "streams/s": streams / self.seconds,
            "chunks/s": streams * chunks / self.seconds,
            "segments/s": self.segments / self.seconds,
        }


@dataclass
class Result:
    """Both arms of one run."""

    streams: int
    chunks: int
    detector: str
    interval_ms: float
    plain: Arm
    guarded: Arm

    @property
    def added(self) -> dict[str, float]:
        """What the guard adds: milliseconds a released text, and microseconds of CPU a chunk."""
        plain, guarded = self.plain, self.guarded
        everything = self.streams * self.chunks
        return {
            "latency_p50": guarded.latency_p50 - plain.latency_p50,
            "latency_p99": guarded.latency_p99 - plain.latency_p99,
            "cpu_us_per_chunk": (guarded.cpu_seconds - plain.cpu_seconds) / everything * 1e6,
        }

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        found = asdict(self)
        for arm in ("plain", "guarded"):
            found[arm] |= getattr(self, arm).rates(self.streams, self.chunks)
        return {**found, "added": self.added}


@dataclass
class _Gathered:
    latencies: list[float] = field(default_factory=list)
    segments: int = 0
    memory: float = 0.0


def measure(
    streams: int,
    chunks_each: int,
    *,
    detector: str | None = None,
    interval: float = 0.0,
    delay: float = 0.0,
    progress: Progress = lambda done: None,
) -> Result:
    """Read ``streams`` streams of ``chunks_each`` chunks at once, unguarded and then guarded.

    They come from a source in this process through the async chat door; a chunk each ``interval``
    seconds, and where that is 0 as fast as they are read. The silent detector takes ``delay``
    seconds a verdict. Findings are flagged, so that no stream ends early. ``progress`` is called
    with the number of streams read in both arms so far.
    """
    guard = Guard(
        action="flag",
        timeout_ms=None,
        detector=Silent(delay) if detector == "silent" else detector,
    )
    if detector != "silent":
        guard.check("Loaded before anything is timed.")
    for number in range(streams):
        chunks(chunks_each, number % _KINDS)
    read = 0

    def arm(guarded: Guard | None) -> Arm:
        def done() -> None:
            nonlocal read
            read += 1
            progress(read)

        return asyncio.run(_arm(streams, chunks_each, interval, guarded, done))

    arm_plain = arm(None)
    return Result(streams, chunks_each, guard.detector.name, interval * 1000, arm_plain, arm(guard))


# Streams that begin elsewhere in the text; more would tell nothing new.
_KINDS = 16


async def _arm(
    streams: int, chunks_each: int, interval: float, guard: Guard | None, done: Callable[[], None]
) -> Arm:
    gathered = _Gathered()
    gc.collect()
    held = _memory()
    with turns() as took:
        begin, cpu = time.perf_counter(), time.process_time()
        watch = asyncio.create_task(_watch(gathered))
        readers = [
            asyncio.create_task(_read(chunks(chunks_each, n % _KINDS), interval, guard, gathered))
            for n in range(streams)
        ]
        try:
            for reader in asyncio.as_completed(readers):
                await reader
                done()
        finally:
            for task in (watch, *readers):
                task.cancel()
            await asyncio.gather(watch, *readers, return_exceptions=True)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    took.sort()
    gathered.latencies.sort()
    return Arm(
        seconds=seconds,
        cpu_seconds=cpu,
        latency_p50=percentile(gathered.latencies, 0.5) * 1000,
        latency_p99=percentile(gathered.latencies, 0.99) * 1000,
        pause=took[-1] * 1000,
        pause_p999=percentile(took, 0.999) * 1000,
        memory=None if held is None else max(0.0, gathered.memory - held),
        segments=gathered.segments,
    )


async def _read(made: Any, interval: float, guard: Guard | None, gathered: _Gathered) -> None:
    sent: list[float] = []
    stream: Any = Replay(made, interval, sent.append)
    if guard is not None:
        stream = await chat.aguard(guard.session(), stream)
    at = 0
    async for _ in stream:
        gathered.latencies.append(time.perf_counter() - sent[at])
        at += 1
    if guard is not None:
        gathered.segments += len(stream.guard)


async def _watch(gathered: _Gathered) -> None:
    while True:
        gathered.memory = max(gathered.memory, _memory() or 0.0)
        await asyncio.sleep(0.02)


def _memory() -> float | None:
    """Return the resident megabytes of this process; None where the system does not say."""
    if not _STATM.exists():
        return None
    return int(_STATM.read_text().split()[1]) * resource.getpagesize() / 1e6
