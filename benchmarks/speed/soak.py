"""Look for what streams leave behind: ``python benchmarks/speed/soak.py [--streams N] [--json]``.

Short streams, sync and async in turn, come through LiteLLM from a provider in a process of its own
over HTTP, or with ``--source memory`` from a provider in this process, which is quicker. Some are
read to their end, some are stopped by the guard, some fail at the provider or in the detector,
some are left by their reader, cancelled, or never read at all. After the first ``--settle`` streams
and at the end the process's tasks, threads, open files and memory are counted. With ``--plain`` the
same streams are read without the guard, to tell what LiteLLM itself leaves.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import litellm
from litellm.types.utils import Delta, ModelResponseStream, StreamingChoices

from guard import Guard
from guard.policy import DEFAULT_POINTS
from guard.verdict import Attribution, Scores, Span, Window

# How a stream goes, in turn; the model's name tells the provider.
WAYS = ("read", "stopped", "fails", "detector fails", "left", "cancelled", "never read", "closed")
SAID = {
    "stopped": "All is well here. They BIAS all of them, you know. And so it goes on. ",
    "fails": "All is well here. Then the line ",
    "detector fails": "All is well here. This one BREAKS it. And so it goes on. ",
}
USUAL = "All is well here. The kettle is on, and the bread is warm. Nothing else is new. "
TOGETHER = 20
WAIT = 10.0  # seconds for what is being closed to be gone


class Finds:
    """A detector that finds one word and fails on another."""

    name = "finds-1"
    operating_points = DEFAULT_POINTS
    index_version = None

    def snapshot(self) -> Finds:
        return self

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        return [self._score(window.text) for window in windows]

    def _score(self, text: str) -> Scores:
        if "BREAKS" in text:
            raise RuntimeError
        at = text.find("BIAS")
        if at < 0:
            return Scores(0.1, "social")
        place = Span(at, at + 4)
        return Scores(0.9, "gender", (Attribution("BIAS", "BIAS", place, place),))


@dataclass
class Left:
    """What the process holds; ``judges`` are the guard's own threads, memory is megabytes."""

    streams: int
    tasks: int
    threads: int
    judges: int
    files: int
    memory: float


async def provide() -> None:
    """Serve chat streams on a free port of 127.0.0.1, which is printed."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(Exception):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                )
                way = json.loads(await reader.readexactly(length))["model"].replace("_", " ")
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                    b"Transfer-Encoding: chunked\r\n\r\n"
                )
                for event in events(way):
                    data = event.encode()
                    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                    await writer.drain()
                if way == "fails":
                    break
                writer.write(b"0\r\n\r\n")
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def events(way: str) -> list[str]:
    """Return the events of one stream, of a few characters each."""
    text = SAID.get(way, USUAL)
    deltas = [{"content": text[i : i + 8]} for i in range(0, len(text), 8)]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    if way != "fails":
        choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    made = [f"data: {json.dumps({**head, 'choices': [choice]})}\n\n" for choice in choices]
    return made if way == "fails" else [*made, "data: [DONE]\n\n"]


class Memory(litellm.CustomLLM):
    """The same streams from a provider in this process."""

    def streaming(self, model: str, *args: Any, **kwargs: Any) -> Iterator[Any]:
        return self._chunks(model)

    async def astreaming(self, model: str, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        for chunk in self._chunks(model):
            await asyncio.sleep(0)
            yield chunk

    def _chunks(self, model: str) -> Iterator[Any]:
        way = model.replace("_", " ")
        text = SAID.get(way, USUAL)
        for i in range(0, len(text), 8):
            yield said(text[i : i + 8])
        if way == "fails":
            raise ConnectionError
        yield said(None, "stop")


def said(text: str | None, finish: str | None = None) -> ModelResponseStream:
    """Return a chunk of LiteLLM's."""
    choice = StreamingChoices(index=0, delta=Delta(content=text), finish_reason=finish)
    return ModelResponseStream(id="chatcmpl-1", created=1, model="m", choices=[choice])


