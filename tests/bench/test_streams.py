"""What benchmarks/speed/streams.py measures is there, and is what it says."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

FILE = Path(__file__).parents[2] / "benchmarks" / "speed" / "streams.py"


@pytest.fixture(scope="module")
def streams() -> Any:
    spec = importlib.util.spec_from_file_location("streams", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FILE.parent)  # as for a script; it imports door.py beside it
        patch.setitem(sys.modules, "streams", module)
        patch.delitem(sys.modules, "door", raising=False)
        spec.loader.exec_module(module)
        yield module
    sys.modules.pop("door", None)


@pytest.fixture
def run(streams: Any) -> Any:
    def invoke(*args: str, code: int = 0) -> Any:
        done = CliRunner().invoke(streams.main, args)
        assert done.exit_code == code, done.output
        return done

    return invoke


def test_streams_at_once_are_read_plain_and_guarded(run: Any) -> None:
    done = run("--streams", "6", "--chunks", "60", "--detector", "silent", "--json")
    found = json.loads(done.stdout)
    assert (found["streams"], found["chunks"], found["detector"]) == (6, 60, "silent")
    assert found["plain"]["segments"] == 0
    assert found["guarded"]["segments"] >= 6 * 3
    for arm in ("plain", "guarded"):
        one = found[arm]
        assert one["chunks/s"] == pytest.approx(6 * 60 / one["seconds"])
        assert 0 <= one["latency_p50"] <= one["latency_p99"]
        assert one["pause"] >= one["pause_p999"] > 0
    # A text waits for the end of its sentence, which unguarded it does not.
    assert found["added"]["latency_p50"] > 0


def test_an_interval_is_kept_between_chunks(run: Any) -> None:
    args = ("--streams", "2", "--chunks", "10", "--detector", "silent", "--interval", "5")
    found = json.loads(run(*args, "--json").stdout)
    assert found["plain"]["seconds"] >= 0.05


def test_a_slow_verdict_is_waited_for(run: Any) -> None:
    args = ("--streams", "1", "--chunks", "10", "--detector", "silent", "--delay", "150")
    found = json.loads(run(*args, "--json").stdout)
    assert found["guarded"]["seconds"] >= 0.15


def test_only_the_silent_detector_is_slowed(run: Any) -> None:
    assert "--detector silent" in run("--delay", "100", code=2).output


def test_figures_are_readable_without_json(run: Any) -> None:
    shown = run("--streams", "2", "--chunks", "30", "--detector", "silent").stdout
    assert "99th percentile" in shown
    assert "chunks/s" in shown


def test_turns_of_the_loop_are_timed(streams: Any) -> None:
    async def blocks() -> None:
        await asyncio.sleep(0)
        time.sleep(0.05)
        await asyncio.sleep(0)

    before = asyncio.Handle._run
    with streams.turns() as took:
        asyncio.run(blocks())
    assert max(took) >= 0.05
    assert asyncio.Handle._run is before
