"""Charts as inline SVG: drawn by Matplotlib, coloured by the page, named for screen readers.

Matplotlib is given colours that stand for the page's own, which follow the reader's light or dark
setting. Text stays text.
"""

from __future__ import annotations

import html
import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from guard.audit.reports.charts import Chart, Series
from guard.audit.reports.texts import one_line, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INK, _LINE, _PAPER = "#010101", "#020202", "#030303"
_SERIES = ("#0a0001", "#0a0002", "#0a0003", "#0a0004")
_PAGE = {_INK: "currentColor", _LINE: "var(--line)", _PAPER: "var(--paper)"} | {
    colour: f"var(--c{number})" for number, colour in enumerate(_SERIES)
}
_MARKERS = "osD^"
_HATCHES = ("", "///", "...", "xxx")
_WIDTH = 5.2  # inches: legible on a telephone
_LABEL = 32  # characters in a line of a label
_LINES = 2
_TICKS = 8  # labels below a trend
_SETTINGS: Mapping[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with Matplotlib
    "font.size": 9,
    "hatch.linewidth": 0.6,
    "text.color": _INK,
    "axes.edgecolor": _LINE,
    "axes.facecolor": "none",
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": _LINE,
    "legend.frameon": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "figure.facecolor": "none",
}


def drawn(chart: Chart) -> str:
    """Return ``chart`` as an ``svg`` element."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    draw: dict[str, Callable[[Chart, Figure], None]] = {
        "dots": partial(_rows, mark=_dots),
        "bars": partial(_rows, mark=_bars),
        "stacked": partial(_rows, mark=_stacked),
        "radar": _radar,
        "trend": _trend,
    }
    out = io.StringIO()
    with (
        matplotlib.rc_context({**_SETTINGS, "svg.hashsalt": chart.name}),
        warnings.catch_warnings(),
    ):
        # A font of Matplotlib's own may lack a glyph that the reader's has.
        warnings.filterwarnings("ignore", "Glyph", UserWarning)
        figure = Figure(layout="constrained")
        FigureCanvasSVG(figure)
        draw[chart.kind](chart, figure)
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return _inline(out.getvalue(), chart)


def _inline(svg: str, chart: Chart) -> str:
    """Return a file's SVG as an element whose ids are its own and whose colours are the page's."""
    svg = svg[svg.index("<svg") :]
    # A style within would be one of the whole page; page.css has it.
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{chart.name}-', svg)
    svg = re.sub(r'((?:xlink:)?href="#|url\(#)', rf"\g<1>{chart.name}-", svg)
    for colour, name in _PAGE.items():
        svg = svg.replace(colour, name)
    head, _, rest = svg.partition(">")
    head = re.sub(r' (?:width|height|xmlns|xmlns:xlink|version)="[^"]*"', "", head)
    named = f'role="img" aria-labelledby="{chart.name}-title {chart.name}-desc"'
    title = f'<title id="{chart.name}-title">{html.escape(chart.title)}</title>'
    told = f'<desc id="{chart.name}-desc">{html.escape(chart.text)}</desc>'
    return f"{head} {named}>{title}{told}{rest.strip()}"


def _label(text: str) -> str:
    return "\n".join(textwrap.wrap(one_line(text), _LABEL, max_lines=_LINES, placeholder=" …"))


def _names(chart: Chart) -> list[str]:
    return list(dict.fromkeys(one.name for one in chart.series))


Draw = Any  # (axes, chart, series of a panel, places of the names) -> None


def _rows(chart: Chart, figure: Figure, mark: Draw) -> None:
    """Draw categories below each other, and panels beside each other."""
    panels, names = chart.panels, _names(chart)
    labels = [_label(text) for text in chart.categories]
    lines = max(text.count("\n") + 1 for text in labels)
    tall = 1 if mark is _stacked else len(names)
    figure.set_size_inches(_WIDTH, 1.1 + max(0.18 * lines, 0.13 * tall) * len(labels) + 0.1 * tall)
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
        if chart.null is not None:
            ax.axvline(chart.null, color=_INK, linewidth=0.8)
    axes[0].set_ylim(len(labels) - 0.4, -0.6)
    figure.supxlabel(chart.label, fontsize=9)
    _legend(figure, axes, names)


def _legend(figure: Figure, axes: Any, names: Sequence[str]) -> None:
    if len(names) < 2:
        return
    found: dict[str, Any] = {}
    for ax in axes:
        for handle, name in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    figure.legend(found.values(), found.keys(), loc="outside upper left", ncols=min(len(names), 4))


def _place(names: Sequence[str], name: str) -> tuple[float, int]:
    """Return how far from its row a series is drawn, and which of the names it is."""
    number = names.index(name)
    return (number - (len(names) - 1) / 2) * 0.7 / len(names), number


def _dots(ax: Any, chart: Chart, told: Sequence[Series], names: Sequence[str]) -> None:
    for one in told:
        off, number = _place(names, one.name)
        y = np.arange(len(one.values)) + off
        value = np.array(one.values, float)
        low, high = (np.array(bound or one.values, float) for bound in (one.low, one.high))
        # Matplotlib takes no negative lengths, which rounding makes.
        error = np.nan_to_num(np.maximum([value - low, high - value], 0))
        ax.errorbar(
            value, y, xerr=error, fmt=_MARKERS[number % 4], color=_SERIES[number % 4],
            markersize=4, elinewidth=1.4, label=one.name, clip_on=False,
        )  # fmt: skip


def _bars(ax: Any, chart: Chart, told: Sequence[Series], names: Sequence[str]) -> None:
    for one in told:
        off, number = _place(names, one.name)
        y = np.arange(len(one.values)) + off
        ax.barh(
            y, np.nan_to_num(one.values), 0.7 / len(names), label=one.name, edgecolor=_PAPER,
            color=_SERIES[number % 4], hatch=_HATCHES[number % 4],
        )  # fmt: skip


def _stacked(ax: Any, chart: Chart, told: Sequence[Series], names: Sequence[str]) -> None:
    left = np.zeros(len(chart.categories))
    for one in told:
        number = names.index(one.name)
        value = np.nan_to_num(one.values)
        ax.barh(
            np.arange(len(value)), value, 0.7, left=left, label=one.name, edgecolor=_PAPER,
            color=_SERIES[number % 4], hatch=_HATCHES[number % 4],
        )  # fmt: skip
        left = left + value


def _radar(chart: Chart, figure: Figure) -> None:
    """Draw a small radar for each panel, three in a row."""
    panels, names = chart.panels, _names(chart)
    rows = math.ceil(len(panels) / 3)
    figure.set_size_inches(_WIDTH, 0.6 + 1.75 * rows)
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
            ax.plot(np.linspace(0, 2 * np.pi, 60), np.full(60, chart.null), color=_INK, lw=0.8)
        for one in chart.series:
            if one.panel != panel:
                continue
            number = names.index(one.name)
            values = np.append(one.values, one.values[0])
            ax.plot(
                round_, values, color=_SERIES[number % 4], marker=_MARKERS[number % 4],
                markersize=2.5, linewidth=1.2, linestyle=("-", "--")[number % 2], label=one.name,
            )  # fmt: skip
    _legend(figure, axes[: len(panels)], names)


def _trend(chart: Chart, figure: Figure) -> None:
    """Draw categories after each other, the points of a series joined, and the marks."""
    names = _names(chart)
    size = len(chart.categories)
    figure.set_size_inches(_WIDTH, 2.6)
    ax = figure.subplots()
    for number, one in enumerate(chart.series):
        x = np.flatnonzero(~np.isnan(one.values))
        value, low, high = (np.array(part, float)[x] for part in (one.values, one.low, one.high))
        ax.errorbar(
            x, value, yerr=np.nan_to_num(np.maximum([value - low, high - value], 0)),
            fmt=f"{_MARKERS[number % 4]}-", color=_SERIES[number % 4], markersize=4,
            linewidth=1.0, elinewidth=1.4, label=one.name, clip_on=False,
        )  # fmt: skip
    for mark in chart.marks:
        ax.axvline(mark.at, color=_INK, linewidth=1.0, linestyle="--")
        ax.annotate(
            mark.text, (mark.at, 1), xycoords=("data", "axes fraction"), xytext=(2, 2),
            textcoords="offset points", fontsize=8,
        )  # fmt: skip
    if chart.null is not None:
        ax.axhline(chart.null, color=_INK, linewidth=0.8)
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
