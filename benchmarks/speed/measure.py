"""Measure the guard itself: ``python benchmarks/speed/measure.py [--texts FILE] [--json]``.

Figures of one machine mean little alone, so each stands beside its bound, or beside what LiteLLM
costs in the same run. ``--texts`` names JSON lines with a ``comment`` or ``text`` to judge, one
window a line; without it the negatives and pairs written for training are judged.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import litellm

from guard import Guard
from guard.gate import split
from guard.policy import DEFAULT_POINTS
from guard.verdict import Scores, Window

ROOT = Path(__file__).parents[2]


class Figure(NamedTuple):
    """One measured value beside its bound."""

    name: str
    value: float
    unit: str
    bound: str


class Silent:
    """A detector that finds nothing and costs nothing: what is left is gate and door."""

    name = "silent"
    operating_points = DEFAULT_POINTS
    index_version = ""

    def snapshot(self) -> Silent:
        return self

    def score(self, windows: list[Window]) -> list[Scores]:
        return [Scores(0.0, "social")] * len(windows)


def cpu(run: Callable[[], Any]) -> float:
    """Return the CPU seconds that ``run`` takes, the best of five."""
    best = float("inf")
    for _ in range(5):
        begin = time.process_time()
        run()
        best = min(best, time.process_time() - begin)
    return best


def start() -> list[Figure]:
    """Time a fresh interpreter, less one that does nothing."""

    def wall(code: list[str]) -> float:
        times = []
        for _ in range(7):
            begin = time.perf_counter()
            subprocess.run([sys.executable, *code], check=True, stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - begin)
        return statistics.median(times) * 1000

    nothing = wall(["-c", "pass"])
    return [
        Figure("import guard", wall(["-c", "import guard"]) - nothing, "ms", "< 100"),
        Figure("guard --help", wall(["-m", "guard", "--help"]), "ms", "< 300"),
    ]


def doors() -> list[Figure]:
    """Time a guarded stream of 500 chunks, none of them found, against LiteLLM's own."""
    answer = "The quick brown fox jumps over the lazy dog near the old stone bridge. " * 21
    call = {"model": "openai/m", "messages": [{"role": "user", "content": "?"}], "stream": True}
    plain = list(litellm.completion(**call, mock_response=answer))
    guard = Guard(detector=Silent(), timeout_ms=None)

    def through(replay: bool) -> Callable[[], Any]:
        from guard.doors.chat import guard as door

        def run() -> None:
            stream = litellm.completion(**call, mock_response=answer)
            if replay:
                stream.__class__ = _Replay
                stream.prebuilt = iter(plain)
            for _ in door(guard.session(), stream):
                pass

        return run

    guarded = cpu(through(replay=True)) / len(plain) * 1e6
    call_alone = cpu(lambda: litellm.completion(**call, mock_response=answer)) / len(plain) * 1e6
    own = cpu(lambda: list(litellm.completion(**call, mock_response=answer))) / len(plain) * 1e6
    cost = guarded - call_alone
    return [
        Figure("gate + door, a chunk", cost, "us CPU", "<= 5"),
        Figure("LiteLLM's own stream, a chunk", own, "us CPU", "for comparison"),
        Figure("gate + door : LiteLLM", cost / own, "ratio", "< 0.05"),
    ]


class _Replay(litellm.CustomStreamWrapper):
    """A stream wrapper that hands out chunks made before."""

    def __next__(self) -> Any:
        return next(self.prebuilt)


def verdicts(texts: list[str]) -> list[Figure]:
    """Time single verdicts, references included, in one thread."""
    session = Guard().detector.snapshot()
    windows = []
    for text in texts:
        segments = [s.text for s in split(text) if not s.text.isspace()]
        windows += [Window(s, tuple(segments[max(0, i - 2) : i])) for i, s in enumerate(segments)]
    session.score(windows[:20])
    times = []
    for window in windows:
        begin = time.perf_counter()
        session.score([window])
        times.append((time.perf_counter() - begin) * 1000)
    times.sort()
    return [
        Figure(f"verdict, median of {len(times)}", times[len(times) // 2], "ms", "<= 6"),
        Figure("verdict, 99th percentile", times[int(len(times) * 0.99)], "ms", "<= 15"),
    ]


def memory() -> list[Figure]:
    """Return the resident memory the guard adds to a process that has LiteLLM; Linux only."""
    if not Path("/proc/self/statm").exists():
        return []
    code = (
        "import resource, litellm;"
        "held = lambda: int(open('/proc/self/statm').read().split()[1]) * resource.getpagesize();"
        "before = held();"
        "from guard import Guard; Guard().check('Some words to judge.');"
        "print(held() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [Figure("memory beyond LiteLLM", int(done.stdout) / 1e6, "MB", "<= 250")]


def read(path: Path | None) -> list[str]:
    """Return the texts of a file of JSON lines."""
    files = [path] if path else sorted((ROOT / "guard" / "train").glob("negatives.jsonl"))
    rows = [json.loads(x) for f in files for x in f.read_text("utf-8").splitlines()]
    return [row.get("comment") or row["text"] for row in rows]


def main() -> None:
    """Measure everything and print a table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = [*start(), *doors(), *verdicts(read(options.texts)), *memory()]
    if options.json:
        print(json.dumps([f._asdict() for f in figures]))
        return
    for figure in figures:
        print(f"{figure.name:34} {figure.value:9.2f} {figure.unit:7} {figure.bound}")


if __name__ == "__main__":
    main()
