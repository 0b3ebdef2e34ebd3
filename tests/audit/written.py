"""What stands in a journal line by line, repeats included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from guard.audit.calls import Call, Guarded, record_of
from guard.audit.header import Header
from guard.audit.journal import Reader
from guard.audit.outcomes import samples, walk
from guard.suites import Item, Suite


def read(path: Path) -> tuple[Header, list[Call | Guarded]]:
    lines = iter(Reader(path))
    return Header.of(next(lines), path), [record_of(line) for line in lines]


def check(
    suite: Suite, items: Sequence[Item], records: Iterable[Call], report: Callable[[str], None]
) -> int:
    """Return how many planned requests have not exactly one outcome, reporting each.

    ``records`` are the calls of a journal as they were written: a request has one answer, or the
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
    for item, sample in samples(items):
        asked, answers, failed = walk(suite, item, sample, calls)
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
