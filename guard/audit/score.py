"""From records to the result of a suite: outcomes, coverage, measures, effects, published figures.

Live audits, recorded runs and plain tables of answers are all scored here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from guard.audit import mitigation, silence
from guard.audit.outcomes import Records, outcome_counts, readable_share, scores_both_arms
from guard.audit.sending import PATTERNS
from guard.audit.shards import Shard
from guard.audit.silence import UnequalShare
from guard.results.conclusions import BiasShown, bias_conclusions, bias_of, is_significant
from guard.results.estimate import Estimate
from guard.results.intervals import LEAST_CLUSTERS, LEVEL
from guard.results.jackknife import Line, estimate
from guard.results.measure import Measure
from guard.results.sign_flips import FEW_CLUSTERS
from guard.suites import AsksOtherModels, ExplainsResults, Published, Suite
from guard.suites.optional import part_of

_Number = float | int | None  # JSON has no nan


@dataclass(frozen=True, slots=True)
class ArmResult:
    """The samples of an arm, the number of each outcome, and the share that could be read."""

    samples: int
    outcomes: Mapping[str, int]
    coverage: float


@dataclass(frozen=True, slots=True, repr=False)
class SuiteResult:
    """The result of one suite. ``missing`` counts requests without an outcome."""

    suite: str
    title: str
    version: str
    model: str
    arms: Mapping[str, ArmResult]
    lines: Sequence[Line]
    published: Sequence[Published]
    missing: int
    by_identity: Sequence[Line] = ()
    """The shares of refused, unreadable and stopped answers of each identity."""
    stops: Sequence[Line] = ()
    """What the guard stopped of the biased answers and of the others; empty for one arm."""
    conclusions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Sentences by arm; the first is the headline."""
    findings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The suite's findings besides its measures, by arm."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """The header, tokens, cost and other facts for a report."""
    legend: Mapping[str, str] = field(default_factory=dict)
    """Explanations of the measures."""
    deviations: Sequence[str] = ()
    """Differences from the paper's protocol."""
    bias: BiasShown = ""
    """What the plain arm's tests show; empty where the suite tests nothing."""
    headline: frozenset[str] = frozenset()
    """The measures that a printed table shows on every axis; all if empty."""
    bias_sentence: str = ""
    """The suite's first sentence about the plain arm, without what is withheld from whom."""
    withheld_from: Mapping[str, Sequence[UnequalShare]] = field(default_factory=dict)
    """The findings of each arm among ``by_identity``: from whom answers are withheld."""

    def __repr__(self) -> str:
        """Return a line: ``asyncio.run`` of CPython 3.11 and 3.12 prints twice what it returns."""
        return (
            f"<SuiteResult {self.suite} of {self.model or 'answers'}: {len(self.lines)} measures>"
        )

    @property
    def complete(self) -> bool:
        """Whether every planned request was answered."""
        failed = any(arm.outcomes.get("failed", 0) for arm in self.arms.values())
        return not self.missing and not failed

    def as_json(self) -> dict[str, Any]:
        """Return the result in plain values, numbers unrounded and nan as None."""
        plain = self.arms["plain"]
        values: dict[str, Any] = {
            "suite": self.suite,
            "title": self.title,
            "version": self.version,
            "model": self.model,
            "bias": self.bias,
            "conclusions": {arm: list(texts) for arm, texts in self.conclusions.items()},
            "complete": self.complete,
            "missing": self.missing,
            "coverage": json_number(plain.coverage),
            "outcomes": dict(plain.outcomes),
            "samples": plain.samples,
            "scores": [_figure_row(x.measure, x.plain) for x in self.lines],
            "by_identity": [_figure_row(x.measure, x.plain) for x in self.by_identity],
        }
        if "guarded" in self.arms:
            guarded = self.arms["guarded"]
            values["guarded"] = {
                "coverage": json_number(guarded.coverage),
                "outcomes": dict(guarded.outcomes),
                "scores": [_figure_row(x.measure, x.guarded) for x in self.lines if x.guarded],
                "by_identity": [
                    _figure_row(x.measure, x.guarded) for x in self.by_identity if x.guarded
                ],
            }
            values["stops"] = [_figure_row(x.measure, x.plain) for x in self.stops]
            values["effects"] = [
                {
                    **_figure_row(x.measure, x.effect, effect=True),
                    "higher_is": x.measure.higher_is,
                }
                for x in self.lines
                if x.effect
            ]
        values["findings"] = {arm: dict(findings) for arm, findings in self.findings.items()}
        values["legend"], values["deviations"] = dict(self.legend), list(self.deviations)
        values["published"] = [
            {"axis": dict(p.axis), "measure": p.name, "model": p.model}
            | {"value": json_number(p.value), "source": p.source}
            for p in self.published
        ]
        intervals = {
            "level": LEVEL,
            "method": "cluster jackknife, t (multiway where a suite gives words); of tested figures"
            f" with fewer than {FEW_CLUSTERS} effective clusters what t or sign flips allow; "
            "that of the suite's own test where they disagree; "
            "Jeffreys' for untested figures between bounds; "
            "Clopper and Pearson's for shares of open text",
            "least": LEAST_CLUSTERS,
        }
        return {**values, "intervals": intervals, **self.about}


