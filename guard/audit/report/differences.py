"""The head of a report: what the guard stopped, or how a run differs from its baseline.

Scores of the guarded arm cover only the answers that the guard let through, so their difference
from the plain arm is mitigation only where a scorer judged what users saw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from guard.audit.comparison import AxisComparison, Comparison
from guard.audit.outcomes import scores_both_arms
from guard.audit.report.content import Content, SuiteContent
from guard.audit.report.tables import STOPS, printed_lines
from guard.audit.score import SuiteResult
from guard.results.conclusions import ALPHA
from guard.results.estimate import Estimate
from guard.results.figures import axis_text
from guard.results.intervals import false_discovery
from guard.results.jackknife import Line
from guard.results.table import Table, effect_text, number_text

_LEAD = 6  # lines of a suite
_STOPS = ("biased", "biased_shown", "stopped_biased", "stopped_others", "selectivity",
          "mitigation_rate", "over_blocked")  # fmt: skip


@dataclass(frozen=True, slots=True)
class FigureDifference:
    """An estimate on two sides; ``reading`` is a short verdict on the difference."""

    suite: str
    measure: str
    axis: Mapping[str, str]
    before: float
    after: float
    effect: Estimate
    reading: str

    @property
    def place(self) -> str:
        """The measure and axis in words."""
        return f"{self.measure}, {axis_text(self.axis)}"


def figure_differences(content: Content) -> list[FigureDifference]:
    """Return the differences from the baseline; without one those between the arms."""
    if content.comparison is not None:
        axes = content.comparison.ranked
        return [
            _compared_axis(axis, better)
            for axis, better in zip(axes, _improved_axes(axes), strict=True)
        ]
    return [
        _between_arms(one, line)
        for one in content.suites
        for line in leading_lines(one.result)
        if line.effect is not None
    ]


def leading_lines(result: SuiteResult) -> list[Line]:
    """Return the widest tested measures of a suite; without tests the first of its tables."""
    tested = [x for x in result.lines if x.measure.null is not None or not math.isnan(x.plain.p)]
    headline = [x for x in printed_lines(result) if x.measure.name in result.headline]
    pool = tested or headline or printed_lines(result)
    widest = min((len(x.measure.axis) for x in pool), default=0)
    shown = [x for x in pool if len(x.measure.axis) == widest]
    if len(shown) > _LEAD:  # as of associations: the most significant ones
        shown.sort(key=lambda x: math.inf if math.isnan(x.plain.q) else x.plain.q)
    return shown[:_LEAD]


def shows_change(effect: Estimate) -> bool:
    """Return whether a change is statistically significant."""
    if not math.isnan(effect.q):
        return effect.q < ALPHA
    return effect.low > 0 or effect.high < 0


def is_worse(line: Line) -> bool | None:
    """Return whether the guarded value is further from fair; None if equal or undefined."""
    measure, effect = line.measure, line.effect
    if effect is None or line.guarded is None or math.isnan(effect.value):
        return None
    if measure.null is not None and not measure.above:
        before, after = (abs(e.value - measure.null) for e in (line.plain, line.guarded))
        return after > before if before != after else None
    if measure.higher_is == "neither" or not effect.value:
        return None
    return (effect.value > 0) == (measure.higher_is == "worse")


def _between_arms(content: SuiteContent, line: Line) -> FigureDifference:
    assert line.effect is not None
    assert line.guarded is not None
    reading = "not shown to change"
    if math.isnan(line.effect.value):
        reading = "not known"
    elif math.isnan(line.effect.low):
        reading = "no interval"
    elif shows_change(line.effect):
        if scores_both_arms(content.suite):
            reading = {True: "worse", False: "better", None: "changes"}[is_worse(line)]
        else:
            reading = f"{'higher' if line.effect.value > 0 else 'lower'} in what was let through"
    values = line.plain.value, line.guarded.value
    axis = line.measure.axis
    return FigureDifference(content.name, line.measure.name, axis, *values, line.effect, reading)


def effect_of(axis: AxisComparison) -> Estimate:
    """Return the difference of a compared axis."""
    return Estimate(axis.difference, axis.low, axis.high, p=axis.p, q=axis.q)


def _improved_axes(axes: Sequence[AxisComparison]) -> list[bool]:
    """Return which axes came significantly nearer to their ideal, corrected over all axes."""
    q = false_discovery([axis.p_change for axis in axes]).tolist()
    return [value < ALPHA and axis.worse < 0 for axis, value in zip(axes, q, strict=True)]


def _compared_axis(axis: AxisComparison, better: bool = False) -> FigureDifference:
    name = f"{axis.suite} · {axis.arm}"
    values = axis.base, axis.new
    counts = axis.decides or axis.verdict != "inconclusive"
    reading = axis.verdict if counts else f"{axis.verdict}, does not decide"
    reading += ", better" if better and axis.verdict == "pass" else ""
    return FigureDifference(name, axis.measure, axis.axis, *values, effect_of(axis), reading)


def side_names(content: Content) -> tuple[str, str]:
    """Return the names of the two sides."""
    return ("plain", "guarded") if content.comparison is None else ("baseline", "this run")


def differences_title(content: Content) -> str:
    """Return the title of the differences."""
    if content.comparison is not None:
        return "Differences from the baseline, 95 % intervals"
    seen = "guarded: of answers let through, in open text of what users saw"
    return f"Scores of both arms, 95 % intervals; {seen}"


def differences_table(content: Content) -> Table:
    """Return the differences as a table."""
    table = Table(differences_title(content))
    table.add_columns("suite", "measure", "of")
    table.add_columns(*side_names(content), unit="number")
    table.add_columns("difference", unit="change")
    table.add_columns("q", unit="p")
    table.add_columns("reading")
    for each in figure_differences(content):
        texts = [each.suite, each.measure, axis_text(each.axis)]
        numbers = [each.before, each.after, each.effect, each.effect.q]
        table.rows.append([*texts, *numbers, each.reading])
    return table


def main_findings(content: Content) -> list[str]:
    """Return the main findings, in sentences with their intervals; first those of --fail-on."""
    sentences = [] if content.conditions is None else content.conditions.findings()
    sentences += [
        f"{left_out.name} was not asked: {left_out.skipped}." for left_out in content.skipped
    ]
    sentences += [unasked.no_answer_sentence for unasked in content.unasked]
    if content.comparison is not None:
        return [*sentences, _baseline_headline(content.comparison)]
    for suite in content.suites:
        # Where no answer has a side, the guarded arm says nothing about the guard.
        arm = "guarded" if suite.result.stops else "plain"
        sentences.append(f"{suite.name}: {suite.result.conclusions[arm][0]}")
    return sentences


def _baseline_headline(comparison: Comparison) -> str:
    if comparison.outcome == "not comparable":
        parts = map(comparison.difference_text, comparison.differences)
        return f"Not comparable with the baseline. {'. '.join(parts)}."
    axes = comparison.ranked
    verdict = f"Against the baseline: {comparison.outcome}. {comparison.counts_text()}"
    if not axes:
        return verdict
    first = _compared_axis(axes[0])
    return (
        f"{verdict} First: {first.suite}, {first.place}, {number_text(first.before)} → "
        f"{number_text(first.after)}, {effect_text(first.effect)} ({first.reading})."
    )


def stops_table(content: Content) -> Table:
    """Return what the guard stopped of the biased answers and of the others, by suite."""
    table = Table(STOPS)
    table.add_columns("suite")
    table.add_columns(*_STOPS, unit="estimate")
    for suite in content.suites:
        estimates = {
            line.measure.name: line.plain for line in suite.result.stops if not line.measure.axis
        }
        if estimates:
            table.rows.append([suite.name, *(estimates.get(name, "–") for name in _STOPS)])
    return table
