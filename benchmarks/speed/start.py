"""How long the guard takes to start, and what memory it holds: ``python start.py``."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from guard.bench import CostFigure

_MEMORY = (
    "import resource, litellm;"
    "held = lambda: int(open('/proc/self/statm').read().split()[1]) * resource.getpagesize();"
    "before = held();"
    "from guard import Guard; Guard().check('Some words to judge.');"
    "print(held() - before)"
)


def figures(rounds: int = 7) -> list[CostFigure]:
    """Time fresh interpreters, the median of ``rounds``; memory on Linux alone."""
    nothing = _wall(["-c", "pass"], rounds)
    measured = [
        CostFigure("import guard", _wall(["-c", "import guard"], rounds) - nothing, "ms", "< 100"),
        CostFigure("guard --help", _wall(["-m", "guard", "--help"], rounds), "ms", "< 300"),
    ]
    if Path("/proc/self/statm").exists():
        done = subprocess.run(
            [sys.executable, "-c", _MEMORY], capture_output=True, text=True, check=True
        )
        measured.append(CostFigure("memory beyond LiteLLM", int(done.stdout) / 1e6, "MB", "<= 330"))
    return measured


def _wall(code: list[str], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        subprocess.run([sys.executable, *code], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1000


if __name__ == "__main__":
    from guard.cli.bench import show

    show(figures(), as_json=False)
