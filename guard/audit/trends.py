"""Trends: the figures of a history as series of each axis, and where their level changed.

Figures are joined to a series only where their comparability keys are equal; the plain arm's do not
depend on the guard. :mod:`guard.audit.changes` says where a series changed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, select

from guard.audit.changes import SeriesChanges, changes
from guard.audit.header import PARTS, Header
from guard.audit.paired import Aim
from guard.audit.tolerances import matching
from guard.errors import UsageError
from guard.watch.schema import audit_axes, audits

_REACH = 1.959964
"""Standard errors that a normal figure's 95 % interval reaches to either side."""


@dataclass(frozen=True, slots=True)
class Query:
    """What of a history is asked for: everything where a field is empty.

    ``since`` is in seconds since 1970, ``axes`` are patterns, ``allowed`` are parts of the key that
    may differ within a series.
    """

    since: float = -math.inf
    suites: Sequence[str] = ()
    models: Sequence[str] = ()
    arm: str | None = None
    axes: Sequence[str] = ()
    allowed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Run:
    """One suite's run. ``release`` is the label that it was given, empty for none."""

    id: str
    time: float
    model: str
    release: str
    source: str
    guard: str
    header: Header


@dataclass(frozen=True, slots=True)
class Point:
    """An axis of a run; what does not exist is nan."""

    run: Run
    value: float
    low: float
    high: float
    n: float
    coverage: float

    @property
    def error(self) -> float:
        """The standard error by which it is tested: of the wider side of its interval."""
        return max(self.high - self.value, self.value - self.low) / _REACH

    @property
    def tested(self) -> bool:
        """Whether it has an interval, so that a change could be told from noise."""
        return math.isfinite(self.error) and self.error > 0


@dataclass(frozen=True, slots=True)
class Step:
    """A change of level at point ``at`` of a series, which lies at ``first`` to ``last`` with 95 %.

    ``low`` and ``high`` are the 95 % interval of ``after`` less ``before``; ``worse`` is by how
    much ``after`` is further off the ideal.
    """

    at: int
    first: int
    last: int
    before: float
    after: float
    low: float
    high: float
    worse: float
    p: float

    @property
    def direction(self) -> str:
        """Whether it changed for the worse or the better."""
        return "worse" if self.worse > 0 else "better" if self.worse < 0 else "as far off"


@dataclass(frozen=True, slots=True)
class Series:
    """The points of one axis whose keys are equal, by time.

    ``differs`` says by part of the key what the run before its first one had, and what it has;
    empty for the first series of an axis. ``q`` is of its never having changed, corrected over all
    series that were asked for; nan where fewer than two points have intervals.
    """

    name: str
    suite: str
    arm: str
    measure: str
    labels: Mapping[str, str]
    aim: Aim
    points: Sequence[Point]
    differs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    q: float = math.nan
    steps: Sequence[Step] = ()

    @property
    def model(self) -> str:
        """The model of the latest run."""
        return self.points[-1].run.model


def read(connection: Connection, wanted: Query, name: str = "The store") -> list[Series]:
    """Return the series of what is wanted, those of one axis beside each other, with their changes.

    Raises UsageError where a selector matches nothing although there are audits in that time.
    """
    runs = {
        row.id: Run(
            row.id, row.time, row.model, row.release or "", row.source, row.guard,
            Header.of(row.key, Path(name)),
        )
        for row in connection.execute(select(audits).where(audits.c.time >= wanted.since))
    }  # fmt: skip
    if not runs:
        return []
    _check("suite", wanted.suites, {run.header.suite for run in runs.values()}, name)
    _check("model", wanted.models, {run.model for run in runs.values()}, name)
    where = [audits.c.time >= wanted.since]
    where += [audits.c.suite.in_(wanted.suites)] if wanted.suites else []
    where += [audits.c.model.in_(wanted.models)] if wanted.models else []
    where += [audit_axes.c.arm == wanted.arm] if wanted.arm else []
    query = select(audit_axes).join(audits, audits.c.id == audit_axes.c.audit_id).where(*where)
    order = (audits.c.time, audits.c.added, audits.c.id, audit_axes.c.number)
    rows_by_axis: dict[str, list[Row[Any]]] = {}
    for row in connection.execute(query.order_by(*order)):
        rows_by_axis.setdefault(row.name, []).append(row)
    if not rows_by_axis and wanted.arm:
        raise UsageError(f"{name} has no {wanted.arm} arm of what was asked for.")
    names = matching(wanted.axes, list(rows_by_axis))
    series = [one for axis in names for one in _series(rows_by_axis[axis], runs, wanted.allowed)]
    return _with_changes(series)


def _check(kind: str, wanted: Sequence[str], known: set[str], name: str) -> None:
    for one in wanted:
        if one not in known:
            raise UsageError(
                f"{name} has no audit of the {kind} {one!r} in that time; it has "
                f"{', '.join(sorted(known))}."
            )


def _series(
    rows: Sequence[Row[Any]], runs: Mapping[str, Run], allowed: frozenset[str]
) -> Iterator[Series]:
    """Yield the series of one axis, whose ``rows`` are by time."""
    points: dict[str, list[Point]] = {}
    differs: dict[str, Mapping[str, tuple[str, str]]] = {}
    before: Header | None = None
    for row in rows:
        run = runs[row.audit_id]
        header = _compared(run.header, row.arm, allowed)
        key = json.dumps(asdict(header), sort_keys=True)
        if key not in points:
            differs[key] = {} if before is None else before.differences(header)
        before = header
        told = (_or_nan(value) for value in (row.value, row.low, row.high, row.n, row.coverage))
        points.setdefault(key, []).append(Point(run, *told))
    last = rows[-1]
    aim = Aim(last.ideal, above=last.above)
    for key, series_points in points.items():
        suite = series_points[0].run.header.suite
        yield Series(
            last.name, suite, last.arm, last.measure, last.labels, aim, series_points, differs[key]
        )


def _compared(header: Header, arm: str, allowed: frozenset[str]) -> Header:
    """Return a key without what may differ: of the plain arm also the guard, which comes later."""
    freed = allowed | {"guard"} if arm == "plain" else allowed
    none: dict[str, Any] = {
        PARTS[part]: type(getattr(header, PARTS[part]))() for part in freed & PARTS.keys()
    }
    return replace(header, **none)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _with_changes(series: Sequence[Series]) -> list[Series]:
    """Return the series with where they changed, tested together."""
    places = [[at for at, point in enumerate(one.points) if point.tested] for one in series]
    figures = [
        (
            np.array([one.points[at].value for at in tested]),
            np.array([one.points[at].error for at in tested]),
        )
        for one, tested in zip(series, places, strict=True)
    ]
    return [
        replace(one, q=found.q, steps=list(_steps(one.aim, found, tested)))
        for one, found, tested in zip(series, changes(figures), places, strict=True)
    ]


def _steps(aim: Aim, found: SeriesChanges, places: Sequence[int]) -> Iterator[Step]:
    for change in found.changes:
        moved, reach = change.after - change.before, _REACH * change.error
        yield Step(
            places[change.at],
            places[change.first],
            places[change.last],
            change.before,
            change.after,
            moved - reach,
            moved + reach,
            float(aim.distance(change.after) - aim.distance(change.before)),
            change.p,
        )
