"""Checks for a build: one for each figure that was tested or compared.

Without a baseline a check fails where the plain arm's bias is significant, where answers are
withheld unequally, where the guard stops the wrong answers, or where users saw more bias behind it.
With a baseline it fails where an axis regressed. Undecided checks are skipped. A build server shows
skipped tests in green, so a verdict that is not reached (bias unknown; a condition of --fail-on
that is undecided; a comparison that is inconclusive, incomplete or not comparable) is an error of
its own, as is an incomplete run. The conditions of --fail-on are checks of their own, with or
without a baseline.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from guard.audit.comparison import Verdict
from guard.audit.outcomes import scores_both_arms
from guard.audit.report.content import Content, SuiteContent
from guard.audit.report.differences import effect_of, is_worse, leading_lines, shows_change
from guard.audit.score import SuiteResult
from guard.results.conclusions import (
    ALPHA,
    FOUND,
    NOT_FOUND,
    is_significant,
    meaning_of,
    not_excluded,
    significant_text,
)
from guard.results.estimate import Estimate
from guard.results.figures import axis_text, in_arm
from guard.results.intervals import p_text
from guard.results.jackknife import Line, key_of
from guard.results.table import coverage_text, effect_text, estimate_text, number_text
from guard.suites import Suite

if TYPE_CHECKING:
    from guard.audit.gating import ConditionResult

Status = Literal["passed", "failed", "skipped", "error"]
BASELINE = "against the baseline"
"""The suite of the checks that are about a whole comparison."""
VERDICT = "verdict"
"""The rule of a verdict that was not reached; every other rule is a figure's or a run's."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a suite; ``name`` is the ``rule`` with its axis."""

    suite: str
    rule: str
    name: str
    status: Status
    text: str
    journal: str = ""
    axis: Mapping[str, str] = field(default_factory=dict)


class CheckedResult(NamedTuple):
    """A result with its suite, its name beside other suites and models, and its journal."""

    suite: Suite
    result: SuiteResult
    name: str
    journal: str = ""


Checked = SuiteContent | CheckedResult


def status_counts(listed_checks: Sequence[Check]) -> dict[Status, int]:
    """Return how many checks have each status."""
    return {
        status: sum(one.status == status for one in listed_checks) for status in get_args(Status)
    }


def counts_text(listed_checks: Sequence[Check]) -> str:
    """Return the counts of checks as a sentence, the same in every report."""
    counts = status_counts(listed_checks)
    return (
        f"{len(listed_checks):,} checks: {counts['failed']:,} failed, {counts['error']:,} "
        f"error{'' if counts['error'] == 1 else 's'}, "
        f"{counts['skipped']:,} undecided, {counts['passed']:,} passed."
    )


def content_checks(content: Content) -> list[Check]:
    """Return the checks of every suite, in their order."""
    all_checks: list[Check] = []
    for suite in content.suites:
        all_checks += _completeness_checks(suite)
        if content.comparison is None:
            all_checks += finding_checks(suite)
    for unasked in content.unasked:
        all_checks.append(
            Check(unasked.name, "complete", "complete", "error", unasked.no_answer_sentence)
        )
    for left_out in content.skipped:
        text = f"Not asked: {left_out.skipped}."
        all_checks.append(Check(left_out.name, "complete", "complete", "skipped", text))
    if content.conditions is not None:
        all_checks += [_condition_check(content, one) for one in content.conditions.results]
    return all_checks + list(_comparison_checks(content))


def _condition_check(content: Content, condition: ConditionResult) -> Check:
    statuses: Mapping[str, Status] = {
        "passed": "passed",
        "failed": "failed",
        "undecided": "error",
        "not tested": "skipped",
    }
    rule = f"fail-on-{condition.condition}"
    # Conditions name the model only where there are several.
    journals = {name: s.journal for s in content.suites for name in (s.result.suite, s.name)}
    return Check(
        condition.suite,
        rule,
        f"{rule} / {condition.arm}",
        statuses[condition.status],
        condition.text,
        journals.get(condition.suite, ""),
        {"arm": condition.arm},
    )


def _completeness_checks(content: SuiteContent) -> Iterator[Check]:
    state = content.state()
    text = " ".join(state) or f"{len(content.rows):,} samples have an outcome."
    status: Status = "error" if state else "passed"
    yield Check(content.name, "complete", "complete", status, text, content.journal)
    for arm, arm_result in content.result.arms.items():
        read = arm_result.coverage > 0  # nan, without answers, shows nothing either
        text = (
            f"{coverage_text(arm_result.coverage)} of {arm_result.samples:,} answers could be read."
        )
        name = f"coverage / {arm}"
        yield Check(
            content.name, "coverage", name, "passed" if read else "error", text, content.journal
        )


def finding_checks(content: Checked) -> Iterator[Check]:
    """Yield the checks of a result without a baseline: bias, withheld answers, the guard."""
    result = content.result
    if result.bias == "unknown":
        yield Check(content.name, VERDICT, VERDICT, "error", result.bias_sentence, content.journal)
    for line in result.lines:
        if line.measure.null is not None or not math.isnan(line.plain.p):
            yield _bias_check(content, line)
    for arm in result.arms:
        yield from _withheld_checks(content, arm)
    for line in result.stops:
        if line.measure.name == "selectivity" and not line.measure.axis:
            yield _selectivity_check(content, line)
    if scores_both_arms(content.suite):
        yield from (
            _effect_check(content, x, x.effect)
            for x in leading_lines(result)
            if x.effect is not None
        )


