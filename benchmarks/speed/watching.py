"""Measure the watching: ``python benchmarks/speed/watching.py report|page|logging [--store URL]``.

``report`` fills a store with events and times ``guard rates --by model,bias_type`` over it;
``page`` does and times the pages of ``guard dashboard``.
``logging`` reads guarded streams at once, with and without a store in turn, and compares the
processor's time of the whole process, the writer's included.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from guard import Guard
from guard.verdict import BIAS_TYPES
from guard.watch.rates import report
from guard.watch.store import Store

_SAID = (
    "A guide reads the plan first. Then she asks what is missing from it. "
    "The answers come back within a day or two. Most of them are short. "
    "What is still open goes into a list. The list is read aloud on Friday. "
)
_SEGMENTS = 8  # of a response
_BIASED = 0.03


def fill(url: str, events: int) -> None:
    """Write so many events of a week, eight a response."""
    chance = random.Random(0)
    store = Store(url)
    store.prepare()
    now = time.time()
    lot = 2_000
    for begin in range(0, events // _SEGMENTS, lot):
        ended: list[dict[str, Any]] = []
        rows: list[dict[str, Any]] = []
        for number in range(begin, min(begin + lot, events // _SEGMENTS)):
            at = now - 604_000 * (1 - number * _SEGMENTS / events)
            kinds = [
                chance.choice(BIAS_TYPES) if chance.random() < _BIASED else None
                for _ in range(_SEGMENTS)
            ]
            found = _SEGMENTS - kinds.count(None)
            ended.append(_response(number, at, chance, found))
            rows += [_event(number, place, at, kind) for place, kind in enumerate(kinds)]
        store.write([], [], rows, ended)
    store.disconnect()


def _response(number: int, at: float, chance: random.Random, found: int) -> dict[str, Any]:
    return {
        "id": f"{number:032x}",
        "time": at,
        "door": "chat",
        "model": f"provider/model-{chance.randrange(6)}",
        "request_id": f"{chance.getrandbits(128):032x}",
        "settings": "0" * 16,
        "detector": "encoder",
        "index_version": "1",
        "labels": {"tenant": f"t{chance.randrange(50)}", "release": "7"},
        "outcome": "completed",
        "judged": _SEGMENTS,
        "passed": _SEGMENTS - found,
        "found": found,
        "mitigated": found,
        "unjudged": 0,
        "rewrites": 0,
        "characters_seen": 480,
        "characters_withheld": 60 * found,
        "judging_ms": 60.0,
    }


def _event(number: int, place: int, at: float, kind: str | None) -> dict[str, Any]:
    return {
        "response_id": f"{number:032x}",
        "number": place,
        "time": at,
        "action": "redact" if kind else "pass",
        "unjudged": None,
        "bias_type": kind,
        "group_name": "women" if kind else None,
        "attribute_name": "hmac:000000000000000000000000" if kind else None,
        "score": 0.9 if kind else 0.1,
        "threshold": 0.5,
        "counted": True,
        "channel": "content",
        "choice": 0,
        "tool": 0,
        "start": 60 * place,
        "end": 60 * place + 60,
        "judging_ms": 7.5,
        "text": None,
    }


def measure_report(url: str, events: int) -> None:
    """Print how long a report takes, by the clock and by the processor."""
    fill(url, events)
    for by in ((), ("model", "bias_type"), ("tenant",), ("model", "group")):
        clock, processor = time.perf_counter(), time.process_time()
        with Store(url).reading() as connection:
            found = report(connection, time.time() - 604_800, time.time(), by)
        took, used = time.perf_counter() - clock, time.process_time() - processor
        name = ",".join(by) or "(nothing)"
        print(f"{events:,} events by {name:16} {took:7.2f} s {used:7.2f} s CPU {len(found.lines)}")


def measure_page(url: str, events: int) -> None:
    """Print how long pages of the dashboard take, the first of a new process first."""
    from starlette.testclient import TestClient

    from guard.watch.dashboard.access import Rules
    from guard.watch.dashboard.app import application

    fill(url, events)
    reader = TestClient(application(Store(url), Rules()), base_url="http://localhost")
    week = "range=7d"
    for path in (
        *("/", f"/?{week}", f"/?{week}&by=bias_type", f"/?{week}&by=group&tenant=t7"),
        *(f"/responses?{week}", f"/responses?{week}&bias_type=age", "/review"),
    ):
        clock, processor = time.perf_counter(), time.process_time()
        answer = reader.get(path)
        took, used = time.perf_counter() - clock, time.process_time() - processor
        print(f"{events:,} events {path:36} {answer.status_code} {took:7.2f} s {used:7.2f} s CPU")


def measure_logging(url: str, streams: int, rounds: int, detector: str) -> None:
    """Print the processor's time of guarded streams with a store and without, and their ratio."""
    guards = {
        "plain": Guard(detector=detector, events="none"),
        "logged": Guard(detector=detector, events=url, labels={"tenant": "a"}),
    }
    used: dict[str, list[float]] = {name: [] for name in guards}
    for number in range(rounds + 1):
        for name, guard in guards.items() if number % 2 else reversed(guards.items()):
            began = time.process_time()
            asyncio.run(_read(guard, streams))
            if name == "logged":
                recorder: Any = guard.recorder
                recorder.writer.flush(60)
            if number:  # the first round warms up
                used[name].append(time.process_time() - began)
    for name, times in used.items():
        print(f"{name:8} {statistics.median(times):7.3f} s CPU for {streams} streams at once")
    ratios = [a / b for a, b in zip(used["logged"], used["plain"], strict=True)]
    print(f"added {100 * (statistics.median(ratios) - 1):.2f} %, median of {rounds} rounds")


async def _read(guard: Guard, streams: int) -> None:
    async def one(number: int) -> None:
        async def texts() -> AsyncIterator[str]:
            for word in f"Of number {number}: {_SAID}".split(" "):
                yield f"{word} "

        async for _ in guard.astream(texts()):
            pass

    await asyncio.gather(*(one(number) for number in range(streams)))


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["report", "page", "logging"])
    parser.add_argument("--store", help="a URL; by default a file that is deleted afterwards")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--detector", default="encoder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.store or f"sqlite:///{Path(folder) / 'guard.db'}"
        if given.what == "report":
            measure_report(url, given.events)
        elif given.what == "page":
            measure_page(url, given.events)
        else:
            measure_logging(url, given.streams, given.rounds, given.detector)


if __name__ == "__main__":
    main()
