"""A run without the published data says how many tests it left out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.data import ROOT


def test_the_summary_counts_what_did_not_run(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "tests/suites/test_refusal.py"],
        cwd=ROOT,
        env={**os.environ, "BIASGUARD_TEST_DATA": str(tmp_path / "none")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    (line,) = [x for x in done.stdout.splitlines() if "did not run" in x]
    left_out, _, folder = line.partition(" tests did not run: ")
    assert int(left_out) > 0
    assert folder == f"{os.path.relpath(tmp_path / 'none', ROOT)} is absent"
    assert f"{left_out} skipped" in done.stdout
