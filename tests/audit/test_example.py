"""The example of an audit runs as it stands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.audit.answering import Answering

ROOT = Path(__file__).parents[2]


@pytest.mark.slow("runs six commands, each a process")
@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
def test_the_audit_of_the_examples(provider: Answering, tmp_path: Path) -> None:
    guard = tmp_path / "bin" / "guard"
    guard.parent.mkdir()
    guard.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m guard "$@"\n')
    guard.chmod(0o755)
    done = subprocess.run(
        ["sh", str(ROOT / "examples" / "audit.sh")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "PATH": f"{guard.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "SUITE": "tests.audit.tiny_suite:Tiny",
            "MODEL": "openai/x",
        },
    )
    assert "equal requests asked once" in done.stdout
    assert done.stdout.count("Tiny (tiny 1-A) · openai/x") == 2
    assert len(provider.asked) == 30
    assert json.loads((tmp_path / "scores.json").read_text())["suite"] == "tiny"
