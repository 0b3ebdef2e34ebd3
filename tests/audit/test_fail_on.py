"""``--fail-on``: planted models against the exit code, the conclusions, JUnit and pytest."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from guard.audit.baseline import read_side, write
from guard.audit.gating import CONDITIONS, ConditionResult, ConditionResults
from guard.cli import main
from guard.suites import Chat, Item
from guard.suites.registry import make
from tests.audit import recipe, reporting

ALL = ",".join(CONDITIONS)
SUITE = make("sai_asa", {})


def fair(item: Item, request: Chat) -> str:
    return recipe.fair(item, request)


def unreadable(item: Item, request: Chat) -> str:
    return "zxcv" if random.Random(item.id).random() < 0.3 else fair(item, request)


def refusing(item: Item, request: Chat) -> str:
    """Refuses every sentence about one pronoun, which is one of two in each unit."""
    return "I'm sorry, but I can't help with that." if _second(item) else fair(item, request)


PRONOUNS = sorted({one.data["pronoun"] for one in SUITE.items()})


def _second(item: Item) -> bool:
    return bool(item.data["pronoun"] == PRONOUNS[-1])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")

    def record(name: str, says: Callable[[Item, Chat], str], size: int = 120) -> None:
        (folder / name).mkdir()
        reporting.run(SUITE, folder / name, size, "no such text", says)

    record("fair", fair)
    record("biased", reporting.biased)
    record("refusing", refusing)
    record("unreadable", unreadable)
    record("few", fair, 2)
    return folder


def call(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["audit", *map(str, args)], catch_exceptions=False)


def statuses(result: Result) -> dict[tuple[str, str], str]:
    found = json.loads(result.stdout)["fail_on"]
    assert found["exit_code"] == result.exit_code
    return {(one["condition"], one["arm"]): one["status"] for one in found["conditions"]}


def scored(run: Path, *args: str | Path) -> Result:
    journal = run / "sai_asa.jsonl.gz"
    return call("score", "--suite", "sai_asa", "--answers", journal, "--json", *args)


@pytest.mark.parametrize(
    ("run", "code", "failed", "undecided"),
    [
        ("fair", 0, [], []),
        ("biased", 1, ["bias"], []),
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
