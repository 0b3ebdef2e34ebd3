from __future__ import annotations

import doctest
import io
import re
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from guard import progress
from guard.audit.calls import Call, Piece, Reply, Slot, Usage
from guard.audit.progress import watching_run
from guard.cli import main
from tests.audit.answering import Answering

ANSWERED = Call("k", Slot("i", 0, 0), Reply((Piece("x"),), usage=Usage(1000, 234, 0.5)))
FAILED = Call("f", Slot("i", 1, 0), None, "Timeout")


def drawn(terminal: bool) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=200)
    with watching_run("tiny", 4, console) as tally:
        tally.resumed(7)
        for _ in range(3):
            tally.called(ANSWERED)
            tally.read("first", "guarded")
        tally.called(FAILED)
        tally.read("failed", "failed")
    assert (tally.calls, tally.failed, tally.tokens) == (4, 1, 3702)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())


def test_a_terminal_shows_rate_time_tokens_cost_and_outcomes_of_both_arms() -> None:
    said = drawn(terminal=True)
    assert "4/4" in said
    assert "/s" in said
    assert "0:00:0" in said
    assert "7 earlier answers · 4 calls · 3,702 tokens · $1.5000" in said
    assert "plain: first 3 failed 1 · guarded: guarded 3 failed 1" in said


def test_a_pipe_stays_quiet() -> None:
    assert drawn(terminal=False) == ""


def test_a_log_has_a_line_now_and_then_even_while_nothing_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "LINE_S", 0.02)
    file = io.StringIO()
    with watching_run("tiny", 40, Console(file=file, width=40)) as tally:
        waited(file, 2)  # no call has been answered yet
        for _ in range(25):
            tally.called(ANSWERED)
            tally.read("first", "guarded")
        tally.called(FAILED)
        waited(file, 2)
        for _ in range(15):
            tally.read("first", "guarded")
        waited(file, 2)
    said = file.getvalue()
    assert "\r" not in said
    assert "\x1b" not in said
    lines = said.split("\n")
    assert lines[0] == "tiny: 0 of 40 samples · 0 s so far · 0 calls · 0 tokens"
    assert any(
        line.startswith("tiny: 25 of 40 samples · 0 s so far · about 0 s left · 1 failed calls")
        and line.endswith("plain: first 25 · guarded: guarded 25")
        for line in lines
    )
    assert "40 of 40 samples · 0 s so far · computing the result" in lines[-2]
    assert not any("guard-progress" in one.name for one in threading.enumerate())


def waited(file: io.StringIO, lines: int) -> None:
    """Wait until so many more lines have been written."""
    before, until = file.getvalue().count("\n"), time.monotonic() + 10
    while file.getvalue().count("\n") < before + lines and time.monotonic() < until:
        time.sleep(0.01)


def test_times_are_in_the_unit_that_fits() -> None:
    assert doctest.testmod(progress).failed == 0


def test_a_run_tells_its_log_how_far_it_is(
    provider: Answering, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(progress, "LINE_S", 0.05)
    provider.delay_s = 0.02
    args = ["audit", "run", "--suite", "tests.audit.tiny_suite:Tiny", "--model", "openai/x"]
    done = CliRunner().invoke(main, [*args, "--concurrency", "2", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    told = [line for line in done.stderr.split("\n") if " of 40 samples" in line]
    assert len(told) > 1
    assert any("guarded: " in line for line in told)
    assert "\r" not in done.stderr
