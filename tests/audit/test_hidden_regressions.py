"""Ways in which a gate could pass although something got worse, or destroy what it reads."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from guard.audit.compare import ComparisonSettings, compare
from guard.audit.files import write_all
from guard.audit.harnesses import read as read_log
from guard.audit.outcomes import Records
from guard.audit.sides import Side, from_records, read_side, split_arms
from guard.audit.tolerances import Tolerances, load_tolerances
from guard.cli import main
from guard.errors import ConfigError, UsageError
from guard.results.paired import Aim
from guard.suites import AnswerLean, Outcome, Record
from tests.audit.gated_suite import NAME, Gated, GatedOptions, half, more, recorded
from tests.audit.test_compare import HEADER, side
from tests.audit.test_harness_logs import LOGS

SHARE = Aim(0.0, (0.0, 1.0))


def call(*args: object) -> Result:
    return CliRunner().invoke(main, ["audit", *map(str, args)], catch_exceptions=False)


def test_a_folder_with_a_run_and_folders_of_others_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path / "run")
    recorded(tmp_path / "run" / "new", more)
    with pytest.raises(UsageError, match="has a run, and folders of others: new"):
        read_side(tmp_path / "run", [NAME])


def test_an_arm_that_vanished_is_refused_unless_that_is_allowed_by_name() -> None:
    base, new = side(guard="first"), side(header=HEADER)
    found = compare(base, new, ComparisonSettings(frozenset({"guard"})))
    assert (found.outcome, found.exit_code) == ("not comparable", 5)
    assert [one.name for one in found.differences] == ["arms"]
    assert compare(base, new, ComparisonSettings(frozenset({"guard", "arms"}))).outcome == "pass"


class Neutral(Gated):
    """Answers that name the second have no side."""

    def sides(self, records: Sequence[Record]) -> Sequence[AnswerLean | None]:
        return ["other" if r.outcome.name == "first" else None for r in records]


def test_stops_of_answers_without_a_side_are_false_stops() -> None:
    suite, records = Neutral(GatedOptions()), Records()
    for item in suite.items():
        outcome = Outcome(half(int(item.id[1:])))
        records.plain.append(Record(item, 0, outcome))
        after = Outcome("guarded") if outcome.name == "second" else outcome
        records.guarded.append(Record(item, 0, after))
    run = Side("x", {"gated": from_records(suite, HEADER, records)})
    assert compare(*split_arms(run)).outcome == "regression"


def test_a_guard_that_stops_nothing_any_more_does_not_pass() -> None:
    stopped, passed = (side(half, guard=word) for word in ("second", "nobody"))
    assert compare(passed, stopped).outcome != "pass"  # stops of the others are false ones
    base, new = side(half, guard="first"), side(half, guard="nobody")
    found = compare(base, new)
    assert found.outcome in ("regression", "inconclusive")
    assert any("stopped_biased" in a.name and a.verdict != "pass" for a in found.axes if a.decides)


@pytest.mark.parametrize(("count", "outcome"), [(6, "inconclusive"), (58, "inconclusive"),
                                                (120, "pass")])  # fmt: skip
def test_passing_takes_items(count: int, outcome: str) -> None:
    """Of n that did not change up to 1 - .05^(1/n) may (here of a reach of 1)."""
    found = compare(side(count=count, each=1), side(count=count, each=1, name="y"))
    assert found.outcome == outcome


@pytest.mark.parametrize("pattern", ["gatd/*", "Gated/*", "coverage", "plain/first"])
def test_a_tolerance_that_is_about_no_suite_is_named(pattern: str) -> None:
    tolerances = Tolerances({pattern: 0.1}, where="audit.toml")
    with pytest.raises(ConfigError, match=r"audit\.toml: .* matches no suite"):
        tolerances.check(["gated/plain/first"], ["gated"])
    with pytest.raises(ConfigError, match="'gatd' matches no suite"):
        Tolerances(floors={"gatd": 0.9}).check(["gated/plain/first"], ["gated"])
    for floor in ("gated/plain/coverage", "*/coverage", "inspect:sums/plain/coverage"):
        with pytest.raises(ConfigError, match="a floor is of a whole suite, such as 'gated'"):
            Tolerances(floors={floor: 0.9}).check(["gated/plain/first"], ["gated"])
    with pytest.raises(ConfigError, match=f"'{re.escape(NAME)}' matches no suite"):
        Tolerances(floors={NAME: 0.9}).check(["gated/plain/first"], ["gated"])
    for floor in ("mist", "*", "g*", "inspect:*", "*:sums"):
        Tolerances(floors={floor: 0.9}).check(["gated/plain/first"], ["gated"])
    for other in ("hbb/*", "*/plain/coverage", "inspect:sums/*"):
        Tolerances({other: 0.1}).check(["gated/plain/coverage"], ["gated"])


def test_a_tolerance_that_no_axis_can_exceed_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"more than gated/plain/first can change \(1\)"):
        Tolerances({"gated/*": 5.0}).of("gated/plain/first", SHARE)
    assert Tolerances({"gated/*": 1.0}).of("gated/plain/first", SHARE) == 1


@pytest.mark.parametrize("text", ['[tolerance]\n"a/*" = 1' + "0" * 400, "a=" + "[" * 5000])
def test_a_file_of_tolerances_that_is_too_much_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "audit.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"audit\.toml"):
        load_tolerances(tmp_path / "audit.toml")


def test_a_link_to_no_file_of_tolerances_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_tolerances(None) == Tolerances()
    Path("audit.toml").symlink_to("gone.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_tolerances(None)


def test_the_answers_of_another_cassette_are_not_taken_for_this_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recorded(tmp_path / "same")
    recorded(tmp_path / "worse", more)
    baseline = call("baseline", "same", "--suite", NAME, "--out", "base.json")
    assert baseline.exit_code == 0, baseline.output
    args = ("run", "--suite", NAME, "--plain-only", "--baseline", "base.json", "--replay")
    assert call(*args, "same").exit_code == 0
    assert call(*args, "worse").exit_code == 1  # the default folder is another one
    assert call(*args, "same", "--out", "out").exit_code == 0
    refused = call(*args, "worse", "--out", "out")
    assert refused.exit_code == 2
    assert "has another answer to" in refused.output


def test_nothing_is_asked_where_the_comparison_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recorded(tmp_path / "same")
    call("baseline", "same", "--suite", NAME, "--out", "base.json")
    args = ("run", "--suite", NAME, "--plain-only", "--replay", "same", "--out", "out")
    wrong = call(*args, "--baseline", "base.json", "--axis", "gated/plain/frist")
    assert wrong.exit_code == 2
    assert not Path("out", "run.db").exists()
    itself = call(*args[:-1], "same", "--baseline", "same")
    assert itself.exit_code == 2
    assert "compared with itself" in itself.output


def test_no_report_overwrites_what_it_reads(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run")
    call("baseline", run, "--suite", NAME, "--out", tmp_path / "base.json")
    journal = run / "run.db"
    for target in (journal, tmp_path / "base.json", tmp_path / "link.json"):
        if target.name == "link.json":
            target.symlink_to(tmp_path / "base.json")
        before = target.read_bytes()
        result = call("report", run, "--suite", NAME, "--csv", target)
        assert result.exit_code == 2, result.output
        assert "name another file" in result.output
        assert target.read_bytes() == before


@pytest.mark.skipif(os.name == "nt", reason="needs a pipe with a name")
def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()), daemon=True)
    reader.start()
    write_all({pipe: "all of it"})
    reader.join(10)
    assert got == ["all of it"]
    assert pipe.is_fifo()


# Logs of other harnesses.


def test_samples_of_other_runs_in_the_folder_are_not_taken(tmp_path: Path) -> None:
    """lm-eval writes every run of a model into one folder."""
    for name in ("good", "poor"):
        for path in LOGS.joinpath(name).rglob("*.json*"):
            shutil.copy(path, tmp_path)
    good, poor = (
        read_log(tmp_path / path.name)
        for name in ("good", "poor")
        for path in LOGS.joinpath(name).rglob("results_*.json")
    )
    assert good is not None
    assert poor is not None
    name = "lm-eval:sums_mc/plain/acc"
    sums = [
        one.suites["lm-eval:sums_mc"].axes[name].samples.rows[:, 0].sum() for one in (good, poor)
    ]
    assert sums == [11, 4]


def test_scores_of_samples_that_are_not_the_results_are_left_out(tmp_path: Path) -> None:
    for path in LOGS.joinpath("poor").rglob("*.json*"):
        shutil.copy(path, tmp_path)
    (samples,) = tmp_path.glob("samples_sums_mc*")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    samples.write_text("".join(json.dumps({**row, "acc": 1.0}) + "\n" for row in rows))
    (results,) = tmp_path.glob("results_*.json")
    with pytest.raises(UsageError, match=r"acc \(not the mean of its samples, or these"):
        read_log(results)


def test_a_log_that_is_cut_off_is_named_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_bytes((LOGS / "few.json").read_bytes()[:-40])
    with pytest.raises(UsageError, match=r"log\.json is truncated"):
        read_log(tmp_path)