class Soak:
    """Reads streams in every way there is and counts how they ended."""

    def __init__(self, base: str | None, guard: Guard | None) -> None:
        self.ends: Counter[str] = Counter()
        self._calls: Any = litellm if guard is None else guard
        self._base = base

    def _call(self, way: str) -> dict[str, Any]:
        model = way.replace(" ", "_")
        call = {"messages": [{"role": "user", "content": "Tell me."}], "stream": True}
        if self._base is None:
            return {"model": f"soak/{model}", **call}
        http = {"api_base": self._base, "api_key": "none", "max_retries": 0}
        return {"model": f"openai/{model}", **call, **http}

    def read(self, way: str) -> None:
        """Read one stream."""
        end = "ended"
        try:
            stream = self._calls.completion(**self._call(way))
            if way == "never read":
                self.ends[f"{way}: ended"] += 1
                return
            for number, chunk in enumerate(stream):
                if chunk.choices and chunk.choices[0].finish_reason == "content_filter":
                    end = "stopped"
                if way in ("left", "cancelled") and number == 2:
                    end = "left"
                    break
                if way == "closed" and number == 2 and hasattr(stream, "close"):
                    stream.close()
        except Exception as error:
            end = type(error).__name__
        self.ends[f"{way}: {end}"] += 1

    async def aread(self, way: str) -> None:
        """Read one async stream."""
        end = "ended"
        try:
            stream = await self._calls.acompletion(**self._call(way))
            if way == "never read":
                self.ends[f"{way}: ended"] += 1
                return
            if way == "cancelled":
                end = await self._cancelled(stream)
                self.ends[f"{way}: {end}"] += 1
                return
            number = 0
            async for chunk in stream:
                number += 1
                if chunk.choices and chunk.choices[0].finish_reason == "content_filter":
                    end = "stopped"
                if way == "left" and number == 3:
                    end = "left"
                    break
                if way == "closed" and number == 3:
                    await stream.aclose()
                    end = "closed"
                    break
        except Exception as error:
            end = type(error).__name__
        self.ends[f"{way}: {end}"] += 1

    async def _cancelled(self, stream: Any) -> str:
        async def read() -> None:
            async for _ in stream:
                pass

        task = asyncio.create_task(read())
        await asyncio.sleep(0.001)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return "cancelled"
        return "ended"

    async def some(self, begin: int, count: int) -> None:
        """Read streams ``begin`` to ``begin + count``, half of them on the loop."""
        numbers = range(begin, begin + count)
        ways = [WAYS[(n // 2) % len(WAYS)] for n in numbers]
        later = [w for n, w in zip(numbers, ways, strict=True) if n % 2]
        here = [w for n, w in zip(numbers, ways, strict=True) if not n % 2]

        def read_all(mine: Sequence[str]) -> None:
            for way in mine:
                self.read(way)

        await asyncio.gather(
            *(self.aread(way) for way in later),
            *(asyncio.to_thread(read_all, here[i::2]) for i in range(2)),
        )


def _judges() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "guard-judge"}


async def left(streams: int, others: Set[threading.Thread]) -> Left:
    """Count what is held once everything that is being closed is gone.

    ``others`` are threads of guards that were there before.
    """
    until, before = time.monotonic() + WAIT, None
    while True:
        gc.collect()
        await asyncio.sleep(0.5)
        files = len(os.listdir("/proc/self/fd"))
        judges = len(_judges() - others)
        now = (len(asyncio.all_tasks()), threading.active_count(), judges, files)
        if now == before or time.monotonic() > until:
            break
        before = now
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Left(streams, *now, pages * resource.getpagesize() / 1e6)


async def soak(base: str | None, streams: int, settle: int, plain: bool) -> dict[str, Any]:
    """Read ``streams`` streams; return what was held after ``settle`` of them and at the end."""
    others = _judges()
    run = Soak(base, None if plain else Guard(detector=Finds(), breaker_failures=None))
    begin, marks = time.perf_counter(), []
    step = 2 * TOGETHER
    for at in range(0, streams, step):
        await run.some(at, min(step, streams - at))
        done = min(at + step, streams)
        if done == streams or done // settle > at // settle:
            marks.append(await left(done, others))
            print(marks[-1], file=sys.stderr, flush=True)
    return {
        "seconds": time.perf_counter() - begin,
        "ends": dict(sorted(run.ends.items())),
        "marks": [asdict(mark) for mark in marks],
    }


def over_http(options: argparse.Namespace) -> dict[str, Any]:
    """Run the soak beside a provider in a process of its own."""
    with subprocess.Popen(
        [sys.executable, __file__, "--provide"], stdout=subprocess.PIPE, text=True
    ) as provider:
        try:
            assert provider.stdout is not None
            base = f"http://127.0.0.1:{provider.stdout.readline().strip()}/v1"
            return asyncio.run(soak(base, options.streams, options.settle, options.plain))
        finally:
            provider.terminate()


def main() -> None:
    """Run the soak, and print what it left."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--streams", type=int, default=20_000)
    parser.add_argument("--settle", type=int, default=1000, help="streams before the first count")
    parser.add_argument("--plain", action="store_true", help="without the guard")
    parser.add_argument("--source", choices=["http", "memory"], default="http")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--provide", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.provide:
        asyncio.run(provide())
        return
    litellm.suppress_debug_info = True
    litellm.custom_provider_map = [{"provider": "soak", "custom_handler": Memory()}]
    if options.source == "memory":
        found = asyncio.run(soak(None, options.streams, options.settle, options.plain))
    else:
        found = over_http(options)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for way, count in found["ends"].items():
        print(f"{way:40} {count:7}")
    for mark in found["marks"]:
        print(
            f"{mark['streams']:7} streams: {mark['tasks']} tasks, {mark['threads']} threads "
            f"({mark['judges']} of the guard), "
            f"{mark['files']} files, {mark['memory']:.1f} MB"
        )


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
