"""A history as text, data and a page: the series of each axis over time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from itertools import groupby
from typing import Any

from guard import __version__
from guard.audit.report import FOLDER
from guard.audit.score import json_number
from guard.audit.trends import AxisPoint, Run, Series
from guard.results.chart import Chart, ChartSeries
from guard.results.pages import render_page
from guard.results.table import Table, csv_text
from guard.texts import one_line, shortened

FORMAT = 2
"""Changes with every change that breaks readers of the JSON."""
MOST = 60
"""The most charts of a page; --json has everything."""
_ROWS = 10_000  # of a table on the page
_NAME = 32  # characters of a model or a release in a legend or a sentence
_COLUMNS = (
    *("suite", "arm", "measure", "axis", "series", "model", "id", "time", "release", "source"),
    *("value", "low", "high", "n", "coverage", "ideal"),
)


def as_json(series: Sequence[Series], store: str, since: float) -> dict[str, Any]:
    """Return a history in plain values: numbers unrounded, nan as None, times in ISO 8601."""
    return {
        "format": FORMAT,
        "guard": __version__,
        "store": store,
        "since": None if math.isinf(since) else time_text(since),
        "series": [_series_values(one) for one in series],
    }


def _series_values(axis_series: Series) -> dict[str, Any]:
    parts = ("name", "suite", "arm", "measure", "model")
    return {
        **{part: getattr(axis_series, part) for part in parts},
        "axis": dict(axis_series.labels),
        "ideal": axis_series.aim.ideal,
        "differs": {part: list(values) for part, values in axis_series.differs.items()},
        "key": axis_series.points[-1].run.header.line(),
        "points": [_point_values(point) for point in axis_series.points],
    }


def _point_values(point: AxisPoint) -> dict[str, Any]:
    run = point.run
    return {
        "id": run.id,
        "time": time_text(run.time),
        "release": run.release or None,
        "source": run.source,
        "model": run.model,
        **{n: json_number(getattr(point, n)) for n in ("value", "low", "high", "n", "coverage")},
    }


def history_csv(series: Sequence[Series]) -> str:
    """Return a CSV with a row for each point; formulas begin with an apostrophe."""
    return csv_text(_COLUMNS, (r for n, one in enumerate(series, 1) for r in _series_rows(one, n)))


def _series_rows(axis_series: Series, number: int) -> Iterator[list[object]]:
    axis = "/".join(f"{name}={value}" for name, value in axis_series.labels.items())
    for point in axis_series.points:
        run = point.run
        texts = [
            axis_series.suite,
            axis_series.arm,
            axis_series.measure,
            axis,
            str(number),
            run.model,
            run.id,
        ]
        texts += [time_text(run.time), run.release, run.source]
        figures = (
            point.value,
            point.low,
            point.high,
            point.n,
            point.coverage,
            axis_series.aim.ideal,
        )
        yield [*texts, *map(json_number, figures)]


def leading_series(series: Sequence[Series]) -> list[Series]:
    """Return the main series: the widest axes of each measure."""
    least: dict[tuple[str, str, str], int] = {}
    for axis_series in series:
        measure = (axis_series.suite, axis_series.arm, axis_series.measure)
        least[measure] = min(least.get(measure, len(axis_series.labels)), len(axis_series.labels))
    return [one for one in series if len(one.labels) == least[one.suite, one.arm, one.measure]]


def history_headline(series: Sequence[Series]) -> str:
    """Return in a sentence how much a history has."""
    if not series:
        return "There is no audit in this time."
    runs = {point.run.id for one in series for point in one.points}
    return f"{len(series):,} series of {len(runs):,} audits."


def differs_text(axis_series: Series) -> str:
    """Return why a series does not join the one before it; empty for the first."""
    parts = "; ".join(
        f"{part}: {was}; now {now}" for part, (was, now) in axis_series.differs.items()
    )
    return (
        f"not joined with audits before {run_text(axis_series.points[0].run)}: {parts}"
        if parts
        else ""
    )


def summary_table(series: Iterable[Series]) -> Table:
    """Return a table with a row for each series: its latest value."""
    table = Table("Latest audit of each series, with its 95 % interval")
    table.add_columns("axis", "model", "since", "latest")
    table.add_columns("audits", unit="count")
    table.add_columns("value", unit="estimate")
    table.add_columns("ideal", unit="figure")
    table.add_columns("note")
    for axis_series in series:
        first, last = axis_series.points[0], axis_series.points[-1]
        texts = [axis_series.name, axis_series.model, run_text(first.run), run_text(last.run)]
        figures = [len(axis_series.points), last, f"{axis_series.aim.ideal:g}"]
        table.rows.append([*texts, *figures, differs_text(axis_series) or "–"])
    return table


def points_table(axis_series: Series) -> Table:
    """Return a table with a row for each point of a series."""
    table = Table(
        " · ".join(filter(None, (axis_series.name, axis_series.model, differs_text(axis_series))))
    )
    table.add_columns("time", "release")
    table.add_columns("value", unit="estimate")
    table.add_columns("n", unit="count")
    table.add_columns("coverage", unit="share")
    table.add_columns("run")
    for point in axis_series.points:
        run = point.run
        cells = [time_text(run.time), run.release or "–", point, point.n, point.coverage]
        table.rows.append([*cells, run.source])
    return table


def time_text(seconds: float) -> str:
    """Return a time in UTC, to the minute."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%MZ")


