"""The examples of ``docs/policy.md``, and the marks of those that the detector gets wrong.

Run ``python -m tests.policy_page`` after new weights or examples: it judges every example and
writes the marks anew. It prints what it changed, and examples too close to the threshold to be
marked for every processor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from guard import Guard
from guard.policy import Policy
from guard.verdict import Verdict

PAGE = Path(__file__).resolve().parents[1] / "docs" / "policy.md"
MARK = "†"
#: Two processors round a score differently by up to this (benchmarks/detector/README.md).
MARGIN = 0.02
_HEAD = ("biased", "not biased")
_CELL = re.compile(rf"^(?P<text>.*?)(?P<mark> {MARK})?$", re.DOTALL)


class Example(NamedTuple):
    """A cell of a table: its line and column, its side, and whether it has the mark."""

    line: int
    column: int
    text: str
    biased: bool
    marked: bool


def examples(page: str) -> Iterator[Example]:
    """Yield the examples of the page, which are the cells of every table with the two sides."""
    inside = False
    for number, line in enumerate(page.splitlines()):
        cells = _cells(line)
        if tuple(cells) == _HEAD:
            inside = True
        elif not cells:
            inside = False
        elif inside and not set("".join(cells)) <= set("- "):
            for column, cell in enumerate(cells):
                found = _CELL.fullmatch(cell)
                if found and found["text"]:
                    yield Example(number, column, found["text"], column == 0, bool(found["mark"]))


def remarked(page: str, wrong: Callable[[Example], bool]) -> str:
    """Return the page with a mark at each example that ``wrong`` is true of, and no other."""
    lines = page.splitlines()
    for example in examples(page):
        cells = _cells(lines[example.line])
        cells[example.column] = f"{example.text} {MARK}" if wrong(example) else example.text
        lines[example.line] = f"| {' | '.join(cells)} |"
    return "\n".join(lines) + "\n"


def judge() -> Guard:
    """Return the guard that the page speaks of, however long a verdict takes."""
    return Guard(Policy(timeout_ms=None), detector="encoder")


def wrongly(example: Example, verdict: Verdict) -> bool:
    """Whether the verdict is not what the page says of the example."""
    return verdict.biased != example.biased


def close(verdict: Verdict) -> bool:
    """Whether another processor may come to the other verdict."""
    if verdict.score is None or verdict.threshold is None:
        return False
    return abs(verdict.score - verdict.threshold) <= MARGIN


def _cells(line: str) -> list[str]:
    if not (line.startswith("|") and line.endswith("|")):
        return []
    return [cell.strip() for cell in line[1:-1].split("|")]


def main() -> None:
    """Judge the examples and write the marks."""
    page, guard = PAGE.read_text(encoding="utf-8"), judge()
    verdicts = {example: guard.check(example.text) for example in examples(page)}
    for example, verdict in verdicts.items():
        now = wrongly(example, verdict)
        if now != example.marked or close(verdict):
            said = "close to the threshold" if close(verdict) else "marked" if now else "unmarked"
            print(f"{said}: {verdict.score:.3f} ({verdict.threshold}) {example.text}")

    def wrong(example: Example) -> bool:
        # What is close keeps its mark: it would change with the machine.
        verdict = verdicts[example]
        return example.marked if close(verdict) else wrongly(example, verdict)

    PAGE.write_text(remarked(page, wrong), encoding="utf-8")


if __name__ == "__main__":
    main()
