"""``--fail-on``: planted models against the exit code, the conclusions, JUnit and pytest."""

from __future__ import annotations

import csv
import json
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from click.testing import CliRunner, Result

from guard.audit.baseline import read_side, write
from guard.audit.gating import CONDITIONS, ConditionResult, ConditionResults
from guard.audit.report.plain import SCHEMA
from guard.cli import main
from guard.suites import Chat, Item, Outcome, Record
from guard.suites.registry import make
from tests.audit import recipe, reporting
from tests.audit.answering import Answering

ALL = ",".join(CONDITIONS)
SUITE = make("sai_asa", {})


def fair(item: Item, request: Chat) -> str:
    return recipe.fair(item, request)


def unreadable(item: Item, request: Chat) -> str:
    return "zxcv" if random.Random(item.id).random() < 0.3 else fair(item, request)


def refusing(item: Item, request: Chat) -> str:
    """Refuses every sentence about one pronoun, which is one of two in each unit."""
    return "I'm sorry, but I can't help with that." if _second(item) else fair(item, request)


def refusing_and_biased(item: Item, request: Chat) -> str:
    return refusing(item, request) if _second(item) else reporting.biased(item, request)


def silent(item: Item, request: Chat) -> str:
    return "zxcv"


PRONOUNS = sorted({one.data["pronoun"] for one in SUITE.items()})


def _second(item: Item) -> bool:
    return bool(item.data["pronoun"] == PRONOUNS[-1])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")

    def record(name: str, says: Callable[[Item, Chat], str], size: int = 120) -> None:
        (folder / name).mkdir()
        reporting.run(SUITE, folder / name, size, "no such text", says)

    record("fair", fair, 600)
    record("narrow", fair)
    record("biased", reporting.biased)
    record("refusing", refusing)
    record("unreadable", unreadable)
    record("few", fair, 2)
    record("refusing and biased", refusing_and_biased)
    record("silent", silent, 20)
    return folder


def call(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["audit", *map(str, args)], catch_exceptions=False)


def statuses(result: Result) -> dict[tuple[str, str], str]:
    found = json.loads(result.stdout)["fail_on"]
    assert found["exit_code"] == result.exit_code
    return {(one["condition"], one["arm"]): one["status"] for one in found["conditions"]}


def scored(run: Path, *args: str | Path) -> Result:
    journal = run / "run.db"
    return call("score", "--suite", "sai_asa", "--answers", journal, "--json", *args)


@pytest.mark.parametrize(
    ("run", "code", "failed", "undecided"),
    [
        ("fair", 0, [], []),
        ("biased", 1, ["bias"], []),
        # 120 items test no domain on its own, and none is far from fair.
        ("narrow", 0, [], []),
        ("refusing", 1, ["withheld", "coverage"], []),
        ("unreadable", 1, ["coverage"], []),
        ("few", 3, [], ["bias"]),
    ],
)
def test_a_planted_truth_decides_the_exit_code(
    runs: Path, run: str, code: int, failed: list[str], undecided: list[str]
) -> None:
    result = scored(runs / run, "--fail-on", ALL)
    assert result.exit_code == code, result.output
    found = statuses(result)
    assert {name for (name, _), status in found.items() if status == "failed"} == set(failed)
    assert {name for (name, _), status in found.items() if status == "undecided"} == set(undecided)
    # The same decision as the conclusion's.
    conclusion = " ".join(json.loads(result.stdout)["conclusions"]["plain"])
    assert ("Bias found" in conclusion) == ("bias" in failed)
    assert ("Bias unknown" in conclusion) == ("bias" in undecided)
    assert ("withheld unequally" in conclusion) == ("withheld" in failed)
    # A report of the same run decides alike, in its exit code and in JUnit.
    junit = runs / f"{run}.xml"
    report = call("report", runs / run, "--fail-on", ALL, "--junit", junit)
    assert report.exit_code == code
    cases = {
        case.get("name", ""): case
        for case in ElementTree.parse(junit).iter("testcase")
        if case.get("name", "").startswith("fail-on-")
    }
    for (name, arm), status in found.items():
        case = cases[f"fail-on-{name} / {arm}"]
        assert (case.find("failure") is not None) == (status == "failed")
        # A build server shows a skipped case in green.
        assert (case.find("error") is not None) == (status == "undecided")


def test_what_is_not_asked_for_does_not_fail(runs: Path) -> None:
    assert scored(runs / "biased", "--fail-on", "withheld", "--fail-on", "coverage").exit_code == 0
    assert scored(runs / "biased").exit_code == 0
    assert call("report", runs / "biased").exit_code == 0


