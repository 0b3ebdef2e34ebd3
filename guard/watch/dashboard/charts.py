"""Rates over time, as charts and tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import Connection

from guard.page import svg
from guard.watch.dashboard.view import View
from guard.watch.rates import Line, Rate, Sums, line_of, sums
from guard.watch.review_rates import Estimate, Reviewed, estimates

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEIGHT = 2.1  # inches
_REVIEWED_PARTS = 7  # samples are small


@dataclass(frozen=True, slots=True)
class Point:
    """The rate from ``time``, seconds since 1970, to the next point; ``of`` is its denominator."""

    time: float
    rate: Rate
    of: int


@dataclass(frozen=True, slots=True)
class Chart:
    """A rate over the time of ``view``; ``text`` defines the rate."""

    name: str
    title: str
    text: str
    points: Sequence[Point]
    view: View

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return all(math.isnan(point.rate.value) for point in self.points)

    def svg(self) -> str:
        """Return the chart as an ``svg`` element."""
        return svg.drawn(self.name, self.title, self.text, partial(_draw, self.points, self.view))


_RATES: tuple[tuple[str, str, str, Callable[[Line], tuple[Rate, int]]], ...] = (
    (
        "prevalence",
        "Prevalence before the guard",
        "Share of the judged segments that were biased.",
        lambda line: (line.prevalence, line.segments),
    ),
    (
        "mitigation",
        "Mitigation",
        "Share of the findings that did not reach the user.",
        lambda line: (line.mitigation, line.findings),
    ),
    (
        "unjudged",
        "Unjudged",
        "Share of all segments that were not judged; prevalence and mitigation leave them out.",
        lambda line: (line.unjudged, line.segments + line.unjudged_segments),
    ),
)


REVIEWED: tuple[tuple[str, str, str, Callable[[Reviewed], Estimate]], ...] = (
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


def over_time(connection: Connection, view: View) -> tuple[Line | None, list[Chart]]:
    """Return the rates of the view's responses, None if there are none, and their charts."""
    starts = view.starts()
    parts = sums(connection, view.since, view.until, view.findings, starts=starts, only=view.only)
    lines = [(starts[s.part], line_of(s)) for s in sorted(parts, key=lambda s: s.part)]
    charts = [
        Chart(name, title, text, [Point(start, *of(line)) for start, line in lines], view)
        for name, title, text, of in _RATES
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
            [
                Point(start, of(rates).rate, of(rates).marked)
                for start, rates in parts
                if rates is not None
            ],
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
    return rates if rates is not None and any(estimate.marked for estimate in rates) else None


def _added(parts: Sequence[Sums]) -> Sums:
    """Return the sums over all parts."""
    first = parts[0]
    rest = (sum(values) for values in zip(*(part[2:] for part in parts), strict=True))
    return Sums(first.by, 0, *rest)


def _draw(points: Sequence[Point], view: View, figure: Figure) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import FuncFormatter

    figure.set_size_inches(svg.WIDTH, _HEIGHT)
    ax: Any = figure.subplots()
    times = [_utc(point.time) for point in points]
    values = [100 * point.rate.value for point in points]
    error = 100 * np.nan_to_num([_error_bar(point.rate) for point in points]).T
    ax.errorbar(
        times, values, yerr=error, fmt=f"{svg.MARKERS[0]}-", color=svg.SERIES[0],
        markersize=3, linewidth=1.2, elinewidth=0.8, capsize=2, clip_on=False,
    )  # fmt: skip
    ax.set_xlim(_utc(view.since), _utc(view.until))
    ax.set_ylim(bottom=0)
    ax.grid(axis="y", linewidth=0.5)
    ax.set_axisbelow(True)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:g} %"))
    locator = AutoDateLocator(tz=timezone.utc, minticks=3, maxticks=7)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=timezone.utc))


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


def _error_bar(rate: Rate) -> tuple[float, float]:
    return max(rate.value - rate.low, 0), max(rate.high - rate.value, 0)
