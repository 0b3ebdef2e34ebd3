"""Reports as plain values: what ``--json`` and ``--csv`` print and the dashboard exports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from guard.results.estimate import Estimate
from guard.watch.alerts import Alert, Alerts
from guard.watch.compare import CompareRow, RateComparison, RateSide
from guard.watch.rates import RateLine, utc
from guard.watch.review_rates import Reviewed, ReviewedRate

Values = dict[str, Any]


def line_values(line: RateLine) -> Values:
    """Return a line of a report; rates are mappings of value, low and high."""
    values = {name: getattr(line, name) for name in line.__slots__ if name != "by"}
    for name, value in values.items():
        if isinstance(value, Estimate):
            values[name] = interval_values(value)
    return {**line.by, **values}


def interval_values(rate: Estimate) -> Values:
    """Return a rate with the ends of its interval."""
    return {**rate.parts("value", "low", "high")}


def reviewed_values(reviewed: Reviewed) -> Values:
    """Return estimates as mappings, nan if unknown."""
    return {name: _reviewed_rate_values(rate) for name, rate in reviewed._asdict().items()}


def _reviewed_rate_values(rate: ReviewedRate) -> Values:
    return {
        **interval_values(rate), "marked": rate.n, "unclear": rate.unclear, "reason": rate.reason
    }  # fmt: skip


def alert_values(alert: Alert) -> Values:
    """Return the test of one share."""
    apart = ("by", "share", "difference")
    numbers = {name: getattr(alert, name) for name in alert.__slots__ if name not in apart}
    shown = {"share": alert.share, "alarm": alert.alarm, "state": alert.state}
    return {**alert.by, **shown, **numbers, "difference": interval_values(alert.difference)}


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
        "base": {**interval_values(row.base), "events": row.base_events, "of": row.base_of},
        "new": {**interval_values(row.new), "events": row.new_events, "of": row.new_of},
    }
    difference = interval_values(row.difference)
    shown = {"difference": difference, "p": row.p, "q": row.q, "state": row.state}
    return {**row.by, "rate": row.rate, **sides, **shown}


def comparison_values(comparison: RateComparison) -> Values:
    """Return a comparison."""

    def side(period: RateSide) -> Values:
        return {"name": period.name, "since": utc(period.since), "until": utc(period.until)}

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
