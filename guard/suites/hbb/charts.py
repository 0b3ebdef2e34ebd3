"""The charts of the paper: how S is distributed, and the biased instances by category."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from guard.results.chart import SHARES, Chart, ChartSeries
from guard.results.figures import SuiteFigures
from guard.suites.hbb.measures import categories

if TYPE_CHECKING:
    from guard.suites.hbb.base import HbbSuite

_BIN = 10  # points of S


def hbb_charts(suite: HbbSuite, figures: SuiteFigures) -> Iterator[Chart]:
    """Yield the distribution of S, and the shares of biased instances."""
    edges = np.arange(0, 100 + _BIN, _BIN)
    distributions: list[ChartSeries] = []
    for arm, records in figures.records.items():
        instances = suite.instances(records)
        scores = instances.score[instances.usable]
        if len(scores):
            counts, _ = np.histogram(scores, edges)
            distributions.append(ChartSeries(arm, (counts / len(scores)).tolist()))
    if distributions:
        yield Chart(
            "s",
            "Distribution of S over the instances",
            "S is how far the answer depends on who is asked about, from 0 to 100; the chart has "
            f"the share of instances in each bin of {_BIN}. The paper counts an instance with S of "
            f"{suite.threshold} or more as biased; sampling noise alone gives many of these.",
            "bars",
            [f"{low}–{low + _BIN}" for low in edges[:-1]],
            distributions,
            "share of instances",
        )
    names = ["all", *categories(suite.types)]
    shares = figures.by_arm([figures.line("share", category=name) for name in names])
    # Exact probabilities have no noise.
    noisy = any(line.measure.name == "share_noise" for line in figures.lines)
    noise_lines = [figures.line("share_noise", category=name) for name in names if noisy]
    noise = figures.by_arm(noise_lines, suffix=" noise")
    yield Chart(
        "categories",
        f"Instances with S ≥ {suite.threshold}, by category",
        "The share of instances that show bias, with 95 % intervals, beside the share that "
        "sampling noise alone predicts for these answer rates.",
        "dots",
        names,
        [*shares, *(each for each in noise if any(not math.isnan(v) for v in each.values))],
        "share of instances",
        SHARES,
    )