def test_the_floor_of_coverage_is_that_of_the_file(runs: Path, tmp_path: Path) -> None:
    config = tmp_path / "floors.toml"
    config.write_text("[floor]\nsai_asa = 0.5\n")
    args = ("--fail-on", "coverage", "--config", config)
    assert scored(runs / "unreadable", *args).exit_code == 0
    assert call("report", runs / "unreadable", *args).exit_code == 0


def test_a_baseline_and_conditions_both_apply(runs: Path, tmp_path: Path) -> None:
    baseline = tmp_path / "biased.json"
    write(read_side(runs / "biased"), baseline, replace=True)
    args = ("--baseline", baseline, "--markdown", "-")
    same = call("report", runs / "biased", *args, "--fail-on", "coverage")
    assert same.exit_code == 3  # so few items decide nothing
    found = call("report", runs / "biased", *args, "--fail-on", "bias")
    assert found.exit_code == 1
    assert "- FAIL: --fail-on bias." in found.stdout
    assert call("report", runs / "biased", *args).exit_code == 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("bais", "--fail-on takes bias, withheld, coverage, got 'bais'; did you mean bias?"),
        ("bias,,coverage", "--fail-on takes bias, withheld, coverage, got ''"),
    ],
)
def test_an_unknown_condition_is_refused_by_name(runs: Path, given: str, told: str) -> None:
    for result in (
        scored(runs / "fair", "--fail-on", given),
        call("report", runs / "fair", "--fail-on", given),
        call("run", "--suite", "sai_asa", "--model", "openai/x", "--fail-on", given),
    ):
        assert result.exit_code == 2
        assert told in result.stderr


def test_a_suite_without_a_test_of_bias_is_refused_before_any_call() -> None:
    result = call("run", "--suite", "open_text", "--model", "openai/x", "--fail-on", "bias")
    assert result.exit_code == 2
    assert "open_text has no test of bias" in result.stderr


def test_an_incomplete_table_is_no_pass(runs: Path, tmp_path: Path) -> None:
    table = tmp_path / "answers.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "response"])
        writer.writerow([next(iter(SUITE.items())).id, "I do not know"])
    result = call(
        "score", "--suite", "sai_asa", "--answers", table, "--fail-on", "bias,withheld", "--json"
    )
    assert result.exit_code == 3, result.output


def test_the_reason_of_bias_is_the_sentence_about_bias(runs: Path) -> None:
    """A conclusion begins with what is withheld from whom; that decides another condition."""
    result = scored(runs / "refusing and biased", "--fail-on", "bias")
    conclusion = json.loads(result.stdout)["conclusions"]["plain"][0]
    (condition,) = json.loads(result.stdout)["fail_on"]["conditions"]
    assert conclusion.startswith("Answers are withheld unequally")
    assert condition["text"].startswith("Bias found: ")
    assert condition["text"] in conclusion
    assert "withheld" not in condition["text"]


def test_only_from_whom_answers_are_withheld_is_a_finding(runs: Path, tmp_path: Path) -> None:
    """Of two pronouns one is refused; that the other is not follows from it."""
    formats = ("--junit", tmp_path / "junit.xml", "--sarif", tmp_path / "run.sarif")
    result = call("report", runs / "refusing", "--fail-on", "withheld", *formats, "--json")
    checks = json.loads(result.stdout)["checks"]
    withheld = [c for c in checks if c["rule"] == "withheld-refused"]
    named = {c["axis"]["identity"] for c in withheld if c["status"] == "failed"}
    assert named & set(PRONOUNS) == {PRONOUNS[-1]}
    (other,) = [c for c in withheld if c["axis"]["identity"] == PRONOUNS[0]
                and "domain" not in c["axis"] and c["axis"]["direction"] == "SAI"
                and c["axis"]["arm"] == "plain"]  # fmt: skip
    assert "plain 0.000 (n " in other["text"]
    assert other["text"].startswith("Withheld less often than from others")
    failures = [
        case.get("name", "")
        for case in ElementTree.parse(tmp_path / "junit.xml").iter("testcase")
        if case.find("failure") is not None
    ]
    log = json.loads((tmp_path / "run.sarif").read_text())["runs"][0]
    located = [one["message"]["text"] for one in log["results"] if one["level"] == "error"]
    for told in (failures, located, [result.stderr]):
        assert any(PRONOUNS[-1] in text for text in told)
        assert not any(f"identity {PRONOUNS[0]}" in text for text in told)
        assert not any(f"{PRONOUNS[0]}:" in text for text in told)


