"""Logs of inspect_ai and lm-eval in a comparison; `logs/` has real ones, and what made them."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from guard.audit.baseline import read_side
from guard.audit.harnesses.task import number_of
from guard.cli import main

if sys.version_info >= (3, 14):
    reader = zipfile
else:
    from backports.zstd import zipfile as reader

LOGS = Path(__file__).parent / "logs"
GOOD, POOR = LOGS / "good.eval", LOGS / "poor.eval"
MATCH = "inspect:sums/plain/match"
Log = dict[str, Any]


#: A tolerance by which the twelve samples of these logs can pass.
WIDE = ("--config", LOGS / "wide.toml")


def call(*args: object) -> Result:
    given_ = ["audit", "compare", *map(str, args)]
    return CliRunner().invoke(main, given_, catch_exceptions=False)


def compared(*args: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call(*args, "--json").stdout)
    return found


def whole(path: Path) -> Log:
    """A log as inspect's own JSON format has it: header and samples in one object."""
    with reader.ZipFile(path) as found:
        names = [name for name in found.namelist() if name.startswith("samples/")]
        log: Log = json.loads(found.read("header.json"))
        return log | {"samples": [json.loads(found.read(name)) for name in names]}


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
    assert few.axes["inspect:sums/plain/form/value=length"].samples.rows.tolist() == [
        [4, 1],
        [1, 1],
    ]


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


def test_which_way_is_better_has_to_be_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    args = (GOOD, POOR, "--allow", "model", "--axis", "*match")
    refused = call(*args)
    assert refused.exit_code == 2
    assert f"The direction of {MATCH} is unknown; give --better" in refused.output
    assert compared(*args, "--better", "lower", *WIDE)["exit_code"] == 0
    Path("audit.toml").write_text('[better]\n"*" = "lower"\n"*/match" = "higher"\n')
    assert compared(*args)["exit_code"] == 1
    assert compared(*args, "--better", f"{MATCH}=lower", *WIDE)["exit_code"] == 0
    # 11/12 and 4/12 are about as far from 0.625; from 0.9 they are not.
    assert compared(*args, "--better", "0.625")["axes"][0]["worse"] == pytest.approx(0, abs=1e-9)
    assert compared(*args, "--better", "0.9")["exit_code"] == 1


@pytest.mark.parametrize(
    ("better", "told"),
    [
        ("up", "--better takes higher, lower or the ideal as a number, got 'up'."),
        ("nan", "--better takes higher, lower or the ideal as a number, got 'nan'."),
        ("2", "The ideal 2 of inspect:sums/plain/match is outside its scale, 0 to 1."),
        ("*/macth=lower", "The direction '*/macth' matches no axis"),
    ],
)
def test_a_direction_that_is_none_is_named(better: str, told: str) -> None:
    args = (GOOD, POOR, "--allow", "model", "--axis", "*match", "--better", "higher")
    result = call(*args, "--better", better)
    assert result.exit_code == 2
    assert told in result.output


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
    args = (GOOD, POOR, "--allow", "model", "--axis", "*length", "--better")
    refused = call(*args, "lower")
    assert refused.exit_code == 2
    assert "value=length has no known scale, so it needs a tolerance" in refused.output
    Path("audit.toml").write_text('[tolerance]\n"*length" = 0.1\n')
    found = compared(*args, "lower")
    assert found["axes"][0]["verdict"] == "regression"
    assert found["axes"][0]["difference"] == pytest.approx(found["axes"][0]["worse"])
    assert "lower is better" in call(*args, "lower").output
    assert compared(*args, "higher", *WIDE)["exit_code"] == 0


def test_a_baseline_of_a_log_compares_as_the_log_does(tmp_path: Path) -> None:
    for base, new in ((GOOD, POOR), (LOGS / "good", LOGS / "poor")):
        out = tmp_path / f"{base.name}.json"
        done = CliRunner().invoke(main, ["audit", "baseline", str(base), "--out", str(out)])
        assert done.exit_code == 0, done.output
        args = (new, "--allow", "model", "--better", "higher", "--axis", "*match*")
        one, other = compared(base, *args), compared(out, *args)
        assert one["axes"] == other["axes"]
        assert one["no_numbers"] == other["no_numbers"]
        assert one["exit_code"] == other["exit_code"] == 1


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


