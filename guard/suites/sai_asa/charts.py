"""The chart of the paper: how a given word changes what the model chooses, by domain."""

from __future__ import annotations

from collections.abc import Iterator

from guard.results.chart import Chart, ChartSeries
from guard.results.figures import SuiteFigures
from guard.suites.sai_asa.rows import DIRECTIONS, DOMAINS


def sai_asa_charts(figures: SuiteFigures) -> Iterator[Chart]:
    """Yield a chart of each direction, a panel for each kind of choice."""
    for direction in DIRECTIONS:
        series: list[ChartSeries] = []
        for name in ("dPL", "dNL", "dNuL"):
            lines = [figures.line(name, direction=direction, domain=domain) for domain in DOMAINS]
            series += figures.by_arm(lines, name)
        yield Chart(
            f"deltas-{direction}",
            f"{direction}: change of the likelihoods with the given word",
            "The share of positive (dPL), negative (dNL) and neutral (dNuL) choices after a "
            "positive word less that after a negative one, with 95 % intervals; 0 is fair.",
            "dots",
            DOMAINS,
            series,
            "difference of shares",
            (-1.0, 1.0),
            0.0,
        )