@pytest.fixture
def floors(tmp_path: Path) -> Path:
    config = tmp_path / "floors.toml"
    config.write_text('[floor]\n"*" = 0\n')
    return config


def test_a_suite_without_a_readable_answer_is_undecided_everywhere(
    runs: Path, floors: Path, tmp_path: Path
) -> None:
    """Even where its floor of coverage is 0: no answer shows anything."""
    given = ("--fail-on", ALL, "--config", floors, "--json")
    replay = ("--suite", "sai_asa", "--replay", runs / "silent", "--sample", "20")
    results = [
        scored(runs / "silent", *given[:-1]),
        call("report", runs / "silent", *given[:-1], "--markdown", "-"),
        call("run", *replay, "--plain-only", "--out", tmp_path / "out", *given),
    ]
    assert [result.exit_code for result in results] == [3, 3, 3]
    for result in (results[0], results[2]):
        decided = json.loads(result.stdout)["fail_on"]["conditions"]
        plain = [(c["status"], c["text"]) for c in decided if c["arm"] == "plain"]
        assert plain == [("undecided", "No answer could be read.")] * 3
    assert results[1].stderr.count("plain arm: UNDECIDED. No answer could be read.") == 3


def test_a_suite_without_a_test_of_bias_and_an_answer_is_undecided() -> None:
    from guard.audit.gating import AuditConditions
    from guard.audit.outcomes import Records
    from guard.audit.score import result_of

    suite = make("open_text", {})
    for answer, status in (("refused", "undecided"), ("unbiased", "not tested")):
        records = [Record(item, 0, Outcome(answer)) for item in list(suite.items())[:9]]
        scored_suite = suite, result_of(suite, Records(records))
        met = AuditConditions(("bias",)).decide([scored_suite])
        assert [condition.status for condition in met.results] == [status]


def test_one_rule_says_whether_bias_is_unknown() -> None:
    """A suite may call bias unknown though a figure was tested, as badf without its analyst."""
    from guard.audit.gating import AuditConditions
    from guard.audit.outcomes import Records
    from guard.audit.report.checks import CheckedResult, finding_checks
    from guard.audit.score import result_of
    from guard.suites.sai_asa import SaiAsa

    class Hesitant(SaiAsa):
        def conclusions(self, found: object) -> list[str]:
            return ["Bias unknown: half of the figures are missing."]

    pick = random.Random(3)
    choices = ("positive", "negative", "neutral")
    records = Records([Record(i, 0, Outcome(pick.choice(choices))) for i in SUITE.items()])
    suite = Hesitant(SUITE.options)
    result = result_of(suite, records)
    checks = list(finding_checks(CheckedResult(suite, result, "sai_asa")))
    assert {c.status for c in checks if c.rule == "tau_c"} == {"passed"}
    (verdict,) = [c for c in checks if c.rule == "verdict"]
    met = AuditConditions(("bias",)).decide([(suite, result)])
    (condition,) = met.results
    assert (verdict.status, condition.status, met.exit_code) == ("error", "undecided", 3)
    assert verdict.text == condition.text == "Bias unknown: half of the figures are missing."


def test_a_floor_of_no_suite_is_refused(runs: Path, tmp_path: Path) -> None:
    config = tmp_path / "floors.toml"
    config.write_text("[floor]\nsai_aas = 0.99\n")
    result = scored(runs / "fair", "--fail-on", "coverage", "--config", config)
    assert result.exit_code == 2
    assert "'sai_aas' matches no suite" in result.stderr


TINY, GATED = "tests.audit.tiny_suite:Tiny", "tests.audit.gated_suite:Gated"


@pytest.fixture
def left_out(tmp_path: Path, provider: Answering, monkeypatch: pytest.MonkeyPatch) -> Result:
    """A run of two suites into ``out``, one of which needs what the model does not have."""
    monkeypatch.chdir(tmp_path)
    provider.answer = lambda messages: "first"
    asked = ("--model", "openai/x", "--set", f"{TINY}.form=given", "--plain-only", "--out", "out")
    return call("run", "--suite", f"{GATED},{TINY}", *asked, "--fail-on", "coverage")


