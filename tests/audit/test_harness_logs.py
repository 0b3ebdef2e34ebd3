"""Logs of lm-eval in a comparison, and directions; `logs/` has real ones, and what made them."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from guard.audit.harnesses import inspect_log
from guard.audit.harnesses.task import number_of
from guard.cli import main

LOGS = Path(__file__).parent / "logs"
ACC = "lm-eval:sums_mc/plain/acc"
Log = dict[str, Any]

#: A tolerance by which the twelve samples of these logs can pass.
WIDE = ("--config", LOGS / "wide.toml")


def call(*args: object) -> Result:
    given_ = ["audit", "compare", *map(str, args)]
    return CliRunner().invoke(main, given_, catch_exceptions=False)


def compared(*args: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call(*args, "--json").stdout)
    return found


@pytest.fixture
def lm(tmp_path: Path) -> Path:
    shutil.copytree(LOGS / "good", tmp_path / "lm")
    return tmp_path / "lm"


def results(folder: Path) -> Path:
    return next(folder.glob("results_*"))


def test_a_log_of_lm_eval_says_itself_which_way_is_better() -> None:
    found = compared(LOGS / "good", LOGS / "poor", "--allow", "model")
    verdicts = {axis["name"]: (axis["verdict"], axis["difference"]) for axis in found["axes"]}
    lost = pytest.approx(-7 / 12)
    assert verdicts == {
        "lm-eval:sums_mc/plain/acc": ("regression", lost),
        "lm-eval:sums_mc/plain/coverage": ("inconclusive", 0),  # 12 samples say little
        "lm-eval:sums_gen/plain/exact_match/filter=number": ("regression", lost),
        "lm-eval:sums_gen/plain/exact_match/filter=whole": ("inconclusive", 0),
        "lm-eval:sums_gen/plain/coverage": ("inconclusive", 0),
    }
    told = call(LOGS / "good", LOGS / "poor", "--allow", "model").output
    assert (
        "Not compared, because it is not a number: lm-eval:sums_mc/f1 (a sample has a list)."
        in told
    )
    assert "different model (allowed)" in told
    assert "has 'good'; " in told
    # The user knows better than the log.
    args = ("--allow", "model", "--better", "lower")
    assert compared(LOGS / "good", LOGS / "poor", *args, *WIDE)["exit_code"] == 0


def undirected(folder: Path) -> tuple[Path, Path]:
    """Copies of both runs that do not say which way is better; answers have a length, 1 or 4."""
    for run in ("good", "poor"):
        shutil.copytree(LOGS / run, folder / run)
        log = json.loads(results(folder / run).read_text())
        results(folder / run).write_text(json.dumps(log | {"higher_is_better": {}}))
        samples = next((folder / run).glob("samples_sums_mc*"))
        rows = [json.loads(line) for line in samples.read_text().splitlines()]
        for row in rows:
            row["metrics"].append("length")
            row["length"] = 1 if run == "good" else 4
        samples.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "good", folder / "poor"


def test_which_way_is_better_has_to_be_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    args = (*undirected(tmp_path), "--allow", "model", "--axis", "*acc")
    refused = call(*args)
    assert refused.exit_code == 2
    assert f"The direction of {ACC} is unknown; give --better" in refused.output
    assert compared(*args, "--better", "lower", *WIDE)["exit_code"] == 0
    Path("audit.toml").write_text('[better]\n"*" = "lower"\n"*/acc" = "higher"\n')
    assert compared(*args)["exit_code"] == 1
    assert compared(*args, "--better", f"{ACC}=lower", *WIDE)["exit_code"] == 0
    # 11/12 and 4/12 are about as far from 0.625; from 0.9 they are not.
    assert compared(*args, "--better", "0.625")["axes"][0]["worse"] == pytest.approx(0, abs=1e-9)
    assert compared(*args, "--better", "0.9")["exit_code"] == 1


def test_a_direction_that_is_none_is_named(tmp_path: Path) -> None:
    args = (*undirected(tmp_path), "--allow", "model", "--axis", "*acc", "--better", "higher")
    mistakes = {
        "up": "--better takes higher, lower or the ideal as a number, got 'up'.",
        "nan": "--better takes higher, lower or the ideal as a number, got 'nan'.",
        "2": f"The ideal 2 of {ACC} is outside its scale, 0 to 1.",
        "*/macth=lower": "The direction '*/macth' matches no axis",
    }
    answers = {better: call(*args, "--better", better) for better in mistakes}
    wrong = {
        better: result.output
        for better, result in answers.items()
        if result.exit_code != 2 or mistakes[better] not in result.output
    }
    assert not wrong


def test_a_direction_is_of_no_use_to_guards_own_axes(tmp_path: Path) -> None:
    from tests.audit.gated_suite import NAME, recorded

    run = recorded(tmp_path / "run")
    result = call(run, run, "--suite", NAME, "--better", "higher")
    assert result.exit_code == 2
    assert "directions are for axes of other harnesses" in result.output


def test_a_scale_without_an_end_needs_a_tolerance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    args = (*undirected(tmp_path), "--allow", "model", "--axis", "*length", "--better")
    refused = call(*args, "lower")
    assert refused.exit_code == 2
    assert "length has no known scale, so it needs a tolerance" in refused.output
    Path("audit.toml").write_text('[tolerance]\n"*length" = 0.1\n')
    found = compared(*args, "lower")
    assert found["axes"][0]["verdict"] == "regression"
    assert found["axes"][0]["difference"] == pytest.approx(found["axes"][0]["worse"])
    assert "lower is better" in call(*args, "lower").output
    assert compared(*args, "higher", *WIDE)["exit_code"] == 0


def test_samples_of_lm_eval_that_were_edited_or_cut_off_are_found_out(lm: Path) -> None:
    samples = next(lm.glob("samples_sums_gen*"))
    text = samples.read_text()
    samples.write_text(text[: len(text) // 2])
    result = call(LOGS / "good", lm)
    assert result.exit_code == 2
    assert "does not match the hash of sums_gen" in result.output
    samples.unlink()
    assert f"The samples of sums_gen, {samples.name}, are not beside" in call(lm, lm).output
    told = call(next(lm.glob("samples_*")), lm).output
    assert "has samples of lm-eval; give the results_*.json beside it." in told


def test_json_that_is_nested_too_deeply_is_one_sentence(lm: Path) -> None:
    with next(lm.glob("samples_sums_gen*")).open("a") as samples:
        samples.write("[" * 200_000 + "\n")
    result = call(LOGS / "good", lm)
    assert result.exit_code == 2, result.output
    assert "does not match the hash of sums_gen" in result.stderr


def test_an_empty_log_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.eval"
    empty.touch()
    result = call(LOGS / "good", empty)
    assert result.exit_code == 2
    assert result.stderr == f"Error: {empty} is empty; give a run, a baseline or a log.\n"


def test_samples_of_lm_eval_may_hold_any_character_that_json_allows(lm: Path) -> None:
    """Three characters end a line for str.splitlines, and stand unescaped in lm_eval's lines."""
    for samples in lm.glob("samples_*"):
        rows = [json.loads(line) for line in samples.read_bytes().split(b"\n") if line]
        for row in rows:
            row["resps"] = [["one\u2028two\u2029three\x85four"]]
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        samples.write_text("".join(lines), encoding="utf-8")
    found = compared(LOGS / "good", lm, *WIDE)
    assert {axis["verdict"] for axis in found["axes"]} == {"pass"}