@pytest.mark.parametrize("part", CHANGES)
def test_what_makes_logs_incomparable_is_named_and_allowed_by_name(
    part: str, tmp_path: Path
) -> None:
    new = changed(tmp_path, CHANGES[part])
    args = (GOOD, new, "--better", "higher", "--axis", "*match")
    found = compared(*args)
    assert found["exit_code"] == 5
    assert [one["name"] for one in found["differences"]] == [part]
    assert compared(*args, "--allow", part, *WIDE)["exit_code"] == 0


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


BROKEN: dict[str, Callable[[Log], object]] = {
    "error": lambda log: sample(log, "q3").update(error={"message": "m"}, scores={}),
    "invalidated": lambda log: sample(log, "q3").update(invalidation={"author": "a"}),
    "missing": lambda log: log["samples"].remove(sample(log, "q3")),
    "unfinished": unfinished,
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_sample_without_a_score_makes_a_log_incomplete(kind: str, tmp_path: Path) -> None:
    new = changed(tmp_path, BROKEN[kind])
    result = call(GOOD, new, "--better", "higher", "--axis", "*match")
    assert result.exit_code == 4, result.output
    assert "is incomplete: 1 samples have no outcome. Resume it with inspect" in result.output
    done = CliRunner().invoke(main, ["audit", "baseline", str(new), "--out", str(tmp_path / "b")])
    assert done.exit_code == 4


def test_a_zip_that_is_still_written_is_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "going-on"
    with reader.ZipFile(GOOD) as old, zipfile.ZipFile(path, "w") as new:
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
    assert sorted(axis.samples.rows[:, 0]) == [0.0, *[0.5] * 11]
    assert side.outcomes[MATCH]["q1"] == "C 1, I 1"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda log: log.update(version=3),
            "is an inspect log of version 3, and guard reads version 2",
        ),
        (lambda log: log.pop("samples"), "was written without its samples; run it again with"),
        (
            lambda log: [one.update(scores={}) for one in log["samples"]],
            "because it was not",
        ),
        (lambda log: log["eval"].pop("dataset"), "is an incomplete log: 'dataset' is missing"),
        (lambda log: log.update(eval=[]), "is an incomplete log"),
        (lambda log: log.update(samples=[{}]), "is an incomplete log: 'id' is missing"),
    ],
)
def test_a_log_of_inspect_that_cannot_be_read_is_named(
    change: Callable[[Log], object], told: str, tmp_path: Path
) -> None:
    result = call(GOOD, changed(tmp_path, change), "--better", "higher")
    assert result.exit_code == 2, result.output
    assert told in result.output


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


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_zip_is_one_sentence_whatever_its_compression(
    method: int, tmp_path: Path
) -> None:
    path = tmp_path / "deflated.eval"
    with reader.ZipFile(GOOD) as old, zipfile.ZipFile(path, "w", method) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    whole = {path: (301, 2000, 5000), GOOD: (301, 17741, 21284)}
    for source, places in whole.items():
        damaged = bytearray(source.read_bytes())
        for place in places:
            damaged[place] ^= 0xFF
        broken = tmp_path / "damaged.eval"
        broken.write_bytes(damaged)
        result = call(GOOD, broken)
        assert result.exit_code == 2, result.output
        assert result.stderr.count("damaged.eval") == 1
        assert "damaged.eval cannot be read as an inspect log (" in result.stderr


def test_json_that_is_nested_too_deeply_is_one_sentence(tmp_path: Path, lm: Path) -> None:
    deep = "[" * 200_000
    path = tmp_path / "deep.eval"
    with reader.ZipFile(GOOD) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, deep if name.startswith("samples/") else old.read(name))
    result = call(GOOD, path)
    assert result.exit_code == 2, result.output
    assert "cannot be read as an inspect log (its JSON is nested too deeply)" in result.stderr
    with next(lm.glob("samples_sums_gen*")).open("a") as samples:
        samples.write(deep + "\n")
    result = call(LOGS / "good", lm)
    assert result.exit_code == 2, result.output
    assert "does not match the hash of sums_gen" in result.stderr


