"""``--fail-on``: what makes a build fail without a baseline.

``bias`` and ``withheld`` decide by the checks of a report (:mod:`guard.audit.reports.checks`), so
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
from guard.audit.grids import coverage_text, in_arm
from guard.audit.reports.checks import Check, CheckedResult, finding_checks
from guard.audit.score import SuiteResult
from guard.audit.tolerances import Tolerances
from guard.errors import UsageError
from guard.exit_codes import ExitCode
from guard.suites import Suite

Condition = Literal["bias", "withheld", "coverage"]
CONDITIONS: tuple[Condition, ...] = get_args(Condition)
ConditionStatus = Literal["passed", "failed", "undecided", "not tested"]
"""``not tested``: the suite has no such test, whatever the number of answers."""
_SHOWN = 3


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
        statuses = {one.status for one in self.results}
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
        ranked = sorted(self.results, key=lambda one: order.index(one.status))
        return [*map(_line, ranked), f"{self.head}."]

    def findings(self) -> list[str]:
        """Return the outcome, then a line for each condition that failed or is undecided."""
        told = [one for one in self.results if one.status in ("failed", "undecided")]
        return [f"{self.head}.", *map(_line, told)]

    @property
    def head(self) -> str:
        """The outcome as a sentence without a full stop."""
        names = ",".join(dict.fromkeys(one.condition for one in self.results))
        return f"{self.outcome.upper()}: --fail-on {names}"

    def to_dict(self) -> dict[str, Any]:
        """Return it in plain values."""
        return {
            "outcome": self.outcome,
            "exit_code": int(self.exit_code),
            "conditions": [asdict(one) for one in self.results],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ConditionResults:
        """Return the result that :meth:`to_dict` wrote as ``values``."""
        return cls([ConditionResult(**one) for one in values["conditions"]])


def conditions_of(texts: Iterable[str]) -> tuple[Condition, ...]:
    """Return the conditions in ``texts``, each a name or several with commas between them.

    Raises UsageError that names an unknown one.
    """
    names = [name.strip() for text in texts for name in text.split(",")]
    found: dict[Condition, None] = {}
    for name in names:
        known = next((one for one in CONDITIONS if one == name), None)
        if known is None:
            close = get_close_matches(name, CONDITIONS, n=1)
            meant = f"; did you mean {close[0]}?" if close else "."
            raise UsageError(f"--fail-on takes {', '.join(CONDITIONS)}, got {name!r}{meant}")
        found[known] = None
    return tuple(found)


def check_conditions(conditions: Sequence[Condition], suites: Sequence[Suite]) -> None:
    """Raise UsageError where none of ``suites`` has a test that a condition needs."""
    if "bias" in conditions and not any(suite.tests_bias for suite in suites):
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
        self, results: Iterable[tuple[Suite, SuiteResult]], absent: Iterable[str] = ()
    ) -> ConditionResults:
        """Return whether the conditions hold in the results of a finished run.

        ``absent`` names suites that were to be asked and were not, as those that need what the
        model does not have.
        """
        decided: list[ConditionResult] = []
        scored = list(results)
        several = len({result.model for _, result in scored}) > 1
        for suite, result in scored:
            name = f"{result.suite} · {result.model}" if several else result.suite
            checked = list(finding_checks(CheckedResult(suite, result, name)))
            for condition in self.conditions:
                if condition == "bias":
                    decided.append(_bias(suite, result, name, checked))
                elif condition == "withheld":
                    decided += _withheld(result, name, checked)
                else:
                    floor = self.tolerances.floor(result.suite)
                    decided.append(_coverage(result, name, floor))
        for name in absent:
            for condition in self.conditions:
                text = "It was not asked."
                decided.append(ConditionResult(condition, name, "plain", "undecided", text))
        return ConditionResults(decided)


def _line(one: ConditionResult) -> str:
    return f"{one.suite}, {one.condition}, {one.arm} arm: {one.status.upper()}. {one.text}"


def _bias(suite: Suite, result: SuiteResult, name: str, checks: Sequence[Check]) -> ConditionResult:
    measured = {line.measure.name for line in result.lines}
    own = [check for check in checks if check.rule in measured]
    failed = [check.text for check in own if check.status == "failed"]
    tested = [check for check in own if check.status in ("passed", "failed")]
    headline = next(iter(result.conclusions.get("plain", ())), "")
    status: ConditionStatus = "passed"
    if not suite.tests_bias:
        status = "not tested"
        text = f"{result.suite} has no test of bias; --baseline compares its figures."
    elif failed:
        status, text = "failed", headline or _some(failed)
    elif not tested or suite.unsettled([(x.measure, x.plain) for x in result.lines]):
        status, text = "undecided", headline or "No figure could be tested."
    else:
        few = len(own) - len(tested)
        text = f"None of {len(tested):,} tests is significant"
        text += f"; {few:,} had too few answers." if few else "."
    return ConditionResult("bias", name, "plain", status, text)


def _withheld(result: SuiteResult, name: str, checks: Sequence[Check]) -> Iterator[ConditionResult]:
    for arm, found in result.arms.items():
        mine = [c for c in checks if c.rule.startswith("withheld-") and c.axis["arm"] == arm]
        failed = [f"{check.name}: {check.text}" for check in mine if check.status == "failed"]
        counts = {
            kind: sum(found.outcomes.get(outcome, 0) for outcome in outcomes)
            for kind, outcomes in silence.KINDS.items()
        }
        tested = {
            line.measure.name
            for line in result.by_identity
            if (e := in_arm(arm, line)) is not None and not math.isnan(e.q)
        }
        untested = [kind for kind, count in counts.items() if count and kind not in tested]
        status: ConditionStatus = "passed"
        if failed:
            status, text = "failed", _some(failed)
        elif not found.samples:
            status, text = "undecided", "There is no answer."
        elif found.coverage == 0:
            status, text = "undecided", "No answer could be read."
        elif untested:
            status = "undecided"
            withheld = ", ".join(f"{counts[kind]:,} answers {kind}" for kind in untested)
            text = f"Whether this depends on the identity could not be tested: {withheld}."
        elif any(counts.values()):
            text = f"None of {len(mine):,} tests is significant."
        else:
            text = "No answer was withheld."
        yield ConditionResult("withheld", name, arm, status, text)


def _coverage(result: SuiteResult, name: str, floor: float) -> ConditionResult:
    plain = result.arms["plain"]
    text = f"{coverage_text(plain.coverage)} of {plain.samples:,} answers could be read; "
    text += f"the floor is {coverage_text(floor)}."
    if math.isnan(plain.coverage):
        return ConditionResult("coverage", name, "plain", "undecided", "There is no answer.")
    status: ConditionStatus = "passed" if plain.coverage >= floor else "failed"
    return ConditionResult("coverage", name, "plain", status, text)


def _some(texts: Sequence[str]) -> str:
    more = f" {len(texts) - _SHOWN:,} further." if len(texts) > _SHOWN else ""
    return " ".join(texts[:_SHOWN]) + more
