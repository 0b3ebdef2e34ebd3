"""``guard review write`` and ``read``: the queue as a table, and the marks in one."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from guard.audit.files import cell, write_whole
from guard.cli.rates import open_store
from guard.cli.review_items import reviewer_option
from guard.errors import UsageError

_COLUMNS = (
    *("id", "before", "text", "decision", "found", "mark"),
    *("bias_type", "group", "attribute"),
)
_STORE = click.argument("store", required=False)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_STORE
@reviewer_option
@_JSON
def write(file: Path, store: str | None, reviewer: str, as_json: bool) -> None:
    """Write the queue as a CSV FILE, to fill in the column mark and give to guard review read."""
    opened = open_store(store)
    from guard.watch import review as reviews

    if file.exists():
        raise UsageError(f"{file} is there already and may hold marks; give another name.")
    with opened.reading() as connection:
        every = reviews.queue(connection)
        given = {item.id: marks.get(reviews.named(reviewer)) for item, marks in every}
    out = io.StringIO()
    table = csv.writer(out)
    table.writerow(_COLUMNS)
    for item, _ in every:
        own = given[item.id]
        said = reviews.Correction() if own is None else own.correction
        found = " / ".join(v for v in (item.bias_type, item.group, item.attribute) if v)
        row = (item.id, item.before, item.text, item.action, found, own.verdict if own else "")
        table.writerow([cell(value or "") for value in (*row, *said)])
    try:
        write_whole(file, out.getvalue())
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}.") from None
    told = {"items": len(every), "file": str(file)}
    click.echo(json.dumps(told) if as_json else f"{len(every):,} items in {file}.")


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@_STORE
@reviewer_option
@_JSON
def read(file: Path, store: str | None, reviewer: str, as_json: bool) -> None:
    """Read the marks in a CSV FILE, of which the columns id and mark are needed.

    Rows without a mark are left for later. Where a row is wrong nothing is read.
    """
    opened = open_store(store)
    from guard.datasets.rows import rows
    from guard.watch import review as reviews

    new = empty = 0
    read_: set[str] = set()
    with opened.writing() as connection:
        known = reviews.all_marks(connection)
        for row in rows(file):
            try:
                if row.broken:
                    raise UsageError(row.broken)
                name, verdict, *said = (_field(row.values, c) for c in ("id", *_COLUMNS[5:]))
                if not verdict:
                    empty += 1
                    continue
                if name in read_:
                    raise UsageError(f"{name} was in an earlier row; each item has one mark.")
                read_.add(name)
                verdict = verdict.lower()
                of = reviews.item(connection, name)
                own = known.get(of.key, {}).get(reviews.named(reviewer))
                correction = reviews.Correction(*(value or None for value in said))
                if own is None or (own.verdict, own.correction) != (verdict, correction):
                    reviews.mark(connection, name, reviewer, verdict, correction)
                    new += 1
            except UsageError as error:
                raise UsageError(f"{file}, {row.place}: {error}") from None
    told = {"marks": new, "empty": empty}
    click.echo(json.dumps(told) if as_json else f"{new:,} marks read; {empty:,} rows have none.")


def _field(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if name in ("id", "mark") and not isinstance(value, str):
        raise UsageError("it needs the columns id and mark.")
    text = value.strip() if isinstance(value, str) else ""
    return text.removeprefix("'")  # which keeps spreadsheets from taking it for a formula
