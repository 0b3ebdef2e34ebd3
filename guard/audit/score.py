"""From records to the result of a suite: outcomes, coverage, measures, effects, published figures.

The one way to a score: a live audit, a finished journal and a plain table of answers all end here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from guard.audit import mitigation, silence
from guard.audit.outcomes import Records, coverage, judges_both, tally
from guard.audit.sending import PATTERNS
from guard.audit.statistics import LEAST_CLUSTERS, Effect, Line, estimate
from guard.intervals import LEVEL
from guard.suites import Estimate, Measure, Published, Suite

# Nothing in JSON is not a number.
_Number = float | int | None


@dataclass(frozen=True, slots=True)
class ArmResult:
    """One arm in a word: samples, how often each outcome came, the share that could be read."""

    samples: int
    outcomes: Mapping[str, int]
    coverage: float


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """What an audit found on one suite. ``missing`` counts requests without an outcome."""

    suite: str
    title: str
    version: str
    model: str
    arms: Mapping[str, ArmResult]
    lines: Sequence[Line]
    published: Sequence[Published]
    missing: int
    by_identity: Sequence[Line] = ()
    """Refused, unreadable and stopped shares of each identity, with the test of their differing."""
    stops: Sequence[Line] = ()
    """What the guard stopped, of the biased answers and of the others; empty for one arm."""
    conclusions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By arm, what was found, in sentences: the first is the headline."""
    findings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By arm, what the suite tells beside the measures."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """The header, tokens, cost and whatever else a report tells beside."""
    legend: Mapping[str, str] = field(default_factory=dict)
    """What the measures are."""
    deviations: Sequence[str] = ()
    """What was done otherwise than in the paper."""
    headline: frozenset[str] = frozenset()
    """The measures that a printed table shows of every axis; all where it is empty."""

    @property
    def complete(self) -> bool:
        """Whether every planned request was answered."""
        failed = any(arm.outcomes.get("failed", 0) for arm in self.arms.values())
        return not self.missing and not failed

    def as_json(self) -> dict[str, Any]:
        """Return the result in plain values, numbers unrounded and nan as None."""
        plain = self.arms["plain"]
        found: dict[str, Any] = {
            "suite": self.suite,
            "title": self.title,
            "version": self.version,
            "model": self.model,
            "conclusions": {arm: list(told) for arm, told in self.conclusions.items()},
            "complete": self.complete,
            "missing": self.missing,
            "coverage": number(plain.coverage),
            "outcomes": dict(plain.outcomes),
            "samples": plain.samples,
            "scores": [_row(x.measure, x.plain) for x in self.lines],
            "by_identity": [_row(x.measure, x.plain) for x in self.by_identity],
        }
        if "guarded" in self.arms:
            guarded = self.arms["guarded"]
            found["guarded"] = {
                "coverage": number(guarded.coverage),
                "outcomes": dict(guarded.outcomes),
                "scores": [_row(x.measure, x.guarded) for x in self.lines if x.guarded],
                "by_identity": [_row(x.measure, x.guarded) for x in self.by_identity if x.guarded],
            }
            found["stops"] = [_row(x.measure, x.plain) for x in self.stops]
            found["effects"] = [
                {**_row(x.measure, x.effect), "higher_is": x.measure.higher_is}
                for x in self.lines
                if x.effect
            ]
        found["findings"] = {arm: dict(told) for arm, told in self.findings.items()}
        found["legend"], found["deviations"] = dict(self.legend), list(self.deviations)
        found["published"] = [
            {
                "axis": dict(p.axis),
                "measure": p.name,
                "model": p.model,
                "value": number(p.value),
                "source": p.source,
            }
            for p in self.published
        ]
        intervals = {
            "level": LEVEL,
            "method": "cluster jackknife, t; Jeffreys' for untested figures between bounds; "
            "Clopper and Pearson's for shares of open text",
            "least": LEAST_CLUSTERS,
        }
        return {**found, "intervals": intervals, **self.about}


def result_of(
    suite: Suite,
    records: Records,
    *,
    model: str = "",
    about: Mapping[str, Any] | None = None,
) -> SuiteResult:
    """Return what ``records`` amount to."""
    arms: dict[str, ArmResult] = {
        arm: ArmResult(len(found), tally(suite, found), coverage(suite, found))
        for arm, found in records.arms()
    }
    all_of = {arm: [*found, *records.further] for arm, found in records.arms()}
    scores = {arm: list(suite.measures(found)) for arm, found in all_of.items()}
    silent = {arm: silence.measures(suite, found) for arm, found in records.arms()}
    # One family: what is tested of an arm is corrected together.
    every = [[*scores[arm], *silent[arm]] for arm in scores]
    lines = estimate(*every)
    lines, by_identity = lines[: len(scores["plain"])], lines[len(scores["plain"]) :]
    concluded: dict[str, Sequence[str]] = {}
    sides = suite.sides(records.plain) if "guarded" in arms else ()
    both = list(suite.mitigation(records.plain, records.guarded)) if "guarded" in arms else []
    general = mitigation.measures(suite, records, sides) if sides else []
    # Of open text the suite's own figures say it by type.
    both += [m for m in general if not (judges_both(suite) and "type" in m.axis)]
    stops = estimate(both)
    for arm in arms:
        of = [(x.measure, x.plain if arm == "plain" else x.guarded) for x in lines]
        told = suite.conclusions([(m, e) for m, e in of if e is not None])
        also = silence.conclusion(by_identity, guarded=arm == "guarded")
        tested = _tested(by_identity, arm)
        read = _read(arms[arm], suite.unread, differs=bool(also), tested=tested)
        if arm == "plain":
            # Whom it leaves without answers comes first: a score is of the answers that there are.
            concluded[arm] = [" ".join(filter(None, (also, *told[:1], read))), *told[1:]]
            continue
        side: mitigation.Bias = "biased" if judges_both(suite) else mitigation.side_of(lines)
        stopped = mitigation.conclusion(stops, bias=side, readable=arms["plain"].coverage > 0)
        if judges_both(suite):
            told = suite.conclusions([(x.measure, x.plain) for x in stops])
            concluded[arm] = [*told, *filter(None, (also,)), f"{stopped} {read}"]
            continue
        concluded[arm] = [stopped, *filter(None, (also,)), f"{_SURVIVORS} {told[0]} {read}"]
    findings: dict[str, dict[str, Any]] = {
        arm: dict(suite.findings(found)) for arm, found in all_of.items()
    }
    if _by_patterns(about or {}):
        findings["plain"]["remarks"] = [_PATTERNS, *findings["plain"].get("remarks", ())]
    if "guarded" in arms:
        findings["guarded"]["false stops"] = mitigation.false_stops(suite, records, sides)
    return SuiteResult(
        suite.name,
        suite.title,
        suite.version,
        model,
        arms,
        lines,
        () if suite.counts_all and _is_sample(about or {}) else tuple(suite.published()),
        records.missing,
        by_identity,
        stops,
        concluded,
        findings,
        dict(about or {}),
        suite.legend,
        tuple(suite.deviations()),
        suite.headline,
    )


_SURVIVORS = (
    "The guard selected these answers, so their scores do not measure it; where it stops every "
    "biased answer they change sign:"
)
_LOST = {
    "refused": "refused",
    "invalid": "unreadable",
    "guarded": "stopped by the guard",
    "unjudged": "stopped unjudged",
    "failed": "failed",
}


_PATTERNS = (
    "The analyst is `patterns`, no model: this shows that everything runs, and its figures say "
    "nothing about bias."
)


def _is_sample(about: Mapping[str, Any]) -> bool:
    return bool(about.get("key", {}).get("sampling"))


def _by_patterns(about: Mapping[str, Any]) -> bool:
    """Return whether what the model wrote was read without a second model."""
    others = about.get("key", {}).get("others", {})
    return bool(others.get("analyst", {}).get("model") == PATTERNS)


def _read(arm: ArmResult, unread: Sequence[str], *, differs: bool, tested: bool) -> str:
    """Return over how many answers scores are, and what became of the others."""
    readable = round(arm.coverage * arm.samples) if arm.samples else 0
    told = f"Over {readable:,} readable answers of {arm.samples:,}"
    lost = [
        f"{n / arm.samples:.1%} {word}"
        for name, word in (_LOST | {name: name for name in unread}).items()
        if (n := arm.outcomes[name])
    ]
    if not lost:
        return f"{told}."
    alike = "" if differs or not tested else "; no difference between groups stands"
    return f"{told} ({', '.join(lost)}{alike})."


def _tested(by_identity: Sequence[Line], arm: str) -> bool:
    found = (x.plain if arm == "plain" else x.guarded for x in by_identity)
    return any(e is not None and not math.isnan(e.q) for e in found)


def number(value: float) -> _Number:
    """Return ``value`` as JSON has it: whole numbers without a point, nan and infinity as None."""
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 2**53 else value


def plain_values(found: Estimate | Effect) -> dict[str, _Number]:
    """Return an estimate as JSON has it; p and q of an untested one are left out."""
    values = {name: number(value) for name, value in asdict(found).items()}
    if isinstance(found, Estimate) and math.isnan(found.p):
        del values["p"], values["q"]
    return values


def _row(measure: Measure, found: Estimate | Effect) -> dict[str, Any]:
    level = {} if measure.level == LEVEL else {"level": number(measure.level)}
    axis = {"axis": dict(measure.axis), "measure": measure.name}
    return {**axis, **plain_values(found), **level}
