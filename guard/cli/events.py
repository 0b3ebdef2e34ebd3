"""``guard events``: count what a store of events holds, and delete from it."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone

import click

from guard.cli.rates import open_store

_DAY_S = 86_400.0


@click.group()
def events() -> None:
    """Count or delete what a store of events holds: stats, forget, prune."""


@events.command()
@click.argument("store", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def stats(store: str | None, as_json: bool) -> None:
    """Show how much STORE holds, since when, and how many events were dropped."""
    opened = open_store(store)
    from sqlalchemy import func, select

    from guard.watch import schema

    with opened.reading() as connection:
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
        "store": opened.name,
        "schema": schema.VERSION,
        **counts,
        "first": first,
        "last": last,
        "dropped": int(dropped or 0),
    }
    if as_json:
        click.echo(json.dumps(values))
        return
    for name, value in values.items():
        click.echo(f"{name}\t{'-' if value is None else value}")


@events.command()
@click.argument("request_id")
@click.argument("store", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def forget(request_id: str, store: str | None, as_json: bool) -> None:
    """Delete all of the request REQUEST_ID from STORE; it is LiteLLM's id of the call."""
    opened = open_store(store)
    with opened.changing() as changed:
        count = changed.forget(request_id)
    _print_deleted(count, as_json)


@events.command()
@click.option("--days", required=True, type=click.IntRange(1, 36_500), help="Days to keep.")
@click.argument("store", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def prune(days: int, store: str | None, as_json: bool) -> None:
    """Delete older responses from STORE; a running guard does so by ``keep_days``."""
    opened = open_store(store)
    with opened.changing() as changed:
        count = changed.prune(time.time() - days * _DAY_S)
    _print_deleted(count, as_json)


def _print_deleted(count: int, as_json: bool) -> None:
    noun = "response" if count == 1 else "responses"
    click.echo(json.dumps({"deleted": count}) if as_json else f"{count} {noun} deleted.")
