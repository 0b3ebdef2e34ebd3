"""Trends: the history of each axis as series.

A series joins runs with equal comparability keys; the plain arm's keys ignore the guard.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, select

from guard.audit.header import PARTS, Header
from guard.audit.tolerances import matching
from guard.errors import UsageError
from guard.results.paired import Aim
from guard.watch.schema import audit_axes, audits


@dataclass(frozen=True, slots=True)
class Query:
    """Which part of a history to read; empty fields select everything.

    ``since`` is in seconds since 1970. ``axes`` are patterns. ``allowed`` are the parts of the
    comparability key that may differ within a series.
    """

    since: float = -math.inf
    suites: Sequence[str] = ()
    models: Sequence[str] = ()
    arm: str | None = None
    axes: Sequence[str] = ()
    allowed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Run:
    """A run of one suite; ``release`` is the user's label, empty for none."""

    id: str
    time: float
    model: str
    release: str
    source: str
    guard: str
    header: Header


@dataclass(frozen=True, slots=True)
class AxisPoint:
    """An axis in one run; undefined numbers are nan."""

    run: Run
    value: float
    low: float
    high: float
    n: float
    coverage: float


@dataclass(frozen=True, slots=True)
class Series:
    """The points of one axis with equal comparability keys, by time.

    ``differs`` maps the parts of the key that differ from the previous run's to the old and the new
    value; empty for the first series of an axis.
    """

    name: str
    suite: str
    arm: str
    measure: str
    labels: Mapping[str, str]
    aim: Aim
    points: Sequence[AxisPoint]
    differs: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """The model of the latest run."""
        return self.points[-1].run.model


def read_series(connection: Connection, query: Query, name: str = "The store") -> list[Series]:
    """Return the series of a query grouped by axis.

    Returns none if there are no audits since then. Raises UsageError where there are, but none of a
    suite, model or arm of the query; ConfigError where a pattern of an axis matches nothing.
    """
    runs = {
        row.id: Run(
            row.id, row.time, row.model, row.release or "", row.source, row.guard,
            Header.of(row.key, Path(name)),
        )
        for row in connection.execute(select(audits).where(audits.c.time >= query.since))
    }  # fmt: skip
    if not runs:
        return []
    _check_known("suite", query.suites, {run.header.suite for run in runs.values()}, name)
    _check_known("model", query.models, {run.model for run in runs.values()}, name)
    where = [audits.c.time >= query.since]
    where += [audits.c.suite.in_(query.suites)] if query.suites else []
    where += [audits.c.model.in_(query.models)] if query.models else []
    where += [audit_axes.c.arm == query.arm] if query.arm else []
    selected = select(audit_axes).join(audits, audits.c.id == audit_axes.c.audit_id).where(*where)
    order = (audits.c.time, audits.c.added, audits.c.id, audit_axes.c.number)
    rows_by_axis: dict[str, list[Row[Any]]] = {}
    for row in connection.execute(selected.order_by(*order)):
        rows_by_axis.setdefault(row.name, []).append(row)
    if not rows_by_axis and query.arm:
        raise UsageError(f"{name} has no {query.arm} arm in the selection; leave --arm out.")
    names = matching(query.axes, list(rows_by_axis))
    return [
        series for axis in names for series in _series_of(rows_by_axis[axis], runs, query.allowed)
    ]


def _check_known(kind: str, wanted: Sequence[str], known: set[str], name: str) -> None:
    for choice in wanted:
        if choice not in known:
            raise UsageError(
                f"{name} has no audit of the {kind} {choice!r} in that time; it has "
                f"{', '.join(sorted(known))}."
            )


def _series_of(
    rows: Sequence[Row[Any]], runs: Mapping[str, Run], allowed: frozenset[str]
) -> Iterator[Series]:
    """Yield the series of one axis; ``rows`` are in order of time."""

    def real(value: float | None) -> float:
        return math.nan if value is None else value

    points: dict[str, list[AxisPoint]] = {}
    differs: dict[str, Mapping[str, tuple[str, str]]] = {}
    before: Header | None = None
    for row in rows:
        run = runs[row.audit_id]
        header = _comparable_key(run.header, row.arm, allowed)
        key = json.dumps(asdict(header), sort_keys=True)
        if key not in points:
            differs[key] = {} if before is None else before.differences(header)
        before = header
        numbers = map(real, (row.value, row.low, row.high, row.n, row.coverage))
        points.setdefault(key, []).append(AxisPoint(run, *numbers))
    last = rows[-1]
    aim = Aim(last.ideal, above=last.above)
    for key, series_points in points.items():
        suite = series_points[0].run.header.suite
        yield Series(
            last.name, suite, last.arm, last.measure, last.labels, aim, series_points, differs[key]
        )


def _comparable_key(header: Header, arm: str, allowed: frozenset[str]) -> Header:
    """Return the key without the parts that may differ; the plain arm does not depend on guard."""
    ignored = allowed | {"guard"} if arm == "plain" else allowed
    none: dict[str, Any] = {
        PARTS[part]: type(getattr(header, PARTS[part]))() for part in ignored & PARTS.keys()
    }
    return replace(header, **none)
