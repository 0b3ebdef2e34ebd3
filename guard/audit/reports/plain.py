"""A run as data: JSON by a published schema, and a CSV of one row for each item and arm."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from guard import __version__
from guard.audit.files import cell
from guard.audit.reports.checks import checks
from guard.audit.reports.content import Content, SuiteContent
from guard.audit.reports.items import Row
from guard.audit.score import number

FORMAT = 1
"""Changes when a reader of the JSON would have to."""
SCHEMA = Path(__file__).parent / "report.schema.json"
"""The JSON Schema (2020-12) of :func:`as_json`."""
_COLUMNS = (
    *("suite", "model", "id", "sample", "arm", "about", "cluster"),
    *("outcome", "side", "stopped_as", "baseline", "prompt", "text"),
)
_BETWEEN = "\n\n"


def as_json(content: Content) -> dict[str, Any]:
    """Return the report in plain values: numbers unrounded, nan as None."""
    return {
        "format": FORMAT,
        "guard": __version__,
        "run": content.run,
        "complete": not content.state(),
        "state": content.state(),
        "suites": [
            {
                **one.result.as_json(),
                "journal": one.journal,
                "going_on": one.going_on,
                "flipped": sum(row.changed or bool(row.base) for row in one.rows),
            }
            for one in content.suites
        ],
        "checks": [asdict(check) for check in checks(content)],
        "comparison": None if content.comparison is None else dict(content.comparison),
    }


def json_text(content: Content) -> str:
    """Return the JSON; halves of characters, which a model may give, stand escaped in it."""
    return json.dumps(_numbers(as_json(content)), allow_nan=False) + "\n"


def _numbers(value: Any) -> Any:
    """Return plain values with None for what is no number: a suite's own findings may have such."""
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Mapping):
        return {name: _numbers(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_numbers(one) for one in value]
    return value


def table(content: Content) -> str:
    """Return the CSV; a cell that a spreadsheet would execute begins with an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for one in content.suites:
        for row in one.rows:
            for cells in _rows(one, row):
                writer.writerow([cell(value) for value in cells])
    return out.getvalue()


def _rows(content: SuiteContent, row: Row) -> Iterator[list[str]]:
    result = content.result
    model_turns = [turn for turn in row.turns if turn.by == "model"]
    prompt = _BETWEEN.join(turn.asked for turn in model_turns)
    first = [result.suite, result.model, row.id, str(row.sample)]
    about = [row.about, row.cluster]
    answer = _BETWEEN.join(turn.said for turn in model_turns)
    yield [*first, "plain", *about, row.plain, row.side, "", row.base, prompt, answer]
    if row.guarded:
        shown = _BETWEEN.join(
            turn.said if turn.shown is None else turn.shown for turn in model_turns
        )
        types = ", ".join(row.types)
        yield [*first, "guarded", *about, row.guarded, row.side, types, row.base, prompt, shown]