def test_a_report_knows_which_suites_the_run_skipped(left_out: Result) -> None:
    line = (
        "tiny, coverage, plain arm: UNDECIDED. Not asked: it needs given_logprobs, which openai/x "
        "does not have."
    )
    own = ("--suite", GATED, "--suite", TINY)
    result = call("report", "out", *own, "--fail-on", "coverage", "--junit", "junit.xml")
    assert (left_out.exit_code, result.exit_code) == (3, 3)
    assert line in left_out.stdout
    assert line in result.stderr
    skipped = [case for case in ElementTree.parse("junit.xml").iter("testcase")
               if case.find("skipped") is not None]  # fmt: skip
    assert [case.get("classname") for case in skipped] == ["guard.audit.tiny · openai/x"]
    told = call("report", "out", *own, "--markdown", "-").stdout
    assert "tiny · openai/x was not asked: it needs given" in told
    found = json.loads(call("report", "out", *own, "--fail-on", "coverage", "--json").stdout)
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text("utf-8"))).validate(found)
    assert [one["suite"] for one in found["skipped"]] == ["tiny"]
    statuses_ = {one["suite"]: one["status"] for one in found["fail_on"]["conditions"]}
    assert statuses_ == {"gated": "passed", "tiny": "undecided"}
    # The suites that a report knows may all be without a test that a condition needs.
    assert call("report", "out", *own, "--fail-on", "bias").exit_code == 3


def test_a_model_that_could_not_be_asked_is_named_everywhere(
    tmp_path: Path, provider: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    provider.answer = lambda messages: "first"
    models = ("--model", "openai/bad", "--model", "openai/m")
    asked = ("--suite", GATED, *models, "--plain-only", "--out", "out", "--concurrency", "1")
    provider.busy, provider.status, provider.words = 1, 401, "a bad key"
    result = call("run", *asked, "--json", "--fail-on", "coverage")
    assert result.exit_code == 4
    found = json.loads(result.stdout)
    assert [suite["model"] for suite in found["suites"]] == ["openai/m"]
    assert found["unasked"] == [{"suite": "gated", "model": "openai/bad"}]
    assert not found["complete"]
    assert "a bad key" in found["stopped"][0]
    own = ("--suite", GATED)
    files = ("--html", "page.html", "--junit", "j.xml", "--sarif", "s.sarif", "--models", "m.csv")
    report = call("report", "out", *own, *files, "--markdown", "-")
    assert "gated · openai/bad has no answer yet" in report.stdout
    for name in ("page.html", "j.xml", "s.sarif", "m.csv"):
        assert "openai/bad" in Path(name).read_text("utf-8"), name
    told = json.loads(call("report", "out", *own, "--json").stdout)
    assert any("openai/bad" in sentence for sentence in told["state"])
    assert call("report", "out", *own, "--fail-on", "coverage").exit_code == 4
    provider.busy = 1
    assert "gated · openai/bad has no answer." in call("run", *asked).stdout


def test_a_report_knows_which_suites_the_run_did_not_reach(
    left_out: Result, provider: Answering
) -> None:
    limited = ("--model", "openai/x", "--plain-only", "--out", "limited", "--max-calls", "120")
    ran = call("run", "--suite", f"{GATED},{TINY}", *limited, "--fail-on", "coverage")
    with sqlite3.connect("limited/run.db") as file:  # as if it had been killed a moment before
        file.execute("DELETE FROM header WHERE suite = 'tiny'")
    result = call("report", "limited", "--suite", GATED, "--fail-on", "coverage")
    assert (ran.exit_code, result.exit_code) == (4, 4)
    assert " has no answer yet: it was not reached" in result.stderr
    # The last command says what is to be asked.
    assert call("run", "--suite", GATED, *limited[:-2]).exit_code == 0
    assert call("report", "limited", "--suite", GATED, "--fail-on", "coverage").exit_code == 0
    Path("limited/asked.json").write_text("[{}]")
    damaged = call("report", "limited", "--suite", GATED)
    assert damaged.exit_code == 2
    assert "asked.json cannot be read" in damaged.stderr


def test_what_was_not_asked_is_undecided() -> None:
    from guard.audit.asked import AskedSuite
    from guard.audit.gating import AuditConditions

    met = AuditConditions(("bias",)).decide([], [AskedSuite("hbb_sg", "m", "it needs logprobs")])
    assert (met.exit_code, met.outcome) == (3, "inconclusive")
    assert "hbb_sg" in met.lines()[0]


def test_conditions_are_read_back_as_they_were_written() -> None:
    met = ConditionResults([ConditionResult("bias", "s", "plain", "failed", "why")])
    assert ConditionResults.from_dict(met.to_dict()) == met


def test_an_option_without_its_owner_is_refused(runs: Path, tmp_path: Path) -> None:
    def told(*args: Any) -> str:
        result = scored(runs / "fair", *args)
        assert result.exit_code == 2
        return result.stderr

    assert "--config belongs to --baseline or --fail-on" in told("--config", tmp_path / "x.toml")
