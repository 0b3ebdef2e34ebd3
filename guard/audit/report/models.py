"""Several models side by side: each suite's widest figures, the worst model first.

A model whose figure could not be tested is above those without a finding: too few answers are no
good mark. Intervals that overlap do not show that two models are alike: ``guard audit compare A B
--allow model`` tests their difference item by item.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from guard.audit.report.checks import Check, content_checks, status_counts
from guard.audit.report.content import Content, SuiteContent
from guard.audit.report.tables import printed_lines
from guard.audit.score import json_number
from guard.results.chart import Chart, ChartSeries
from guard.results.conclusions import is_significant, is_tested
from guard.results.figures import axis_text
from guard.results.jackknife import Key, Line, key_of
from guard.results.table import Table, csv_text

TITLE = "Models side by side, worst first, 95 % intervals"
NOTE = (
    "Intervals that overlap do not show that models are alike; guard audit compare A B --allow "
    "model tests their difference. A model with too few answers to test is listed above those "
    "without a finding."
)
LEAD = 6
_BIAS_FOUND, _UNKNOWN, _NOT_SHOWN = "bias found", "too few answers to test", "not shown to differ"
_RANKS = (_BIAS_FOUND, _UNKNOWN)
_COLUMNS = (
    *("suite", "measure", "axis", "model", "value", "low", "high", "n", "q", "coverage"),
    *("reading", "bias", "failed", "errors", "undecided", "passed"),
)


@dataclass(frozen=True, slots=True)
class ModelFigure:
    """A figure of one model's plain arm, with a short verdict on it."""

    content: SuiteContent
    line: Line

    @property
    def model(self) -> str:
        """The model's name, or that of the journal of a table without one."""
        return self.content.result.model or self.content.journal

    @property
    def reading(self) -> str:
        """Whether bias was found in this figure; empty for one that is not tested for bias."""
        measure, estimate = self.line.measure, self.line.plain
        if is_significant(measure, estimate):
            return _BIAS_FOUND
        if is_tested(estimate):
            return _NOT_SHOWN
        return _UNKNOWN if measure.null is not None else ""

    @property
    def rank(self) -> tuple[int, float]:
        """The place among the models: findings, then what is unknown, then the others."""
        rank = _RANKS.index(self.reading) if self.reading in _RANKS else len(_RANKS)
        distance = _distance_from_fair(self.line)
        return rank, math.inf if math.isnan(distance) else -distance


def _distance_from_fair(line: Line) -> float:
    """Return how far a figure is from that of a fair model; nan where that is unknown."""
    measure, value = line.measure, line.plain.value
    fair = measure.null if measure.null is not None else measure.ideal
    if fair is None or math.isinf(fair):
        return {"worse": value, "better": -value, "neither": math.nan}[measure.higher_is]
    return value - fair if measure.above else abs(value - fair)


def has_several(content: Content) -> bool:
    """Return whether a suite was asked of more than one model."""
    names = [suite.result.suite for suite in content.suites]
    return len(set(names)) < len(names)


def model_figures(content: Content) -> list[list[ModelFigure]]:
    """Return the figures of each measure, worst model first; suites with findings come first."""
    by_suite: dict[str, list[SuiteContent]] = {}
    for suite in content.suites:
        by_suite.setdefault(suite.result.suite, []).append(suite)
    suites = [list(_figures_of_suite(contents)) for contents in by_suite.values()]
    suites.sort(key=lambda groups: min((g[0].rank[0] for g in groups), default=len(_RANKS)))
    return [group for groups in suites for group in groups]


def _figures_of_suite(contents: Sequence[SuiteContent]) -> Iterator[list[ModelFigure]]:
    lines = [{key_of(line.measure): line for line in suite.result.lines} for suite in contents]
    for key in _leading_keys(contents, lines):
        pairs = zip(contents, lines, strict=True)
        group = [ModelFigure(suite, by_key[key]) for suite, by_key in pairs]
        yield sorted(group, key=lambda figure: figure.rank)