def run_text(run: Run) -> str:
    """Return the name of a run: its release with the day, or its time."""
    time = time_text(run.time)
    return f"{shortened(run.release, _NAME)} ({time[:10]})" if run.release else time


def axis_charts(series: Sequence[Series]) -> Iterator[Chart]:
    """Yield a chart for each axis, its series in one."""
    for place, (name, axis_series) in enumerate(groupby(series, key=lambda each: each.name)):
        yield _axis_chart(f"axis{place}", name, list(axis_series))


def _axis_chart(name: str, title: str, axis_series: Sequence[Series]) -> Chart:
    runs: dict[str, Run] = {point.run.id: point.run for one in axis_series for point in one.points}
    order = sorted(runs.values(), key=lambda run: (run.time, run.id))
    chart_series: list[ChartSeries] = []
    for number, model_series in enumerate(axis_series, 1):
        points_by_run = {point.run.id: point for point in model_series.points}
        shown = [points_by_run.get(run.id) for run in order]
        values, lows, highs = (
            [math.nan if point is None else getattr(point, part) for point in shown]
            for part in ("value", "low", "high")
        )
        label = shortened(
            model_series.model if len(axis_series) == 1 else f"{number}. {model_series.model}",
            _NAME,
        )
        chart_series.append(ChartSeries(label, values, lows, highs))
    sentences = [differs_text(one) for one in axis_series if one.differs]
    sentences = ["The horizontal line is the value of a fair model", *sentences]
    text = " ".join(f"{sentence[:1].upper()}{sentence[1:]}." for sentence in sentences)
    return Chart(
        name, title, text, "trend", [run_text(run) for run in order], chart_series,
        axis_series[0].measure, None, axis_series[0].aim.ideal,
    )  # fmt: skip


def history_page(series: Sequence[Series], store: str, since: float) -> str:
    """Return the page, which needs no network."""
    shown = leading_series(series)
    with_data = [chart for chart in axis_charts(shown) if chart.has_data]
    until = "" if math.isinf(since) else f" since {time_text(since)}"
    return render_page(
        FOLDER,
        "history.html",
        title=one_line(f"Audit history{until}"),
        store=store,
        headline=history_headline(series),
        summary=summary_table(shown) if shown else None,
        hidden=len(series) - len(shown),
        figures=with_data[:MOST],
        further=max(0, len(with_data) - MOST),
        tables=[points_table(one) for one in shown],
        most=_ROWS,
    )
