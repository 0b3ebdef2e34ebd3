"""A history as text, data and a page: series of each axis, and where they changed."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from itertools import groupby
from typing import Any

from guard import __version__
from guard.audit.files import cell
from guard.audit.grids import Grid, count_text, coverage_text, number_text
from guard.audit.reports.charts import Chart, ChartSeries, Mark
from guard.audit.reports.page import environment, figure
from guard.audit.reports.texts import one_line, shortened
from guard.audit.score import json_number
from guard.audit.trends import Point, Run, Series, Step
from guard.page import STYLE
from guard.suites.conclusions import ALPHA, p_text

FORMAT = 1
"""Changes when a reader of the JSON would have to."""
MOST = 60
"""So many charts a page has; --json has everything."""
_NAME = 32  # characters of a model or a release in a legend or a sentence
_COLUMNS = (
    *("suite", "arm", "measure", "axis", "series", "model", "id", "time", "release", "source"),
    *("value", "low", "high", "n", "coverage", "ideal", "change"),
)


def as_json(series: Sequence[Series], store: str, since: float) -> dict[str, Any]:
    """Return a history in plain values: numbers unrounded, nan as None, times in ISO 8601."""
    return {
        "format": FORMAT,
        "guard": __version__,
        "store": store,
        "since": None if math.isinf(since) else time_text(since),
        "level": ALPHA,
        "series": [_series(one) for one in series],
    }


def _series(one: Series) -> dict[str, Any]:
    parts = ("name", "suite", "arm", "measure", "model")
    return {
        **{part: getattr(one, part) for part in parts},
        "axis": dict(one.labels),
        "ideal": one.aim.ideal,
        "q": json_number(one.q),
        "differs": {part: list(values) for part, values in one.differs.items()},
        "key": one.points[-1].run.header.line(),
        "points": [_point(point) for point in one.points],
        "changes": [_step(step) for step in one.steps],
    }


def _point(point: Point) -> dict[str, Any]:
    run = point.run
    return {
        "id": run.id,
        "time": time_text(run.time),
        "release": run.release or None,
        "source": run.source,
        "model": run.model,
        **{n: json_number(getattr(point, n)) for n in ("value", "low", "high", "n", "coverage")},
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "direction": step.direction,
        **{name: getattr(step, name) for name in step.__slots__},
    }


def table(series: Sequence[Series]) -> str:
    """Return a CSV with a row for each point; formulas begin with an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for place, one in enumerate(series, 1):
        steps = {step.at: step.direction for step in one.steps}
        axis = "/".join(f"{name}={value}" for name, value in one.labels.items())
        for at, point in enumerate(one.points):
            run = point.run
            texts = [one.suite, one.arm, one.measure, axis, str(place), run.model, run.id]
            texts += [time_text(run.time), run.release, run.source]
            figures = (point.value, point.low, point.high, point.n, point.coverage, one.aim.ideal)
            numbers = [json_number(figure) for figure in figures]
            writer.writerow([*map(cell, texts), *numbers, steps.get(at, "")])
    return out.getvalue()


def leading(series: Sequence[Series]) -> list[Series]:
    """Return the series that a reader sees first: of each measure the widest, and all that changed.

    All series of an axis are there, or none.
    """
    least: dict[tuple[str, str, str], int] = {}
    for one in series:
        of = (one.suite, one.arm, one.measure)
        least[of] = min(least.get(of, len(one.labels)), len(one.labels))
    names = {
        one.name
        for one in series
        if one.steps or len(one.labels) == least[one.suite, one.arm, one.measure]
    }
    return [one for one in series if one.name in names]


def headlines(series: Sequence[Series]) -> list[str]:
    """Return what a history amounts to, in sentences, changes for the worse first."""
    if not series:
        return ["There is no audit in this time."]
    runs = {point.run.id for one in series for point in one.points}
    tested = sum(not math.isnan(one.q) for one in series)
    changes = [(step, one) for one in series for step in one.steps]
    changes.sort(key=lambda pair: -pair[0].worse)
    head = f"{len(changes)} changes" if len(changes) != 1 else "1 change"
    if not changes:
        head = "No change"
    return [
        f"{head} in {tested:,} series with two points or more, of {len(runs):,} audits.",
        *(f"{one.name} ({one.model}): {change_text(one, step)}." for step, one in changes),
    ]


def change_text(one: Series, step: Step) -> str:
    """Return a change in words: when, from what to what, and how sure its place is."""
    first, last = (run_text(one.points[at].run) for at in (step.first, step.last))
    at = run_text(one.points[step.at].run)
    place = "" if step.first == step.last else f"; it lies between {first} and {last} (95 %)"
    moved = f"{number_text(step.before)} → {number_text(step.after)}"
    span = f"{step.after - step.before:+.3f} [{step.low:+.3f}, {step.high:+.3f}]"
    return f"{step.direction} since {at}, {moved} ({span}){place}"


