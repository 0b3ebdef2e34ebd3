"""A chart: categories, series with intervals, and the same as a table for who cannot see it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal, NamedTuple

from guard.results.estimate import Estimate
from guard.results.table import Column, Table, with_interval

if TYPE_CHECKING:
    from markupsafe import Markup

ChartKind = Literal["dots", "bars", "stacked", "radar", "trend", "time"]
MOST_SERIES = 4
"""The most series of a chart that each have a colour and a mark of their own."""
SHARES = (0.0, 1.0)
"""The limits of an axis of shares."""


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """A value by category, nan for none, with its interval where ``low`` and ``high`` are given.

    Series of one ``panel`` are drawn over each other. ``texts`` are the values in the words of the
    table, by default with three decimals. In a chart over time a series has values at ``times``,
    in seconds since 1970, each computed from ``n`` elements.
    """

    name: str
    values: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    panel: str = ""
    texts: Sequence[str] = ()
    times: Sequence[float] = ()
    n: Sequence[int] = ()

    @classmethod
    def of_estimates(
        cls, name: str, estimates: Sequence[Estimate | None], panel: str = ""
    ) -> ChartSeries:
        """Return estimates as a series."""

        def values(part: str) -> list[float]:
            return [math.nan if e is None else float(getattr(e, part)) for e in estimates]

        return cls(name, values("value"), values("low"), values("high"), panel)

    def text(self, place: int) -> str:
        """Return the value at a place, with its interval."""
        if self.texts:
            return self.texts[place]
        low, high = (self.low[place], self.high[place]) if self.low else (math.nan, math.nan)
        return with_interval(self.values[place], low, high)


class ChartMark(NamedTuple):
    """A labelled line across a trend, between the categories around ``at``."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with its explanation; ``name`` is unique on its page.

    ``label`` and ``limits`` are those of the axis of values. ``null`` is the value of a fair model.
    The categories of a ``trend`` are in order of time; only a trend has ``marks``. A chart over
    ``time`` has no categories but a ``span`` in seconds since 1970; its label is the unit of its
    values, and ``series_are`` says what its series are.
    """

    name: str
    title: str
    text: str
    kind: ChartKind
    categories: Sequence[str]
    series: Sequence[ChartSeries]
    label: str = ""
    limits: tuple[float, float] | None = None
    null: float | None = None
    marks: Sequence[ChartMark] = ()
    span: tuple[float, float] = (0.0, 0.0)
    series_are: str = "series"

    @property
    def panels(self) -> list[str]:
        """The names of the panels, in their order."""
        return list(dict.fromkeys(each.panel for each in self.series))

    @property
    def names(self) -> list[str]:
        """The names of the series, in their order."""
        return list(dict.fromkeys(each.name for each in self.series))

    @property
    def has_data(self) -> bool:
        """Whether there is anything to draw."""
        return any(not math.isnan(value) for each in self.series for value in each.values)

    def table(self) -> Table:
        """Return a table of the chart's values."""
        if self.kind == "time":
            return self._table_over_time()
        several = len(self.panels) > 1
        table = Table(self.title)
        table.add_columns(*(("panel",) if several else ()), "of")
        table.add_columns(*self.names, unit="figure")
        for panel in self.panels:
            by_name = {each.name: each for each in self.series if each.panel == panel}
            for place, category in enumerate(self.categories):
                cells = [
                    by_name[name].text(place) if name in by_name else "–" for name in self.names
                ]
                table.rows.append([*([panel] if several else []), category, *cells])
        return table

    def _table_over_time(self) -> Table:
        several = len(self.series) > 1
        columns = [Column("from"), *([Column(self.series_are)] if several else [])]
        value = "rate" if self.label == "%" else "mean"
        table = Table(self.title, [*columns, Column(value, "figure"), Column("of", "count")])
        for each in self.series:
            for place, time in enumerate(each.times):
                when = datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%d %H:%M")
                name = [each.name] if several else []
                table.rows.append([when, *name, each.text(place), each.n[place]])
        return table

    def svg(self) -> Markup:
        """Return the chart as an ``svg`` element, labelled for screen readers."""
        from markupsafe import Markup

        from guard.results.drawing import draw

        return Markup(draw(self))

    def html(self) -> Markup:
        """Return the chart with its explanation and its table, for a page in guard's style."""
        from guard.results.pages import macros

        return macros().figure(self)