def renamed(folder: Path, run: str, time: str, name: str) -> Path:
    """Copy a run into ``folder`` as lm_eval writes it with --output_path NAME.json."""
    for path in (LOGS / run).iterdir():
        kind = path.stem.rpartition("_")[0]
        kind = name if kind == "results" else kind
        shutil.copy(path, folder / f"{kind}_{time}{path.suffix}")
    return folder / f"{name}_{time}.json"


def test_runs_of_lm_eval_in_one_folder_are_paired_by_the_time_in_their_names(
    tmp_path: Path,
) -> None:
    """All runs of a task have the same hash: it covers the questions, not the answers."""
    good = renamed(tmp_path, "good", "2026-11-24T02-17-05.568555", "nightly_v2")
    poor = renamed(tmp_path, "poor", "2026-11-25T02-17-05", "nightly_v2")
    (axis,) = compared(good, poor, "--allow", "model", "--axis", "*sums_mc/plain/acc")["axes"]
    assert (axis["base"], axis["new"]) == (11 / 12, 4 / 12)
    assert axis["verdict"] == "regression"


@pytest.mark.parametrize("name", ["results_2026-11-25T02-17-05.json", "release.json"])
def test_samples_of_another_run_of_lm_eval_are_never_taken(name: str, tmp_path: Path) -> None:
    """They match the hash of these results, whose own are missing."""
    results_ = renamed(tmp_path, "poor", "2026-11-24T02-17-05", "results")
    results_.rename(tmp_path / name)
    result = call(LOGS / "good", tmp_path / name, "--allow", "model")
    assert result.exit_code == 2
    assert f"are not beside {tmp_path / name}" in result.output
    assert "2026-11-24T02-17-05.jsonl is of another run" in result.output


LM_CHANGES: dict[str, Callable[[Log], object]] = {
    "model": lambda log: log.update(model_name="other"),
    "version": lambda log: log["versions"].update(sums_mc=3.0),
    "parser": lambda log: log.update(lm_eval_version="0.4.999"),
    "prompt": lambda log: log["configs"]["sums_mc"].update(description="Say it."),
    "sample": lambda log: log["config"].update(limit=12),
    "request": lambda log: log["config"].update(gen_kwargs="temperature=1"),
}


