"""Writes ``floors.json``: what each behaviour passed when it was last measured, less a margin.

Run ``python -m tests.behaviours.floors`` after new weights or cases. It also writes the table of
the datasheet anew. Floors rise and new ones are added; a behaviour that got worse ends it without
a change, unless ``--lower`` is given.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from guard import Guard
from guard.evaluate.behaviours import Behaviours, measure, place, read
from guard.evaluate.bootstrap import Figure
from guard.policy import Policy

FILE = Path(__file__).with_name("floors.json")
DATASHEET = Path(__file__).resolve().parents[2] / "benchmarks" / "detector" / "README.md"
_TABLE = re.compile(r"(?<=<!-- behaviours -->\n).*?(?=<!-- /behaviours -->)", re.DOTALL)
#: Cases a behaviour, and the mean's share, that another machine's arithmetic may turn.
MARGIN, MEAN_MARGIN = 2, 0.01


def measured() -> Behaviours:
    """Judge the cases of this checkout by guard's own settings, however long a verdict takes."""
    return measure(read(place()), Guard(Policy(timeout_ms=None)))


def floors(found: Behaviours) -> dict[str, Any]:
    """Return the floors that follow from what was measured; counts are cases passed."""
    return {
        "detector": found.detector,
        "index_version": found.index_version,
        "mean": {
            "measured": round(found.mean.value, 4),
            "floor": round(found.mean.value - MEAN_MARGIN, 4),
        },
        "behaviours": {
            row.name: {"n": row.n, "passed": row.passed, "floor": row.passed - MARGIN}
            for row in found.rows
        },
    }


def fallen(found: Behaviours, known: dict[str, Any]) -> list[str]:
    """Return a sentence for each floor in ``known`` that the measured figures are under."""
    said = [
        f"{row.name}: {row.passed} of {row.n} passed, the floor is {at['floor']}"
        for row in found.rows
        if (at := known["behaviours"].get(row.name)) and row.passed < at["floor"]
    ]
    floor = known["mean"]["floor"]
    if found.mean.value < floor:
        said.append(f"mean: {found.mean.value:.4f}, the floor is {floor}")
    return said


def table(found: Behaviours) -> str:
    """Return the table of the datasheet, the weak ones in bold."""
    lines = [
        f"Measured with {found.detector}, index {found.index_version}, at {found.operating_point}:",
        "",
        "| behaviour | passed | share [95 %] | missed | false alarms | misread |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in sorted(found.rows, key=lambda row: (row.passed / row.n, row.name)):
        name = row.name.replace("_", " ")
        missed = f"{row.misses} of {row.biased}" if row.biased else ""
        alarms = f"{row.alarms} of {row.n - row.biased}" if row.n > row.biased else ""
        lines.append(
            f"| {f'**{name}**' if row.weak else name} | {row.passed} of {row.n} "
            f"| {_share(row.figure)} | {missed} | {alarms} | {row.misread or ''} |"
        )
    lines += ["", f"Mean of the {len(found.rows)} shares: {_share(found.mean)}.", ""]
    return "\n".join(lines)


def _share(figure: Figure) -> str:
    values = [f"{value:.2f}" for value in figure[:3]]
    value, low, high = (text.removeprefix("0") for text in values)
    return f"{value} [{low}, {high}]"


def main(*arguments: str) -> None:
    """Measure and write both files."""
    found = measured()
    new = floors(found)
    if FILE.is_file() and "--lower" not in arguments:
        known = json.loads(FILE.read_text(encoding="utf-8"))
        if worse := fallen(found, known):
            sys.exit("Under the floor, give --lower to accept it:\n" + "\n".join(worse))
        for name, at in new["behaviours"].items():
            before = known["behaviours"].get(name, at)
            if before["n"] == at["n"]:
                at["floor"] = max(at["floor"], before["floor"])
        new["mean"]["floor"] = max(new["mean"]["floor"], known["mean"]["floor"])
    text = DATASHEET.read_text(encoding="utf-8")
    DATASHEET.write_text(_TABLE.sub(lambda _: table(found), text), encoding="utf-8")
    FILE.write_text(json.dumps(new, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
