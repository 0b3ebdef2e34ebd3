"""What the tests look up in a store, and a guard that writes to one."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Table, select

from guard import Guard
from guard.policy import Policy
from guard.watch import review, schema
from guard.watch.store import Store
from tests.scripted import Scripted


def rows(url: str, table: Table) -> list[dict[str, Any]]:
    with Store(url).reading() as connection:
        query = select(table).order_by(*table.primary_key.columns)
        return [dict(row._mapping) for row in connection.execute(query)]


def responses(url: str) -> list[dict[str, Any]]:
    return rows(url, schema.responses)


def events(url: str) -> list[dict[str, Any]]:
    return rows(url, schema.events)


def queue(connection: Connection) -> list[tuple[review.ReviewItem, dict[str, review.ReviewerMark]]]:
    """All items of the review queue in order, each with its valid marks, by reviewer."""
    return [(review._item(connection, key), marks) for key, marks in review._queue(connection)]


def guard_with(url: str, detector: Any = None, policy: Policy | None = None, **kept: Any) -> Guard:
    return Guard(policy or Policy(), detector=detector or Scripted(), events=url, **kept)


def flushed(guard: Guard) -> None:
    recorder: Any = guard.recorder
    assert recorder.writer.flush(20)
