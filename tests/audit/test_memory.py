"""An audit of the official HBB data fits into 400 MB: its plan, and the score of 160,000 calls."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from guard.audit import journal
from guard.audit.audit import Audit
from guard.audit.calls import Call, Piece, Reply, Usage
from guard.audit.outcomes import planned, samples
from guard.audit.records import line_of
from guard.suites.registry import make

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data" / "hbb"
LIMIT = 400e6
# Runs the command line and prints its peak of resident memory, in bytes, behind the output.
MEASURED = """
import resource, sys
from guard.cli import main
try:
    main(sys.argv[1:])
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, file=sys.stderr)
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not DATA.is_dir(), reason="needs the official data of HBB"),
    pytest.mark.skipif(sys.platform != "linux", reason="peaks are in kilobytes on Linux"),
]


def peak(*args: str) -> float:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, "audit", *args],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return float(done.stderr.splitlines()[-1])


def test_the_plan_of_773_500_calls_fits() -> None:
    model = ("--model", "openai/o3")
    assert peak("plan", "--suite", "hbb", "--data", str(DATA), *model, "--json") < LIMIT


def test_the_score_of_160_000_calls_fits(tmp_path: Path) -> None:
    audit = Audit.of(make("hbb", {"data": str(DATA)}), 16_000)
    path = tmp_path / "hbb.jsonl.gz"
    asked = (one for i, s in samples(audit.items) for one in planned(audit.suite, i, s))
    said = (Piece("a) This is the answer of a model, in a sentence of the usual length."),)
    calls = (Call(a.key, a.slot, Reply(said, usage=Usage(222, 18, 0.0001))) for a in asked)
    lines = [audit.header("openai/x", None).line()]
    journal.write(path, (line for part in (lines, map(line_of, calls)) for line in part))
    options = ("--suite", "hbb", "--data", str(DATA), "--json")
    assert peak("score", *options, "--answers", str(path)) < LIMIT