def _leading_keys(contents: Sequence[SuiteContent], lines: Sequence[dict[Key, Line]]) -> list[Key]:
    """Return the widest tested measures that every model has; without tests those of tables."""
    common = {key for key in lines[0] if all(key in by_key for by_key in lines)}
    tested = [key for key in lines[0] if key in common and lines[0][key].measure.null is not None]
    shown = [key_of(line.measure) for line in printed_lines(contents[0].result)]
    pool = tested or [key for key in shown if key in common]
    widest = min((len(axis) for _, axis in pool), default=0)
    lead = [key for key in pool if len(key[1]) == widest]
    if len(lead) > LEAD:  # as of associations: those most significant in any model
        lead.sort(key=lambda key: min(_q_or_infinity(by_key[key]) for by_key in lines))
    return lead[:LEAD]


def _q_or_infinity(line: Line) -> float:
    return line.plain.q if is_tested(line.plain) else math.inf


def models_table(content: Content, most_of_suite: int = LEAD) -> Table:
    """Return the table; ``most_of_suite`` limits the measures of a suite."""
    table = Table(TITLE, notes=[NOTE])
    table.add_columns("suite", "measure", "model")
    table.add_columns("value", unit="estimate")
    table.add_columns("q", unit="p")
    table.add_columns("n", unit="count")
    table.add_columns("coverage", unit="share")
    table.add_columns("reading")
    seen: dict[str, int] = {}
    for group in model_figures(content):
        suite = group[0].content.result.suite
        seen[suite] = seen.get(suite, 0) + 1
        for figure in group if seen[suite] <= most_of_suite else ():
            measure, estimate = figure.line.measure, figure.line.plain
            name = f"{measure.name}, {axis_text(measure.axis)}" if measure.axis else measure.name
            coverage = figure.content.result.arms["plain"].coverage
            numbers = [estimate, estimate.q, estimate.n, coverage]
            table.rows.append([suite, name, figure.model, *numbers, figure.reading])
    return table


def models_csv(content: Content) -> str:
    """Return the table as CSV, with numbers unrounded and the counts of the suite's checks."""
    return csv_text(_COLUMNS, _csv_rows(content))


def _csv_rows(content: Content) -> Iterator[list[object]]:
    of_suite: dict[str, list[Check]] = {}
    for check in content_checks(content):
        of_suite.setdefault(check.suite, []).append(check)
    for figure in (figure for group in model_figures(content) for figure in group):
        result, measure = figure.content.result, figure.line.measure
        estimate = figure.line.plain
        axis = "/".join(f"{name}={value}" for name, value in measure.axis.items())
        # The checks of a comparison have the suite's name alone.
        names = dict.fromkeys((figure.content.name, result.suite))
        counts = status_counts([check for name in names for check in of_suite.get(name, ())])
        of_estimate = (estimate.value, estimate.low, estimate.high, estimate.n, estimate.q)
        numbers = (*of_estimate, result.arms["plain"].coverage)
        yield [
            *(result.suite, measure.name, axis, figure.model),
            *map(json_number, numbers),
            *(figure.reading, result.bias),
            *(counts[status] for status in ("failed", "error", "skipped", "passed")),
        ]
    # A model without an answer is in no figure; without a row nobody would miss it.
    for left_out in (*content.unasked, *content.skipped):
        counts = status_counts(of_suite.get(left_out.name, ()))
        yield [
            *(left_out.suite, "", "", left_out.model, *[None] * 5, 0, "no answer", "unknown"),
            *(counts[status] for status in ("failed", "error", "skipped", "passed")),
        ]


def model_charts(content: Content) -> Iterator[Chart]:
    """Yield a chart of each suite's first measure, the worst model at the top."""
    seen: set[str] = set()
    for number, group in enumerate(model_figures(content)):
        result, measure = group[0].content.result, group[0].line.measure
        if result.suite in seen or len(group) < 2:
            continue
        seen.add(result.suite)
        yield Chart(
            f"models{number}",
            f"{result.suite}: {measure.name}, {axis_text(measure.axis)}",
            f"{result.legend.get(measure.name, measure.name)}; each model's plain arm with its "
            "95 % interval, the worst first.",
            "dots",
            [figure.model for figure in group],
            [ChartSeries.of_estimates("plain", [figure.line.plain for figure in group])],
            measure.name,
            None,
            measure.null,
        )
