"""Stores of older versions: what each step of the schema brought is taken away again."""

from __future__ import annotations

from sqlalchemy import text

from guard.watch import schema
from guard.watch.store import Store

#: By the version that has them first.
_UNDO = {
    5: ["DROP TABLE guard_forgotten"],
    4: ["ALTER TABLE guard_events DROP COLUMN index_references"],
    3: [
        "DROP TABLE guard_review_draws",
        "DROP TABLE guard_review_items",
        "DROP TABLE guard_review_marks",
        "ALTER TABLE guard_events DROP COLUMN text_share",
    ],
    2: ["DROP TABLE guard_audit_axes", "DROP TABLE guard_audits"],
}


def downgrade(url: str, version: int) -> None:
    """Make the store at ``url`` what a guard with tables of ``version`` would have written."""
    assert set(_UNDO) == set(range(2, schema.VERSION + 1))
    undo = [line for later in range(schema.VERSION, version, -1) for line in _UNDO[later]]
    store = Store(url)
    with store._connected().begin():
        for line in (*undo, f"UPDATE guard_store SET value = '{version}' WHERE name = 'schema'"):
            store._connected().execute(text(line))
    store.disconnect()
