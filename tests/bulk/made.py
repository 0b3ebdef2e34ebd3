"""A whole job without a detector: rows are planned, read, given a made-up verdict, and joined."""

from __future__ import annotations

import shutil
from pathlib import Path

from guard.bulk.joining import RowCounts, write_outputs
from guard.bulk.judging import BlockReader
from guard.bulk.planning import BlockPlan
from guard.bulk.rows import RowText, VerdictLines
from guard.bulk.sources import input_file
from guard.bulk.verdict_store import VerdictStore
from guard.verdict import Attribution, Channel, Decision, GuardTrail, Span, Verdict

PREFIX = "guard_"
LINES = VerdictLines(PREFIX, "made-1", None)


def line_of(row: RowText) -> bytes:
    """The verdict on a row: text with BIAS is biased; its group has what is hard to write."""
    if row.reason is not None:
        return LINES.of_reason(row.reason)
    pair = Attribution('the "old",\n\ud800 men', "slow", Span(0, 1), Span(1, 2))
    biased = "BIAS" in row.text
    verdict = Verdict(
        biased, 0.1 + 0.8 * biased, 0.5, "age" if biased else None, (pair,), (), "made-1", None, 1.0
    )
    trail = GuardTrail([Decision("pass", verdict, Channel(), Span(0, 1))])
    return LINES.of_trail(trail, verdict)


def planned(*paths: Path, column: str = "text") -> BlockPlan:
    plan = BlockPlan()
    for path in paths:
        plan.add_input(input_file(str(path), None), column, PREFIX)
    return plan


def read_rows(plan: BlockPlan, column: str = "text") -> list[RowText]:
    reader = BlockReader(plan.inputs, column, PREFIX)
    rows = [row for number in range(len(plan)) for row in reader.texts(plan[number])]
    reader.close()
    return rows


def judged_file(path: Path, target: Path, column: str = "text") -> tuple[list[RowText], RowCounts]:
    """Judge a file by the made-up verdict; return its rows as read and the counts."""
    plan = planned(path, column=column)
    rows = read_rows(plan, column)
    folder = target.with_suffix(".partial")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    store = VerdictStore(folder, plan)
    for number in range(len(plan)):
        block = plan[number]
        own = rows[block.first : block.first + block.rows]
        store.add(number, 0, [line_of(row) for row in own])
    counts = write_outputs(plan, store, column, PREFIX, [target])
    store.close()
    return rows, counts
