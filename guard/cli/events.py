"""``guard events``: count what a store of events holds, and delete from it."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import click

from guard.cli import print_result
from guard.cli.rates import on_store

if TYPE_CHECKING:
    from guard.watch.store import Store

_DAY_S = 86_400.0


@click.group()
def events() -> None:
    """Count or delete what a store of events holds: stats, forget, prune."""


@events.command()
@on_store
def stats(store: Store, as_json: bool) -> None:
    """Show how much STORE holds, since when, and how many events were dropped."""
    from sqlalchemy import func, select

    from guard.watch import schema

    with store.reading() as connection:
        counts = {
            table.name.removeprefix("guard_"): connection.scalar(
                select(func.count()).select_from(table)
            )
            for table in (schema.responses, schema.events, schema.audits)
        }
        times = connection.execute(
            select(func.min(schema.responses.c.time), func.max(schema.responses.c.time))
        ).one()
        dropped = connection.scalar(select(func.coalesce(func.sum(schema.drops.c.events), 0)))
    first, last = (
        None if t is None else datetime.fromtimestamp(t, timezone.utc).isoformat(" ", "seconds")
        for t in times
    )
    values = {
        "store": store.name,
        "schema": schema.VERSION,
        **counts,
        "first": first,
        "last": last,
        "dropped": int(dropped or 0),
    }
    lines = (f"{name}\t{'-' if value is None else value}" for name, value in values.items())
    print_result(values, "\n".join(lines), as_json)


@events.command()
@click.argument("request_id")
@on_store
def forget(store: Store, request_id: str, as_json: bool) -> None:
    """Delete all of the request REQUEST_ID from STORE; it is LiteLLM's id of the call."""
    with store.changing() as changed:
        _print_deleted(changed, changed.forget(request_id), as_json)


@events.command()
@click.option("--days", required=True, type=click.IntRange(1, 36_500), help="Days to keep.")
@on_store
def prune(store: Store, days: int, as_json: bool) -> None:
    """Delete older responses from STORE; a running guard does so by ``keep_days``."""
    with store.changing() as changed:
        _print_deleted(changed, changed.prune(time.time() - days * _DAY_S), as_json)


def _print_deleted(store: Store, count: int, as_json: bool) -> None:
    noun = "response" if count == 1 else "responses"
    print_result({"deleted": count}, f"{count} {noun} deleted.", as_json)
    if store.journal_pending:
        click.echo(
            "Another process reads the store, so the deleted text is still in its journal; a guard "
            "that writes to the store removes it, or this command, run again.",
            err=True,
        )
