"""Streams that end in any way leave no task, no thread and no file behind."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import litellm
import pytest

from tests.scripts import load

SOAK = Path(__file__).parents[2] / "benchmarks" / "speed" / "soak.py"


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = load(SOAK, monkeypatch)
    handlers = [{"provider": "soak", "custom_handler": module.Memory()}]
    monkeypatch.setattr(litellm, "custom_provider_map", handlers)
    monkeypatch.setattr(litellm, "suppress_debug_info", True)
    return module


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts files where Linux does")
def test_streams_leave_nothing_behind(soak: Any) -> None:
    found = asyncio.run(soak.soak(None, 320, 120, plain=False))
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
