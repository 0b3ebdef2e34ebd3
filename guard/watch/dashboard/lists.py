"""Queries for the lists of responses, and for one response with its decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, exists, func, or_, select, tuple_

from guard.errors import UsageError
from guard.watch.dashboard.view import View
from guard.watch.events import bounded
from guard.watch.rates import FINDINGS, NON_ANSWER_DOORS, dimension
from guard.watch.schema import events, responses, settings

Row = Mapping[str, Any]

SHOWN: Mapping[str, str] = {
    "found": "with findings",
    "leaked": "with findings that reached the user",
    "unjudged": "not wholly judged",
    "all": "all",
}
PAGE = 50
EXPORT = 10_000
"""Responses of an export, at most."""
DECISIONS = 200
"""Decisions of a response, on one page."""
NEWEST = 100
"""Responses that the live tail reads at a time."""
_TAIL_S = 600.0


class Listed(NamedTuple):
    """A page of responses, newest first, and the key of the next page, None for the last."""

    rows: Sequence[Row]
    before: str | None


def listed(
    connection: Connection, view: View, show: str, before: str = "", most: int = PAGE
) -> Listed:
    """Return a page of ``most`` of the view's responses; raises UsageError on a bad argument."""
    r = responses.c
    query = select(responses).where(r.time >= view.since, r.time < view.until)
    query = query.where(*_filters(view))
    if show == "found":
        query = query.where(r.found > 0)
    elif show == "leaked":
        query = query.where(r.found > r.mitigated)
    elif show == "unjudged":
        query = query.where(r.unjudged > 0)
    elif show != "all":
        raise UsageError(f"show is one of {', '.join(SHOWN)}, not {show[:40]!r}.")
    if before:
        query = query.where(tuple_(r.time, r.id) < tuple_(*_place(before)))
    query = query.order_by(r.time.desc(), r.id.desc()).limit(most + 1)
    rows = _with_types(connection, query)
    last = rows[most - 1] if len(rows) > most else None
    return Listed(rows[:most], None if last is None else f"{last['time']!r}_{last['id']}")


def looked_up(connection: Connection, id_: str) -> Listed:
    """Return the responses of a request, or of an id of the store, of any time and door."""
    name = bounded(id_)
    query = select(responses).where(or_(responses.c.request_id == name, responses.c.id == name))
    query = query.order_by(responses.c.time.desc(), responses.c.id.desc()).limit(EXPORT)
    return Listed(_with_types(connection, query), None)


def _filters(view: View) -> list[Any]:
    of_findings = [dimension(name) == view.only[name] for name in view.findings]
    filters = [
        dimension(name) == value for name, value in view.only.items() if name not in FINDINGS
    ]
    if of_findings:
        of_response = events.c.response_id == responses.c.id
        biased = events.c.bias_type.is_not(None)
        filters.append(exists().where(of_response, biased, events.c.counted, *of_findings))
    if "door" not in view.only:
        filters.append(responses.c.door.not_in(NON_ANSWER_DOORS))
    return filters


def _place(before: str) -> tuple[float, str]:
    time, _, id_ = before.partition("_")
    try:
        if "\0" in id_:  # which PostgreSQL takes nowhere
            raise ValueError
        return float(time), id_
    except ValueError:
        raise UsageError(
            f"before is the key in a page's link Older, got {before[:40]!r}; follow that link."
        ) from None


def _with_types(connection: Connection, query: Select[Any]) -> list[dict[str, Any]]:
    rows = [dict(row._mapping) for row in connection.execute(query)]
    types: dict[str, list[str]] = {row["id"]: [] for row in rows}
    bias_types = (
        select(events.c.response_id, events.c.bias_type)
        .where(events.c.response_id.in_(types), events.c.bias_type.is_not(None))
        .distinct()
        .order_by(events.c.bias_type)
    )
    for id_, kind in connection.execute(bias_types):
        types[id_].append(kind)
    return [{**row, "types": ", ".join(types[row["id"]])} for row in rows]


class Response(NamedTuple):
    """A response, its policy, and a page of its ``total`` decisions."""

    row: Row
    policy: Mapping[str, Any]
    decisions: Sequence[Row]
    total: int


def response(connection: Connection, id_: str, first: int = 0) -> Response | None:
    """Return a response with its decisions from number ``first`` on, None if there is none."""
    row = connection.execute(select(responses).where(responses.c.id == id_)).first()
    if row is None:
        return None
    columns = dict(row._mapping)
    of_response = events.c.response_id == id_
    query = select(events).where(of_response, events.c.number >= first).order_by(events.c.number)
    decisions = [dict(e._mapping) for e in connection.execute(query.limit(DECISIONS))]
    policy = connection.scalar(
        select(settings.c.policy).where(settings.c.hash == columns["settings"])
    )
    total = connection.scalar(select(func.count()).select_from(events).where(of_response))
    return Response(columns, policy or {}, decisions, int(total or 0))


def newest(connection: Connection, now: float) -> list[dict[str, Any]]:
    """Return the newest responses of the last ten minutes, oldest first, whatever their door."""
    query = (
        select(responses)
        .where(responses.c.time >= now - _TAIL_S)
        .order_by(responses.c.time.desc(), responses.c.id.desc())
        .limit(NEWEST)
    )
    return _with_types(connection, query)[::-1]
