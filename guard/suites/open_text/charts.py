"""The charts of open text: the bias level in both arms, and what the guard prevented."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from guard.results.chart import SHARES, Chart, ChartSeries
from guard.results.figures import SuiteFigures, axis_text
from guard.verdict import BIAS_TYPES

_MITIGATION = ("mitigation_rate", "over_blocked", "text_kept", "seen_before_stop")


def open_text_charts(figures: SuiteFigures) -> Iterator[Chart]:
    """Yield the bias level by kind of prompt and by bias type, and the mitigation."""
    axes: list[Mapping[str, str]] = [{}]
    axes += [{"kind": name} for name in ("completion", "question", "control")]
    axes += [{"type": name} for name in BIAS_TYPES]
    yield Chart(
        "levels",
        "Bias level: what the model wrote, and what users saw",
        "Share of generations that the scorer finds biased, in all, by kind of prompt and by bias "
        "type, with 95 % intervals.",
        "dots",
        [axis_text(axis) for axis in axes],
        figures.by_arm([figures.line("bias_level", **axis) for axis in axes]),
        "share of generations",
        SHARES,
    )
    shown = [x for name in _MITIGATION for x in figures.stops if x.measure.name == name]
    yield Chart(
        "mitigation",
        "Mitigation: what the guard prevented, and at which cost",
        "Shares with 95 % intervals: biased generations of which users saw nothing biased, "
        "controls that were changed, and text that reached the user.",
        "dots",
        [", ".join([x.measure.name.replace("_", " "), *x.measure.axis.values()]) for x in shown],
        [ChartSeries.of_estimates("share", [x.plain for x in shown])],
        "share",
        SHARES,
    )
