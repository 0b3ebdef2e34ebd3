"""Logs of inspect_ai in a comparison; `logs/` has real ones, and what made them.

Skipped where inspect_ai is absent: it is 35 MB and brings 40 packages, so it is in no extra.
"""

from __future__ import annotations

import json
import math
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from guard.audit.baseline import read_side
from guard.cli import main
from tests.audit.test_harness_logs import LOGS, WIDE, Log, call, compared

inspect_log = pytest.importorskip(
    "inspect_ai.log", reason="inspect's logs are read with inspect_ai: pip install inspect_ai"
)

GOOD, POOR = LOGS / "good.eval", LOGS / "poor.eval"
MATCH = "inspect:sums/plain/match"


def whole(path: Path) -> Log:
    """A log as inspect's own JSON format has it: header and samples in one object."""
    log: Log = json.loads(inspect_log.read_eval_log(str(path)).model_dump_json())
    return log


def changed(folder: Path, change: Callable[[Log], object], name: str = "new.json") -> Path:
    log = whole(GOOD)
    change(log)
    path = folder / name
    path.write_text(json.dumps(log))
    return path


def sample(log: Log, item: str) -> Log:
    return next(one for one in log["samples"] if one["id"] == item)


def test_a_log_of_inspect_has_the_verdict_of_its_samples() -> None:
    from statsmodels.stats.contingency_tables import mcnemar

    found = compared(GOOD, POOR, "--allow", "model", "--better", "higher", "--axis", "*match")
    (axis,) = found["axes"]
    assert (axis["name"], axis["verdict"], found["exit_code"]) == (MATCH, "regression", 1)
    # Of q1 to q11 the poor model knows every third.
    assert (axis["base"], axis["new"], axis["n"]) == (11 / 12, 4 / 12, 12)
    assert axis["method"] == "exact McNemar"
    assert axis["p_change"] == pytest.approx(mcnemar([[3, 8], [1, 0]], exact=True).pvalue, abs=1e-9)
    flips = {flip["item"]: (flip["base"], flip["new"]) for flip in axis["flips"]}
    assert flips.pop("q0") == ("I", "C")
    assert flips == {f"q{n}": ("C", "I") for n in (1, 2, 4, 5, 7, 8, 10, 11)}


def test_both_formats_of_inspect_say_the_same(tmp_path: Path) -> None:
    plain = changed(tmp_path, lambda log: None)
    args = ("--better", "higher", "--axis", "*match", "--axis", "*coverage")
    assert compared(GOOD, plain, *args, *WIDE)["exit_code"] == 0
    args = (*args, "--allow", "model")
    one, other = compared(GOOD, POOR, *args), compared(plain, POOR, *args)
    assert one["axes"] == other["axes"]
    few = read_side(LOGS / "few.json").suites["inspect:sums"]
    assert few.items == 2
    assert few.axes["inspect:sums/plain/form/value=length"].rows.tolist() == [[4, 1], [1, 1]]


CHANGES: dict[str, Callable[[Log], object]] = {
    "model": lambda log: log["eval"].update(model="scripted/other"),
    "version": lambda log: log["eval"].update(task_version=4),
    "parser": lambda log: log["eval"]["packages"].update(inspect_ai="0.3.999"),
    "options": lambda log: log["eval"]["task_args"].update(n=13),
    "sample": lambda log: log["eval"]["config"].update(sample_shuffle=7),
    "request": lambda log: log["plan"]["config"].update(temperature=0.9),
    "prompt": lambda log: log["plan"]["steps"][0]["params"].update(tool_calls="none"),
    "others": lambda log: log["eval"]["scorers"][0]["options"].update(location="any"),
    "data": lambda log: sample(log, "q3").update(input="What is 3 times 3?"),
}


def test_what_makes_logs_incomparable_is_named_and_allowed_by_name(tmp_path: Path) -> None:
    wrong = {}
    for part, change in CHANGES.items():
        args = (GOOD, changed(tmp_path, change), "--better", "higher", "--axis", "*match")
        refused, allowed = compared(*args), compared(*args, "--allow", part, *WIDE)
        outcome = (
            refused["exit_code"],
            [difference["name"] for difference in refused["differences"]],
            allowed["exit_code"],
        )
        if outcome != (5, [part], 0):
            wrong[part] = outcome
    assert not wrong


