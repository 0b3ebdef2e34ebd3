"""What every probe measures: leaks, CPU a chunk, time to the first text.

A probe runs in the environment of one system, imports nothing but that system and this module, and
prints one line of JSON. The stream is 500 chunks of one word; a sentence has twelve. The detector
is a free stub that finds one phrase of two words, each of which comes in a chunk of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

CHUNKS = 500
PHRASE = ("quagga", "vexed")
_WORDS = "the old stone bridge near a quiet river has stood for ages".split()


class Setting(NamedTuple):
    """One way to set a system up.

    ``chunk`` makes one of the system's chunks of a text, ``begin`` takes an iterator of them and
    returns the guarded one (sync or async, as ``begin`` likes; an async system is given an async
    iterator), ``text`` returns all the text in what it yields, serialised. ``positions`` is the
    number of places at which the phrase is tried.
    """

    name: str
    chunk: Callable[[str], Any]
    begin: Callable[[Any], Any]
    text: Callable[[Any], str]
    asynchronous: bool = True
    positions: int = 24


def texts(position: int | None) -> list[str]:
    """Return the stream's words; with the phrase from ``position`` on."""
    out = []
    for number in range(CHUNKS):
        word = _WORDS[number % len(_WORDS)]
        if position is not None and 0 <= number - position < len(PHRASE):
            word = PHRASE[number - position]
        within = position is not None and 0 < number - position < len(PHRASE)
        if number % len(_WORDS) == 0 and number and not within:
            out[-1] += "."
        out.append((" " if number else "") + word)
    return out


def found(text: str) -> bool:
    """Whether the phrase stands in ``text``: the stub detector."""
    return " ".join(PHRASE) in " ".join(text.lower().split()).replace(".", "")


def measure(settings: list[Setting], version: str) -> None:
    """Measure ``settings`` and print the figures; progress goes to standard error."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    rows = []
    for setting in settings:
        _check(loop, setting)
        print(f"  {setting.name}: leaks", file=sys.stderr, flush=True)
        leaks = {"whole": 0, "part": 0, "none": 0}
        step = (CHUNKS - len(PHRASE)) / max(1, setting.positions - 1)
        for number in range(setting.positions):
            leaks[_leaked(loop, setting, round(number * step))] += 1
        print(f"  {setting.name}: CPU", file=sys.stderr, flush=True)
        cost = (_cpu(loop, setting, guarded=True) - _cpu(loop, setting, guarded=False)) / CHUNKS
        print(f"  {setting.name}: first text", file=sys.stderr, flush=True)
        chunks, seconds = _first(loop, setting)
        row = {
            "setting": setting.name,
            "leaks": leaks,
            "cpu_us": cost * 1e6,
            "first_chunks": chunks,
            "first_ms": seconds * 1000,
        }
        rows.append(row)
    print(json.dumps({"version": version, "rows": rows}))


def _check(loop: Any, setting: Setting) -> None:
    """Stop unless harmless text comes through whole: else what is measured is an error."""
    seen: list[str] = []
    _read(loop, setting, texts(None), lambda out: seen.append(setting.text(out)) or False)
    # In whichever of its chunks: some give all of the text in one of them.
    said = "".join(seen).lower()
    due = Counter(_WORDS[number % len(_WORDS)] for number in range(CHUNKS))
    if any(said.count(word) < times for word, times in due.items()):
        raise SystemExit(f"{setting.name}: harmless text did not come through: {seen[-1][:300]}")


def _leaked(loop: Any, setting: Setting, position: int) -> str:
    seen: list[str] = []
    try:
        _read(loop, setting, texts(position), lambda out: seen.append(setting.text(out)) or False)
    except Exception as error:
        seen.append(str(error))
    out = "\n".join(seen).lower()
    shown = sum(word in out for word in PHRASE)
    return ("none", "part", "whole")[shown]


def _cpu(loop: Any, setting: Setting, *, guarded: bool) -> float:
    """Return the CPU seconds of a harmless stream, chunks made before; the best of five."""
    best = float("inf")
    for _ in range(5):
        chunks = [setting.chunk(text) for text in texts(None)]
        source = _asource(chunks) if setting.asynchronous else iter(chunks)
        stream = setting.begin(source) if guarded else source
        begin = time.process_time()
        _drain(loop, setting, stream, lambda _: False)
        best = min(best, time.process_time() - begin)
    return best


def _first(loop: Any, setting: Setting, interval: float = 0.01) -> tuple[int, float]:
    """Return how many chunks had come, and seconds gone, when the first text was out."""
    came = 0

    def source() -> Iterator[Any]:
        nonlocal came
        for text in texts(None):
            time.sleep(interval)
            came += 1
            yield setting.chunk(text)

    async def asource() -> Any:
        nonlocal came
        for text in texts(None):
            await asyncio.sleep(interval)
            came += 1
            yield setting.chunk(text)

    first = _WORDS[0]
    stream = setting.begin(asource() if setting.asynchronous else source())
    begin = time.perf_counter()
    _drain(loop, setting, stream, lambda out: first in setting.text(out).lower())
    return came, time.perf_counter() - begin


def _read(loop: Any, setting: Setting, words: list[str], until: Callable[[Any], bool]) -> None:
    chunks = [setting.chunk(text) for text in words]
    source = _asource(chunks) if setting.asynchronous else iter(chunks)
    _drain(loop, setting, setting.begin(source), until)


def _drain(loop: Any, setting: Setting, stream: Any, until: Callable[[Any], bool]) -> None:
    async def adrain() -> None:
        opened = await stream if inspect.isawaitable(stream) else stream
        async for out in opened:
            if until(out):
                break

    if setting.asynchronous:
        loop.run_until_complete(adrain())
        return
    for out in stream:
        if until(out):
            break


async def _asource(chunks: list[Any]) -> Any:
    for chunk in chunks:
        yield chunk
