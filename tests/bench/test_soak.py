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
def test_streams_leave_nothing_behind() -> None:
    # In a process of its own: stores that other tests have opened open and close files here.
    ran = subprocess.run(
        [sys.executable, SOAK, "--source=memory", "--streams=320", "--settle=120", "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    first, *_, last = found["marks"]
    assert last["streams"] == 320
    assert last["tasks"] <= first["tasks"]
    assert last["files"] <= first["files"]
    assert last["judges"] == first["judges"] == (os.cpu_count() or 1)
    ends = found["ends"]
    assert ends["stopped: stopped"] == ends["detector fails: stopped"] == 40
    assert ends["read: ended"] == ends["left: left"] == 40
    assert ends["cancelled: cancelled"] > 0
    assert sum(n for way, n in ends.items() if way.startswith("fails: ")) == 40
    assert "fails: ended" not in ends
