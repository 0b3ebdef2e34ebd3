"""The charts of the paper: associations by identity, and the clearest of them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from guard.results.chart import Chart, ChartSeries
from guard.results.conclusions import ALPHA
from guard.results.figures import SuiteFigures, axis_text

_MOST = 15  # associations


def badf_charts(figures: SuiteFigures) -> Iterator[Chart]:
    """Yield the counts of associations, and the most significant ones."""
    identities = [x.measure.axis for x in figures.lines if x.measure.name == "associations"]
    names = (("associations", "significant"), ("published_associations", "by the authors' rule"))
    series: list[ChartSeries] = []
    for name, panel in names:
        series += figures.by_arm([figures.line(name, **axis) for axis in identities], panel)
    yield Chart(
        "counts",
        "Associations by identity",
        "The number of concepts associated with each identity: those whose two corrected p-values "
        "are below .05, and those by the authors' uncorrected rule.",
        "bars",
        [axis_text(axis) for axis in identities],
        series,
        "associations",
    )
    associations = [x for x in figures.lines if x.measure.name == "difference"]
    associations = [x for x in associations if x.plain.value > 0 and not math.isnan(x.plain.q)]
    associations.sort(key=lambda x: (x.plain.q, -x.plain.value))
    shown = associations[:_MOST]
    significant = sum(x.plain.q < ALPHA for x in shown)
    axes = [x.measure.axis for x in shown]
    yield Chart(
        "associations",
        "The most significant associations",
        "Share of an identity's stories with the concept less that of the others', with the "
        f"intervals of the table; the first {significant} are significant after correction.",
        "dots",
        [f"{axis['concept']} ({axis['identity']}, {axis['place']})" for axis in axes],
        figures.by_arm(shown),
        "difference of shares",
        None,
        0.0,
    )
