"""``guard eval`` as a user meets it, with the scripted detector."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import guard.cli
import guard.core
from guard.detect.band import BandCascade
from guard.detect.band_files import Band
from guard.installed import install_command
from tests.loading import modules_after
from tests.scripted import Scripted

ROWS = """text,label,bias_type
All is well. Here BIAS stands.,1,gender
BIAS again.,1,race
Nothing of it.,1,gender
Fine words.,0,
A BIAS alarm.,0,
"""


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scripted:
    detector = Scripted()
    monkeypatch.setattr(guard.core, "detector_named", lambda *given: detector)
    monkeypatch.setitem(guard.cli._COMMANDS, "eval", ("guard.cli.eval", "Measure the detector."))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text(ROWS, encoding="utf-8")
    return detector


def run(*args: str) -> Result:
    return CliRunner().invoke(guard.cli.main, ["eval", *args])


def sentence(result: Result) -> str:
    """The error of a user's mistake: one line, exit code 2, no traceback."""
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    (line,) = [x for x in result.stderr.splitlines() if x.startswith("Error: ")]
    return line


def test_tables_on_the_console() -> None:
    result = run("--data", "mine.csv", "--bootstrap", "20")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    for word in (
        "Acc",
        "F1",
        "false positive rate",
        "false negative rate",
        "AUROC",
        "prevalence",
        "always biased",
    ):
        assert word in result.stdout
    assert "0.600" in result.stdout
    assert "balanced (chosen)" in result.stdout
    assert "BIAS alarm" not in result.stdout
    assert "\x1b" not in result.stdout


def test_help_says_where_the_data_folder_is_described() -> None:
    assert "benchmarks/detector/README.md" in run("--help").stdout


def test_json() -> None:
    found = json.loads(run("--data", "mine.csv", "--json", "--bootstrap", "20").stdout)
    (one,) = found["sets"]
    assert found["interrupted"] is False
    assert one["figures"]["accuracy"]["value"] == pytest.approx(0.6)
    low, high = (one["figures"]["accuracy"][k] for k in ("low", "high"))
    assert 0 <= low <= 0.6 <= high <= 1
    assert one["baselines"]["always biased"]["accuracy"]["value"] == pytest.approx(0.6)
    assert one["operating_points"].keys() == {"strict", "balanced", "quiet"}
    assert one["bootstrap"] == 20
    assert [s["name"] for s in one["breakdowns"]["type"]] == ["gender", "race"]
    assert "errors" not in one


def test_the_same_seed_gives_the_same_figures() -> None:
    args = ("--data", "mine.csv", "--json", "--limit", "4", "--seed", "5")
    first, second = (json.loads(run(*args).stdout)["sets"][0] for _ in range(2))
    del first["seconds"], second["seconds"]
    assert first == second
    assert (first["limit"], first["seed"], first["texts"], first["texts_in_file"]) == (4, 5, 4, 5)


def test_a_cascade_is_shown_beside_its_first_with_the_share_escalated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    later = Scripted("BIAS (again|alarm)")
    later.name = "later-1"
    cascade = BandCascade(Scripted(), later, Band(0.8, 1.0))
    monkeypatch.setattr(guard.core, "detector_named", lambda *given: cascade)
    for _ in range(2):  # what an earlier command judged does not count
        result = run("--data", "mine.csv", "--bootstrap", "0", "--json")
        found = json.loads(result.stdout)
        # The three segments with BIAS, and each again with the one after it, if any.
        told = found["cascade"]
        assert told["failed"] == 0
        assert told["escalated"] == later.calls
        assert told["share"] == pytest.approx(told["escalated"] / told["windows"])
        later.calls = 0
        beside = found["sets"][0]["beside"]
        assert beside["detector"] == "scripted-1"
        assert found["sets"][0]["detector"] == "cascade:scripted-1,later-1@0.8-1"
    shown = run("--data", "mine.csv", "--bootstrap", "0").stdout
    assert "segments (" in shown
    assert "went to the second detector." in shown


def test_errors_on_request() -> None:
    result = run("--data", "mine.csv", "--show-errors", "2", "--bootstrap", "0")
    assert "false positive 0.900 as gender mine.csv:6: A BIAS alarm." in result.stdout
    assert "false negative 0.100 mine.csv:4: Nothing of it." in result.stdout


def test_operating_point(scripted: Scripted) -> None:
    scripted.operating_points = {
        name: dict.fromkeys(types, 0.95 if name == "quiet" else 0.5)
        for name, types in Scripted.operating_points.items()
    }
    found = json.loads(run("--data", "mine.csv", "--json", "--operating-point", "quiet").stdout)
    (one,) = found["sets"]
    assert one["operating_point"] == "quiet"
    assert one["figures"]["false_negative_rate"]["value"] == 1
    assert one["operating_points"]["balanced"]["false_negative_rate"]["value"] == pytest.approx(
        1 / 3
    )