def test_settings_of_calling_make_no_difference(tmp_path: Path) -> None:
    new = changed(tmp_path, lambda log: log["plan"]["config"].update(max_connections=3, timeout=9))
    assert compared(GOOD, new, "--better", "higher", "--axis", "*match", *WIDE)["exit_code"] == 0


def test_other_items_under_the_same_key_are_named(tmp_path: Path) -> None:
    def other(log: Log) -> None:
        sample(log, "q3")["id"] = "q99"
        log["eval"]["dataset"]["sample_ids"][3] = "q99"

    found = compared(GOOD, changed(tmp_path, other), "--better", "higher")
    assert found["exit_code"] == 5
    assert [one["name"] for one in found["differences"]] == ["items"]


def unfinished(log: Log) -> None:
    log["status"] = "cancelled"


ERROR = {"message": "m", "traceback": "t", "traceback_ansi": "t"}
BROKEN: dict[str, Callable[[Log], object]] = {
    "error": lambda log: sample(log, "q3").update(error=ERROR, scores={}),
    "invalidated": lambda log: sample(log, "q3").update(invalidation={"author": "a"}),
    "missing": lambda log: log["samples"].remove(sample(log, "q3")),
    "unfinished": unfinished,
}


def test_a_sample_without_a_score_makes_a_log_incomplete(tmp_path: Path) -> None:
    wrong = {}
    for kind, change in BROKEN.items():
        new = changed(tmp_path, change)
        result = call(GOOD, new, "--better", "higher", "--axis", "*match")
        args = ["audit", "baseline", str(new), "--out", str(tmp_path / "b")]
        codes = result.exit_code, CliRunner().invoke(main, args).exit_code
        sentence = "is incomplete: 1 samples have no outcome. Resume it with inspect"
        if codes != (4, 4) or sentence not in result.output:
            wrong[kind] = codes, result.output
    assert not wrong


def test_a_zip_that_is_still_written_is_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "going-on"
    with zipfile.ZipFile(GOOD) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist()[:6]:
            new.writestr(name, old.read(name))
    assert "_journal/start.json" in zipfile.ZipFile(path).namelist()
    result = call(GOOD, path, "--better", "higher", "--axis", "*match")
    assert result.exit_code == 4, result.output
    assert "7 samples have no outcome" in result.output


def test_a_score_of_nan_is_unread_and_no_pass(tmp_path: Path) -> None:
    def unread(log: Log) -> None:
        for n in range(5):
            sample(log, f"q{n}")["scores"]["match"]["value"] = math.nan

    new = changed(tmp_path, unread)
    found = compared(GOOD, new, "--better", "higher", "--axis", "*match", "--axis", "*coverage")
    axes = {axis["measure"]: axis for axis in found["axes"]}
    assert axes["match"]["n"] == 7
    assert axes["coverage"]["new"] == pytest.approx(7 / 12)
    assert "only 58% of the answers could be read" in axes["match"]["reason"]


def test_repeats_of_a_sample_are_averaged(tmp_path: Path) -> None:
    def twice(log: Log) -> None:
        log["eval"]["config"]["epochs"] = 2
        again = json.loads(json.dumps(log["samples"]))
        for one in again:
            one["epoch"] = 2
            one["scores"]["match"]["value"] = "I"
        log["samples"] += again

    side = read_side(changed(tmp_path, twice)).suites["inspect:sums"]
    axis = side.axes[MATCH]
    assert side.missing == 0
    assert sorted(axis.rows[:, 0]) == [0.0, *[0.5] * 11]
    assert side.outcomes[MATCH]["q1"] == "C 1, I 1"


UNREADABLE: dict[str, Callable[[Log], object]] = {
    "cannot be read as an inspect log (Unable to read version 3": lambda log: log.update(version=3),
    "was written without its samples; run it again with": lambda log: log.pop("samples"),
    "because it was not scored": lambda log: [s.update(scores={}) for s in log["samples"]],
    "(eval.dataset: Field required)": lambda log: log["eval"].pop("dataset"),
    "as an inspect log (eval: ": lambda log: log.update(eval=[]),
    "(samples.0.id: Field required)": lambda log: log.update(samples=[{}]),
}


def test_a_log_of_inspect_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    wrong = {}
    for sentence, change in UNREADABLE.items():
        result = call(GOOD, changed(tmp_path, change), "--better", "higher")
        if result.exit_code != 2 or sentence not in result.stderr:
            wrong[sentence] = result.output
    assert not wrong


