"""The examples run as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, *args: str, said: str = "") -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *args],
        input=said,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    )
    return done.stdout


def test_quickstart_is_short_and_cuts_the_biased_sentence() -> None:
    assert len((EXAMPLES / "quickstart.py").read_text().splitlines()) <= 15
    out = run("quickstart.py")
    assert out.startswith("Look at the work first.")
    shown, judgement = out.rsplit("\n ", 1)
    assert "useless" not in shown
    assert "Old people" in judgement or "old people" in judgement
