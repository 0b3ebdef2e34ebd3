"""The history of audits: a store of the results of finished runs, axis by axis.

A row is one axis of one run: its estimate with interval, n, coverage and comparability key. Rows
are added and never changed. :mod:`guard.watch.store` opens, creates and checks the database, which
may also have events. :mod:`guard.audit.trends` reads the rows as series.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from guard import __version__
from guard.audit.baseline import run_identity
from guard.audit.score import json_number
from guard.audit.sides import Axis, MeasureFunctions, Side, SuiteSide
from guard.errors import GuardError, UsageError
from guard.results.estimate import Estimate
from guard.results.jackknife import interval_of
from guard.results.measure import Interval, Measure, Value
from guard.results.samples import Floats
from guard.watch.events import bounded, clean
from guard.watch.schema import audit_axes, audits
from guard.watch.store import Store


class Unfinished(GuardError):
    """A run has samples without an outcome, so nothing was added."""


@dataclass(frozen=True, slots=True)
class Added:
    """The result of adding one suite's run; ``new`` is False where the history already had it."""

    source: str
    suite: str
    model: str
    id: str
    new: bool


def add_runs(
    store: Store, runs: Sequence[tuple[Side, float]], release: str | None = None
) -> list[Added]:
    """Add finished runs, each with its time in seconds since 1970: all of them, or none.

    Runs that the history already has are left unchanged. Raises Unfinished where a sample has no
    outcome, UsageError where the store cannot be written, ConfigError where it is not a store.
    """
    for side, _ in runs:
        for suite in side.suites.values():
            if suite.harness:
                raise UsageError(
                    f"{side.name} is a log of {suite.harness}, and a history takes only guard's "
                    "own audits; leave it out."
                )
        if side.missing:
            raise Unfinished(
                f"{side.name} is not finished, so nothing was added: {side.missing:,} samples have "
                "no outcome. Run its command again to resume it."
            )
    rows = [
        (side.name, *_suite_rows(one, side.name, when, release))
        for side, when in runs
        for one in side.suites.values()
    ]
    added = []
    with store.adding() as connection:
        for source, run, axes in rows:
            # RETURNING, because not every driver reports the number of rows.
            insert = store.new(audits, run).returning(audits.c.id)
            new = connection.execute(insert).first() is not None
            if new and axes:
                connection.execute(audit_axes.insert(), axes)
            added.append(Added(source, run["suite"], run["model"], run["id"], new))
    return added


def _suite_rows(
    suite_run: SuiteSide, source: str, when: float, release: str | None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    header, functions = suite_run.header, MeasureFunctions(suite_run)
    run = {
        "id": run_identity(suite_run),
        "time": when,
        "added": time.time(),
        "suite": bounded(header.suite),
        "model": bounded(header.model),
        "release": bounded(release),
        "source": bounded(source),
        "guard": __version__,
        "key": header.line(),
        "items": suite_run.items,
    }
    estimates = {
        name: axis_estimate(axis, *functions.of(axis.measure), functions.interval_of(axis.measure))
        for name, axis in suite_run.axes.items()
    }
    coverage_by_arm = {
        axis.arm: estimates[n].value
        for n, axis in suite_run.axes.items()
        if axis.measure == "coverage"
    }
    axes = [
        {
            "audit_id": run["id"],
            "number": place,
            "name": clean(name),
            "arm": axis.arm,
            "measure": bounded(axis.measure),
            "labels": dict(axis.labels),
            **{
                part: json_number(getattr(estimates[name], part))
                for part in ("value", "low", "high")
            },
            "n": json_number(estimates[name].n) or 0,
            "unit": axis.unit,
            "coverage": json_number(coverage_by_arm.get(axis.arm, math.nan)),
            "ideal": axis.aim.ideal,
            "above": axis.aim.above,
        }
        for place, (name, axis) in enumerate(suite_run.axes.items())
    ]
    return run, axes


def axis_estimate(
    axis: Axis, value: Value, over: Value | None = None, interval: Interval | None = None
) -> Estimate:
    """Return the estimate of an axis with its 95 % interval, computed as in an audit's result.

    ``value`` and ``over`` map totals (..., k) to the measure and its n, ``interval`` is the
    measure's; a baseline's axis stores none of them.
    """

    def mean(totals: Floats) -> Floats:
        return value(totals[..., :-1])

    def n(totals: Floats) -> Floats:
        by_cluster = axis.unit == "cluster" and over is not None
        return over(totals[..., :-1]) if by_cluster and over else totals[..., -1]

    rows = axis.samples.rows
    samples = axis.samples.with_rows(np.hstack([rows, np.ones((len(rows), 1))]))
    measure = Measure(
        axis.measure, axis.labels, samples, mean, n, bounds=axis.aim.bounds, interval=interval
    )
    return interval_of(measure).estimate(measure)
