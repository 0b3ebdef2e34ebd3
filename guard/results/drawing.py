"""Charts as inline SVG, drawn by Matplotlib."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from guard.results import svg
from guard.results.chart import Chart, ChartSeries
from guard.results.svg import INK, MARKERS, PAPER, SERIES, WIDTH
from guard.texts import one_line, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HATCHES = ("", "///", "...", "xxx")
_LABEL = 32  # characters in a line of a label
_LINES = 2
_TICKS_ACROSS = 6  # intervals between labels below rows
_SIDE = 0.15  # inches beside the axes: half of a label may stand out
_TICKS = 8  # labels below a trend
_LEGEND = 32  # characters of a name beside a chart over time


def draw(chart: Chart) -> str:
    """Return ``chart`` as an ``svg`` element."""
    drawers: dict[str, Callable[[Chart, Figure], None]] = {
        "dots": partial(_rows, mark=_dots),
        "bars": partial(_rows, mark=_bars),
        "stacked": partial(_rows, mark=_stacked),
        "radar": _radar,
        "trend": _trend,
        "time": _over_time,
    }
    return svg.drawn(chart.name, chart.title, chart.text, partial(drawers[chart.kind], chart))


def _label(text: str) -> str:
    return "\n".join(textwrap.wrap(one_line(text), _LABEL, max_lines=_LINES, placeholder=" …"))


DrawPanel = Any  # (axes, chart, series of a panel, places of the names) -> None


def _rows(chart: Chart, figure: Figure, mark: DrawPanel) -> None:
    """Draw categories below each other, and panels beside each other."""
    panels, names = chart.panels, chart.names
    labels = [_label(text) for text in chart.categories]
    lines = max(text.count("\n") + 1 for text in labels)
    tall = 1 if mark is _stacked else len(names)
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
    _legend(figure, axes, names)


def _legend(figure: Figure, axes: Any, names: Sequence[str]) -> None:
    if len(names) < 2:
        return
    handles: dict[str, Any] = {}
    for ax in axes:
        for handle, name in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper left", ncols=min(len(names), 4)
    )


def _place(names: Sequence[str], name: str) -> tuple[float, int]:
    """Return how far from its row a series is drawn, and which of the names it is."""
    number = names.index(name)
    return (number - (len(names) - 1) / 2) * 0.7 / len(names), number


def _dots(ax: Any, chart: Chart, shown: Sequence[ChartSeries], names: Sequence[str]) -> None:
    # Where each category has a point of one series alone, it is drawn in the middle of its row.
    by_category = zip(*(one.values for one in shown), strict=True)
    alone = all(sum(not math.isnan(value) for value in values) <= 1 for values in by_category)
    for one in shown:
        off, number = _place(names, one.name)
        y = np.arange(len(one.values)) + (0.0 if alone else off)
        value = np.array(one.values, float)
        low, high = (np.array(bound or one.values, float) for bound in (one.low, one.high))
        # Matplotlib takes no negative lengths, which rounding makes.
        error = np.nan_to_num(np.maximum([value - low, high - value], 0))
        ax.errorbar(
            value, y, xerr=error, fmt=MARKERS[number % 4], color=SERIES[number % 4],
            markersize=4, elinewidth=1.4, label=one.name, clip_on=False,
        )  # fmt: skip


def _bars(ax: Any, chart: Chart, shown: Sequence[ChartSeries], names: Sequence[str]) -> None:
    for one in shown:
        off, number = _place(names, one.name)
        y = np.arange(len(one.values)) + off
        ax.barh(
            y, np.nan_to_num(one.values), 0.7 / len(names), label=one.name, edgecolor=PAPER,
            color=SERIES[number % 4], hatch=_HATCHES[number % 4],
        )  # fmt: skip


def _stacked(ax: Any, chart: Chart, shown: Sequence[ChartSeries], names: Sequence[str]) -> None:
    left = np.zeros(len(chart.categories))
    for one in shown:
        number = names.index(one.name)
        value = np.nan_to_num(one.values)
        ax.barh(
            np.arange(len(value)), value, 0.7, left=left, label=one.name, edgecolor=PAPER,
            color=SERIES[number % 4], hatch=_HATCHES[number % 4],
        )  # fmt: skip
        left = left + value


def _radar(chart: Chart, figure: Figure) -> None:
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
        for one in chart.series:
            if one.panel != panel:
                continue
            number = names.index(one.name)
            values = np.append(one.values, one.values[0])
            ax.plot(
                round_, values, color=SERIES[number % 4], marker=MARKERS[number % 4],
                markersize=2.5, linewidth=1.2, linestyle=("-", "--")[number % 2], label=one.name,
            )  # fmt: skip
    _legend(figure, axes[: len(panels)], names)


def _trend(chart: Chart, figure: Figure) -> None:
    """Draw categories after each other, the points of a series joined, and the marks."""
    names = chart.names
    size = len(chart.categories)
    figure.set_size_inches(WIDTH, 2.6)
    ax = figure.subplots()
    for number, one in enumerate(chart.series):
        x = np.flatnonzero(~np.isnan(one.values))
        value, low, high = (np.array(part, float)[x] for part in (one.values, one.low, one.high))
        ax.errorbar(
            x, value, yerr=np.nan_to_num(np.maximum([value - low, high - value], 0)),
            fmt=f"{MARKERS[number % 4]}-", color=SERIES[number % 4], markersize=4,
            linewidth=1.0, elinewidth=1.4, label=one.name, clip_on=False,
        )  # fmt: skip
    for mark in chart.marks:
        ax.axvline(mark.at, color=INK, linewidth=1.0, linestyle="--")
        ax.annotate(
            mark.text, (mark.at, 1), xycoords=("data", "axes fraction"), xytext=(2, 2),
            textcoords="offset points", fontsize=8,
        )  # fmt: skip
    if chart.null is not None:
        ax.axhline(chart.null, color=INK, linewidth=0.8)
    every = max(1, math.ceil(size / _TICKS))
    ticks = range(0, size, every)
    labels = [shortened(chart.categories[at], 18) for at in ticks]
    ax.set_xticks(list(ticks), labels, rotation=25, ha="right", fontsize=7)
    ax.set_xlim(-0.6, size - 0.4)
    ax.set_ylabel(_label(chart.label))
    ax.grid(axis="y", linewidth=0.5)
    ax.set_axisbelow(True)
    ax.tick_params(length=0)
    _legend(figure, [ax], names)


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
            [_utc(time) for time in each.times], value,
            yerr=np.nan_to_num(np.maximum([value - low, high - value], 0)),
            fmt=f"{marker}-", color=colour, label=each.name[:_LEGEND],
            markersize=3, linewidth=1.2, elinewidth=0.8, capsize=2, clip_on=False,
        )  # fmt: skip
    if several:
        figure.legend(loc="outside lower left", ncols=2)
    ax.set_xlim(*map(_utc, chart.span))
    ax.set_ylim(bottom=0)
    ax.grid(axis="y", linewidth=0.5)
    ax.set_axisbelow(True)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} {chart.label}"))
    locator = AutoDateLocator(tz=timezone.utc, minticks=3, maxticks=7)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=timezone.utc))


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)
