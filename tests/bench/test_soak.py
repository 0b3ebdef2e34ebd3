"""Streams that end in any way leave no task, no thread and no file behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[2] / "benchmarks" / "speed" / "soak.py"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts files where Linux does")
@pytest.mark.parametrize(
    ("streams", "settle"),
    [(80, 40), pytest.param(320, 120, marks=pytest.mark.slow("reads hundreds of streams"))],
)
def test_streams_leave_nothing_behind(streams: int, settle: int) -> None:
    # In a process of its own: stores that other tests have opened open and close files here.
    ran = subprocess.run(
        [
            sys.executable,
            SOAK,
            "--source=memory",
            f"--streams={streams}",
            f"--settle={settle}",
            "--json",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    first, *_, last = found["marks"]
    assert last["streams"] == streams
    assert last["tasks"] <= first["tasks"]
    assert last["files"] <= first["files"]
    assert last["judges"] == first["judges"] == (os.cpu_count() or 1)
    ends = found["ends"]
    assert ends["stopped: stopped"] == ends["detector fails: stopped"] == streams // 8
    assert ends["read: ended"] == ends["left: left"] == streams // 8
    assert ends["cancelled: cancelled"] > 0
    assert sum(n for way, n in ends.items() if way.startswith("fails: ")) == streams // 8
    assert "fails: ended" not in ends
