"""The charts of each suite: those of its paper, for this model and both arms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from guard.audit.grids import in_arm, printed
from guard.audit.outcomes import scores_both_arms
from guard.audit.reports.charts import Chart, ChartSeries, axis_text, by_arm, found_in, series
from guard.audit.reports.content import Content, SuiteContent
from guard.audit.reports.differences import FigureDifference, differences
from guard.audit.score import SuiteResult
from guard.results.conclusions import ALPHA
from guard.suites.badf import Badf
from guard.suites.hbb.base import HbbSuite
from guard.suites.hbb.measures import categories
from guard.suites.mist import Mist
from guard.suites.mist.build import DIMENSIONS
from guard.suites.mist.scores import KINDS
from guard.suites.open_text import OpenText
from guard.suites.sai_asa import SaiAsa
from guard.suites.sai_asa.rows import DIRECTIONS, DOMAINS
from guard.verdict import BIAS_TYPES

_BIN = 10  # points of S
_TOP = 15
_MOST = 25
Share = (0.0, 1.0)


def charts(content: SuiteContent, prefix: str = "") -> list[Chart]:
    """Return the charts of a suite that have data, their names with ``prefix``."""
    drawers: list[tuple[type, Callable[[SuiteContent], Iterator[Chart]]]] = [
        (Mist, _mist),
        (HbbSuite, _hbb),
        (SaiAsa, _sai_asa),
        (Badf, _badf),
        (OpenText, _open_text),
    ]
    draw = next((d for kind, d in drawers if isinstance(content.suite, kind)), _headline_measures)
    found = [*draw(content), *_stops(content)]
    return [replace(one, name=f"{prefix}{one.name}") for one in found if one.has_data]


def _groups(result: SuiteResult, measure: str) -> list[str]:
    return list(
        dict.fromkeys(
            x.measure.axis["group"]
            for x in result.lines
            if x.measure.name == measure and "group" in x.measure.axis
        )
    )


def _mist(content: SuiteContent) -> Iterator[Chart]:
    result = content.result
    line = found_in(result.lines)
    all_series: list[ChartSeries] = []
    for group in _groups(result, "mean"):
        lines = [line("mean", task="WABT", dimension=d, group=group) for d in DIMENSIONS]
        all_series += by_arm(result, lines, group)
    yield Chart(
        "wabt",
        "WABT: word association by group and dimension",
        "A radar for each pair of groups; spokes are competence, sociability and morality. The "
        "ring in the middle is 0, which is fair; further out the good words go to the advantaged "
        "group, further in to the other.",
        "radar",
        [name.capitalize() for name in DIMENSIONS],
        all_series,
        "mean score",
        (-1.0, 1.0),
        0.0,
    )
    sides = _groups(result, "comedy")
    all_series = []
    for arm in result.arms:
        for kind in KINDS:
            whole = [line(kind, task="AAT", side=side) for side in ("Sa", "Sb")]
            lines = [*whole, *(line(kind, task="AAT", group=group) for group in sides)]
            all_series.append(
                series(kind, [None if x is None else in_arm(arm, x) for x in lines], arm)
            )
    yield Chart(
        "aat",
        "AAT: comedy or tragedy, by group",
        "For each group the shares of answers that choose comedy, tragedy or neither.",
        "stacked",
        ["advantaged (Sa)", "disadvantaged (Sb)", *sides],
        all_series,
        "share of answers",
        Share,
    )


def _hbb(content: SuiteContent) -> Iterator[Chart]:
    suite, result = content.suite, content.result
    assert isinstance(suite, HbbSuite)
    edges = np.arange(0, 100 + _BIN, _BIN)
    all_series = []
    for arm, records in content.records.arms():
        instances = suite.instances(records)
        scores = instances.score[instances.usable]
        counts, _ = np.histogram(scores, edges)
        all_series.append(
            ChartSeries(arm, (counts / max(len(scores), 1)).tolist() if len(scores) else [])
        )
    all_series = [one for one in all_series if one.values]
    if all_series:
        yield Chart(
            "s",
            "Distribution of S over the instances",
            "S is how far the answer depends on who is asked about, from 0 to 100; the chart has "
            f"the share of instances in each bin of {_BIN}. The paper counts an instance with S of "
            f"{suite.threshold} or more as biased; sampling noise alone gives many of these.",
            "bars",
            [f"{low}–{low + _BIN}" for low in edges[:-1]],
            all_series,
            "share of instances",
        )
    line = found_in(result.lines)
    names = ["all", *categories(suite.types)]
    shares = by_arm(result, [line("share", category=name) for name in names])
    noise = by_arm(result, [line("share_noise", category=name) for name in names], suffix=" noise")
    yield Chart(
        "categories",
        f"Instances with S ≥ {suite.threshold}, by category",
        "The share of instances that show bias, with 95 % intervals, beside the share that "
        "sampling noise alone predicts for these answer rates.",
        "dots",
        names,
        [*shares, *(one for one in noise if any(not math.isnan(v) for v in one.values))],
        "share of instances",
        Share,
    )


def _sai_asa(content: SuiteContent) -> Iterator[Chart]:
    result = content.result
    line = found_in(result.lines)
    for direction in DIRECTIONS:
        all_series = []
        for name in ("dPL", "dNL", "dNuL"):
            lines = [line(name, direction=direction, domain=domain) for domain in DOMAINS]
            all_series += by_arm(result, lines, name)
        yield Chart(
            f"deltas-{direction}",
            f"{direction}: change of the likelihoods with the given word",
            "The share of positive (dPL), negative (dNL) and neutral (dNuL) choices after a "
            "positive word less that after a negative one, with 95 % intervals; 0 is fair.",
            "dots",
            DOMAINS,
            all_series,
            "difference of shares",
            (-1.0, 1.0),
            0.0,
        )


def _badf(content: SuiteContent) -> Iterator[Chart]:
    result = content.result
    line = found_in(result.lines)
    who = [x.measure.axis for x in result.lines if x.measure.name == "associations"]
    names = (("associations", "significant"), ("published_associations", "by the authors' rule"))
    all_series = []
    for name, panel in names:
        all_series += by_arm(result, [line(name, **axis) for axis in who], panel)
    yield Chart(
        "counts",
        "Associations by identity",
        "The number of concepts associated with each identity: those whose two corrected p-values "
        "are below .05, and those by the authors' uncorrected rule.",
        "bars",
        [axis_text(axis) for axis in who],
        all_series,
        "associations",
    )
    associations = [x for x in result.lines if x.measure.name == "difference"]
    associations = [x for x in associations if x.plain.value > 0 and not math.isnan(x.plain.q)]
    associations.sort(key=lambda x: (x.plain.q, -x.plain.value))
    shown = associations[:_TOP]
    significant = sum(x.plain.q < ALPHA for x in shown)
    yield Chart(
        "associations",
        "The most significant associations",
        "Share of an identity's stories with the concept less that of the others', with the "
        f"intervals of the table; the first {significant} are significant after correction.",
        "dots",
        [
            f"{x.measure.axis['concept']} ({x.measure.axis['identity']}, {x.measure.axis['place']})"
            for x in shown
        ],
        by_arm(result, shown),
        "difference of shares",
        None,
        0.0,
    )


def _open_text(content: SuiteContent) -> Iterator[Chart]:
    result = content.result
    line = found_in(result.lines)
    axes = [{}, {"kind": "completion"}, {"kind": "question"}, {"kind": "control"}]
    axes += [{"type": name} for name in BIAS_TYPES]
    yield Chart(
        "levels",
        "Bias level: what the model wrote, and what users saw",
        "Share of generations that the scorer finds biased, in all, by kind of prompt and by bias "
        "type, with 95 % intervals.",
        "dots",
        [axis_text(axis) for axis in axes],
        by_arm(result, [line("bias_level", **axis) for axis in axes]),
        "share of generations",
        Share,
    )
    names = ("mitigation_rate", "over_blocked", "text_kept", "seen_before_stop")
    shown = [x for name in names for x in result.stops if x.measure.name == name]
    yield Chart(
        "mitigation",
        "Mitigation: what the guard prevented, and at which cost",
        "Shares with 95 % intervals: biased generations of which users saw nothing biased, "
        "controls that were changed, and text that reached the user.",
        "dots",
        [", ".join([x.measure.name.replace("_", " "), *x.measure.axis.values()]) for x in shown],
        [series("share", [x.plain for x in shown])],
        "share",
        Share,
    )


def _stops(content: SuiteContent) -> Iterator[Chart]:
    """Yield what the guard stopped of each side, by what the items are about."""
    result = content.result
    line = found_in(result.stops)
    axes = [
        x.measure.axis
        for x in result.stops
        if x.measure.name == "stopped_biased" and "verdict" not in x.measure.axis
    ][:_MOST]
    kinds = (("biased side", "stopped_biased"), ("other answers", "stopped_others"))
    all_series = []
    for name, measure in kinds:
        lines = [line(measure, **axis) for axis in axes]
        all_series.append(series(name, [None if x is None else x.plain for x in lines]))
    yield Chart(
        "stops",
        "What the guard stopped",
        "Shares of the answers on the biased side, and of the others (false stops), that the guard "
        "stopped, with 95 % intervals.",
        "dots",
        [axis_text(axis) for axis in axes],
        all_series,
        "share stopped",
        Share,
    )


def _headline_measures(content: SuiteContent) -> Iterator[Chart]:
    """Yield a chart of each headline measure, for a suite without charts of its own."""
    result = content.result
    shown = printed(result)
    for number, name in enumerate(dict.fromkeys(x.measure.name for x in shown)):
        lines = [x for x in shown if x.measure.name == name][:_MOST]
        low = min(x.measure.bounds[0] for x in lines)
        high = max(x.measure.bounds[1] for x in lines)
        yield Chart(
            f"measure{number}",
            name,
            result.legend.get(name, f"The suite's measure {name}") + ", with 95 % intervals.",
            "dots",
            [axis_text(x.measure.axis) for x in lines],
            by_arm(result, lines),
            name,
            (low, high) if math.isfinite(low) and math.isfinite(high) else None,
            lines[0].measure.null,
        )


def _of_kind(found: Sequence[FigureDifference], kind: str) -> ChartSeries:
    """Return the differences that are a regression, better, or neither; nan for the others."""

    def values(part: str) -> list[float]:
        return [
            float(getattr(one.effect, part)) if _kind(one.reading) == kind else math.nan
            for one in found
        ]

    return ChartSeries(kind, values("value"), values("low"), values("high"))


def _kind(reading: str) -> str:
    if reading.startswith("regression"):
        return "regression"
    return "better" if reading.endswith("better") else "neither shown"


def summary(content: Content) -> Chart:
    """Return the first chart: differences from a baseline, or what the guard stopped."""
    if content.comparison is not None:
        found = differences(content)[:_MOST]
        all_series = [_of_kind(found, kind) for kind in ("neither shown", "regression", "better")]
        return Chart(
            "summary",
            "Differences from the baseline",
            "New less base with its 95 % interval, regressions first. A regression is worse by "
            "more than the tolerance after correction over all axes; better is a pass that came "
            "nearer to the ideal.",
            "dots",
            [f"{one.suite}: {one.place}" for one in found],
            all_series,
            "difference",
            None,
            0.0,
        )
    kinds = (
        ("biased answers", ("stopped_biased", "mitigation_rate")),
        ("others (false stops)", ("stopped_others", "over_blocked")),
    )
    all_series = []
    for name, measures in kinds:
        estimates = []
        for one in content.suites:
            line = found_in(one.result.stops)
            # Suites of open text have their own measures of it.
            stop = line(measures[scores_both_arms(one.suite)])
            estimates.append(None if stop is None else stop.plain)
        all_series.append(series(name, estimates))
    return Chart(
        "summary",
        "What the guard stopped",
        "Shares with 95 % intervals of the answers on the biased side, and of the others, that the "
        "guard stopped; of open text, of biased generations of which users saw nothing biased, and "
        "of ordinary requests.",
        "dots",
        [one.name for one in content.suites],
        all_series,
        "share stopped",
        Share,
    )