def test_what_makes_logs_of_lm_eval_incomparable(lm: Path) -> None:
    text = results(lm).read_text()
    wrong = {}
    for part, change in LM_CHANGES.items():
        log = json.loads(text)
        change(log)
        results(lm).write_text(json.dumps(log))
        found = compared(LOGS / "good", lm)
        names = {difference["name"] for difference in found["differences"]}
        if found["exit_code"] != 5 or part not in names:
            wrong[part] = names
    assert not wrong


UNREADABLE: dict[str, Callable[[Log], object]] = {
    "which guard reads: it has no lm_eval_version": lambda log: log.pop("lm_eval_version"),
    "run lm_eval again with --log_samples": lambda log: log.update(task_hashes={}),
    "is an incomplete log: 'sums_mc' is missing": lambda log: log["configs"].pop("sums_mc"),
    "higher_is_better of sums_mc, 'acc', is 'false'; it must be true, false or null": (
        lambda log: log["higher_is_better"]["sums_mc"].update(acc="false")
    ),
}


def test_a_log_of_lm_eval_that_cannot_be_read_is_named(lm: Path) -> None:
    text = results(lm).read_text()
    wrong = {}
    for sentence, change in UNREADABLE.items():
        log = json.loads(text)
        change(log)
        results(lm).write_text(json.dumps(log))
        result = call(LOGS / "good", lm)
        if result.exit_code != 2 or sentence not in result.output:
            wrong[sentence] = result.output
    assert not wrong


def test_documents_that_are_missing_make_lm_eval_incomplete(lm: Path) -> None:
    path = next(lm.glob("samples_sums_mc*"))
    kept = [json.loads(line) for line in path.read_text().splitlines()][:-2]
    path.write_text("".join(json.dumps(one) + "\n" for one in kept))
    log = json.loads(results(lm).read_text())
    told = "".join(one[k] for one in kept for k in ("doc_hash", "prompt_hash", "target_hash"))
    log["task_hashes"]["sums_mc"] = hashlib.sha256(told.encode()).hexdigest()
    results(lm).write_text(json.dumps(log))
    result = call(LOGS / "good", lm)
    assert result.exit_code == 4
    assert "2 samples have no outcome. Run lm_eval again." in result.output


def test_a_baseline_of_a_log_compares_as_the_log_does(tmp_path: Path) -> None:
    out = tmp_path / "base.json"
    done = CliRunner().invoke(main, ["audit", "baseline", str(LOGS / "good"), "--out", str(out)])
    assert done.exit_code == 0, done.output
    args = (LOGS / "poor", "--allow", "model")
    logs, baseline = compared(LOGS / "good", *args), compared(out, *args)
    for part in ("axes", "no_numbers", "exit_code"):
        assert logs[part] == baseline[part]
    assert logs["exit_code"] == 1


def test_no_secret_of_a_log_is_in_a_baseline(tmp_path: Path, lm: Path) -> None:
    log = json.loads(results(lm).read_text())
    log["config"]["model_args"] = "model=good,api_key=s3cret"
    results(lm).write_text(json.dumps(log))
    out = tmp_path / "base.json"
    done = CliRunner().invoke(main, ["audit", "baseline", str(lm), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "s3cret" not in out.read_text()
    assert "s3cret" not in call(LOGS / "good", lm).output


def test_a_log_of_inspect_without_inspect_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inspect_log, "find_spec", lambda name: None)
    for log in (LOGS / "good.eval", LOGS / "few.json"):
        result = call(log, log)
        assert result.exit_code == 2
        told = f"Error: {log} is a log of inspect, which is read with: pip install inspect_ai\n"
        assert result.stderr == told


def test_values_are_numbers_as_inspect_reads_them() -> None:
    values: list[tuple[object, float | None]] = [
        ("C", 1.0), ("P", 0.5), ("I", 0.0), ("N", 0.0), (True, 1.0), (False, 0.0), (3, 3.0),
        (0.25, 0.25), ("Yes", 1.0), ("no", 0.0), ("TRUE", 1.0), ("false", 0.0), ("0.75", 0.75),
        ("c", None), ("A", None), ("inf", None), ("", None), (None, None), ([1], None), ({}, None),
    ]  # fmt: skip
    assert [(value, number_of(value)) for value, _ in values] == values


@given(st.text() | st.floats() | st.integers(-(10**9), 10**9) | st.none() | st.lists(st.text()))
def test_any_value_is_a_number_or_none(value: object) -> None:
    found = number_of(value)
    assert found is None or isinstance(found, float)
    if isinstance(value, str):
        assert found is None or math.isfinite(found)
