"""Read many streams at once, unguarded and guarded: ``python benchmarks/speed/streams.py --help``.

They come from a source in this process through the async chat door.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from door import Replay, Silent, chunks

from guard.bench import percentile
from guard.core import Guard
from guard.doors import chat
from guard.verdict import Scores, Window

_STATM = Path("/proc/self/statm")


class Paced(Replay):
    """A replay whose chunk is there ``interval`` seconds after the one before, asked for or not.

    So it is with a provider whose chunks wait in a socket; 0 has them there at once. ``sent`` is
    called with the time at which each was given (``time.perf_counter()``).
    """

    def __init__(self, made: Sequence[Any], interval: float, sent: Callable[[float], None]) -> None:
        super().__init__(made)
        self._interval = interval
        self._due = 0.0  # when the next chunk is there
        self._sent = sent

    async def __anext__(self) -> Any:
        if self._interval:
            self._due = (self._due or time.perf_counter()) + self._interval
        await asyncio.sleep(max(0.0, self._due - time.perf_counter()))
        chunk = await super().__anext__()
        self._sent(time.perf_counter())
        return chunk


class Slow(Silent):
    """A detector that finds nothing and takes ``delay`` seconds a window."""

    def __init__(self, delay: float) -> None:
        self._delay = delay

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        """Return the lowest score of each."""
        if self._delay:
            time.sleep(self._delay * len(windows))
        return super().score(windows)


@contextmanager
def turns() -> Iterator[list[float]]:
    """Gather the seconds of every turn of an event loop within, asyncio's own alone.

    A turn is one callback, or one step of a task up to where it waits. Time in which another
    thread or process had the processor counts, as it does for whoever waits for the loop.
    """
    gathered: list[float] = []
    run: Any = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        begin = time.perf_counter()
        run(handle)
        gathered.append(time.perf_counter() - begin)

    handles: Any = asyncio.Handle
    handles._run = timed
    try:
        yield gathered
    finally:
        handles._run = run


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
) -> Result:
    """Read ``streams`` streams of ``chunks_each`` chunks at once, unguarded and then guarded.

    They come from a source in this process through the async chat door; a chunk each ``interval``
    seconds, and where that is 0 as fast as they are read. The silent detector takes ``delay``
    seconds a verdict. Findings are flagged, so that no stream ends early.
    """
    guard = Guard(
        action="flag",
        timeout_ms=None,
        detector=Slow(delay) if detector == "silent" else detector,
    )
    if detector != "silent":
        guard.check("Loaded before anything is timed.")
    for number in range(streams):
        chunks(chunks_each, number % _KINDS)
    plain, guarded = (
        asyncio.run(_arm(streams, chunks_each, interval, one)) for one in (None, guard)
    )
    return Result(streams, chunks_each, guard.detector.name, interval * 1000, plain, guarded)


# Streams that begin elsewhere in the text; more would tell nothing new.
_KINDS = 16


async def _arm(streams: int, chunks_each: int, interval: float, guard: Guard | None) -> Arm:
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
            await asyncio.gather(*readers)
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
    stream: Any = Paced(made, interval, sent.append)
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


def _milliseconds(name: str, help: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    time = click.FloatRange(0)
    return click.option(name, type=time, default=0.0, show_default=True, metavar="MS", help=help)


@click.command()
@click.option("--streams", type=click.IntRange(1), default=500, show_default=True)
@click.option(
    "--chunks", type=click.IntRange(2), default=200, show_default=True, help="Of each stream."
)
@click.option(
    "--detector",
    metavar="NAME",
    help="encoder, encoder-small, or silent, which finds nothing at no cost, so that gate and "
    "door are left.",
)
@_milliseconds("--interval", "Time between the chunks of a stream; 0 for as fast as they are read.")
@_milliseconds(
    "--delay",
    "Time that the silent detector takes for a verdict: what a slow one adds to a stream.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(
    streams: int, chunks: int, detector: str | None, interval: float, delay: float, as_json: bool
) -> None:
    """Read many streams at once through the async chat door, unguarded and guarded."""
    if delay and detector != "silent":
        raise click.UsageError("--delay is the silent detector's; give --detector silent as well.")
    # What libraries print is no result.
    with redirect_stdout(sys.stderr):
        result = measure(
            streams, chunks, detector=detector, interval=interval / 1000, delay=delay / 1000
        )
    if as_json:
        click.echo(json.dumps(result.as_dict()))
    else:
        _show(result)


def _show(result: Result) -> None:
    plain, guarded, added = result.plain, result.guarded, result.added

    def row(name: str, one: object, other: object, more: object = "") -> None:
        cells = [f"{c:,.2f}" if isinstance(c, float) else str(c) for c in (one, other, more)]
        click.echo(f"{name:34} {cells[0]:>12} {cells[1]:>12} {cells[2]:>12}".rstrip())

    click.echo(
        f"{result.streams} streams of {result.chunks} chunks at once, detector {result.detector}"
    )
    row("", "plain", "guarded", "added")
    row(
        "latency of a text, median, ms",
        plain.latency_p50,
        guarded.latency_p50,
        added["latency_p50"],
    )
    row("  99th percentile", plain.latency_p99, guarded.latency_p99, added["latency_p99"])
    row("seconds in all", plain.seconds, guarded.seconds, guarded.seconds - plain.seconds)
    for name, value in plain.rates(result.streams, result.chunks).items():
        row(name, value, guarded.rates(result.streams, result.chunks)[name])
    mine, its = (a.cpu_seconds / result.streams / result.chunks * 1e6 for a in (plain, guarded))
    row("CPU a chunk, us", mine, its, added["cpu_us_per_chunk"])
    if plain.memory is not None and guarded.memory is not None:
        row("memory beyond that before, MB", plain.memory, guarded.memory)
    row("longest turn of the loop, ms", plain.pause, guarded.pause)
    row("  99.9th percentile", plain.pause_p999, guarded.pause_p999)


if __name__ == "__main__":
    main()
