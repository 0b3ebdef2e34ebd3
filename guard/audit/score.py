"""From records to the result of a suite: outcomes, coverage, measures, effects, published figures.

The one way to a score: a live audit, a finished journal and a plain table of answers all end here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from guard.audit.outcomes import Records, coverage, tally
from guard.audit.statistics import DRAWS, Effect, Estimate, Line, estimate
from guard.suites import Published, Suite

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
    seed: int
    draws: int
    findings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By arm, what the suite tells beside the measures."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """The header, tokens, cost and whatever else a report tells beside."""
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
            "complete": self.complete,
            "missing": self.missing,
            "coverage": number(plain.coverage),
            "outcomes": dict(plain.outcomes),
            "samples": plain.samples,
            "scores": [_score(line, line.plain) for line in self.lines],
        }
        if "guarded" in self.arms:
            guarded = self.arms["guarded"]
            found["guarded"] = {
                "coverage": number(guarded.coverage),
                "outcomes": dict(guarded.outcomes),
                "scores": [_score(x, x.guarded) for x in self.lines if x.guarded is not None],
            }
            found["effects"] = [_effect(x, x.effect) for x in self.lines if x.effect is not None]
        found["findings"] = {arm: dict(told) for arm, told in self.findings.items()}
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
        intervals = {"level": 0.95, "draws": self.draws, "seed": self.seed}
        return {**found, "intervals": intervals, **self.about}


def result_of(
    suite: Suite,
    records: Records,
    *,
    model: str = "",
    draws: int = DRAWS,
    seed: int = 17,
    about: Mapping[str, Any] | None = None,
) -> SuiteResult:
    """Return what ``records`` amount to."""
    arms: dict[str, ArmResult] = {
        arm: ArmResult(len(found), tally(suite, found), coverage(suite, found))
        for arm, found in records.arms()
    }
    plain = list(suite.measures(records.plain))
    guarded = list(suite.measures(records.guarded)) if "guarded" in arms else None
    return SuiteResult(
        suite.name,
        suite.title,
        suite.version,
        model,
        arms,
        estimate(plain, guarded, draws=draws, seed=seed),
        tuple(suite.published()),
        records.missing,
        seed,
        draws,
        {arm: suite.findings(found) for arm, found in records.arms()},
        dict(about or {}),
        suite.headline,
    )


def number(value: float) -> _Number:
    """Return ``value`` as JSON has it: whole numbers without a point, nan and infinity as None."""
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 2**53 else value


def _score(line: Line, found: Estimate) -> dict[str, Any]:
    score = {
        "axis": dict(line.measure.axis),
        "measure": line.measure.name,
        "value": number(found.value),
        "low": number(found.low),
        "high": number(found.high),
        "n": number(found.n),
    }
    tested = {"p": number(found.p), "q": number(found.q)} if not math.isnan(found.p) else {}
    return {**score, **tested}


def _effect(line: Line, effect: Effect) -> dict[str, Any]:
    return {
        "axis": dict(line.measure.axis),
        "measure": line.measure.name,
        "value": number(effect.value),
        "low": number(effect.low),
        "high": number(effect.high),
        "p": number(effect.p),
        "q": number(effect.q),
        "higher_is": line.measure.higher_is,
    }
