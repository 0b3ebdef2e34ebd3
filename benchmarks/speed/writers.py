"""Many processes write to one store: ``python benchmarks/speed/writers.py --store URL``.

Each of ``--processes`` sends responses of eight decisions through a writer of its own, as fast as
it can or at its part of ``--rate`` events a second. Prints events a second, rows against events
sent, and the processor's time of the writers, and of PostgreSQL if it runs on this machine.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import psutil
from sqlalchemy import func, select, text

from guard.policy import Policy
from guard.verdict import Channel, Decision, Span, Verdict
from guard.watch import schema
from guard.watch.events import Decided, Ended, ResponseStart
from guard.watch.store import Store
from guard.watch.writer import QUEUE, Writer

_SEGMENTS = 8  # of a response
_BIASED = 0.03
_CLOSE_S = 600.0


def response_items(policy: Policy) -> Iterator[Decided | Ended]:
    """Yield what a guarded response sends: its decisions and its end."""
    start = ResponseStart(
        secrets.token_hex(16), "chat", "provider/model", secrets.token_hex(16), policy
    )
    began, biased = time.time(), 0
    for number in range(_SEGMENTS):
        bias = random.random() < _BIASED
        biased += bias
        verdict = Verdict(
            bias, 0.9 if bias else 0.1, 0.5, "gender" if bias else None, (), (), "encoder", "1", 7.5
        )
        decision = Decision(
            verdict=verdict,
            action="redact" if bias else "pass",
            channel=Channel(0, "content"),
            span=Span(60 * number, 60 * number + 60),
            time=datetime.now(timezone.utc),
        )
        yield Decided(start, number, decision, None, "never", None)
    counts = {"judged": _SEGMENTS, "passed": _SEGMENTS - biased, "found": biased}
    withheld = {"mitigated": biased, "characters_seen": 480, "characters_withheld": 60 * biased}
    other = {"unjudged": 0, "rewrites": 0, "judging_ms": 60.0, "outcome": "completed"}
    yield Ended(start, began, {**counts, **withheld, **other})


def send(url: str, responses: int, rate: float) -> None:
    """Send responses once a line comes in, and print what it took; a full queue is waited for."""
    store = Store(url)
    store.prepare()
    writer, policy = Writer(store), Policy(labels={"tenant": "t1"})
    print("ready", flush=True)
    sys.stdin.readline()
    began, used = time.monotonic(), time.process_time()
    for number in range(responses):
        due = began + number * _SEGMENTS / rate if rate else 0.0
        if (early := due - time.monotonic()) > 0:
            time.sleep(max(early, 0.05))
        while writer._queue.qsize() > QUEUE - 2 * _SEGMENTS:
            time.sleep(0.01)
        for item in response_items(policy):
            writer.put(item)
    writer.close(_CLOSE_S)
    used = time.process_time() - used
    print(json.dumps({"dropped": writer.dropped, "cpu_s": used}), flush=True)


class Senders:
    """Processes that send at once, each its part of the responses and of the rate."""

    def __init__(self, url: str, processes: int, responses: int, rate: float = 0.0) -> None:
        command = [sys.executable, __file__, "--store", url, "--send"]
        parts = ["--responses", str(responses // processes), "--rate", str(rate / processes)]
        self.responses = responses // processes * processes
        self._processes = [
            subprocess.Popen(
                [*command, *parts], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for _ in range(processes)
        ]

    def begin(self) -> None:
        """Let all begin, once all have opened the store."""
        for process in self._processes:
            assert process.stdout is not None
            process.stdout.readline()
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()

    def wait(self) -> tuple[int, float]:
        """Return how many events all dropped, and their processor's time in seconds."""
        said = [json.loads(process.communicate()[0]) for process in self._processes]
        return sum(one["dropped"] for one in said), sum(one["cpu_s"] for one in said)


def _server_cpu_s(url: str) -> float:
    """Return the processor's time of a PostgreSQL on this machine, in seconds; 0 for others."""
    with Store(url).reading() as connection:
        backend = connection.execute(text("SELECT pg_backend_pid()")).scalar()

    try:
        parent = psutil.Process(backend).parent()
        mine = [] if parent is None else [parent, *parent.children()]
        return float(sum(sum(each.cpu_times()[:4]) for each in mine))
    except psutil.NoSuchProcess:  # it runs elsewhere, or one of its processes has just ended
        return 0.0


def counted(url: str) -> dict[str, Any]:
    """Return how many events and completed responses a store has, and reported as dropped."""
    responses, events, drops = schema.responses, schema.events, schema.drops
    completed = select(func.count()).where(responses.c.outcome == "completed")
    with Store(url).reading() as connection:
        return {
            "events": connection.scalar(select(func.count()).select_from(events)),
            "responses": connection.scalar(completed),
            "dropped": connection.scalar(select(func.coalesce(func.sum(drops.c.events), 0))),
        }


def main() -> None:
    """Measure, or send as one of the processes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", required=True, help="the URL of an empty PostgreSQL database")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--responses", type=int, default=20_000, help="of eight decisions each")
    parser.add_argument("--rate", type=float, default=0.0, help="events a second, all together")
    parser.add_argument("--send", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.send:
        send(options.store, options.responses, options.rate)
        return
    Store(options.store).prepare()
    before, used_before = counted(options.store)["events"], _server_cpu_s(options.store)
    senders = Senders(options.store, options.processes, options.responses, options.rate)
    senders.begin()
    began = time.monotonic()
    dropped, used = senders.wait()
    took, events = time.monotonic() - began, senders.responses * _SEGMENTS
    figures = {
        "events": events,
        "rows": counted(options.store)["events"] - before,
        "dropped": dropped,
        "events_a_second": round(events / took),
        "writers_cpu_us_an_event": round(1e6 * used / events, 1),
        "server_cpu_us_an_event": round(
            1e6 * (_server_cpu_s(options.store) - used_before) / events, 1
        ),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
