"""A run as data: JSON with a published schema, and a CSV with a row for each item and arm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from guard import __version__
from guard.audit.report.checks import content_checks, status_counts
from guard.audit.report.content import Content, SuiteContent
from guard.audit.report.items import ItemRow
from guard.audit.score import plain_json
from guard.results.table import csv_text

FORMAT = 1
"""Changes with every change that breaks readers of the JSON."""
SCHEMA = Path(__file__).parent / "report.schema.json"
"""The JSON Schema (2020-12) of :func:`as_json`."""
_COLUMNS = (
    *("suite", "model", "id", "sample", "arm", "about", "cluster"),
    *("outcome", "side", "stopped_as", "baseline", "prompt", "text"),
)
_BETWEEN = "\n\n"


def as_json(content: Content) -> dict[str, Any]:
    """Return the report in plain values: numbers unrounded, nan as None."""
    listed_checks = content_checks(content)
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
                "going_on": one.unfinished,
                "flipped": one.flipped,
            }
            for one in content.suites
        ],
        "counts": status_counts(listed_checks),
        "checks": [asdict(check) for check in listed_checks],
        "skipped": [asdict(left_out) for left_out in content.skipped],
        "comparison": None if content.comparison is None else content.comparison.to_dict(),
        "fail_on": None if content.conditions is None else content.conditions.to_dict(),
    }


def json_text(content: Content) -> str:
    """Return the JSON, in ASCII: a model may answer half a surrogate pair, which is escaped."""
    return json.dumps(plain_json(as_json(content)), allow_nan=False) + "\n"


def samples_csv(content: Content) -> str:
    """Return the CSV; a cell that a spreadsheet would execute begins with an apostrophe."""
    rows = (cells for one in content.suites for row in one.rows for cells in _sample_rows(one, row))
    return csv_text(_COLUMNS, rows)


def _sample_rows(content: SuiteContent, row: ItemRow) -> Iterator[list[str]]:
    result = content.result
    model_turns = [turn for turn in row.turns if turn.by == "model"]
    prompt = _BETWEEN.join(turn.asked for turn in model_turns)
    first = [result.suite, result.model, row.id, str(row.sample)]
    about = [row.about, row.cluster]
    answer = _BETWEEN.join(turn.answer for turn in model_turns)
    yield [*first, "plain", *about, row.plain, row.side, "", row.base, prompt, answer]
    if row.guarded:
        shown = _BETWEEN.join(
            turn.answer if turn.shown is None else turn.shown for turn in model_turns
        )
        types = ", ".join(row.types)
        yield [*first, "guarded", *about, row.guarded, row.side, types, row.base, prompt, shown]