def test_a_sample_that_is_there_twice_and_an_empty_log_are_named_once(tmp_path: Path) -> None:
    path = tmp_path / "twice.eval"
    with reader.ZipFile(GOOD) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
            if name.startswith("samples/q1_"):
                new.writestr(name.replace("q1_", "again_"), old.read(name))
    result = call(GOOD, path)
    assert result.exit_code == 2, result.output
    assert result.stderr == f"Error: {path} has the sample q1 twice in epoch 1.\n"
    empty = tmp_path / "empty.eval"
    empty.touch()
    result = call(GOOD, empty)
    assert result.exit_code == 2
    assert result.stderr == f"Error: {empty} is empty; give a run, a baseline or a log.\n"


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


@pytest.fixture
def lm(tmp_path: Path) -> Path:
    shutil.copytree(LOGS / "good", tmp_path / "lm")
    return tmp_path / "lm"


def results(folder: Path) -> Path:
    return next(folder.glob("results_*"))


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


@pytest.mark.parametrize("part", LM_CHANGES)
def test_what_makes_logs_of_lm_eval_incomparable(part: str, lm: Path) -> None:
    log = json.loads(results(lm).read_text())
    LM_CHANGES[part](log)
    results(lm).write_text(json.dumps(log))
    found = compared(LOGS / "good", lm)
    assert found["exit_code"] == 5
    assert part in {one["name"] for one in found["differences"]}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda log: log.pop("lm_eval_version"),
            "which guard reads: it has no lm_eval_version",
        ),
        (lambda log: log.update(task_hashes={}), "run lm_eval again with --log_samples"),
        (lambda log: log["configs"].pop("sums_mc"), "is an incomplete log: 'sums_mc' is missing"),
        (
            lambda log: log["higher_is_better"]["sums_mc"].update(acc="false"),
            "higher_is_better of sums_mc, 'acc', is 'false'; it must be true, false or null",
        ),
    ],
)
def test_a_log_of_lm_eval_that_cannot_be_read_is_named(
    change: Callable[[Log], object], told: str, lm: Path
) -> None:
    log = json.loads(results(lm).read_text())
    change(log)
    results(lm).write_text(json.dumps(log))
    result = call(LOGS / "good", lm)
    assert result.exit_code == 2, result.output
    assert told in result.output


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


def test_no_secret_of_a_log_is_in_a_baseline(tmp_path: Path, lm: Path) -> None:
    def secret(log: Log) -> None:
        log["eval"]["model_args"] = {"token": "s3cret"}
        log["eval"]["model_base_url"] = "https://user:s3cret@llm.example"
        log["plan"]["config"]["extra_headers"] = {"X-Key": "s3cret"}

    log = json.loads(results(lm).read_text())
    log["config"]["model_args"] = "model=good,api_key=s3cret"
    results(lm).write_text(json.dumps(log))
    for number, run in enumerate((changed(tmp_path, secret), lm)):
        out = tmp_path / f"{number}.json"
        done = CliRunner().invoke(main, ["audit", "baseline", str(run), "--out", str(out)])
        assert done.exit_code == 0, done.output
        assert "s3cret" not in out.read_text()
        assert "s3cret" not in call(GOOD if number == 0 else LOGS / "good", run).output


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("C", 1.0), ("P", 0.5), ("I", 0.0), ("N", 0.0), (True, 1.0), (False, 0.0), (3, 3.0),
        (0.25, 0.25), ("Yes", 1.0), ("no", 0.0), ("TRUE", 1.0), ("false", 0.0), ("0.75", 0.75),
        ("c", None), ("A", None), ("inf", None), ("", None), (None, None), ([1], None), ({}, None),
    ],
)  # fmt: skip
def test_values_are_numbers_as_inspect_reads_them(value: object, number: float | None) -> None:
    assert number_of(value) == number


@given(st.text() | st.floats() | st.integers(-(10**9), 10**9) | st.none() | st.lists(st.text()))
def test_any_value_is_a_number_or_none(value: object) -> None:
    found = number_of(value)
    assert found is None or isinstance(found, float)
    if isinstance(value, str):
        assert found is None or math.isfinite(found)
