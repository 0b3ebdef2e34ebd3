"""Every format says the same of a comparison, and an undecided one is nowhere green."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guard.audit import silence
from guard.audit.comparison import AxisComparison, Comparison, Outcome, Verdict
from guard.audit.outcomes import Records
from guard.audit.report.checks import (
    Check,
    CheckedResult,
    content_checks,
    counts_text,
    finding_checks,
    status_counts,
)
from guard.audit.report.content import Content, load_content
from guard.audit.report.junit import junit_xml
from guard.audit.report.markdown import markdown_comment
from guard.audit.report.page import report_page
from guard.audit.report.plain import as_json
from guard.audit.report.sarif import sarif_log
from guard.audit.sample import stratified_sample
from guard.audit.score import result_of
from guard.results.conclusions import is_significant
from guard.results.jackknife import Line, estimate
from guard.suites import Outcome as Answered
from guard.suites import Record
from guard.suites.registry import make
from tests.audit.test_runner import Saying, guarded, run
from tests.results.test_conclusions import Planted, agrees, estimates, planted
from tests.rows import examples
from tests.suites.calibration import made

SUITE = "tests.audit.tiny_suite:Tiny"
NOW = "2026-01-02T03:04:05"
_STATE = {"regression": "failure", "inconclusive": "skipped", "pass": ""}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Content:
    folder = tmp_path_factory.mktemp("tiny")
    run(Saying(lambda request, slot: "first"), folder, guarded(), count=8)
    return load_content(folder, own_suites=[SUITE])


def compared(axes: Sequence[tuple[Verdict, bool]], outcome: Outcome | None = None) -> Comparison:
    """A comparison whose axes have these verdicts, and whether each has to be decided."""
    made = [
        AxisComparison(
            name=f"tiny/plain/first/of={n}", suite="tiny", arm="plain", measure="first",
            axis={"of": str(n)}, ideal=0.5, base=0.5, new=0.6, difference=0.1, low=0.05, high=0.15,
            worse=0.1, at_most=0.15, tolerance=0.05, p=0.01, q=0.5, p_change=0.01, method="t",
            detectable=0.1, n=40, unit="item", clusters=10, verdict=verdict, decides=decides,
            reason="it has too few items" if verdict == "inconclusive" else "",
        )
        for n, (verdict, decides) in enumerate(axes)
    ]  # fmt: skip
    return Comparison("old", "new", outcome or _outcome(axes), made, (), ["Ask more items."])


def _outcome(axes: Sequence[tuple[Verdict, bool]]) -> Outcome:
    if any(verdict == "regression" for verdict, _ in axes):
        return "regression"
    return "inconclusive" if ("inconclusive", True) in axes else "pass"


axes_ = st.lists(st.tuples(st.sampled_from(get_args(Verdict)), st.booleans()), min_size=1)


def in_junit(content: Content) -> tuple[dict[str, int], Counter[str]]:
    """The verdicts of the axes as a build server counts them, and the state of every case."""
    root = ElementTree.fromstring(junit_xml(content, NOW))
    names = {axis.name for axis in content.comparison.axes} if content.comparison else set()
    states: Counter[str] = Counter()
    of_axes: Counter[str] = Counter()
    for suite in root:
        own = Counter("".join(part.tag for part in case) for case in suite.iter("testcase"))
        for tag, attribute in (("failure", "failures"), ("error", "errors"), ("skipped",) * 2):
            assert own[tag] == int(suite.get(attribute, "0"))
        states += own
    for case in root.iter("testcase"):
        if case.get("name") in names:
            of_axes["".join(part.tag for part in case)] += 1
        for skipped in case.iter("skipped"):
            assert skipped.text
    return {verdict: of_axes[state] for verdict, state in _STATE.items()}, states


def in_text(text: str, content: Content) -> dict[str, int]:
    """The verdicts of the axes that a report for people states."""
    told = re.findall(
        r"Of ([\d,]+) axes ([\d,]+) regressed, ([\d,]+) are undecided, ([\d,]+) pass\.", text
    )
    assert len(set(told)) == 1, text[:500]
    every, *counts = (int(number.replace(",", "")) for number in told[0])
    assert every == sum(counts)
    assert counts_text(content_checks(content)) in text
    return dict(zip(("regression", "inconclusive", "pass"), counts, strict=True))


@given(axes_)
@settings(examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_format_counts_the_same_verdicts(
    tiny: Content, axes: list[tuple[Verdict, bool]]
) -> None:
    content = replace(tiny, comparison=compared(axes))
    comparison = content.comparison
    assert comparison is not None
    expected = dict.fromkeys(_STATE, 0) | Counter(verdict for verdict, _ in axes)
    told = "\n".join(comparison.lines())
    assert in_text(f"{told}\n{counts_text(content_checks(content))}", content) == expected
    assert in_text(markdown_comment(content), content) == expected
    found = as_json(content)
    assert found["comparison"]["counts"] == expected
    assert Comparison.from_dict(found["comparison"]).counts == expected
    log = json.loads(sarif_log(content))["runs"][0]
    assert log["properties"]["axes"] == expected
    levels = Counter(
        one["level"] for one in log["results"] if one["ruleId"].startswith("tiny/first")
    )
    assert (
        levels
        == Counter({"error": expected["regression"], "note": expected["inconclusive"]}) - Counter()
    )
    counted, states = in_junit(content)
    assert counted == expected
    status = status_counts(content_checks(content))
    assert found["counts"] == log["properties"]["checks"] == status
    assert states == +Counter({
        "failure": status["failed"], "error": status["error"], "skipped": status["skipped"],
        "": status["passed"],
    })  # fmt: skip
    # A build server is red exactly where the command's exit code is not 0.
    assert (states["failure"] + states["error"] > 0) == (comparison.exit_code != 0)


@given(axes_)
@settings(examples(16), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_page_counts_the_same_verdicts(tiny: Content, axes: list[tuple[Verdict, bool]]) -> None:
    content = replace(tiny, comparison=compared(axes))
    counts = in_text(report_page(content), content)
    assert counts == dict.fromkeys(_STATE, 0) | Counter(v for v, _ in axes)


@pytest.mark.parametrize("outcome", ["inconclusive", "incomplete", "not comparable"])
def test_a_verdict_that_is_not_reached_is_not_green(tiny: Content, outcome: Outcome) -> None:
    """Also where every single axis is skipped or passes, as when the baseline is incomplete."""
    for axes in ([("pass", True)] * 3, [("inconclusive", True)] * 30):
        content = replace(tiny, comparison=compared(axes, outcome))
        root = ElementTree.fromstring(junit_xml(content, NOW))
        (error,) = root.iter("error")
        assert error.get("type") == "verdict"
        assert outcome.upper() in str(error.text)
        (result,) = [r for r in json.loads(sarif_log(content))["runs"][0]["results"]
                     if r["ruleId"].endswith("/verdict")]  # fmt: skip
        assert result["level"] == "warning"


def test_undecided_axes_that_need_not_be_decided_are_no_passes(tiny: Content) -> None:
    """The case of the issue: 1 axis passes, 22 have too few items."""
    content = replace(tiny, comparison=compared([("pass", True)] + [("inconclusive", False)] * 22))
    assert content.comparison is not None
    counted, _ = in_junit(content)
    assert counted == {"regression": 0, "inconclusive": 22, "pass": 1}
    assert "22 are undecided" in report_page(content)
    assert content.comparison.exit_code == 0


def test_bias_that_could_not_be_tested_is_not_green(tiny: Content) -> None:
    suite = make("sai_asa", {})
    few = [Record(item, 0, Answered("neutral")) for item in list(suite.items())[:3]]
    result = result_of(suite, Records(few), model="m")
    assert result.bias == "unknown" == result.as_json()["bias"]
    (one,) = tiny.suites
    content = replace(tiny, suites=[replace(one, suite=suite, result=result)])
    tests = [c for c in content_checks(content) if c.rule == "tau_c"]
    assert tests
    assert {c.status for c in tests} == {"skipped"}
    (verdict,) = [c for c in content_checks(content) if c.rule == "verdict"]
    assert verdict.status == "error"
    assert verdict.text.startswith("Bias unknown")
    _, states = in_junit(content)
    assert states["error"] == 1
    assert states["skipped"] == len([c for c in content_checks(content) if c.status == "skipped"])
    # A suite that tests nothing has no verdict to miss.
    assert tiny.suites[0].result.bias == ""
    assert not [c for c in content_checks(tiny) if c.rule == "verdict"]


@pytest.mark.parametrize("name", ["sai_asa", "mist", "hbb", "hbb_sg", "badf", "open_text"])
def test_a_finding_names_whom_a_model_refuses_more_often(tiny: Content, name: str) -> None:
    """Recounted from the answers: no check fails for who is refused less than the others."""
    suite = made(name)
    items = stratified_sample(suite.items(), 600, 17)
    axes = Counter(tuple(one.axis.items()) for item in items for one in item.comparison_groups)
    ((axis, _),) = axes.most_common(1)
    target = next(
        one.identity
        for item in items
        for one in item.comparison_groups
        if tuple(one.axis.items()) == axis
    )
    records = []
    for item in items:
        about = {(tuple(one.axis.items()), one.identity) for one in item.comparison_groups}
        outcome = "refused" if (axis, target) in about else suite.outcomes[0]
        records.append(Record(item, 0, Answered(outcome)))
    lines = estimate(silence.silence_measures(records))
    unequal = silence.significant_shares(lines, records)
    withheld = {"plain": silence.withheld_findings(unequal)}
    base = tiny.suites[0].result
    result = replace(base, lines=(), by_identity=lines, stops=(), withheld_from=withheld)
    checked = list(finding_checks(CheckedResult(suite, result, name)))
    failed = [check.axis for check in checks_of(checked, "failed")]
    assert {"arm": "plain", **dict(axis), "identity": target} in failed
    for one in failed:
        hits: dict[bool, list[bool]] = {True: [], False: []}
        rest = {k: v for k, v in one.items() if k not in ("arm", "identity")}
        for record in records:
            for compared_ in record.item.comparison_groups:
                if compared_.axis == rest:
                    mine = compared_.identity == one["identity"]
                    hits[mine].append(record.outcome.name == "refused")
        mean = {mine: sum(of) / len(of) for mine, of in hits.items()}
        assert mean[True] > mean[False], one
    # What is significantly less is there, and passes.
    if any(not share.is_more for share in unequal):
        assert any("less often" in check.text for check in checks_of(checked, "passed"))
    told = silence.silence_conclusion(withheld["plain"])
    assert "less often" not in told
    assert len(failed) == len(withheld["plain"]) > 0


def checks_of(checked: Sequence[Check], status: str) -> list[Check]:
    return [check for check in checked if check.status == status]


@given(st.lists(planted, min_size=1, max_size=6))
@settings(examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_text_of_a_check_agrees_with_its_figures(tiny: Content, found: list[Planted]) -> None:
    pairs = estimates(found, [{"of": f"g{n}"} for n in range(len(found))], "lean")
    (one,) = tiny.suites
    result = replace(one.result, lines=[Line(m, e) for m, e in pairs], by_identity=(), stops=())
    content = replace(tiny, suites=[replace(one, result=result)])
    told = {check.axis["of"]: check for check in content_checks(content) if check.rule == "lean"}
    for m, e in pairs:
        if m.null is None and math.isnan(e.p):
            continue
        check = told[m.axis["of"]]
        if math.isnan(e.q):
            assert check.status == "skipped"
            continue
        assert check.status == ("failed" if is_significant(m, e) else "passed")
        agrees(check.text, (0.0 if m.null is None else m.null,))
