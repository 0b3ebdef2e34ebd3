"""Rates over time, as charts and tables."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import Connection

from guard.results import svg
from guard.results.estimate import Estimate
from guard.watch.dashboard.view import View
from guard.watch.rates import RateLine, Sums, line_of, rate_text, sums
from guard.watch.review_rates import Reviewed, ReviewedRate, estimates

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEIGHT = 2.1  # inches
_HEIGHT_OF_SEVERAL = 2.6  # with a legend
_LEGEND = 32  # characters of a name
_REVIEWED_PARTS = 7  # samples are small


@dataclass(frozen=True, slots=True)
class Point:
    """The rate from ``time``, seconds since 1970, to the next point; ``of`` is its denominator."""

    time: float
    rate: Estimate
    of: int


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure over the time of ``view``; ``text`` defines it.

    ``series`` has its points by name; a single line has the name "". ``unit`` is "%" for shares.
    """

    name: str
    title: str
    text: str
    series: Mapping[str, Sequence[Point]]
    view: View
    unit: str = "%"

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        points = (point for points in self.series.values() for point in points)
        return all(math.isnan(point.rate.value) for point in points)

    def svg(self) -> str:
        """Return the chart as an ``svg`` element."""
        draw = partial(_draw, self.series, self.view, self.unit)
        return svg.drawn(self.name, self.title, self.text, draw)

    def shown(self, point: Point) -> str:
        """Return the value of a point as text."""
        return rate_text(point.rate) if self.unit == "%" else f"{point.rate.value:.1f} {self.unit}"


_RATES: tuple[tuple[str, str, str, Callable[[RateLine], tuple[Estimate, int]], str], ...] = (
    (
        "prevalence",
        "Prevalence before the guard",
        "Share of the judged segments that were biased.",
        lambda line: (line.prevalence, line.segments),
        "%",
    ),
    (
        "mitigation",
        "Mitigation",
        "Share of the findings that did not reach the user.",
        lambda line: (line.mitigation, line.findings),
        "%",
    ),
    (
        "unjudged",
        "Unjudged",
        "Share of all segments that were not judged; prevalence and mitigation leave them out.",
        lambda line: (line.unjudged, line.segments + line.unjudged_segments),
        "%",
    ),
    (
        "verdict-time",
        "Time of a verdict",
        "Mean time that judging a segment took.",
        lambda line: (
            Estimate(line.verdict_ms),
            line.segments + line.unjudged_segments,
        ),
        "ms",
    ),
)


REVIEWED: tuple[tuple[str, str, str, Callable[[Reviewed], ReviewedRate]], ...] = (
    (
        "over-blocking",
        "Over-blocking, as reviewed",
        "Share of the findings kept from the user that were harmless.",
        lambda found: found.over_blocking,
    ),
    (
        "missed",
        "Missed, as reviewed",
        "Share of the biased segments in which guard found nothing.",
        lambda found: found.missed,
    ),
)


def over_time(
    connection: Connection, view: View, split: bool = False
) -> tuple[RateLine | None, list[Chart]]:
    """Return the rates of the view's responses, None if there are none, and their charts.

    With ``split`` a chart has a line for each value that the view breaks down by: the four with the
    most responses, or findings.
    """
    starts = view.starts()
    of_view = partial(sums, connection, view.since, view.until, starts=starts, only=view.only)
    parts = of_view(view.findings)
    series = {"": parts}
    if split:
        by_value: dict[str, list[Sums]] = defaultdict(list)
        for part in of_view(tuple(dict.fromkeys((view.by, *view.findings)))):
            by_value[part.by[view.by]].append(part)
        totals = {name: _added(of) for name, of in by_value.items()}
        # Every type of finding has all of the responses.
        most = sorted(totals, key=lambda name: (-totals[name].responses, -totals[name].f))
        series = {name: by_value[name] for name in sorted(most[: len(svg.SERIES)])}
    lines = {
        name: [(starts[s.part], line_of(s)) for s in sorted(of, key=lambda s: s.part)]
        for name, of in series.items()
    }
    charts = [
        Chart(
            name,
            title,
            text,
            {key: [Point(start, *of(line)) for start, line in each] for key, each in lines.items()},
            view,
            unit,
        )
        for name, title, text, of, unit in _RATES
    ]
    return (line_of(_added(parts)) if parts else None), charts


def reviewed(connection: Connection, view: View) -> tuple[Reviewed | None, list[Chart]]:
    """Return the estimates from marks for the view, None without marks, and their charts."""
    total = _estimates(connection, view, view.since, view.until)
    if total is None:
        return None, []
    ends = [*(starts := view.starts(_REVIEWED_PARTS)), view.until][1:]
    parts = [(s, _estimates(connection, view, s, e)) for s, e in zip(starts, ends, strict=True)]
    charts = [
        Chart(
            name,
            title,
            text,
            {
                "": [
                    Point(start, of(rates), int(of(rates).n))
                    for start, rates in parts
                    if rates is not None
                ]
            },
            view,
        )
        for name, title, text, of in REVIEWED
    ]
    return total, charts


def reviewed_by(connection: Connection, view: View) -> dict[str, Reviewed]:
    """Return the estimates from marks for each value that the view breaks down by."""
    names = tuple(dict.fromkeys((view.by, *view.only)))
    by_key = estimates(connection, view.since, view.until, names)
    lines = ((dict(zip(names, key, strict=True)), rates) for key, rates in by_key.items())
    return {of[view.by]: rates for of, rates in lines if view.only.items() <= of.items()}


def _estimates(connection: Connection, view: View, since: float, until: float) -> Reviewed | None:
    names = tuple(view.only)
    rates = estimates(connection, since, until, names).get(tuple(view.only.values()))
    return rates if rates is not None and any(estimate.n for estimate in rates) else None


def _added(parts: Sequence[Sums]) -> Sums:
    """Return the sums over all parts."""
    first = parts[0]
    rest = (sum(values) for values in zip(*(part[2:] for part in parts), strict=True))
    return Sums(first.by, 0, *rest)


def _draw(series: Mapping[str, Sequence[Point]], view: View, unit: str, figure: Figure) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import FuncFormatter

    figure.set_size_inches(svg.WIDTH, _HEIGHT if len(series) == 1 else _HEIGHT_OF_SEVERAL)
    ax: Any = figure.subplots()
    scale = 100 if unit == "%" else 1
    for (name, points), colour, marker in zip(
        series.items(), svg.SERIES, svg.MARKERS, strict=False
    ):
        times = [_utc(point.time) for point in points]
        values = [scale * point.rate.value for point in points]
        error = scale * np.nan_to_num([_error_bar(point.rate) for point in points]).T
        ax.errorbar(
            times, values, yerr=error, fmt=f"{marker}-", color=colour, label=name[:_LEGEND],
            markersize=3, linewidth=1.2, elinewidth=0.8, capsize=2, clip_on=False,
        )  # fmt: skip
    if len(series) > 1:
        figure.legend(loc="outside lower left", ncols=2)
    ax.set_xlim(_utc(view.since), _utc(view.until))
    ax.set_ylim(bottom=0)
    ax.grid(axis="y", linewidth=0.5)
    ax.set_axisbelow(True)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} {unit}"))
    locator = AutoDateLocator(tz=timezone.utc, minticks=3, maxticks=7)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=timezone.utc))


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


def _error_bar(rate: Estimate) -> tuple[float, float]:
    return max(rate.value - rate.low, 0), max(rate.high - rate.value, 0)
