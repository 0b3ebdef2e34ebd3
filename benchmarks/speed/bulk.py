"""Bulk judging: ``python benchmarks/speed/bulk.py workers|ray|memory [--rows N] [--rounds N]``.

``workers`` compares one process and two, ``ray`` two actors of Ray with one and with the plain
path: rows a second, and the processor's time a row of all processes together, between a fifth and
nine tenths of the rows. Runs alternate, and ratios are of one round. ``memory`` judges a file of
``--bytes`` and prints the peak of the memory of all processes together (PSS), and where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from guard.bulk.job import BulkJob, run_job
from guard.bulk.judging import JudgeSpec
from guard.bulk.sources import input_file

_WHO = "The clerk,A new colleague,Her neighbour,The old man,An engineer,My aunt".split(",")
_DOES = "reads the plan to,asks after,waits for,never listens to,writes to,laughs at".split(",")
_WHOM = "the group on Monday,people who came late,the others in the hall,all of us".split(",")


def write_rows(path: Path, rows: int, size: int = 0) -> None:
    """Write rows of one to four sentences, each of at least ``size`` bytes."""
    chance = random.Random(0)
    with open(path, "w", encoding="utf-8") as file:
        for number in range(rows):
            said = [
                f"{chance.choice(_WHO)} {chance.choice(_DOES)} {chance.choice(_WHOM)}."
                for _ in range(1 + chance.randrange(4))
            ]
            row = {"id": number, "text": " ".join(said), "x": chance.random()}
            row["more"] = "x" * max(0, size - len(json.dumps(row)))
            file.write(json.dumps(row) + "\n")


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all that it has started."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def processor_s(pid: int) -> float:
    """Return the processor's time of a process and its own, ended ones included, in seconds."""
    total = 0.0
    for each in family(pid):
        with suppress(psutil.NoSuchProcess):
            total += sum(each.cpu_times()[:4])
    return total


def memory_mb(pid: int) -> float:
    """Return the memory of a process and its own; what is shared counts once."""
    total = 0
    for each in family(pid):
        with suppress(psutil.NoSuchProcess):
            total += each.memory_full_info().pss
    return total / 1e6


def judge_once(source: Path, workers: int, on_ray: bool, detector: str) -> None:
    """Judge a file, and print as JSON how fast and at what cost the middle of it was judged."""
    seen: list[tuple[int, float, float]] = []

    def report(done: int, total: int) -> None:
        share = done / total
        if (not seen and share >= 0.2) or (len(seen) == 1 and share >= 0.9):
            seen.append((done, time.perf_counter(), processor_s(os.getpid())))

    with tempfile.TemporaryDirectory() as folder:
        spec = JudgeSpec.read(None, detector)
        out = Path(folder) / "out.jsonl"
        inputs = [input_file(str(source), None)]
        run_job(BulkJob(inputs, out, "text", "guard_", spec, workers, on_ray), report)
    (rows, began, used), (more, ended, later) = seen
    rate, cost = (more - rows) / (ended - began), 1000 * (later - used) / (more - rows)
    print(json.dumps({"rows_s": rate, "cpu_ms": cost}), flush=True)


def compare(source: Path, runs: list[tuple[str, int, bool]], args: Any) -> None:
    """Judge in each way in turn; print medians, and the ratios to the first way of a round."""
    seen: dict[str, list[dict[str, float]]] = {name: [] for name, _, _ in runs}
    for _ in range(args.rounds):
        for name, workers, on_ray in runs:
            command = [sys.executable, __file__, "once", "--source", str(source)]
            command += ["--workers", str(workers), "--detector", args.detector]
            command += ["--ray"] if on_ray else []
            ran = subprocess.run(command, capture_output=True, text=True, check=True)
            seen[name].append(json.loads(ran.stdout.strip().rpartition("\n")[2]))
    first = seen[runs[0][0]]
    for name, figures in seen.items():
        rows = statistics.median(f["rows_s"] for f in figures)
        cost = statistics.median(f["cpu_ms"] for f in figures)
        pairs = list(zip(figures, first, strict=True))
        faster = statistics.median(a["rows_s"] / b["rows_s"] for a, b in pairs)
        dearer = statistics.median(a["cpu_ms"] / b["cpu_ms"] for a, b in pairs)
        print(
            f"{name:12} {rows:8.1f} rows/s ({faster:.2f}) {cost:7.2f} ms CPU a row ({dearer:.2f})"
        )


def measure_memory(source: Path, args: Any) -> None:
    """Judge a file by the command, and print the peak of the memory meanwhile."""
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        out = Path(folder) / "out.jsonl"
        command = [sys.executable, "-m", "guard", "check", str(source), "--to", str(out)]
        command += ["--detector", args.detector, "--workers", str(args.workers), "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        peaks = [(0.0, "")]

        def watch() -> None:
            while process.poll() is None:
                outputs = (out.with_name("out.jsonl.partial") / "out").exists()
                peaks.append((memory_mb(process.pid), "joining" if outputs else "judging"))
                time.sleep(0.2)

        watcher = threading.Thread(target=watch)
        watcher.start()
        said = process.communicate()[0]
        watcher.join()
        for stage in ("judging", "joining"):
            most = max((mb for mb, where in peaks if where == stage), default=0)
            print(f"{source.stat().st_size / 1e9:.2f} GB, {stage}: {most:,.0f} MB at most")
        print(said.strip())


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["workers", "ray", "memory", "once"])
    parser.add_argument("--rows", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=1_000_000_000)
    parser.add_argument("--detector", default="encoder-small")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--ray", action="store_true")
    args = parser.parse_args()
    if args.what == "once":
        return judge_once(args.source, args.workers, args.ray, args.detector)
    with tempfile.TemporaryDirectory() as folder:
        source = args.source or Path(folder) / "in.jsonl"
        if args.source is None:
            write_rows(source, args.rows, args.bytes // args.rows if args.what == "memory" else 0)
        if args.what == "workers":
            compare(source, [("1 process", 1, False), ("2 processes", 2, False)], args)
        elif args.what == "ray":
            runs = [("1 actor", 1, True), ("2 actors", 2, True), ("2 processes", 2, False)]
            compare(source, runs, args)
        else:
            measure_memory(source, args)
    return None


if __name__ == "__main__":
    main()
