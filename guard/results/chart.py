"""One chart: its values as SVG, drawn by Matplotlib, and as a table for who cannot see it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from guard.results.estimate import Estimate
from guard.results.svg import INK, MARKERS, PAPER, SERIES, WIDTH, drawn_figure
from guard.results.table import Column, Table, with_interval
from guard.texts import one_line, shortened

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

ChartKind = Literal["dots", "bars", "stacked", "radar", "trend", "time"]
MOST_SERIES = len(SERIES)
"""The most series of a chart that each have a colour and a mark of their own."""
SHARES = (0.0, 1.0)
"""The limits of an axis of shares."""

_HATCHES = ("", "///", "...", "xxx")
_LABEL = 32  # characters in a line of a label
_LINES = 2
_TICKS_ACROSS = 6  # intervals between labels below rows
_SIDE = 0.15  # inches beside the axes: half of a label may stand out
_TICKS = 8  # labels below a trend
_LEGEND = 32  # characters of a name beside a chart over time


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


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with its explanation; ``name`` is unique on its page.

    ``label`` and ``limits`` are those of the axis of values. ``null`` is the value of a fair model.
    The categories of a ``trend`` are in order of time. A chart over
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
                when = _utc_time(time).strftime("%Y-%m-%d %H:%M")
                name = [each.name] if several else []
                table.rows.append([when, *name, each.text(place), each.n[place]])
        return table

    def svg(self) -> Markup:
        """Return the chart as an ``svg`` element, labelled for screen readers."""
        from markupsafe import Markup

        return Markup(_drawn_svg(self))

    def html(self) -> Markup:
        """Return the chart with its explanation and its table, for a page in guard's style."""
        from guard.results.pages import page_macros

        html: Markup = page_macros().figure(self)
        return html


def _drawn_svg(chart: Chart) -> str:
    drawers: dict[str, Callable[[Chart, Figure], None]] = {
        "dots": partial(_draw_rows, mark=_draw_dots),
        "bars": partial(_draw_rows, mark=_draw_bars),
        "stacked": partial(_draw_rows, mark=_draw_stacked),
        "radar": _draw_radar,
        "trend": _draw_trend,
        "time": _over_time,
    }
    return drawn_figure(chart.name, chart.title, chart.text, partial(drawers[chart.kind], chart))


def _label_text(text: str) -> str:
    return "\n".join(textwrap.wrap(one_line(text), _LABEL, max_lines=_LINES, placeholder=" …"))


DrawPanel = Any  # (axes, chart, series of a panel, places of the names) -> None


def _draw_rows(chart: Chart, figure: Figure, mark: DrawPanel) -> None:
    """Draw categories below each other, and panels beside each other."""
    panels, names = chart.panels, chart.names
    labels = [_label_text(text) for text in chart.categories]
    lines = max(text.count("\n") + 1 for text in labels)
    tall = 1 if mark is _draw_stacked else len(names)
    figure.set_size_inches(WIDTH, 1.1 + max(0.18 * lines, 0.13 * tall) * len(labels) + 0.1 * tall)
    figure.set_layout_engine("constrained", w_pad=_SIDE)
    axes = figure.subplots(1, len(panels), sharey=True, sharex=True, squeeze=False)[0]
    for ax, panel in zip(axes, panels, strict=True):
        mark(ax, chart, [one for one in chart.series if one.panel == panel], names)
        ax.set_yticks(range(len(labels)), labels)
        ax.grid(axis="x", linewidth=0.5)
        ax.set_axisbelow(True)
        ax.tick_params(length=0)
        ax.set_title(one_line(panel), fontsize=9)
        if chart.limits:
            ax.set_xlim(*chart.limits)
        else:
            ax.locator_params(axis="x", nbins=_TICKS_ACROSS)
        if chart.null is not None:
            ax.axvline(chart.null, color=INK, linewidth=0.8)
    axes[0].set_ylim(len(labels) - 0.4, -0.6)
    figure.supxlabel(chart.label, fontsize=9)
    _draw_legend(figure, axes, names)


def _draw_legend(figure: Figure, axes: Any, names: Sequence[str]) -> None:
    if len(names) < 2:
        return
    handles: dict[str, Any] = {}
    for ax in axes:
        for handle, name in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper left", ncols=min(len(names), 4)
    )


def _place_of(names: Sequence[str], name: str) -> tuple[float, int]:
    """Return how far from its row a series is drawn, and which of the names it is."""
    number = names.index(name)
    return (number - (len(names) - 1) / 2) * 0.7 / len(names), number


def _draw_dots(ax: Any, chart: Chart, shown: Sequence[ChartSeries], names: Sequence[str]) -> None:
    # Where each category has a point of one series alone, it is drawn in the middle of its row.
    by_category = zip(*(one.values for one in shown), strict=True)
    alone = all(sum(not math.isnan(value) for value in values) <= 1 for values in by_category)
    for line in shown:
        off, number = _place_of(names, line.name)
        y = np.arange(len(line.values)) + (0.0 if alone else off)
        value = np.array(line.values, float)
        low, high = (np.array(bound or line.values, float) for bound in (line.low, line.high))
        # Matplotlib takes no negative lengths, which rounding makes.
        error = np.nan_to_num(np.maximum([value - low, high - value], 0))
        ax.errorbar(
            value, y, xerr=error, fmt=MARKERS[number % 4], color=SERIES[number % 4],
            markersize=4, elinewidth=1.4, label=line.name, clip_on=False,
        )  # fmt: skip