def test_a_text_that_inspect_takes_for_0_is_not_taken(tmp_path: Path) -> None:
    def grade(log: Log) -> None:
        sample(log, "q3")["scores"]["match"]["value"] = "A"

    new = changed(tmp_path, grade)
    lost = call(GOOD, new, "--better", "higher", "--axis", "*match")
    assert lost.exit_code == 2
    assert "inspect:sums/plain/match has numbers on one side only" in lost.output
    result = call(GOOD, new, "--axis", "*coverage", *WIDE)
    assert result.exit_code == 0
    assert (
        "Not compared, because it is not a number: inspect:sums/match (a sample has 'A')"
        in result.output
    )


def test_a_zip_that_is_cut_off_or_no_log_is_named(tmp_path: Path) -> None:
    cut = tmp_path / "cut.eval"
    cut.write_bytes(GOOD.read_bytes()[:9000])
    result = call(GOOD, cut)
    assert result.exit_code == 2
    assert "cut.eval cannot be read as an inspect log" in result.output
    other = tmp_path / "other.eval"
    with zipfile.ZipFile(other, "w") as file:
        file.writestr("a.txt", "a")
    result = call(GOOD, other)
    assert result.exit_code == 2
    assert "other.eval cannot be read as a baseline" in result.output


def test_logs_are_known_by_content(tmp_path: Path) -> None:
    odd = tmp_path / "a.bin"
    shutil.copy(POOR, odd)
    args = ("--allow", "model", "--better", "higher", "--axis", "*match")
    assert compared(GOOD, odd, *args)["exit_code"] == 1


def test_a_folder_with_two_logs_of_a_task_asks_for_one() -> None:
    result = call(LOGS, LOGS)
    assert result.exit_code == 2
    assert "has two logs of inspect:sums, few.json and good.eval; give one" in result.output


def test_logs_of_two_harnesses_are_not_comparable() -> None:
    found = compared(GOOD, LOGS / "good")
    assert found["exit_code"] == 5
    assert found["next"] == ["They have no suite in common; give runs of the same suites."]


def test_no_secret_of_a_log_is_in_a_baseline(tmp_path: Path) -> None:
    def secret(log: Log) -> None:
        log["eval"]["model_args"] = {"token": "s3cret"}
        log["eval"]["model_base_url"] = "https://user:s3cret@llm.example"
        log["plan"]["config"]["extra_headers"] = {"X-Key": "s3cret"}

    run, out = changed(tmp_path, secret), tmp_path / "base.json"
    done = CliRunner().invoke(main, ["audit", "baseline", str(run), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "s3cret" not in out.read_text()
    assert "s3cret" not in call(GOOD, run).output


def test_chats_with_other_ids_of_messages_are_the_same_items(tmp_path: Path) -> None:
    def chat(id_: str) -> Callable[[Log], None]:
        def change(log: Log) -> None:
            sample(log, "q3")["input"] = [{"id": id_, "role": "user", "content": "3 times 3?"}]

        return change

    logs = [changed(tmp_path, chat(id_), f"{id_}.json") for id_ in ("one", "other")]
    assert compared(*logs, "--better", "higher", "--axis", "*match", *WIDE)["exit_code"] == 0


def test_a_scorer_called_coverage_has_an_axis_of_its_own(tmp_path: Path) -> None:
    def rename(log: Log) -> None:
        for one in log["samples"]:
            one["scores"]["coverage"] = one["scores"].pop("match")

    axes = read_side(changed(tmp_path, rename)).suites["inspect:sums"].axes
    assert "inspect:sums/plain/coverage (score)" in axes
    assert axes["inspect:sums/plain/coverage"].rows[:, 0].tolist() == [1.0] * 12


def test_a_sample_that_one_scorer_left_out_is_not_read(tmp_path: Path) -> None:
    def leave_out(log: Log) -> None:
        for one in log["samples"][:5]:
            del one["scores"]["match"]

    side = read_side(changed(tmp_path, leave_out)).suites["inspect:sums"]
    assert side.coverage == pytest.approx(7 / 12)


def test_a_sample_twice_is_refused(tmp_path: Path) -> None:
    path = changed(tmp_path, lambda log: log["samples"].append(log["samples"][0]))
    result = call(GOOD, path)
    assert result.exit_code == 2, result.output
    assert result.stderr == f"Error: {path} has the sample q0 twice in epoch 1.\n"
