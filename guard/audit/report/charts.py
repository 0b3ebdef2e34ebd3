"""The charts of a report: each suite's own, what the guard stopped, differences from a baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from guard.audit.outcomes import scores_both_arms
from guard.audit.report.content import Content, SuiteContent
from guard.audit.report.differences import FigureDifference, figure_differences
from guard.errors import UsageError
from guard.results.chart import SHARES, Chart, ChartSeries
from guard.results.figures import MOST_CATEGORIES, SuiteFigures, axis_text


def suite_charts(content: SuiteContent, prefix: str = "") -> list[Chart]:
    """Return the charts of a suite that have data, their names with ``prefix``.

    Raises UsageError that names the suite where its own charts raise.
    """
    figures = content.figures()
    try:
        own_charts = list(content.suite.charts(figures))
    except Exception as error:  # a suite of the user's
        raise UsageError(
            f"The charts of the suite {content.result.suite} cannot be made "
            f"({type(error).__name__}: {error}); guard.testing.check_suite checks them."
        ) from error
    charts = [*own_charts, _stopped_by_subject(figures)]
    return [replace(chart, name=f"{prefix}{chart.name}") for chart in charts if chart.has_data]


def _stopped_by_subject(figures: SuiteFigures) -> Chart:
    """Return what the guard stopped of each side, by what the items are about."""
    axes = [
        line.measure.axis
        for line in figures.stops
        if line.measure.name == "stopped_biased" and "verdict" not in line.measure.axis
    ][:MOST_CATEGORIES]
    kinds = (("biased side", "stopped_biased"), ("other answers", "stopped_others"))
    series: list[ChartSeries] = []
    for name, measure in kinds:
        lines = [figures.stop(measure, **axis) for axis in axes]
        estimates = [None if line is None else line.plain for line in lines]
        series.append(ChartSeries.of_estimates(name, estimates))
    return Chart(
        "stops",
        "What the guard stopped",
        "Shares of the answers on the biased side, and of the others (false stops), that the guard "
        "stopped, with 95 % intervals.",
        "dots",
        [axis_text(axis) for axis in axes],
        series,
        "share stopped",
        SHARES,
    )


def _of_kind(shown: Sequence[FigureDifference], kind: str) -> ChartSeries:
    """Return the differences that are a regression, better, or neither; nan for the others."""

    def values(part: str) -> list[float]:
        return [
            float(getattr(each.effect, part)) if _reading_kind(each.reading) == kind else math.nan
            for each in shown
        ]

    return ChartSeries(kind, values("value"), values("low"), values("high"))


def _reading_kind(reading: str) -> str:
    if reading.startswith("regression"):
        return "regression"
    return "better" if reading.endswith("better") else "neither shown"


def summary_chart(content: Content) -> Chart:
    """Return the first chart: differences from a baseline, or what the guard stopped."""
    if content.comparison is not None:
        shown = figure_differences(content)[:MOST_CATEGORIES]
        series = [_of_kind(shown, kind) for kind in ("neither shown", "regression", "better")]
        return Chart(
            "summary",
            "Differences from the baseline",
            "New less base with its 95 % interval, regressions first. A regression is worse by "
            "more than the tolerance after correction over all axes; better is a pass that came "
            "nearer to the ideal.",
            "dots",
            [f"{each.suite}: {each.place}" for each in shown],
            series,
            "difference",
            None,
            0.0,
        )
    kinds = (
        ("biased answers", ("stopped_biased", "mitigation_rate")),
        ("others (false stops)", ("stopped_others", "over_blocked")),
    )
    series = []
    for name, measures in kinds:
        # Suites of open text have their own measures of it.
        lines = [
            suite.figures().stop(measures[scores_both_arms(suite.suite)])
            for suite in content.suites
        ]
        estimates = [None if line is None else line.plain for line in lines]
        series.append(ChartSeries.of_estimates(name, estimates))
    return Chart(
        "summary",
        "What the guard stopped",
        "Shares with 95 % intervals of the answers on the biased side, and of the others, that the "
        "guard stopped; of open text, of biased generations of which users saw nothing biased, and "
        "of ordinary requests.",
        "dots",
        [suite.name for suite in content.suites],
        series,
        "share stopped",
        SHARES,
    )