def _draw_bars(ax: Any, chart: Chart, shown: Sequence[ChartSeries], names: Sequence[str]) -> None:
    for line in shown:
        off, number = _place_of(names, line.name)
        y = np.arange(len(line.values)) + off
        ax.barh(
            y, np.nan_to_num(line.values), 0.7 / len(names), label=line.name, edgecolor=PAPER,
            color=SERIES[number % 4], hatch=_HATCHES[number % 4],
        )  # fmt: skip


def _draw_stacked(
    ax: Any, chart: Chart, shown: Sequence[ChartSeries], names: Sequence[str]
) -> None:
    left = np.zeros(len(chart.categories))
    for line in shown:
        number = names.index(line.name)
        value = np.nan_to_num(line.values)
        ax.barh(
            np.arange(len(value)), value, 0.7, left=left, label=line.name, edgecolor=PAPER,
            color=SERIES[number % 4], hatch=_HATCHES[number % 4],
        )  # fmt: skip
        left = left + value


def _draw_radar(chart: Chart, figure: Figure) -> None:
    """Draw a small radar for each panel, three in a row."""
    panels, names = chart.panels, chart.names
    rows = math.ceil(len(panels) / 3)
    figure.set_size_inches(WIDTH, 0.6 + 1.75 * rows)
    axes = figure.subplots(rows, 3, subplot_kw={"projection": "polar"}, squeeze=False).ravel()
    angles = np.linspace(0, 2 * np.pi, len(chart.categories), endpoint=False)
    low, high = chart.limits or (0.0, 1.0)
    for ax in axes[len(panels) :]:
        ax.remove()
    for ax, panel in zip(axes, panels, strict=False):
        ax.set_theta_offset(np.pi / 2)
        ax.set_ylim(low, high)
        ax.set_xticks(angles, [text[:4] + "." for text in chart.categories], fontsize=7)
        ax.set_yticks(np.linspace(low, high, 5)[1:-1], [])
        ax.tick_params(pad=-3)
        ax.grid(linewidth=0.5)
        ax.spines["polar"].set_linewidth(0.5)
        ax.set_title("\n".join(textwrap.wrap(one_line(panel), 18)), fontsize=8)
        round_ = np.append(angles, angles[0])
        if chart.null is not None:
            ax.plot(np.linspace(0, 2 * np.pi, 60), np.full(60, chart.null), color=INK, lw=0.8)
        for line in chart.series:
            if line.panel != panel:
                continue
            number = names.index(line.name)
            values = np.append(line.values, line.values[0])
            ax.plot(
                round_, values, color=SERIES[number % 4], marker=MARKERS[number % 4],
                markersize=2.5, linewidth=1.2, linestyle=("-", "--")[number % 2], label=line.name,
            )  # fmt: skip
    _draw_legend(figure, axes[: len(panels)], names)


def _draw_trend(chart: Chart, figure: Figure) -> None:
    """Draw categories after each other, the points of a series joined."""
    names = chart.names
    size = len(chart.categories)
    figure.set_size_inches(WIDTH, 2.6)
    ax = figure.subplots()
    for number, line in enumerate(chart.series):
        x = np.flatnonzero(~np.isnan(line.values))
        value, low, high = (np.array(part, float)[x] for part in (line.values, line.low, line.high))
        ax.errorbar(
            x, value, yerr=np.nan_to_num(np.maximum([value - low, high - value], 0)),
            fmt=f"{MARKERS[number % 4]}-", color=SERIES[number % 4], markersize=4,
            linewidth=1.0, elinewidth=1.4, label=line.name, clip_on=False,
        )  # fmt: skip
    if chart.null is not None:
        ax.axhline(chart.null, color=INK, linewidth=0.8)
    every = max(1, math.ceil(size / _TICKS))
    ticks = range(0, size, every)
    labels = [shortened(chart.categories[at], 18) for at in ticks]
    ax.set_xticks(list(ticks), labels, rotation=25, ha="right", fontsize=7)
    ax.set_xlim(-0.6, size - 0.4)
    ax.set_ylabel(_label_text(chart.label))
    ax.grid(axis="y", linewidth=0.5)
    ax.set_axisbelow(True)
    ax.tick_params(length=0)
    _draw_legend(figure, [ax], names)


def _over_time(chart: Chart, figure: Figure) -> None:
    """Draw the values of each series at their times, on an axis from 0."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import FuncFormatter

    several = len(chart.series) > 1
    figure.set_size_inches(WIDTH, 2.6 if several else 2.1)
    ax: Any = figure.subplots()
    for each, colour, marker in zip(chart.series, SERIES, MARKERS, strict=False):
        value, low, high = (np.array(part, float) for part in (each.values, each.low, each.high))
        ax.errorbar(
            [_utc_time(time) for time in each.times], value,
            yerr=np.nan_to_num(np.maximum([value - low, high - value], 0)),
            fmt=f"{marker}-", color=colour, label=each.name[:_LEGEND],
            markersize=3, linewidth=1.2, elinewidth=0.8, capsize=2, clip_on=False,
        )  # fmt: skip
    if several:
        figure.legend(loc="outside lower left", ncols=2)
    ax.set_xlim(*map(_utc_time, chart.span))
    ax.set_ylim(bottom=0)
    ax.grid(axis="y", linewidth=0.5)
    ax.set_axisbelow(True)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} {chart.label}"))
    locator = AutoDateLocator(tz=timezone.utc, minticks=3, maxticks=7)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=timezone.utc))


def _utc_time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)
