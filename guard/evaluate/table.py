"""Reads a CSV of the user's own, row by row, so that a mistake is named with its line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from guard.errors import UsageError
from guard.evaluate import adapters
from guard.evaluate.example import BadRow, Example


@dataclass(frozen=True, slots=True)
class CsvRow:
    """A row with its header; ``broken`` is the reason where the CSV reader could not read it."""

    header: Sequence[str]
    values: Sequence[str]
    broken: str = ""


def rows(path: Path, text: str) -> Iterator[tuple[int, CsvRow]]:
    """Yield the line each row begins at, and the row; blank lines are no rows."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] | None = None
    while True:
        begin = reader.line_num + 1
        try:
            values = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            if header is None:
                raise UsageError(f"{path}, line {begin}: the CSV is broken: {error}.") from None
            yield begin, CsvRow(header, [], f"the CSV is broken: {error}")
            continue
        if header is None:
            header = [name.strip().casefold() for name in values]
            missing = [name for name in ("text", "label") if name not in header]
            if missing:
                raise UsageError(
                    f"{path}, line {begin}: the header lacks {' and '.join(missing)}; the columns "
                    "are text, label and, if known, bias_type, group, attribute."
                )
        elif values:
            yield begin, CsvRow(header, values)
    if header is None:
        raise UsageError(f"{path} is empty; its first line names the columns text and label.")


def example(row: CsvRow, key: str) -> list[Example]:
    """Return the row's example; BadRow says what is wrong with it."""
    if row.broken:
        raise BadRow(row.broken)
    if len(row.values) != len(row.header):
        raise BadRow(f"the row has {len(row.values)} fields, the header {len(row.header)}")
    return adapters.table_row(dict(zip(row.header, row.values, strict=True)), key)
