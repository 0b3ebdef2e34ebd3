"""Custom statements: a table or JSON lines whose columns are a statement's fields.

All fields are taken unchanged; the note should name the source. Other columns, such as an id, are
ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from guard.datasets.rows import BadRow, Values, text_field
from guard.retrieve.importers.found import Found
from guard.retrieve.statement import BiasStatement

COLUMNS = ("statement", "bias_type", "group", "attribute")
OPTIONAL = ("implicit", "note")

_FLAGS = {"": False, "0": False, "false": False, "no": False, "1": True, "true": True, "yes": True}


def plain_statements(row: Values) -> Iterator[Found]:
    """Yield the row's statement; raises BadRow that states the fault."""
    for name in (*COLUMNS, "note"):
        if name in row or name in COLUMNS:
            # Only for the errors that it raises; the value is used unchanged.
            text_field(row, name)
    fields: dict[str, Any] = {name: row[name] for name in row if name in (*COLUMNS, *OPTIONAL)}
    if isinstance(flag := fields.get("implicit", False), str):
        if flag.strip().casefold() not in _FLAGS:
            raise BadRow(f"'implicit' must be true or false, not {flag!r}")
        fields["implicit"] = _FLAGS[flag.strip().casefold()]
    yield BiasStatement(**fields)
