"""What the file of a large run costs: opening and scoring HBB's official data, 773,500 calls.

``python benchmarks/speed/run_file.py --data FOLDER`` writes a run of every item with made-up
answers, then opens and scores it in a process of its own: seconds, and the peak of memory.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from guard.audit.audit import Audit
from guard.audit.calls import Call, Piece, Reply, Usage
from guard.audit.outcomes import item_samples, walk_requests
from guard.audit.run_file import RunFile, RunWriter
from guard.suites.registry import make


def calls(audit: Audit) -> Iterator[Call]:
    """Yield an answer to every request."""
    for item, sample in item_samples(audit.items):
        for asked in walk_requests(audit.suite, item, sample, {})[0]:
            letter = "ab"[int(asked.key[:8], 16) % 97 < 40]
            said = f"{letter}) This is the answer of a model, in a sentence of the usual length."
            yield Call(asked.key, asked.slot, Reply((Piece(said),), usage=Usage(222, 18, 1e-4)))


def score(path: Path, data: Path) -> None:
    """Open and score the run, and print what it took as JSON."""
    began = time.monotonic()
    count = len(RunFile(path).suite("hbb").calls)
    opened = time.monotonic() - began
    audit = Audit.of(make("hbb", {"data": str(data)})).adapted(frozenset({"chat"}))
    began = time.monotonic()
    audit.result(path)
    status = Path("/proc/self/status").read_text("utf-8")
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    figures = {
        "calls": count,
        "opened_s": round(opened, 2),
        "scored_s": round(time.monotonic() - began, 1),
        "peak_mb": round(int(peak[1]) / 1000) if peak else None,
        "file_mb": round(path.stat().st_size / 1e6),
    }
    print(json.dumps(figures), flush=True)


def main() -> None:
    """Write the run, and score it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--run", type=Path, help="A run that was written before.")
    options = parser.parse_args()
    if options.run is not None:
        score(options.run, options.data)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.db"
        audit = Audit.of(make("hbb", {"data": str(options.data)})).adapted(frozenset({"chat"}))
        with RunWriter(path) as run:
            run.replace_suite(audit.header("openai/x", None), calls(audit))
        arguments = [sys.executable, __file__, "--data", str(options.data), "--run", str(path)]
        subprocess.run(arguments, check=True)


if __name__ == "__main__":
    main()
