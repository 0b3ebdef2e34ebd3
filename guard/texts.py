"""Texts of others in tables and on terminals."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # beginnings of cells that spreadsheets execute


def printable(text: str) -> str:
    """Return ``text`` without what a terminal or a build server acts upon."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def normalised(text: str) -> str:
    """Return ``text`` in lower case with single spaces."""
    return " ".join(text.split()).casefold()


def csv_text(
    header: Sequence[str],
    rows: Iterable[Iterable[object]],
    *,
    lineterminator: str = "\n",
    exact: bool = False,
) -> str:
    """Return a CSV table.

    A text that a spreadsheet would execute begins with an apostrophe, in the header too: users
    choose names. ``exact`` keeps every text as it is, for a table that guard reads again.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=lineterminator)
    for row in (header, *rows):
        writer.writerow(row if exact else map(_cell, row))
    return out.getvalue()


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
