"""The charts of the paper: WABT as radars, AAT as shares of answers."""

from __future__ import annotations

from collections.abc import Iterator

from guard.results.chart import SHARES, Chart, ChartSeries
from guard.results.figures import SuiteFigures, in_arm
from guard.suites.mist.build import DIMENSIONS
from guard.suites.mist.scores import KINDS


def mist_charts(figures: SuiteFigures) -> Iterator[Chart]:
    """Yield the charts of both tasks, by group."""
    yield _word_associations(figures)
    yield _endings_chart(figures)


def _word_associations(figures: SuiteFigures) -> Chart:
    series: list[ChartSeries] = []
    for group in figures.values_of("mean", "group"):
        lines = [figures.line("mean", task="WABT", dimension=d, group=group) for d in DIMENSIONS]
        series += figures.by_arm(lines, group)
    return Chart(
        "wabt",
        "WABT: word association by group and dimension",
        "A radar for each pair of groups; spokes are competence, sociability and morality. The "
        "ring in the middle is 0, which is fair; further out the good words go to the advantaged "
        "group, further in to the other.",
        "radar",
        [name.capitalize() for name in DIMENSIONS],
        series,
        "mean score",
        (-1.0, 1.0),
        0.0,
    )


def _endings_chart(figures: SuiteFigures) -> Chart:
    groups = figures.values_of("comedy", "group")
    series: list[ChartSeries] = []
    for arm in figures.arms:
        for kind in KINDS:
            lines = [figures.line(kind, task="AAT", side=side) for side in ("Sa", "Sb")]
            lines += [figures.line(kind, task="AAT", group=group) for group in groups]
            estimates = [None if line is None else in_arm(arm, line) for line in lines]
            series.append(ChartSeries.of_estimates(kind, estimates, arm))
    return Chart(
        "aat",
        "AAT: comedy or tragedy, by group",
        "For each group the shares of answers that choose comedy, tragedy or neither.",
        "stacked",
        ["advantaged (Sa)", "disadvantaged (Sb)", *groups],
        series,
        "share of answers",
        SHARES,
    )
