"""Reads and writes the one suite of a run's file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from guard.audit.calls import Call, Guarded
from guard.audit.header import Header
from guard.audit.outcomes import item_samples, walk_requests
from guard.audit.run_file import RecordedSuite, RunFile, RunWriter
from guard.suites import Item, Suite


def recorded_suite(path: Path) -> RecordedSuite:
    """Return the file's one suite."""
    run = RunFile(path)
    (name,) = run.headers
    return run.suite(name)


def read(path: Path) -> tuple[Header, list[Call | Guarded]]:
    """Return the header of the file's one suite, its calls and its readings."""
    recorded = recorded_suite(path)
    return recorded.header, [*recorded.calls.values(), *recorded.readings.values()]


def write(path: Path, header: Header, records: Iterable[Call | Guarded]) -> None:
    """Write a suite, in place of what the file has of it."""
    with RunWriter(path) as run:
        run.replace_suite(header, records)


def check(
    suite: Suite, items: Sequence[Item], records: Iterable[Call], report: Callable[[str], None]
) -> int:
    """Return how many planned requests have not exactly one outcome, reporting each.

    ``records`` are the calls of a run: a request has one answer, or the
    failure of its last attempt; a failure before an answer was mended by it. What another analyst
    was asked before is no fault.
    """
    answered: dict[str, int] = {}
    calls: dict[str, Call] = {}
    for call in records:
        answered[call.key] = answered.get(call.key, 0) + (call.reply is not None)
        if call.reply is not None or call.key not in calls:
            calls[call.key] = call
    faults = 0
    planned_keys: set[str] = set()
    for item, sample in item_samples(items):
        asked, answers, failed = walk_requests(suite, item, sample, calls)
        planned_keys |= {one.key for one in asked}
        if failed is None and len(asked) > len(answers):
            faults += 1
            slot = asked[-1].slot
            report(f"{slot.item}, sample {slot.sample}, turn {slot.turn}: no outcome")
    for key, times in answered.items():
        if times > 1 or (key not in planned_keys and calls[key].by == "model"):
            faults += 1
            report(f"{key}: " + (f"{times} answers" if times > 1 else "was never planned"))
    return faults
