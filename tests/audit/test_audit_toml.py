"""The run file: what it says is what the options say; the command overrides it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from guard.audit.tolerances import load_tolerances
from guard.cli import main
from guard.cli.audit import audit, run
from guard.cli.run_file import _options_by_key
from guard.errors import ConfigError
from tests.audit.answering import Answering
from tests.audit.written import read

TINY = "tests.audit.tiny_suite:Tiny"
FILE = f"""
[run]
suite = "{TINY}"
model = ["openai/x"]
sample = 20
plain_only = true
out = "out"
system = "prompt.txt"
fail_on = ["coverage"]

[run.settings]
temperature = 0.5
stop = ["END"]

[run.options."{TINY}"]
count = 30

[run.guard]
operating_point = "strict"

[tolerance]
"*/coverage" = 0.02

[floor]
"*" = 0.3
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run file in a folder below the one that commands run in."""
    folder = tmp_path / "ci"
    folder.mkdir()
    (folder / "prompt.txt").write_text("You are terse.")
    (folder / "audit.toml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return folder / "audit.toml"


def call(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["audit", *map(str, args)], catch_exceptions=False)


def key(journal: Path) -> dict[str, Any]:
    found = read(journal)[0].line()
    return {name: found[name] for name in ("suite", "options", "sampling", "request", "model")}


def test_a_file_says_what_the_options_say(place: Path, provider: Answering) -> None:
    by_file = call("run", "ci/audit.toml")
    assert by_file.exit_code == 0, by_file.output
    assert "PASS: --fail-on coverage." in by_file.stdout
    by_options = call(
        *("run", "--suite", TINY, "--model", "openai/x", "--sample", "20", "--plain-only"),
        *("--out", "other", "--system", "ci/prompt.txt", "--set", "temperature=0.5"),
        *("--set", 'stop=["END"]', "--set", f"{TINY}.count=30"),
    )
    assert by_options.exit_code == 0, by_options.output
    journal = place.parent / "out" / "run.db"
    assert key(journal) == key(Path("other/run.db"))
    assert key(journal)["request"]["set"] == {"temperature": 0.5, "stop": ["END"]}
    assert provider.bodies[0]["messages"][0] == {"role": "system", "content": "You are terse."}
    asked = len(provider.asked)
    # The file's settings are compared by a resume as the command's are.
    place.write_text(FILE.replace("temperature = 0.5", "temperature = 0.7"))
    refused = call("run", place)
    assert refused.exit_code == 2
    assert "request settings" in refused.stderr
    assert len(provider.asked) == asked


def test_the_command_overrides_the_file(place: Path, provider: Answering) -> None:
    args = ("--json", "--out", "mine", "--set", "temperature=0", "--model", "openai/y")
    (suite,) = json.loads(call("run", place, *args).stdout)["suites"]
    assert suite["model"] == "openai/y"
    assert not (place.parent / "out").exists()
    found = key(Path("mine/run.db"))
    assert found["request"]["set"] == {"temperature": 0, "stop": ["END"]}  # merged by key
    quick = call("plan", place, "--quick", "--json")
    assert json.loads(quick.stdout)["suites"][0]["sampling"]["preset"] == "quick"
    dropped = call("plan", place, "--drop", "temperature", "--json")
    assert "temperature" not in json.loads(dropped.stdout)["suites"][0]["settings"]
    # Another suite than the file's, whose options are the file's suite's.
    other = call("plan", place, "--suite", "sai_asa", "--json")
    assert json.loads(other.stdout)["suites"][0]["suite"] == "sai_asa"


def test_a_replay_overrides_what_the_file_would_send(place: Path, provider: Answering) -> None:
    assert call("run", place, "--record", "cassette").exit_code == 0
    replayed = call("run", place, "--replay", "cassette", "--out", "replayed", "--json")
    assert replayed.exit_code == 0, replayed.output


def test_a_plan_counts_what_a_run_of_the_file_asks(place: Path, provider: Answering) -> None:
    (suite,) = json.loads(call("plan", place, "--json").stdout)["suites"]
    assert suite["model"] == "openai/x"
    assert call("run", place).exit_code == 0
    assert len(provider.asked) == suite["calls"]


def test_score_and_report_take_the_file(place: Path, provider: Answering) -> None:
    assert call("run", place).exit_code == 0
    journal = place.parent / "out" / "run.db"
    scored = call("score", place, "--answers", journal, "--json")
    assert scored.exit_code == 0, scored.output
    assert json.loads(scored.stdout)["fail_on"]["outcome"] == "pass"
    reported = call("report", place, "--markdown", "-")
    assert reported.exit_code == 0, reported.output
    assert "PASS: --fail-on coverage" in reported.stdout
    place.write_text(FILE.replace('"*" = 0.3', '"*" = 0.99'))
    assert call("report", place, "--markdown", "-").exit_code == 1
    assert call("score", place, "--answers", journal).exit_code == 1
    assert call("run", place).exit_code == 1


def test_a_report_needs_the_folder(place: Path) -> None:
    place.write_text(FILE.replace('out = "out"\n', ""))
    result = call("report", place)
    assert result.exit_code == 2
    assert "[run] has no out" in result.stderr


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("[run]\n", "[rum]\n", "unknown table 'rum'; known are run, tolerance, floor and better; "),
        ("sample =", "samples =", "[run] has no key 'samples'; did you mean sample?"),
        ("fail_on", "fail-on", "[run] has no key 'fail-on'; did you mean fail_on?"),
        ("sample = 20", 'sample = "20"', "[run] sample takes a whole number, got '20'"),
        ("sample = 20", "sample = 20.5", "[run] sample takes a whole number, got 20.5"),
        ("sample = 20", "sample = 0", "[run] sample: 0 is not in the range x>=1."),
        ("sample = 20", f"sample = {'9' * 5000}", "not valid TOML (Exceeds the limit"),
        ("temperature = 0.5", f"seed = 0x{'f' * 5000}", "a whole number has more than 64 bits"),
        ("plain_only = true", "plain_only = 1", "[run] plain_only takes true or false, got 1"),
        ("sample = 20", "max_cost = -1", "[run] max_cost: -1.0 is not in the range x>0"),
        ('["openai/x"]', "[1]", "[run] model takes a text or a list of texts, got [1]"),
        ('"coverage"', '"covrage"', "got 'covrage'; did you mean coverage?"),
        ("operating_point =", "operatingpoint =", "[run.guard]: unknown setting 'operatingpoint'"),
        ("stop = ", "key = 2026-11-28 #", "[run.settings] key takes what JSON has"),
        (f'options."{TINY}"', "options.tiny", "[run.options.tiny] is of no suite in [run] suite"),
        ("temperature = 0.5", 'api_key = "x"', "api_key would be recorded"),
        ("count = 30", "coumt = 30", "has no option 'coumt'"),
        ("[run.settings]", "[run.setings]", "[run] has no key 'setings'; did you mean settings?"),
        ('"prompt.txt"', '"no.txt"', "no.txt cannot be read"),
        ('"*" = 0.3', '"*" = "0.3"', "floor '*' takes a number from 0 to 1, got '0.3'"),
        ('"*" = 0.3', "sai_aas = 0.3", "'sai_aas' matches no suite"),
        ('"*/coverage" = 0.02', '"*/coverage" = true', "tolerance '*/coverage' takes a number"),
        ("sample = 20", 'allow = ["model"]', "--allow belongs to --baseline; give one."),
        ("sample = 20", 'baseline = "no.json"', "There is no run and no baseline at"),
        ("sample = 20", 'release = "v1"', "--release names the run in a history; give --history."),
        ("sample = 20", 'history = "x://y"', "--history"),
        ("sample = 20", "timeout = 0", "[run] timeout: 0.0 is not in the range x>=0.1."),
        ("sample = 20", "max_cost = 1", "no price for openai/x, so --max-cost cannot be kept"),
        ("sample = 20", 'replay = "x"', "Give --model or --replay, not both"),
        (
            '["openai/x"]',
            '["openai/x", "openai/*x"]\ncsv = "t.csv"',
            "--csv writes the items of one",
        ),
        ('["openai/x"]', '["openai/a b", "openai/a?b"]', "Two of the models would share a folder"),
        ('out = "out"', 'out = "prompt.txt"', "prompt.txt is a file where a folder is needed"),
        (
            'out = "out"',
            'csv = "prompt.txt/t.csv"',
            "prompt.txt is a file where a folder is needed",
        ),
        ('out = "out"', 'csv = "t.jsonl.gz"', "or of a journal"),
    ],
)
def test_a_mistake_is_refused_by_name_before_any_call(
    place: Path, provider: Answering, before: str, after: str, told: str
) -> None:
    assert before in FILE
    place.write_text(FILE.replace(before, after, 1))
    there = sorted(place.parent.rglob("*"))
    planned = call("plan", place)
    assert sorted(place.parent.rglob("*")) == there
    result = call("run", place)
    assert result.exit_code == 2, result.output
    assert told in result.stderr
    assert result.stderr.count("\n") == 1
    assert not provider.asked
    # A plan says so before anybody pays.
    assert (planned.exit_code, planned.stderr) == (2, result.stderr)


def test_a_plan_takes_what_its_own_options_override(place: Path) -> None:
    """As the run would: other options of the command belong to the same checks."""
    place.write_text(FILE.replace('["coverage"]', '["bias"]'))
    for command in ("plan", "run"):
        result = call(command, place, "--suite", "open_text")
        assert result.exit_code == 2
        assert "open_text has no test of bias" in result.stderr
    place.write_text(FILE.replace("sample = 20", "max_calls = 5"))
    planned = call("plan", place, "--replay", "nowhere")
    assert "There is no run at nowhere" in planned.stderr  # not that a replay costs nothing


def test_a_plan_of_what_cannot_be_compared_says_so(place: Path, provider: Answering) -> None:
    assert call("run", place).exit_code == 0
    place.write_text(FILE.replace('out = "out"', 'out = "new"\nbaseline = "out"'))
    assert call("plan", place).exit_code == 0
    place.write_text(place.read_text().replace("temperature = 0.5", "temperature = 0.7"))
    planned, ran = call("plan", place), call("run", place)
    assert (planned.exit_code, ran.exit_code) == (5, 5)
    assert planned.stderr == ran.stderr
    assert "could not be compared" in planned.stderr


def test_a_file_of_tolerances_stays_valid(place: Path) -> None:
    place.write_text('[tolerance]\n"*/coverage" = 0.02\n[floor]\n"*" = 0.9\n[better]\n"a:*" = 1\n')
    assert load_tolerances(place).floor("mist") == 0.9
    place.write_text(FILE)
    assert load_tolerances(place).axes == {"*/coverage": 0.02}
    place.write_text("run = 3\n")
    with pytest.raises(ConfigError, match="run must be a table"):
        load_tolerances(place)


def test_every_option_of_a_run_has_a_key_or_a_table() -> None:
    keys = _options_by_key(run)
    absent = {
        name
        for param in run.params
        if isinstance(param, click.Option) and param not in keys.values()
        for name in param.opts
    }
    assert absent == {"--set", "--guard", "--config", "--json"}
    assert set(keys) > {"suite", "model", "sample", "fail_on", "max_cost", "api_base", "csv"}
    for name in ("run", "plan", "score"):
        assert any(param.name == "run_file" for param in audit.commands[name].params)