def differs_text(one: Series) -> str:
    """Return why a series does not join the one before it; empty for the first."""
    parts = "; ".join(f"{part}: {was}; now {now}" for part, (was, now) in one.differs.items())
    return (
        f"not joined with what was before {run_text(one.points[0].run)}: {parts}" if parts else ""
    )


def summary(series: Iterable[Series]) -> Grid:
    """Return a table with a row for each series: its latest figure, and what changed."""
    grid = Grid("Latest audit of each series, with its 95 % interval")
    grid.add_columns("axis", "model", "since", "latest")
    grid.add_columns("audits", "value", "ideal", "q", figures=True)
    grid.add_columns("change")
    for one in series:
        first, last = one.points[0], one.points[-1]
        notes = [differs_text(one), *(change_text(one, step) for step in one.steps)]
        grid.rows.append(
            [
                one.name, one.model, run_text(first.run), run_text(last.run),
                f"{len(one.points):,}", _value(last), f"{one.aim.ideal:g}",
                "–" if math.isnan(one.q) else p_text(one.q),
                "; ".join(filter(None, notes)) or "–",
            ]
        )  # fmt: skip
    return grid


def points(one: Series) -> Grid:
    """Return a table with a row for each point of a series."""
    grid = Grid(" · ".join(filter(None, (one.name, one.model, differs_text(one)))))
    grid.add_columns("time", "release")
    grid.add_columns("value", "n", "coverage", figures=True)
    grid.add_columns("change", "run")
    steps = {step.at: step.direction for step in one.steps}
    for at, point in enumerate(one.points):
        grid.rows.append(
            [
                time_text(point.run.time), point.run.release or "–", _value(point),
                count_text(point.n), coverage_text(point.coverage), steps.get(at, ""),
                point.run.source,
            ]
        )  # fmt: skip
    return grid


def _value(point: Point) -> str:
    span = f" [{number_text(point.low)}, {number_text(point.high)}]"
    return number_text(point.value) + ("" if math.isnan(point.low) else span)


def time_text(seconds: float) -> str:
    """Return a time in UTC, to the minute."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%MZ")


def run_text(run: Run) -> str:
    """Return what a run is called: its release with the day, or its time."""
    time = time_text(run.time)
    return f"{shortened(run.release, _NAME)} ({time[:10]})" if run.release else time


def charts(series: Sequence[Series]) -> Iterator[Chart]:
    """Yield a chart for each axis, its series in one."""
    for place, (name, of) in enumerate(groupby(series, key=lambda one: one.name)):
        yield _chart(f"axis{place}", name, list(of))


def _chart(name: str, title: str, axis_series: Sequence[Series]) -> Chart:
    runs: dict[str, Run] = {point.run.id: point.run for one in axis_series for point in one.points}
    order = sorted(runs.values(), key=lambda run: (run.time, run.id))
    place = {run.id: number for number, run in enumerate(order)}
    drawn: list[ChartSeries] = []
    marks: list[Mark] = []
    for number_, one in enumerate(axis_series, 1):
        points_by_place = {place[point.run.id]: point for point in one.points}
        values, lows, highs = (
            [
                getattr(points_by_place[n], part) if n in points_by_place else math.nan
                for n in range(len(order))
            ]
            for part in ("value", "low", "high")
        )
        label = shortened(one.model if len(axis_series) == 1 else f"{number_}. {one.model}", _NAME)
        drawn.append(ChartSeries(label, values, lows, highs))
        marks += [
            Mark(place[one.points[step.at].run.id] - 0.5, step.direction) for step in one.steps
        ]
    sentences = [differs_text(one) for one in axis_series if one.differs]
    sentences += [change_text(one, step) for one in axis_series for step in one.steps]
    sentences = ["The line across is the value of a fair model", *sentences]
    text = " ".join(f"{sentence[:1].upper()}{sentence[1:]}." for sentence in sentences)
    return Chart(
        name, title, text, "trend", [run_text(run) for run in order], drawn,
        axis_series[0].measure, None, axis_series[0].aim.ideal, marks,
    )  # fmt: skip


def page(series: Sequence[Series], store: str, since: float) -> str:
    """Return the page, which needs no network."""
    from markupsafe import Markup

    shown = leading(series)
    drawn = [chart for chart in charts(shown) if chart.has_data]
    until = "" if math.isinf(since) else f" since {time_text(since)}"
    text = environment().get_template("trend.html").render(
        title=one_line(f"Audit history{until}"),
        store=store,
        version=__version__,
        headlines=headlines(series),
        summary=summary(shown) if shown else None,
        hidden=len(series) - len(shown),
        figures=[figure(chart) for chart in drawn[:MOST]],
        further=max(0, len(drawn) - MOST),
        tables=[points(one) for one in shown],
        level=f"{ALPHA:.0%}",
        most=10_000,
        style=Markup(STYLE.read_text("utf-8")),
    )  # fmt: skip
    return str(text)
