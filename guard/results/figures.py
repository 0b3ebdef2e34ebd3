"""The figures of one suite in one run, from which the suite draws its charts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from guard.results.chart import Chart, ChartSeries
from guard.results.estimate import Estimate
from guard.results.jackknife import Line, key_of

Row = TypeVar("Row")

MOST_CATEGORIES = 25
"""The most categories of a chart that has as many as a suite has measures."""


def in_arm(arm: str, line: Line) -> Estimate | None:
    """Return the estimate of an arm; None where there is no such arm."""
    return line.plain if arm == "plain" else line.guarded


def axis_text(axis: Mapping[str, str]) -> str:
    """Return the axis of a measure in words."""
    return " / ".join(axis.values()) or "all"


def widest_rows(
    rows: Sequence[Row], headline: frozenset[str], measure_of: Callable[[Row], Any]
) -> list[Row]:
    """Return the rows whose measures have the widest axes, and those of ``headline``: all if empty.

    ``measure_of`` returns what has the name and the axis of a row.
    """
    widest = min((len(measure_of(row).axis) for row in rows), default=0)
    return [
        row
        for row in rows
        if not headline or len(measure_of(row).axis) == widest or measure_of(row).name in headline
    ]


class SuiteFigures:
    """The estimates of a suite's measures in each arm, and the records that they come from.

    ``lines`` are those of the suite's measures, ``stops`` of what the guard stopped; ``records`` by
    arm are those of the suite's contract.
    """

    def __init__(
        self,
        lines: Sequence[Line],
        records: Mapping[str, Sequence[Any]],
        stops: Sequence[Line] = (),
        headline: frozenset[str] = frozenset(),
        legend: Mapping[str, str] | None = None,
    ) -> None:
        self.lines, self.records, self.stops = lines, records, stops
        self.headline = headline
        self.legend: Mapping[str, str] = legend or {}
        self._lines_by_key = {key_of(line.measure): line for line in lines}
        self._stops_by_key = {key_of(line.measure): line for line in stops}

    @property
    def arms(self) -> list[str]:
        """The names of the arms, plain first."""
        return list(self.records)

    def line(self, name: str, **axis: str) -> Line | None:
        """Return the estimates of a measure of the suite; None where it has no such axis."""
        return self._lines_by_key.get((name, tuple(sorted(axis.items()))))

    def stop(self, name: str, **axis: str) -> Line | None:
        """Return the estimates of a measure of what the guard stopped; None where there is none."""
        return self._stops_by_key.get((name, tuple(sorted(axis.items()))))

    def printed(self) -> list[Line]:
        """Return the measures that a table shows: the headline's, and those of the widest axes."""
        return widest_rows(self.lines, self.headline, lambda line: line.measure)

    def values_of(self, measure: str, axis: str) -> list[str]:
        """Return the values of an axis that a measure has, in their order."""
        axes = (line.measure.axis for line in self.lines if line.measure.name == measure)
        return list(dict.fromkeys(values[axis] for values in axes if axis in values))

    def by_arm(
        self, lines: Sequence[Line | None], panel: str = "", suffix: str = ""
    ) -> list[ChartSeries]:
        """Return the values of ``lines``, a category each, as a series of each arm."""
        return [
            ChartSeries.of_estimates(
                f"{arm}{suffix}",
                [None if line is None else in_arm(arm, line) for line in lines],
                panel,
            )
            for arm in self.arms
        ]


def headline_charts(figures: SuiteFigures) -> Iterator[Chart]:
    """Yield a chart of each headline measure, for a suite without charts of its own."""
    shown = figures.printed()
    for number, name in enumerate(dict.fromkeys(line.measure.name for line in shown)):
        lines = [line for line in shown if line.measure.name == name][:MOST_CATEGORIES]
        low = min(line.measure.bounds[0] for line in lines)
        high = max(line.measure.bounds[1] for line in lines)
        yield Chart(
            f"measure{number}",
            name,
            figures.legend.get(name, f"The suite's measure {name}") + ", with 95 % intervals.",
            "dots",
            [axis_text(line.measure.axis) for line in lines],
            figures.by_arm(lines),
            name,
            (low, high) if math.isfinite(low) and math.isfinite(high) else None,
            lines[0].measure.null,
        )
