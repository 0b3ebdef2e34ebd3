"""The data of a chart: categories, series with intervals, and the same as a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from guard.audit.grids import Grid, in_arm, with_interval
from guard.audit.score import SuiteResult
from guard.results.estimate import Estimate
from guard.results.jackknife import Line, key_of

Kind = Literal["dots", "bars", "stacked", "radar", "trend"]


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """A value by category, nan for none, with its interval where ``low`` and ``high`` are given.

    Series of one ``panel`` are drawn over each other.
    """

    name: str
    values: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    panel: str = ""

    def text(self, place: int) -> str:
        """Return the value at a place, with its interval."""
        low, high = (self.low[place], self.high[place]) if self.low else (math.nan, math.nan)
        return with_interval(self.values[place], low, high)


class Mark(NamedTuple):
    """A labelled line across a trend, between the categories around ``at``."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with its explanation; ``name`` is unique in its report.

    ``label`` and ``limits`` are those of the axis of values. ``null`` is the value of a fair model.
    The categories of a ``trend`` are in order of time; only a trend has ``marks``.
    """

    name: str
    title: str
    text: str
    kind: Kind
    categories: Sequence[str]
    series: Sequence[ChartSeries]
    label: str = ""
    limits: tuple[float, float] | None = None
    null: float | None = None
    marks: Sequence[Mark] = ()

    @property
    def panels(self) -> list[str]:
        """The names of the panels, in their order."""
        return list(dict.fromkeys(one.panel for one in self.series))

    @property
    def has_data(self) -> bool:
        """Whether there is anything to draw."""
        return any(not math.isnan(value) for one in self.series for value in one.values)

    def table(self) -> Grid:
        """Return a table of the chart's values."""
        names = list(dict.fromkeys(one.name for one in self.series))
        several = len(self.panels) > 1
        grid = Grid(self.title)
        grid.add_columns(*(("panel",) if several else ()), "of")
        grid.add_columns(*names, figures=True)
        for panel in self.panels:
            of = {one.name: one for one in self.series if one.panel == panel}
            for place, category in enumerate(self.categories):
                cells = [of[name].text(place) if name in of else "–" for name in names]
                grid.rows.append([*([panel] if several else []), category, *cells])
        return grid


Found = Callable[..., Line | None]


def found_in(lines: Iterable[Line]) -> Found:
    """Return a function from a measure's name and axis to its line, or None."""
    lines_by_key = {key_of(line.measure): line for line in lines}
    return lambda name, **axis: lines_by_key.get((name, tuple(sorted(axis.items()))))


def by_arm(
    result: SuiteResult, lines: Sequence[Line | None], panel: str = "", suffix: str = ""
) -> list[ChartSeries]:
    """Return the values of ``lines``, a category each, as a series of each arm."""
    arm_series = []
    for arm in result.arms:
        estimates = [None if line is None else in_arm(arm, line) for line in lines]
        arm_series.append(series(f"{arm}{suffix}", estimates, panel))
    return arm_series


def series(name: str, estimates: Sequence[Estimate | None], panel: str = "") -> ChartSeries:
    """Return estimates as a series."""

    def values(part: str) -> list[float]:
        return [math.nan if e is None else float(getattr(e, part)) for e in estimates]

    return ChartSeries(name, values("value"), values("low"), values("high"), panel)


def axis_text(axis: Mapping[str, str]) -> str:
    """Return the axis of a measure in words."""
    return " / ".join(axis.values()) or "all"
