"""The example of an audit runs as it stands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.audit.answering import Answering

ROOT = Path(__file__).parents[2]


@pytest.mark.slow("runs eight commands, each a process")
@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
def test_the_release_engineers_audit_runs_as_it_stands(provider: Answering, tmp_path: Path) -> None:
    provider.delay_s = 1.0  # so that the interrupt comes while calls are in flight
    guard = tmp_path / "bin" / "guard"
    guard.parent.mkdir()
    guard.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m guard "$@"\n')
    guard.chmod(0o755)
    done = subprocess.run(
        ["sh", str(ROOT / "examples" / "audit.sh")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PATH": f"{guard.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "SUITE": "tests.audit.tiny_suite:Tiny",
            "MODEL": "openai/x",
            "SAMPLE": "40",
            "INTERRUPT_AFTER_S": "2",
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal requests asked once" in done.stdout
    # Ended by its limit, interrupted, decided (Tiny compares no identities), reported alike.
    codes = [line for line in done.stdout.splitlines() if line.startswith("exit code")]
    assert codes == [f"exit code {code}" for code in (4, 130, 3, 3, 3)], done.stdout + done.stderr
    assert "Stopped at --max-calls 10: this command made 10 calls" in done.stderr
    assert "Interrupted" in (tmp_path / "interrupted.txt").read_text()
    assert "resumed with" in done.stderr
    assert len(provider.asked) == 60  # nothing was paid for twice
    for name in ("report.md", "report.html", "junit.xml", "audit.baseline.json"):
        assert (tmp_path / name).stat().st_size > 300
    assert "fail-on-withheld" in (tmp_path / "junit.xml").read_text()