def _withheld_checks(content: Checked, arm: str) -> Iterator[Check]:
    findings = {key_of(one.line.measure) for one in content.result.withheld_from.get(arm, ())}
    for line in content.result.by_identity:
        estimate = in_arm(arm, line)
        if estimate is None or math.isnan(estimate.q):
            continue
        status: Status = "passed"
        text = "Not shown to differ"
        if key_of(line.measure) in findings:
            status, text = "failed", "Answers are withheld unequally"
        elif estimate.q < ALPHA:
            text = "Withheld less often than from others, whose checks fail"
        text = f"{text}: {arm} {_figures_text(estimate)}."
        yield _check_of(content, f"withheld-{line.measure.name}", line, text, status, arm)


def _figures_text(estimate: Estimate) -> str:
    return f"{estimate_text(estimate)} (n {estimate.n:,.0f}, q {p_text(estimate.q)})"


def _bias_check(content: Checked, line: Line) -> Check:
    estimate, measure = line.plain, line.measure
    figures = f"{measure.name} {_figures_text(estimate)}"
    if math.isnan(estimate.q):
        text = f"Too few answers to test: {figures}."
        return _check_of(content, measure.name, line, text, "skipped")
    if not is_significant(measure, estimate):
        limit = not_excluded(measure, estimate)
        text = f"{NOT_FOUND}: {measure.name} {number_text(estimate.value)}"
        text += f" (n {estimate.n:,.0f}, q {p_text(estimate.q)})"
        if math.isfinite(limit):
            where = "above" if measure.above else "from"
            text += f"; not excluded: up to {number_text(limit)} {where} {measure.null:g}"
        return _check_of(content, measure.name, line, f"{text}.", "passed")
    meaning = meaning_of(measure, estimate, content.suite.about.meanings)
    text = f"{FOUND}: {meaning} ({significant_text(estimate, measure.null)})."
    return _check_of(content, measure.name, line, text, "failed")


def _selectivity_check(content: Checked, line: Line) -> Check:
    estimate = line.plain
    status: Status = "passed"
    text = "The guard stops the biased side rather than the others"
    if math.isnan(estimate.q):
        status, text = (
            "skipped",
            "Too few answers to test whether the guard distinguishes the sides",
        )
    elif estimate.q >= ALPHA:
        status, text = "skipped", "The guard is not shown to distinguish the sides"
    elif estimate.value < 0:
        status, text = "failed", "The guard stops the wrong answers"
    figures = _figures_text(estimate)
    if status == "skipped":  # its own interval may leave out 0 though q does not reject it
        figures = f"{number_text(estimate.value)} (n {estimate.n:,.0f}, q {p_text(estimate.q)})"
    text = f"{text}: selectivity {figures}."
    return _check_of(content, "selectivity", line, text, status, "guarded")


def _effect_check(content: Checked, line: Line, effect: Estimate) -> Check:
    change = f"{effect_text(effect)}, q {p_text(effect.q)}"
    status: Status = "passed"
    text = f"It is not shown that users see more of it behind the guard: {change}."
    if math.isnan(effect.low):
        status, text = "skipped", f"The guard changes it by {change}, without an interval."
    elif shows_change(effect) and is_worse(line):
        status, text = "failed", f"Users saw more of it behind the guard, by {change}."
    return _check_of(content, f"guard-{line.measure.name}", line, text, status, "guarded")


def _check_of(
    content: Checked, rule: str, line: Line, text: str, status: Status, arm: str = "plain"
) -> Check:
    axis = {"arm": arm, **line.measure.axis}
    name = f"{rule} / {axis_text(axis)}"
    return Check(content.name, rule, name, status, text, content.journal, axis)


def _comparison_checks(content: Content) -> Iterator[Check]:
    comparison = content.comparison
    if comparison is None:
        return
    journals = {suite.result.suite: suite.journal for suite in content.suites}
    for difference in comparison.differences:
        text = f"{difference.name}: {difference.base} in the baseline, {difference.new} here"
        status: Status = "passed" if difference.allowed else "error"
        sentence = f"{text}{' (allowed)' if difference.allowed else ''}."
        name = f"comparable / {difference.name}"
        yield Check(
            difference.suite,
            "comparable",
            name,
            status,
            sentence,
            journals.get(difference.suite, ""),
        )
    if comparison.outcome in ("inconclusive", "incomplete", "not comparable"):
        text = f"{comparison.head}. {comparison.counts_text()}"
        yield Check(BASELINE, VERDICT, VERDICT, "error", text)
    for axis in comparison.ranked:
        text = (
            f"{axis.verdict.capitalize()}: {number_text(axis.base)} → {number_text(axis.new)}, "
            f"{effect_text(effect_of(axis))}, tolerance {number_text(axis.tolerance)}, "
            f"q {p_text(axis.q)}, n {axis.n:,}"
        )
        text += f"; {axis.reason.rstrip('.')}" if axis.reason else ""
        if axis.more_items is not None:
            text += f"; {axis.more_items:,} more items would decide it"
        yield Check(
            axis.suite,
            axis.measure,
            axis.name,
            _STATUSES[axis.verdict],
            f"{text}.",
            journals.get(axis.suite, ""),
            {"arm": axis.arm, **axis.axis},
        )


_STATUSES: Mapping[Verdict, Status] = {
    "regression": "failed",
    "inconclusive": "skipped",
    "pass": "passed",
}
