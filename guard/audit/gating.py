"""``--fail-on``: what makes a build fail without a baseline.

``bias`` and ``withheld`` decide by the checks of a report (:mod:`guard.audit.report.checks`), so
that the exit code, the conclusions and JUnit agree. An undecided question is never a pass.

``bias`` and ``coverage`` look at the plain arm: the answers that a guard lets through do not
measure the model, and stopping biased answers is what a guard is for. ``withheld`` looks at every
arm: users miss an answer whoever withheld it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Any, Literal, get_args

from guard.audit import silence
from guard.audit.asked import AskedSuite, with_model
from guard.audit.report.checks import Check, CheckedResult, finding_checks
from guard.audit.score import SuiteResult
from guard.audit.tolerances import Tolerances
from guard.errors import UsageError
from guard.exit_codes import ExitCode
from guard.results.conclusions import ALPHA, untested_identities, untested_text
from guard.results.estimate import Estimate
from guard.results.figures import in_arm
from guard.results.jackknife import p_of_independent_rows
from guard.results.measure import Measure
from guard.results.table import coverage_text
from guard.suites import Suite

Condition = Literal["bias", "withheld", "coverage"]
CONDITIONS: tuple[Condition, ...] = get_args(Condition)
ConditionStatus = Literal["passed", "failed", "undecided", "not tested"]
"""``not tested``: the suite has no such test, whatever the number of answers."""
_MOST_TEXTS = 3


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """Whether one condition held in an arm of a suite, with the reason as a sentence."""

    condition: Condition
    suite: str
    arm: str
    status: ConditionStatus
    text: str


@dataclass(frozen=True, slots=True)
class ConditionResults:
    """The conditions of a run, and what follows for the build."""

    results: Sequence[ConditionResult]

    @property
    def exit_code(self) -> ExitCode:
        """The exit code: failed before undecided."""
        statuses = {result.status for result in self.results}
        if "failed" in statuses:
            return ExitCode.FOUND
        return ExitCode.UNDECIDED if "undecided" in statuses else ExitCode.DONE

    @property
    def outcome(self) -> Literal["pass", "fail", "inconclusive"]:
        """The exit code as a word."""
        code = self.exit_code
        if code == ExitCode.FOUND:
            return "fail"
        return "inconclusive" if code == ExitCode.UNDECIDED else "pass"

    def lines(self) -> list[str]:
        """Return a line for each condition, those that decide last, then the outcome."""
        order: tuple[ConditionStatus, ...] = ("passed", "not tested", "undecided", "failed")
        ranked = sorted(self.results, key=lambda result: order.index(result.status))
        return [*map(_condition_line, ranked), f"{self.head}."]

    def findings(self) -> list[str]:
        """Return the outcome, then a line for each condition that failed or is undecided."""
        deciding = [result for result in self.results if result.status in ("failed", "undecided")]
        return [f"{self.head}.", *map(_condition_line, deciding)]

    @property
    def head(self) -> str:
        """The outcome as a sentence without a full stop."""
        names = ",".join(dict.fromkeys(result.condition for result in self.results))
        return f"{self.outcome.upper()}: --fail-on {names}"

    def to_dict(self) -> dict[str, Any]:
        """Return it in plain values."""
        return {
            "outcome": self.outcome,
            "exit_code": int(self.exit_code),
            "conditions": [asdict(result) for result in self.results],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ConditionResults:
        """Return the result that :meth:`to_dict` wrote as ``values``."""
        return cls([ConditionResult(**condition) for condition in values["conditions"]])


def conditions_of(texts: Iterable[str]) -> tuple[Condition, ...]:
    """Return the conditions in ``texts``, each a name or several with commas between them.

    Raises UsageError that names an unknown one.
    """
    names = [name.strip() for text in texts for name in text.split(",")]
    conditions: dict[Condition, None] = {}
    for name in names:
        known = next((condition for condition in CONDITIONS if condition == name), None)
        if known is None:
            close = get_close_matches(name, CONDITIONS, n=1)
            meant = f"; did you mean {close[0]}?" if close else "."
            raise UsageError(f"--fail-on takes {', '.join(CONDITIONS)}, got {name!r}{meant}")
        conditions[known] = None
    return tuple(conditions)


def check_conditions(conditions: Sequence[Condition], suites: Sequence[Suite]) -> None:
    """Raise UsageError where none of ``suites`` has a test that a condition needs."""
    if suites and "bias" in conditions and not any(suite.about.tests_bias for suite in suites):
        names = ", ".join(suite.name for suite in suites)
        raise UsageError(
            f"{names} has no test of bias, so --fail-on bias could decide nothing; leave bias out, "
            "or compare its figures with --baseline."
        )


@dataclass(frozen=True, slots=True)
class AuditConditions:
    """What a build fails on, and the floors of coverage."""

    conditions: Sequence[Condition]
    tolerances: Tolerances = field(default_factory=Tolerances)

    def decide(
        self, results: Iterable[tuple[Suite, SuiteResult]], skipped: Iterable[AskedSuite] = ()
    ) -> ConditionResults:
        """Return whether the conditions hold in the results of a finished run.

        ``skipped`` are suites that were to be asked and were not, as those that need what the model
        does not have. Where no answer of a suite could be read, no condition passes.
        """
        decided: list[ConditionResult] = []
        scored, skipped = list(results), list(skipped)
        models = {result.model for _, result in scored} | {left_out.model for left_out in skipped}

        def name_of(suite: str, model: str) -> str:
            return with_model(suite, model if len(models) > 1 else "")

        for suite, result in scored:
            name = name_of(result.suite, result.model)
            checked = list(finding_checks(CheckedResult(suite, result, name)))
            for condition in self.conditions:
                if condition == "bias":
                    decided.append(_bias_condition(suite, result, name, checked))
                elif condition == "withheld":
                    decided += _withheld_conditions(result, name, checked)
                else:
                    floor = self.tolerances.floor(result.suite)
                    decided.append(_coverage_condition(result, name, floor))
        for left_out in skipped:
            name, text = name_of(left_out.suite, left_out.model), f"Not asked: {left_out.skipped}."
            decided += [
                ConditionResult(condition, name, "plain", "undecided", text)
                for condition in self.conditions
            ]
        return ConditionResults(decided)


def _condition_line(result: ConditionResult) -> str:
    status = result.status.upper()
    return f"{result.suite}, {result.condition}, {result.arm} arm: {status}. {result.text}"


def _why_unread(result: SuiteResult, arm: str = "plain") -> str:
    """Return why an arm shows nothing at all; empty where an answer could be read."""
    counts = result.arms[arm]
    if not counts.samples:
        return "There is no answer."
    return "" if counts.coverage else "No answer could be read."


def _bias_condition(
    suite: Suite, result: SuiteResult, name: str, checks: Sequence[Check]
) -> ConditionResult:
    measured = {line.measure.name for line in result.lines}
    own = [check for check in checks if check.rule in measured]
    status: ConditionStatus = "undecided"
    text = result.bias_sentence or "No figure could be tested."
    if result.bias == "found":
        failed = [check.text for check in own if check.status == "failed"]
        status, text = "failed", result.bias_sentence or _first_texts(failed)
    elif unread := _why_unread(result):
        text = unread
    elif not suite.about.tests_bias:
        status = "not tested"
        text = f"{result.suite} has no test of bias; --baseline compares its figures."
    elif result.bias == "not found":
        few = sum(check.status == "skipped" for check in own)
        text = f"None of {len(own) - few:,} tests is significant"
        text += f"; {few:,} had too few answers." if few else "."
        untested = untested_identities([(x.measure, x.plain) for x in result.lines])
        status = "undecided" if (doubtful := _doubtful_figures(untested)) else "passed"
        if doubtful:
            text += f" Too few to test, but far from fair: {untested_text(doubtful)}."
            text += " Ask more items."
        elif untested:
            text += f" Not tested: {untested_text(untested)}."
    return ConditionResult("bias", name, "plain", status, text)


def _doubtful_figures(
    untested: Sequence[tuple[Measure, Estimate]],
) -> list[tuple[Measure, Estimate]]:
    """Return the untested figures that chance does not explain even in independent answers."""
    level = ALPHA / max(1, len(untested))
    return [
        (m, e)
        for m, e in untested
        if not (math.isnan(e.value) or p_of_independent_rows(m) >= level)
    ]


def _withheld_conditions(
    result: SuiteResult, name: str, checks: Sequence[Check]
) -> Iterator[ConditionResult]:
    for arm, answers in result.arms.items():
        own = [c for c in checks if c.rule.startswith("withheld-") and c.axis["arm"] == arm]
        failed = [f"{check.name}: {check.text}" for check in own if check.status == "failed"]
        counts = {
            kind: sum(answers.outcomes.get(outcome, 0) for outcome in outcomes)
            for kind, outcomes in silence.KINDS.items()
        }
        tested = {
            line.measure.name
            for line in result.by_identity
            if (estimate := in_arm(arm, line)) is not None and not math.isnan(estimate.q)
        }
        untested = [kind for kind, count in counts.items() if count and kind not in tested]
        status: ConditionStatus = "undecided"
        if failed:
            status, text = "failed", _first_texts(failed)
        elif unread := _why_unread(result, arm):
            text = unread
        elif untested:
            withheld = ", ".join(f"{counts[kind]:,} answers {kind}" for kind in untested)
            text = f"Whether this depends on the identity could not be tested: {withheld}."
        elif any(counts.values()):
            status, text = "passed", f"None of {len(own):,} tests is significant."
        else:
            status, text = "passed", "No answer was withheld."
        yield ConditionResult("withheld", name, arm, status, text)


def _coverage_condition(result: SuiteResult, name: str, floor: float) -> ConditionResult:
    plain = result.arms["plain"]
    text = f"{coverage_text(plain.coverage)} of {plain.samples:,} answers could be read; "
    text += f"the floor is {coverage_text(floor)}."
    status: ConditionStatus = "passed"
    if plain.coverage < floor:
        status = "failed"
    elif unread := _why_unread(result):
        status, text = "undecided", unread
    return ConditionResult("coverage", name, "plain", status, text)


def _first_texts(texts: Sequence[str]) -> str:
    more = f" {len(texts) - _MOST_TEXTS:,} further." if len(texts) > _MOST_TEXTS else ""
    return " ".join(texts[:_MOST_TEXTS]) + more
