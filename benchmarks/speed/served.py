"""Measure what a served detector adds: ``python benchmarks/speed/served.py [--ray] [--json]``.

The same windows are judged in this process, by ``guard serve`` and, with ``--ray``, by the same
application on Ray Serve, in turn, round by round. 1 client judges one window after another; 64
clients each judge one in :data:`PACE` seconds, as streams do. ``ready`` is a detector whose scores,
with five references, cost nothing: what it takes is what serving adds.

The processor's time is that of this process and, apart, of all processes that serve; a window's
time in this process is taken off it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import runpy
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import psutil

from guard.cli.bench import texts_of
from guard.detect.named import detector_named
from guard.detect.protocol import Detector
from guard.detect.serving import WindowJudge
from guard.policy import DEFAULT_POINTS, Policy
from guard.server.app import ScoreServer
from guard.server.run import serve_detector
from guard.server.settings import ServerLimits
from guard.verdict import Reference, Scores, Window

PACE = 0.5  # seconds between two segments of a stream
_STATEMENT = "A statement of a bias index, as long as such statements are on the whole."
_EVERYDAY = Path(__file__).with_name("everyday.jsonl")
_EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster" / "serve_ray.py"


class Ready:
    """A detector that finds nothing, at once."""

    name, operating_points, index_version = "ready-1", DEFAULT_POINTS, "index-1"
    _near = tuple(Reference(_STATEMENT, "age", "elders", "slow", 0.5 + i / 10) for i in range(5))

    def snapshot(self) -> Ready:
        return self

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        """Return the same scores for every window."""
        return [Scores(0.1, "age", (), self._near, implied=0.25) for _ in windows]


class Arm(NamedTuple):
    """A way to have windows judged, and the processes that serve it."""

    name: str
    judge: WindowJudge
    processes: Iterable[psutil.Process]


class Cost(NamedTuple):
    """Of one round: the median of a verdict, and CPU a verdict here and in the servers; in ms."""

    p50: float
    here: float
    there: float


def own_detector(name: str) -> Detector:
    """Return the detector that is measured, in this process."""
    return Ready() if name == "ready" else detector_named(name)


def serve_on_ray(detector: str) -> None:
    """Serve as examples/cluster/serve_ray.py does, until a signal."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    example = runpy.run_path(str(_EXAMPLE))
    example["serve_until_signal"](port, lambda: ScoreServer(own_detector(detector)))


@contextmanager
def started(command: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Run a server that prints its URL as JSON; yield the URL and the process."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        while not (line := process.stdout.readline()).startswith("{"):
            if not line:
                raise SystemExit("The server ended before it listened.")
        yield json.loads(line)["url"].rstrip("/"), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def serving_processes(root: int) -> list[psutil.Process]:
    """Return a process and what it has started, such as Ray's replicas and proxies."""
    process = psutil.Process(root)
    return [process, *process.children(recursive=True)]


def processor_seconds(processes: Iterable[psutil.Process]) -> float:
    """Return the processor's time of processes so far; of those that run still."""
    total = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:2])
    return total


async def one_round(arm: Arm, windows: Sequence[Window], clients: int, seconds: float) -> Cost:
    """Have windows judged for so long."""
    took: list[float] = []
    until = time.perf_counter() + seconds

    async def client(number: int) -> None:
        choose = random.Random(number)
        due = time.perf_counter() + choose.random() * PACE
        while clients == 1 or due < until:
            if clients > 1:
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                due += PACE
            begin = time.perf_counter()
            if begin > until:
                return
            (verdict,) = await arm.judge.ajudge([choose.choice(windows)])
            took.append(time.perf_counter() - begin)
            assert verdict.unjudged in (None, "language"), verdict.unjudged

    here, there = time.process_time(), processor_seconds(arm.processes)
    await asyncio.gather(*(client(number) for number in range(clients)))
    here, there = time.process_time() - here, processor_seconds(arm.processes) - there
    count = len(took)
    return Cost(*(1000 * x for x in (statistics.median(took), here / count, there / count)))


def measured(arms: Sequence[Arm], clients: int, rounds: int, seconds: float) -> dict[str, Cost]:
    """Return the medians of all rounds for each arm; the arms take turns."""
    texts = texts_of(_EVERYDAY)
    windows = [Window(t, tuple(texts[i - 2 : i])) for i, t in enumerate(texts)][2:]
    costs: dict[str, list[Cost]] = {arm.name: [] for arm in arms}
    for turn in range(rounds + 1):
        for arm in arms:
            cost = asyncio.run(one_round(arm, windows, clients, seconds))
            if turn:  # the first warms up
                costs[arm.name].append(cost)
    return {n: Cost(*map(statistics.median, zip(*c, strict=True))) for n, c in costs.items()}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--detector", default="ready", help="ready, encoder-small, encoder, ...")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--concurrency", type=int, default=0, help="of the client")
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", choices=["uvicorn", "ray serve"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve == "ray serve":
        serve_on_ray(options.detector)
        return
    if options.serve:
        serve_detector(
            own_detector(options.detector), ServerLimits(), "127.0.0.1", 0, None, (),
            lambda place, _: print(json.dumps({"url": place.url}), flush=True),
        )  # fmt: skip
        return
    from guard.detect.served import ServedDetector
    from guard.served_settings import ServedSettings

    given = {"concurrency": options.concurrency} if options.concurrency else {}
    policy = Policy(timeout_ms=60_000)
    with ExitStack() as stack:
        arms = [Arm("in process", WindowJudge(own_detector(options.detector), policy), ())]
        for name in ("uvicorn", "ray serve") if options.ray else ("uvicorn",):
            command = [sys.executable, __file__, "--serve", name, "--detector", options.detector]
            url, process = stack.enter_context(started(command))
            served = ServedDetector(url, ServedSettings(timeout_s=60, **given))
            arms.append(Arm(name, WindowJudge(served, policy), serving_processes(process)))
        results = {c: measured(arms, c, options.rounds, options.seconds) for c in options.clients}
    if options.json:
        print(json.dumps({n: {k: c._asdict() for k, c in r.items()} for n, r in results.items()}))
        return
    print(f"{'clients':>7} {'':10} {'p50':>8} {'added':>8} {'CPU':>7} {'here':>7} {'there':>7} ms")
    for clients, costs in results.items():
        base = costs["in process"]
        for name, cost in costs.items():
            added = cost.here + cost.there - base.here
            print(
                f"{clients:7} {name:10} {cost.p50:8.3f} {cost.p50 - base.p50:8.3f} {added:7.3f} "
                f"{cost.here:7.3f} {cost.there:7.3f}"
            )


if __name__ == "__main__":
    main()
