"""Rates over time as charts, and the table of each."""

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
    """A rate of what began at ``time``, seconds since 1970; ``of`` is what it is a share of."""

    time: float
    rate: Rate
    of: int


@dataclass(frozen=True, slots=True)
class Chart:
    """A rate over time; ``text`` says of what it is the share."""

    name: str
    title: str
    text: str
    points: Sequence[Point]

    @property
    def drawn(self) -> bool:
        """Whether there is anything to draw."""
        return any(not math.isnan(point.rate.value) for point in self.points)

    def svg(self) -> str:
        """Return the chart as an ``svg`` element."""
        return svg.drawn(self.name, self.title, self.text, partial(_draw, self.points))


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
        "Not judged",
        "Share of all segments that were not judged; they are in neither of the others.",
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
        "Misses, as reviewed",
        "Share of the biased segments in which guard found nothing.",
        lambda found: found.missed,
    ),
)


def over_time(connection: Connection, view: View) -> tuple[Line | None, list[Chart]]:
    """Return the rates of all that ``view`` keeps, None for nothing, and their charts."""
    starts = view.starts()
    found = sums(connection, view.since, view.until, view.findings, starts=starts, only=view.only)
    lines = [(starts[one.part], line_of(one)) for one in sorted(found, key=lambda one: one.part)]
    charts = [
        Chart(name, title, text, [Point(start, *of(line)) for start, line in lines])
        for name, title, text, of in _RATES
    ]
    return (line_of(_added(found)) if found else None), charts


def reviewed(connection: Connection, view: View) -> tuple[Reviewed | None, list[Chart]]:
    """Return what reviewers' marks say of all that ``view`` keeps, None where there are none."""
    found = _estimates(connection, view, view.since, view.until)
    if found is None:
        return None, []
    ends = [*(starts := view.starts(_REVIEWED_PARTS)), view.until][1:]
    parts = [(s, _estimates(connection, view, s, e)) for s, e in zip(starts, ends, strict=True)]
    charts = [
        Chart(
            name,
            title,
            text,
            [
                Point(start, Rate(*of(one)[:3]), of(one).marked)
                for start, one in parts
                if one is not None
            ],
        )
        for name, title, text, of in REVIEWED
    ]
    return found, charts


def reviewed_by(connection: Connection, view: View) -> dict[str, Reviewed]:
    """Return what reviewers' marks say of each value that ``view`` breaks down by."""
    names = tuple(dict.fromkeys((view.by, *view.only)))
    found = estimates(connection, view.since, view.until, names)
    lines = ((dict(zip(names, key, strict=True)), one) for key, one in found.items())
    return {of[view.by]: one for of, one in lines if view.only.items() <= of.items()}


def _estimates(connection: Connection, view: View, since: float, until: float) -> Reviewed | None:
    names = tuple(view.only)
    found = estimates(connection, since, until, names).get(tuple(view.only.values()))
    return found if found is not None and any(one.marked for one in found) else None


def _added(found: Sequence[Sums]) -> Sums:
    """Return the sums of all parts."""
    first = found[0]
    rest = (sum(values) for values in zip(*(one[2:] for one in found), strict=True))
    return Sums(first.by, 0, *rest)


def _draw(points: Sequence[Point], figure: Figure) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import FuncFormatter

    figure.set_size_inches(svg.WIDTH, _HEIGHT)
    ax: Any = figure.subplots()
    times = [datetime.fromtimestamp(point.time, timezone.utc) for point in points]
    values = [100 * point.rate.value for point in points]
    error = 100 * np.nan_to_num([_beside(point.rate) for point in points]).T
    ax.errorbar(
        times, values, yerr=error, fmt=f"{svg.MARKERS[0]}-", color=svg.SERIES[0],
        markersize=3, linewidth=1.2, elinewidth=0.8, capsize=2, clip_on=False,
    )  # fmt: skip
    ax.set_ylim(bottom=0)
    ax.grid(axis="y", linewidth=0.5)
    ax.set_axisbelow(True)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:g} %"))
    locator = AutoDateLocator(tz=timezone.utc, minticks=3, maxticks=7)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=timezone.utc))


def _beside(rate: Rate) -> tuple[float, float]:
    return max(rate.value - rate.low, 0), max(rate.high - rate.value, 0)
