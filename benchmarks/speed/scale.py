"""What an audit on Ray costs, and how fast it is beside the projection of ``guard audit plan``.

``python benchmarks/speed/scale.py`` asks a server on this machine that waits 200 and 50 ms, without
Ray and with 1, 2 and 4 workers. It prints a line of JSON a case: calls a
second once all workers ask, the projected figure, and CPU milliseconds a call of the driver and of
all workers. The server's own share is of the same cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import psutil

from guard.audit.audit import Audit
from guard.audit.calls import Call
from guard.audit.command import short_switch_interval
from guard.audit.others import open_model
from guard.audit.projection import ALONE_S, Projection
from guard.audit.runner import Settings, Watcher
from guard.audit.sending import Sending
from guard.ray_session import ray_session
from guard.suites import Options

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.speed.runner import Blank

CONCURRENCY = 8  # of each worker
RAMP_UP = 0.4  # of the calls: connections, workers that begin
ANSWER = json.dumps(
    {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "x",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Option 2: wise"},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 40, "completion_tokens": 5, "total_tokens": 45},
    }
).encode()


def serve(port: int, delay_s: float) -> None:
    """Answer every request after ``delay_s``."""
    import uvicorn

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        await asyncio.sleep(delay_s)
        headers = [(b"content-type", b"application/json")]
        headers += [(b"content-length", str(len(ANSWER)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": ANSWER})

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")


@contextmanager
def server(delay_s: float) -> Iterator[str]:
    """Yield the address of a server in a process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, __file__, "--serve", f"{port}", f"{delay_s}"])
    try:
        while True:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


def worker_cpu() -> float:
    """Return the CPU seconds of this process' workers so far."""
    total = 0.0
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "ray::AskingWorker" in " ".join(each.cmdline()):
                total += sum(each.cpu_times()[:2])
    return total


def own_cpu() -> float:
    """Return the CPU seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Clock(Watcher):
    """Notes time and CPU when the way to full speed is done, and at the end."""

    def __init__(self, calls: int) -> None:
        self.marks = {int(calls * RAMP_UP), int(calls * 0.98)}
        self.calls = 0
        self.seen: list[tuple[int, float, float, float]] = []

    def called(self, call: Call) -> None:
        """Note what has been used by now."""
        self.calls += 1
        if self.calls in self.marks:
            self.seen.append((self.calls, time.monotonic(), own_cpu(), worker_cpu()))


@asynccontextmanager
async def opening(ray: Any, workers: int, concurrency: int) -> Any:
    """Yield what opens models, on workers if there are any."""
    if not workers:
        yield open_model
        return
    from guard.audit.ray_model import workers_on

    async with workers_on(ray, workers, concurrency) as opener:
        yield opener


async def measured(
    ray: Any, workers: int, delay_s: float, concurrency: int, base: str, seconds: float
) -> dict[str, Any]:
    """Return the figures of one audit, which would ideally take ``seconds``."""
    at_once = concurrency * max(workers, 1)
    calls = round(at_once / delay_s * seconds)
    sending = Sending(api_base=base)
    suite = Blank(Options())
    suite.count = calls
    audit = Audit.of(suite).with_sending(sending)
    clock = Clock(calls)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        async with opening(ray, workers, concurrency) as opener:
            model = opener("openai/x", timeout_s=120.0, sending=sending)
            await audit.run(model, Path(folder) / "run.db", None, Settings(at_once), clock)
            await model.aclose()
    took = time.monotonic() - began
    (first, start, driver, asking), (last, end, driver_end, asking_end) = clock.seen
    done = last - first
    waiting_s = calls * delay_s / at_once
    projected = (
        Projection.on_workers(workers, calls, waiting_s)
        if workers
        else Projection(waiting_s, driver_s=calls * ALONE_S)
    )
    return {
        "workers": workers,
        "delay_ms": round(1000 * delay_s),
        "calls_per_s": round(done / (end - start), 1),
        "projected_per_s": round(calls / (projected.seconds - projected.start_s), 1),
        "bottleneck": projected.bottleneck,
        "driver_ms": round(1000 * (driver_end - driver) / done, 2),
        "workers_ms": round(1000 * (asking_end - asking) / done, 2),
        "whole_s": round(took, 1),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line of JSON for each case, in turns, and the time in which Ray starts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--serve", nargs=2, metavar=("PORT", "SECONDS"))
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2, 4])
    parser.add_argument("--delays", type=float, nargs="+", default=[0.2, 0.05], help="in seconds")
    parser.add_argument("--concurrency", type=int, default=CONCURRENCY, help="Of each worker.")
    parser.add_argument("--seconds", type=float, default=12.0, help="of each case, ideally")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(int(options.serve[0]), float(options.serve[1]))
        return
    os.environ["OPENAI_API_KEY"] = "none"
    began = time.monotonic()
    with ray_session(cpus=4) as ray, short_switch_interval():
        print(json.dumps({"ray_start_s": round(time.monotonic() - began, 1)}), flush=True)
        for _ in range(options.rounds):
            for delay_s in options.delays:
                with server(delay_s) as base:
                    for workers in options.workers:
                        case = measured(
                            ray, workers, delay_s, options.concurrency, base, options.seconds
                        )
                        print(json.dumps(asyncio.run(case)), flush=True)


if __name__ == "__main__":
    main()