def result_of(
    suite: Suite,
    records: Records,
    *,
    model: str = "",
    about: Mapping[str, Any] | None = None,
) -> SuiteResult:
    """Return the result of ``records``."""
    about = dict(about or {})
    key = about.get("key", {})
    others, published = part_of(suite, AsksOtherModels), suite.published()
    arms = _arm_results(suite, records)
    all_of = {arm: [*found, *records.further] for arm, found in records.arms()}
    scores = {arm: list(suite.measures(found)) for arm, found in all_of.items()}
    silent = {arm: silence.silence_measures(found) for arm, found in records.arms()}
    # All tests of an arm are corrected together.
    lines = estimate(*([*scores[arm], *silent[arm]] for arm in scores))
    lines, by_identity = lines[: len(scores["plain"])], lines[len(scores["plain"]) :]
    concluded: dict[str, Sequence[str]] = {}
    withheld_from: dict[str, Sequence[UnequalShare]] = {}
    sides = suite.sides(records.plain) if "guarded" in arms else ()
    both = list(others.mitigation(records.plain, records.guarded)) if "guarded" in arms else []
    general = mitigation.stop_measures(suite, records, sides) if sides else []
    # Suites of open text have their own figures by type.
    both += [m for m in general if not (scores_both_arms(suite) and "type" in m.axis)]
    stops = estimate(both)
    for arm in arms:
        figures = [(x.measure, x.plain if arm == "plain" else x.guarded) for x in lines]
        shown = [(m, e) for m, e in figures if e is not None]
        texts = _arm_conclusions(suite, shown)
        unequal = silence.significant_shares(
            by_identity, getattr(records, arm), guarded=arm == "guarded"
        )
        withheld_from[arm] = silence.withheld_findings(unequal)
        withheld = [told] if (told := silence.silence_conclusion(withheld_from[arm])) else []
        read = _coverage_text(arms[arm], arm, others.faults, by_identity, unequal=bool(unequal))
        if arm == "plain":
            bias_sentence = texts[0] if texts else ""
            bias = _bias_shown(suite, shown, bias_sentence)
            # Withheld answers come first, because scores cover only the others.
            concluded[arm] = [" ".join([*withheld, *texts[:1], read]), *texts[1:]]
            continue
        side: mitigation.Bias = "biased" if scores_both_arms(suite) else mitigation.side_of(lines)
        stopped = mitigation.stops_conclusion(stops, bias=side, readable=arms["plain"].coverage > 0)
        if scores_both_arms(suite):
            texts = _arm_conclusions(suite, [(x.measure, x.plain) for x in stops])
            concluded[arm] = [*texts, *withheld, f"{stopped} {read}"]
        else:
            concluded[arm] = [stopped, *withheld, f"{_SURVIVORS} {texts[0]} {read}"]
    findings: dict[str, dict[str, Any]] = {
        arm: dict(part_of(suite, ExplainsResults).findings(found)) for arm, found in all_of.items()
    }
    if key.get("others", {}).get("analyst", {}).get("model") == PATTERNS:
        findings["plain"]["remarks"] = [_PATTERNS, *findings["plain"].get("remarks", ())]
    if "guarded" in arms:
        about_arm = [f"The guard judged {suite.about.judged}."]
        if records.sentences:
            about_arm.append(_SENTENCES)
        findings["guarded"]["remarks"] = [*about_arm, *findings["guarded"].get("remarks", ())]
        findings["guarded"]["false stops"] = mitigation.false_stops(suite, records, sides)
    return SuiteResult(
        suite.name,
        suite.about.title,
        suite.version,
        model,
        arms,
        lines,
        () if published.counts_all and key.get("sampling") else tuple(published.figures),
        records.missing,
        by_identity,
        stops,
        concluded,
        findings,
        about,
        suite.about.legend,
        tuple(published.deviations),
        bias,
        suite.about.headline,
        bias_sentence,
        withheld_from,
    )


