"""The framework matrix: ``python -m tests.frameworks`` runs it, ``measured.csv`` has its rows."""

from __future__ import annotations

import csv
from pathlib import Path

MEASURED = Path(__file__).with_name("measured.csv")
Cells = dict[tuple[str, str, str], str]
"""Requests and what the user sees, by framework, case and action."""


def measured() -> Cells:
    with MEASURED.open(encoding="utf-8", newline="") as file:
        return {
            (row["framework"], row["case"], action): told
            for row in csv.DictReader(file)
            for action, told in list(row.items())[2:]
            if told
        }


def write(cells: Cells) -> None:
    actions = dict.fromkeys(action for *_, action in cells)
    with MEASURED.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["framework", "case", *actions])
        for name, case in dict.fromkeys(key[:2] for key in cells):
            table.writerow([name, case, *(cells.get((name, case, a), "") for a in actions)])
