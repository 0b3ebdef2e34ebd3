"""Writes ``floors.json``: what each behaviour passed when it was last measured, less a margin.

Run ``python -m tests.behaviours.floors`` after new weights or cases. It also writes the table of
the datasheet anew. Floors rise and new ones are added; a behaviour that got worse ends it without
a change. A fall is accepted by name and for a reason, ``--lower NAME --reason TEXT`` once for each
(``mean`` is a name too), and the changelog gets a line for it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from guard import Guard
from guard.evaluate.behaviours import Behaviours, measure, place, read
from guard.places import DEFAULT
from guard.policy import Policy
from guard.results.estimate import Estimate

FILE = Path(__file__).with_name("floors.json")
ROOT = Path(__file__).resolve().parents[2]
DATASHEET = ROOT / "benchmarks" / "detector" / "README.md"
CHANGELOG = ROOT / "CHANGELOG.md"
_TABLE = re.compile(r"(?<=<!-- behaviours -->\n).*?(?=<!-- /behaviours -->)", re.DOTALL)
#: Cases a behaviour, and the mean's share, that another machine's arithmetic may turn.
MARGIN, MEAN_MARGIN = 2, 0.01


def measured(every: int = 1) -> Behaviours:
    """Judge this checkout's cases by the default detector, however long a verdict takes.

    Of ``every`` so many cases in a row one is judged.
    """
    source = read(place())
    source = source._replace(cases=source.cases[::every])
    return measure(source, Guard(Policy(timeout_ms=None), detector=DEFAULT))


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
    rows = {row.name: row for row in found.rows}
    said = [
        f"{name}: {rows[name].passed} of {rows[name].n} passed, the floor is {at['floor']}"
        if name in rows
        else f"{name}: no cases are left, the floor is {at['floor']}"
        for name, at in known["behaviours"].items()
        if name not in rows or rows[name].passed < at["floor"]
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
        "| behaviour | passed | share [95 %] | false negatives | false positives | misread |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in sorted(found.rows, key=lambda row: (row.passed / row.n, row.name)):
        name = row.name.replace("_", " ")
        negatives = f"{row.false_negatives} of {row.biased}" if row.biased else ""
        positives = f"{row.false_positives} of {row.n - row.biased}" if row.n > row.biased else ""
        lines.append(
            f"| {f'**{name}**' if row.weak else name} | {row.passed} of {row.n} "
            f"| {_share(row.figure)} | {negatives} | {positives} | {row.misread or ''} |"
        )
    lines += ["", f"Mean of the {len(found.rows)} shares: {_share(found.mean)}.", ""]
    return "\n".join(lines)


def _share(figure: Estimate) -> str:
    values = [f"{value:.2f}" for value in (figure.value, figure.low, figure.high)]
    value, low, high = (text.removeprefix("0") for text in values)
    return f"{value} [{low}, {high}]"


def entries(at: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what is held of each behaviour, and of their mean, by name."""
    return {**at["behaviours"], "mean": at["mean"]}


def with_entry(changelog: str, entry: str) -> str:
    """Return the changelog with the entry at the end of its newest version."""
    head, newest, *older = re.split(r"^(?=## )", changelog, flags=re.MULTILINE)
    lines = textwrap.fill(f"- {entry}", 100, subsequent_indent="  ", break_on_hyphens=False)
    gap = "\n" if older else ""
    return "".join([head, f"{newest.rstrip()}\n{lines}\n{gap}", *older])


def asked(arguments: list[str] | None, known: dict[str, Any]) -> dict[str, str]:
    """Return the reason for each name whose floor is to fall; what cannot be is a usage error."""
    parser = argparse.ArgumentParser(prog="python -m tests.behaviours.floors")
    parser.add_argument("--lower", action="append", default=[], metavar="NAME")
    parser.add_argument("--reason", action="append", default=[], metavar="TEXT")
    given = parser.parse_args(arguments)
    if len(given.lower) != len(given.reason) or not all(map(str.strip, given.reason)):
        parser.error("every --lower NAME needs a --reason TEXT of its own")
    reasons = dict(zip(given.lower, given.reason, strict=True))
    if len(reasons) < len(given.lower):
        parser.error("a name is given twice")
    if unknown := sorted(reasons.keys() - entries(known).keys()):
        parser.error(f"there is no floor named {unknown[0]}")
    return reasons


def main(arguments: list[str] | None = None) -> None:
    """Measure and write both files, and the changelog where a floor is lowered."""
    known = json.loads(FILE.read_text(encoding="utf-8"))
    reasons = asked(arguments, known)
    found = measured()
    worse = {said.partition(":")[0]: said for said in fallen(found, known)}
    if risen := sorted(reasons.keys() - worse.keys()):
        sys.exit(f"{risen[0]} is not under its floor, so it is not lowered.")
    if left := [said for name, said in worse.items() if name not in reasons]:
        sys.exit("Under the floor, accept each by --lower NAME --reason TEXT:\n" + "\n".join(left))
    new = floors(found)
    changelog = CHANGELOG.read_text(encoding="utf-8")
    for name, before in entries(known).items():
        at = entries(new).get(name, {"floor": "none"})
        if name in reasons:
            entry = f"Lowered behaviour floor `{name}`, {before['floor']} to {at['floor']}"
            changelog = with_entry(changelog, f"{entry}: {reasons[name].strip()}")
        else:
            at["floor"] = max(at["floor"], before["floor"])
    text = DATASHEET.read_text(encoding="utf-8")
    DATASHEET.write_text(_TABLE.sub(lambda _: table(found), text), encoding="utf-8")
    FILE.write_text(json.dumps(new, indent=1) + "\n", encoding="utf-8")
    CHANGELOG.write_text(changelog, encoding="utf-8")


if __name__ == "__main__":
    main()