def test_markdown(tmp_path: Path) -> None:
    result = run("--data", "mine.csv", "--markdown", "out.md", "--bootstrap", "10")
    assert result.exit_code == 0
    assert "all measures" in result.stdout
    assert "| Acc |" in (tmp_path / "out.md").read_text()
    piped = run("--data", "mine.csv", "--markdown", "-", "--bootstrap", "10").stdout
    assert piped.startswith("# Evaluation")
    assert piped.strip() == (tmp_path / "out.md").read_text().strip()


def test_several_sets_in_one_run(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("text,label\nBIAS,1\n")
    found = json.loads(
        run("--data", "mine.csv", "--data", "other.csv", "--data", "mine.csv", "--json").stdout
    )
    assert [s["set"] for s in found["sets"]] == ["mine", "other"]


def test_list(tmp_path: Path) -> None:
    (tmp_path / "crows_pairs").mkdir()
    (tmp_path / "crows_pairs" / "eval.jsonl").write_text("")
    result = run("--list", "--data-dir", str(tmp_path))
    lines = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert lines["crows_pairs"].endswith("here")
    assert "missing" in lines["emgsd"]
    alone = {line.split()[0]: line for line in run("--list").stdout.splitlines()}
    assert alone["assistant"].endswith("here")
    assert alone["emgsd"].endswith("missing: emgsd/eval.jsonl in the folder of --data-dir")
    found = json.loads(run("--list", "--json").stdout)
    assert found["data_dir"] is None
    assert {s["name"] for s in found["sets"]} >= {"redditbias", "bold"}


def test_skipped_rows_are_counted(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text(ROWS + "worse,maybe,\n")
    said = sentence(run("--data", "bad.csv"))
    assert "bad.csv, line 7: label 'maybe' is not one of 1, biased" in said
    assert "--skip-bad" in said
    result = run("--data", "bad.csv", "--skip-bad", "--bootstrap", "0")
    assert result.exit_code == 0
    assert "1 bad rows skipped, the first: bad.csv, line 7" in result.stdout


def test_mistakes_end_in_one_sentence() -> None:
    assert "use --data NAME or FILE" in sentence(run())
    assert "neither a known set" in sentence(run("--data", "nothing"))
    assert "set --data-dir" in sentence(run("--data", "emgsd", "--data-dir", "nowhere"))
    assert "emgsd is not part of guard; set --data-dir" in sentence(run("--data", "emgsd"))
    assert "use only one" in sentence(run("--data", "mine.csv", "--json", "--markdown", "-"))
    assert "mine.csv is a file where" in sentence(
        run("--data", "mine.csv", "--markdown", "mine.csv/o")
    )


def test_no_text_is_judged_before_every_file_was_read(scripted: Scripted, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("text,label\nx,maybe\n")
    assert "line 2" in sentence(run("--data", "mine.csv", "--data", "bad.csv"))
    assert scripted.calls == 0


def test_an_interruption_keeps_the_sets_that_are_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from guard.evaluate import run as module

    (tmp_path / "other.csv").write_text("text,label\nBIAS,1\n")
    real = module.judged

    def interrupted(examples, guard):  # type: ignore[no-untyped-def]
        if len(examples) == 1:
            raise KeyboardInterrupt
        return real(examples, guard)

    monkeypatch.setattr(module, "judged", interrupted)
    result = run("--data", "mine.csv", "--data", "other.csv", "--json", "--bootstrap", "0")
    assert result.exit_code == 130
    found = json.loads(result.stdout)
    assert found["interrupted"] is True
    assert [s["set"] for s in found["sets"]] == ["mine"]
    assert "not measured: other" in result.stderr


def test_a_set_of_harmless_texts_has_no_table_of_nan(tmp_path: Path) -> None:
    (tmp_path / "harmless.csv").write_text("text,label\nFine words.,0\nMore of them.,0\n")
    result = run("--data", "harmless.csv", "--bootstrap", "0")
    assert result.exit_code == 0
    tables = "\n".join(x for x in result.stdout.splitlines() if "n is each measure's" not in x)
    assert "false positive rate" in tables
    assert "AUROC" not in tables
    assert "nan" not in tables


def test_without_the_extra_one_sentence_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert install_command("eval") in sentence(run("--data", "mine.csv"))


def test_the_module_loads_nothing_heavy() -> None:
    heavy = {"sklearn", "numpy", "scipy", "litellm", "onnxruntime"}
    assert modules_after("import guard.cli.eval").isdisjoint(heavy)


def test_a_real_set_end_to_end(part: Path) -> None:
    result = run(
        "--data", "crows_pairs", "--data-dir", str(part), "--limit", "60", "--bootstrap", "20",
        "--json",
    )  # fmt: skip
    (one,) = json.loads(result.stdout)["sets"]
    assert one["figures"]["pair_order"]["n"] == 30
    assert one["parts"][0]["name"] == "stereo direction"
    assert one["published"][0]["system"] == "BiasAlert"


def test_a_missing_set_of_guards_own_is_looked_for_where_it_ships(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from guard.evaluate import sources

    monkeypatch.setattr(sources, "shipped", lambda what: tmp_path / "installed")
    lines = {line.split()[0]: line for line in run("--list").stdout.splitlines()}
    assert lines["assistant"].endswith(str(tmp_path / "installed" / "detector" / "assistant.jsonl"))


def test_the_reliability_diagram(tmp_path: Path) -> None:
    result = run("--data", "mine.csv", "--bootstrap", "10", "--reliability", "out.svg")
    assert result.exit_code == 0, result.output
    assert "share biased" in result.stdout
    assert " score 0" in result.stdout
    drawn = (tmp_path / "out.svg").read_text()
    assert drawn.startswith("<svg ")
    assert "BIAS alarm" not in drawn
    found = json.loads(run("--data", "mine.csv", "--json", "--bootstrap", "0").stdout)
    bins = found["sets"][0]["reliability"]
    assert bins[0].keys() == {"n", "score", "biased", "low", "high"}
    assert sum(b["n"] for b in bins) == 5
    said = sentence(run("--data", "mine.csv", "--reliability", "out.png"))
    assert "use a name such as out.svg" in said
    unfit = run("--data", "mine.csv", "--reliability", "mine.csv/out.svg")
    assert "mine.csv is a file where a folder is needed" in sentence(unfit)


def test_the_papers_types(tmp_path: Path) -> None:
    (tmp_path / "types.csv").write_text("text,label,bias_type\nBIAS,1,age\nBIAS here,1,social\n")
    result = run("--data", "types.csv", "--types", "paper", "--bootstrap", "0")
    assert "age and appearance count as social" in result.stdout
    found = json.loads(run("--data", "types.csv", "--types", "paper", "--json").stdout)
    assert [s["name"] for s in found["sets"][0]["breakdowns"]["type"]] == ["social"]


def cases(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    lines = [{"text": "BIAS here.", "expect": "biased"}, {"text": "A BIAS.", "expect": "harmless"}]
    text = "\n".join(json.dumps(line) for line in lines)
    (tmp_path / "mine" / "two_words.jsonl").write_text(text, encoding="utf-8")


def test_behaviours(tmp_path: Path) -> None:
    cases(tmp_path)
    result = run("--behaviours", "mine", "--markdown", "out.md", "--show-errors", "1")
    assert result.exit_code == 0, result.output
    assert "two words" in result.stdout
    assert "mean of 1" in result.stdout
    assert "Below 0.75, known to be weak: two words 0.500." in result.stdout
    assert "false positive 0.900 as gender two_words.jsonl:2: A BIAS." in result.stdout
    written = (tmp_path / "out.md").read_text()
    assert "## Behaviours" in written
    assert "| two words | 2 | 0.500 |" in written


def test_behaviours_beside_a_set(tmp_path: Path) -> None:
    cases(tmp_path)
    found = json.loads(
        run("--data", "mine.csv", "--behaviours", "mine", "--json", "--bootstrap", "20").stdout
    )
    assert [s["set"] for s in found["sets"]] == ["mine"]
    (row,) = found["behaviours"]["behaviours"]
    assert (row["name"], row["n"], row["passed"], row["false_positives"]) == ("two_words", 2, 1, 1)
    assert found["behaviours"]["weak"] == ["two_words"]
    assert "behaviours" not in json.loads(run("--data", "mine.csv", "--json").stdout)


def test_the_behaviours_of_this_checkout() -> None:
    found = json.loads(run("--behaviours", "--json", "--limit", "5").stdout)["behaviours"]
    assert (found["cases"], found["limit"]) == (5, 5)
    assert found["cases_in_folder"] > 700


def test_mistakes_with_behaviours(scripted: Scripted, tmp_path: Path) -> None:
    cases(tmp_path)
    (tmp_path / "mine" / "worse.jsonl").write_text('{"text": "BIAS"}', encoding="utf-8")
    assert "no folder of behaviours at none" in sentence(run("--behaviours", "none"))
    assert "worse.jsonl, line 1: the field expect" in sentence(run("--behaviours", "mine"))
    said = sentence(run("--behaviours", "mine", "--reliability", "out.svg"))
    assert "add --data" in said
    assert scripted.calls == 0
    result = run("--behaviours", "mine", "--skip-bad")
    assert "1 bad lines skipped, the first: mine/worse.jsonl, line 1" in result.stdout


def test_an_interruption_before_the_behaviours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from guard.evaluate import behaviours

    def interrupted(*given: object, **more: object) -> None:
        raise KeyboardInterrupt

    cases(tmp_path)
    monkeypatch.setattr(behaviours, "measure", interrupted)
    result = run("--data", "mine.csv", "--behaviours", "mine", "--json", "--bootstrap", "0")
    assert result.exit_code == 130
    assert [s["set"] for s in json.loads(result.stdout)["sets"]] == ["mine"]
    assert "not measured: behaviours" in result.stderr