def shard_result(
    suite: Suite, records: Records, shard: Shard, *, model: str, about: Mapping[str, Any]
) -> SuiteResult:
    """Return what is known of a shard: its outcomes. The figures are those of all shards merged."""
    arms = _arm_results(suite, records)
    told = (
        f"This is {shard.words}, and a part has no figures: put all {shard.total} together with "
        "guard audit merge."
    )
    return SuiteResult(
        suite.name,
        suite.about.title,
        suite.version,
        model,
        arms,
        (),
        (),
        records.missing,
        conclusions={
            arm: [f"{told} {_coverage_text(of_arm, arm, (), (), unequal=False)}"]
            for arm, of_arm in arms.items()
        },
        about=about,
    )


def _arm_results(suite: Suite, records: Records) -> dict[str, ArmResult]:
    return {
        arm: ArmResult(len(found), outcome_counts(suite, found), readable_share(suite, found))
        for arm, found in records.arms()
    }


def _arm_conclusions(suite: Suite, figures: Sequence[tuple[Measure, Estimate]]) -> Sequence[str]:
    """Return the results of one arm in sentences, the suite's own if it has any."""
    if isinstance(suite, ExplainsResults):
        return suite.conclusions(figures)
    return bias_conclusions(figures, suite.about.meanings)


def _bias_shown(
    suite: Suite, figures: Sequence[tuple[Measure, Estimate]], sentence: str
) -> BiasShown:
    """Return what the tests of ``figures`` show, which ``sentence`` says in words.

    The sentence of a suite of one's own may say nothing about it.
    """
    if not suite.about.tests_bias:
        return ""
    if any(is_significant(measure, estimate) for measure, estimate in figures):
        return "found"
    return bias_of(sentence) or bias_of(bias_conclusions(figures, suite.about.meanings)[0])


_SENTENCES = (
    "Apart from that, as `completed sentences`, it judged each choice in the sentence that it "
    "completes. No user gets that sentence: its figures are in no outcome, test or comparison."
)
_SURVIVORS = (
    "The scores below cover only the answers that the guard let through. They do not measure the "
    "guard: if it stops every biased answer, they lean the other way."
)
_LOST = {
    "refused": "refused",
    "invalid": "unreadable",
    "guarded": "stopped by the guard",
    "unjudged": "stopped unjudged",
    "failed": "failed",
}


_PATTERNS = (
    "The analyst is `patterns`, not a model: this shows that everything runs, and its figures say "
    "nothing about bias."
)


def _coverage_text(
    arm: ArmResult, name: str, unread: Sequence[str], by_identity: Sequence[Line], *, unequal: bool
) -> str:
    """Return the number of readable answers, and the shares of the other outcomes."""
    readable = round(arm.coverage * arm.samples) if arm.samples else 0
    text = f"Over {readable:,} readable answers of {arm.samples:,}"
    lost = [
        f"{n / arm.samples:.1%} {word}"
        for outcome, word in (_LOST | {outcome: outcome for outcome in unread}).items()
        if (n := arm.outcomes[outcome])
    ]
    if not lost:
        return f"{text}."
    estimates = (x.plain if name == "plain" else x.guarded for x in by_identity)
    tested = any(e is not None and not math.isnan(e.q) for e in estimates)
    equal = "; no difference between groups is significant" if tested and not unequal else ""
    return f"{text} ({', '.join(lost)}{equal})."


def json_number(value: float) -> _Number:
    """Return ``value`` for JSON: whole numbers as int, nan and infinity as None."""
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 2**53 else value


def plain_json(value: Any) -> Any:
    """Return nested plain values with each float as :func:`json_number` gives it."""
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, Mapping):
        return {name: plain_json(one) for name, one in value.items()}
    return [plain_json(one) for one in value] if isinstance(value, list | tuple) else value


def estimate_to_json(estimate: Estimate, *, effect: bool = False) -> dict[str, _Number]:
    """Return an estimate in plain values, without p and q if it was not tested.

    An effect of the guard has no n.
    """
    names = ["value", "low", "high"] if effect else ["value", "low", "high", "n"]
    names += ["p", "q"] if effect or not math.isnan(estimate.p) else []
    return {name: json_number(value) for name, value in estimate.parts(*names).items()}


def _figure_row(measure: Measure, estimate: Estimate, *, effect: bool = False) -> dict[str, Any]:
    level = {} if measure.level == LEVEL else {"level": json_number(measure.level)}
    axis = {"axis": dict(measure.axis), "measure": measure.name}
    return {**axis, **estimate_to_json(estimate, effect=effect), **level}
