"""Statements of one's own: a table or JSON lines whose columns are a statement's fields.

Everything is taken as it is written, the note too: whoever writes the file names the source there.
Other columns, an id of one's own for instance, are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from guard.datasets.rows import BadRow, Values, text
from guard.retrieve.importers.found import Found
from guard.retrieve.statement import Statement

COLUMNS = ("statement", "bias_type", "group", "attribute")
OPTIONAL = ("implicit", "note")

_FLAGS = {"": False, "0": False, "false": False, "no": False, "1": True, "true": True, "yes": True}


def statements(row: Values) -> Iterator[Found]:
    """Yield the row's statement; BadRow says what is wrong with it."""
    for name in (*COLUMNS, "note"):
        if name in row or name in COLUMNS:
            # For the errors it raises: the value is kept as it is.
            text(row, name)
    fields: dict[str, Any] = {name: row[name] for name in row if name in (*COLUMNS, *OPTIONAL)}
    if isinstance(flag := fields.get("implicit", False), str):
        if flag.strip().casefold() not in _FLAGS:
            raise BadRow(f"'implicit' must be true or false, not {flag!r}")
        fields["implicit"] = _FLAGS[flag.strip().casefold()]
    yield Statement(**fields)
