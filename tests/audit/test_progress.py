from __future__ import annotations

import io
import re

from rich.console import Console

from guard.audit.calls import Call, Piece, Reply, Slot, Usage
from guard.audit.progress import watching

ANSWERED = Call("k", Slot("i", 0, 0), Reply((Piece("x"),), usage=Usage(1000, 234, 0.5)))
FAILED = Call("f", Slot("i", 1, 0), None, "Timeout")


def drawn(terminal: bool) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=200)
    with watching("tiny", 4, console) as tally:
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
