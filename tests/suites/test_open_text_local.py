"""Open text with a real model, killed on the way. Needs the network once, for the weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from guard.cli import main
from guard.errors import UsageError
from tests.audit.written import recorded_suite

pytestmark = pytest.mark.slow("a local model writes texts", limit_s=3000)
SIZE = 60


def calls(path: Path) -> int:
    try:
        return len(recorded_suite(path).calls)
    except UsageError:
        return 0


@pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them")
def test_a_killed_run_resumes_and_reports(weights: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "guard", "audit", "run", "--suite", "open_text"]
    command += ["--model", "local:smollm2", "--sample", str(SIZE), "--set", "max_tokens=40"]
    command += ["--detector", "encoder", "--scorer", "encoder-small:strict"]
    command += ["--out", str(tmp_path), "--json"]
    env = os.environ | {"XDG_CACHE_HOME": str(weights), "LOCALAPPDATA": str(weights)}
    path = tmp_path / "run.db"
    first = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # The answers of some prompts are there, their verdicts or those of the guarded arm not all.
    while calls(path) < SIZE // 2 and first.poll() is None:
        time.sleep(0.2)
    first.kill()
    assert first.wait() == -9
    there = recorded_suite(path).calls
    before = {key for key, call in there.items() if call.by == "model"}
    assert before
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["suites"][0]
    assert found["complete"]
    assert found["samples"] >= SIZE
    assert found["guarded"]["coverage"] is not None
    measured = {(row["measure"], *row["axis"].values()) for row in found["stops"]}
    assert {("mitigation_rate",), ("over_blocked",), ("text_kept",)} <= measured
    assert "learned from the same texts" in found["warning"]
    # Earlier answers are kept, and nothing was asked twice.
    after = {k for k, call in recorded_suite(path).calls.items() if call.by == "model"}
    assert before <= after
    assert len(after) == found["samples"]
    ran = CliRunner().invoke(main, ["audit", "review", str(tmp_path), "--out", str(tmp_path / "r")])
    assert ran.exit_code == 0, ran.output
