"""Reports as plain values: what ``--json`` and ``--csv`` print and the dashboard exports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from guard.watch.alerts import Alert, Alerts
from guard.watch.compare import CompareRow, RateComparison, RateSide
from guard.watch.rates import Line, Rate, utc
from guard.watch.review_rates import Reviewed

Values = dict[str, Any]


def line_values(line: Line) -> Values:
    """Return a line of a report; rates are mappings of value, low and high."""
    values = {name: getattr(line, name) for name in line.__slots__ if name != "by"}
    rates = {name: value._asdict() for name, value in values.items() if isinstance(value, Rate)}
    return {**line.by, **values, **rates}


def reviewed_values(reviewed: Reviewed) -> Values:
    """Return estimates as mappings, nan if unknown."""
    return {name: estimate._asdict() for name, estimate in reviewed._asdict().items()}


def alert_values(alert: Alert) -> Values:
    """Return the test of one share."""
    given = ("by", "share", "difference")
    numbers = {name: getattr(alert, name) for name in alert.__slots__ if name not in given}
    shown = {"share": alert.share, "alarm": alert.alarm, "state": alert.state}
    return {**alert.by, **shown, **numbers, "difference": alert.difference._asdict()}


def alerts_values(week: Alerts) -> Values:
    """Return the tests of a week."""
    return {
        "since": utc(week.since),
        "until": utc(week.until),
        "baseline_since": utc(week.baseline_since),
        "alarm": week.alarm,
        "alerts": [alert_values(alert) for alert in week.results],
        "new": list(week.new),
    }


def compare_row_values(row: CompareRow) -> Values:
    """Return one rate on both sides."""
    sides = {
        "base": {**row.base._asdict(), "events": row.base_events, "of": row.base_of},
        "new": {**row.new._asdict(), "events": row.new_events, "of": row.new_of},
    }
    shown = {"difference": row.difference._asdict(), "p": row.p, "q": row.q, "state": row.state}
    return {**row.by, "rate": row.rate, **sides, **shown}


def comparison_values(comparison: RateComparison) -> Values:
    """Return a comparison."""

    def side(of: RateSide) -> Values:
        return {"name": of.name, "since": utc(of.since), "until": utc(of.until)}

    return {
        "base": side(comparison.base),
        "new": side(comparison.new),
        "worse": bool(comparison.worse),
        "comparable": comparison.comparable,
        "conclusion": comparison.conclusion,
        "tested": comparison.tested,
        "level": comparison.level,
        "rows": [compare_row_values(row) for row in comparison.rows],
        "one_sided": list(comparison.one_sided),
    }


def response_values(row: Mapping[str, Any]) -> Values:
    """Return a response's row with its time as text, and a column for each of its labels."""
    labels = {f"label.{name}": value for name, value in row["labels"].items()}
    return {**row, "time": utc(row["time"]), "labels": labels}
