"""Progress: a bar where one can be drawn, else lines; a log that nobody reads stops nothing."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from guard.audit.progress import Tally
from guard.progress import bar_console
from tests.data import ROOT

EAGER = "from guard import progress; progress.LINE_S = 0.0; from guard.cli import main; main()"


def test_a_log_that_cannot_be_written_stops_no_work(tmp_path: Path) -> None:
    texts, out = tmp_path / "texts.txt", tmp_path / "out.jsonl"
    texts.write_text("All is well.\n" * 40)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-c", EAGER, "check", str(texts), "--to", str(out), "--exit-code"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=writer,
            timeout=300,
        )
    finally:
        os.close(writer)
    assert done.returncode == 0
    with out.open() as lines:
        rows = [json.loads(line) for line in lines]
    assert [row["guard_biased"] for row in rows] == [False] * 40


def test_an_audit_tells_of_its_first_failure_only_who_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as log:
        monkeypatch.setattr(sys, "stderr", log)
        Tally().failing("Busy (429)")
        monkeypatch.undo()
        with pytest.raises(BrokenPipeError):
            log.flush()
        with open(os.devnull, "w") as null:  # else closing the log would fail, too
            os.dup2(null.fileno(), log.fileno())


@pytest.mark.parametrize(
    ("terminal", "variables", "drawable"),
    [
        (True, {"TERM": "xterm"}, True),
        (True, {"TERM": "dumb"}, False),
        (False, {"TERM": "xterm"}, False),
        (False, {"TERM": "xterm", "FORCE_COLOR": "1"}, False),
    ],
)
def test_a_bar_needs_a_terminal_that_can_draw_it(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    terminal: bool,
    variables: dict[str, str],
    drawable: bool,
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    main, other = pty.openpty()
    with os.fdopen(main), os.fdopen(other, "w") as screen, (tmp_path / "log").open("w") as log:
        monkeypatch.setattr(sys, "stderr", screen if terminal else log)
        assert bar_console().is_terminal == drawable
        monkeypatch.undo()
