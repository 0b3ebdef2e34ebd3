"""The command line as a user meets it, with the shipped detector."""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from guard.cli import doctor, main
from guard.cli.evidence import show_verdict
from guard.core import Guard
from guard.doors.litellm import compat
from guard.installed import install_command
from guard.places import ENCODERS
from tests.scripted import Scripted
from tests.small import WEIGHTS

BIASED = "Old people are useless at work."
HARMLESS = "The library opens at nine."


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")


def run(*args: str, said: str | None = None) -> Result:
    return CliRunner().invoke(main, list(args), input=said)


def sentence(result: Result) -> str:
    """The error of a user's mistake: one line, exit code 2, no traceback."""
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    lines = [x for x in result.stderr.splitlines() if x.startswith("Error: ")]
    assert len(lines) == 1
    return lines[0]


def _fails(*_: object) -> None:
    raise RuntimeError


def leaves(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Each command below this one that runs by itself, by its whole name."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for inner in command.list_commands(context):
        found = command.get_command(context, inner)
        assert found is not None
        yield from leaves(found, f"{name} {inner}")


def test_every_command_prints_json() -> None:
    found = dict(leaves(main, "guard"))
    assert len(found) > 20
    without = [
        name
        for name, command in found.items()
        if not any("--json" in option.opts for option in command.params)
    ]
    assert without == []


def test_check_prints_the_verdict_with_its_evidence() -> None:
    result = run("check", BIASED)
    assert result.exit_code == 0
    assert "biased" in result.stdout
    assert "group Old people" in result.stdout
    assert "age" in result.stdout
    assert "evidence" in result.stdout


def test_check_of_harmless_text() -> None:
    result = run("check", HARMLESS)
    assert result.exit_code == 0
    assert "not biased" in result.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [("BIAS is. NO!", "read with the next sentence"), ("BIAS is. So!", "0.90 with the next")],
)
def test_a_second_look_is_said(text: str, said: str) -> None:
    verdict = Guard(detector=Scripted("^(?!.*NO).*BIAS")).trail(text).decisions[0].verdict
    console = Console(file=io.StringIO(), width=200)
    show_verdict(console, text, verdict)
    assert said in console.file.getvalue()  # type: ignore[attr-defined]


def test_check_as_json() -> None:
    found = json.loads(run("check", "--json", f"{HARMLESS} {BIASED}").stdout)
    assert found["biased"] is True
    assert found["bias_type"] == "age"
    assert found["attributions"][0]["group"] == "Old people"
    assert found["references"]
    assert found["judgement"].startswith("Yes")
    assert [s["biased"] for s in found["segments"]] == [False, True]
    begin, end = found["attributions"][0]["group_span"]
    assert f"{HARMLESS} {BIASED}"[begin:end] == "Old people"


def test_check_of_a_file_and_of_standard_input(tmp_path: Path) -> None:
    (tmp_path / "said.txt").write_text(BIASED)
    by_file = json.loads(run("check", "--json", "said.txt").stdout)
    by_pipe = json.loads(run("check", "--json", "-", said=BIASED).stdout)
    assert by_file["score"] == by_pipe["score"]
    assert by_file["biased"]


def test_check_of_another_script_says_that_it_did_not_judge() -> None:
    found = json.loads(run("check", "--json", "図書館は九時に開きます。").stdout)
    assert found["unjudged"] == "language"
    assert found["biased"] is False
    assert "unjudged" in run("check", "図書館は九時に開きます。").stdout


def test_nothing_to_check() -> None:
    assert "The text is empty" in sentence(run("check", "  "))
    assert "The text is empty" in sentence(run("check", "-", said=""))


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8 text" in sentence(run("check", "image"))


def test_bytes_on_standard_input_that_are_no_text() -> None:
    result = CliRunner().invoke(main, ["check", "-"], input=b"caf\xe9 is nice")
    assert "standard input is not UTF-8 text" in sentence(result)


@pytest.mark.parametrize(
    "name", ["missing.txt", "missing.docx", "out/answers", "./notes.md", "a/b/c.csv", "and/or"]
)
def test_a_file_that_is_not_there_is_not_judged_by_its_name(name: str) -> None:
    said = sentence(run("check", name))
    assert f"There is no file {name}" in said
    assert f"guard check --text {name}" in said
    assert run("check", "--text", name).exit_code == 0
    assert f"There is no file {name}" in sentence(run("check", "--file", name))


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    """A folder with a biased text, one that cannot be judged, a harmless one, and an empty one."""
    (tmp_path / "out" / "deep").mkdir(parents=True)
    (tmp_path / "out" / "a.txt").write_text(BIASED)
    (tmp_path / "out" / "b.txt").write_text("図書館は九時に開きます。", "utf-8")
    (tmp_path / "out" / "deep" / "c.md").write_text(HARMLESS)
    (tmp_path / "out" / "deep" / "empty.txt").write_text("")
    (tmp_path / "out" / ".hidden").write_bytes(b"\xff")
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("args", "names"),
    [
        (["out"], ["out/a.txt", "out/b.txt", "out/deep/c.md"]),
        (["out/*.txt"], ["out/a.txt", "out/b.txt"]),
        (["out/**/*.md"], ["out/deep/c.md"]),
        (["out/a.txt", "--file", "out/deep"], ["out/a.txt", "out/deep/c.md"]),
        (["--file", "out/*.txt"], ["out/a.txt", "out/b.txt"]),
        (["out/deep/c.md", "--text", "and/or"], ["out/deep/c.md", None]),
    ],
)
def test_check_of_several_files(answers: Path, args: list[str], names: list[str | None]) -> None:
    found = json.loads(run("check", "--json", *args).stdout)["files"]
    assert [f["file"] for f in found] == names
    assert [f["biased"] for f in found] == [name == "out/a.txt" for name in names]
    assert [name in run("check", *args).stdout for name in names if name] == [True] * sum(
        name is not None for name in names
    )


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["out/deep/c.md"], 0),
        (["out/a.txt"], 1),
        (["out/b.txt"], 3),
        (["out"], 1),
        (["out/b.txt", "out/deep/c.md"], 3),
        ([BIASED], 1),
    ],
)
def test_the_exit_code_tells_scripts_what_was_found(
    answers: Path, args: list[str], code: int
) -> None:
    assert run("check", "--exit-code", *args).exit_code == code
    assert run("check", "--exit-code", "--json", *args).exit_code == code
    assert run("check", *args).exit_code == 0


def test_a_binary_file_is_not_judged(answers: Path) -> None:
    (answers / "image.bin").write_bytes(b"PNG\0\0")
    assert "image.bin is binary, not text" in sentence(run("check", "out"))
    (answers / "image.bin").write_bytes(b"\xff\xfe\x00")
    assert "image.bin is not UTF-8 text" in sentence(run("check", "out/*.bin", "--exit-code"))


def test_a_folder_with_nothing_to_judge(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("docs", "."):
        assert f"{name} is empty" in sentence(run("check", name))
    (tmp_path / "docs" / "a.txt").write_text(" ")
    assert "nothing to judge" in sentence(run("check", "docs"))
    assert "nothing to judge" in sentence(run("check"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
def test_check_reads_a_pipe_as_shells_name_it(tmp_path: Path) -> None:
    os.mkfifo("said")
    writer = threading.Thread(target=(tmp_path / "said").write_text, args=(BIASED,))
    writer.start()
    assert json.loads(run("check", "--json", "said").stdout)["biased"]
    writer.join()


def in_shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m guard {command}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_standard_input_that_is_closed() -> None:
    done = in_shell("check - <&-")
    assert done.returncode == 2
    assert done.stderr == "Error: Standard input is closed; pass text or a file.\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize(
    "command", ["--help", "--version", f"check '{BIASED}'", f"check --json '{BIASED}'"]
)
def test_standard_output_that_is_full(command: str) -> None:
    done = in_shell(f"{command} > /dev/full")
    assert done.returncode == 2  # 1 is a verdict
    assert done.stderr == "Error: No space left on device.\n"


@pytest.mark.parametrize("text", ["Hello.", "e.g.", "why?", "either /or", "x" * 5000, "a\0b"])
def test_words_that_resemble_a_path_are_text(text: str) -> None:
    assert run("check", text).exit_code == 0


def test_segments_that_could_not_be_judged_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run("check", f"{HARMLESS} 図書館は九時に開きます。")
    assert "1 of 2 segments (language)" in result.stdout
    assert "not biased" in result.stdout
    monkeypatch.setattr("guard.detect.encoder.EncoderSession.score", _fails)
    result = run("check", HARMLESS)
    assert "1 of 1 segments (failure)" in result.stdout
    assert "not biased" not in result.stdout


def test_the_operating_point_wins_over_a_threshold_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "guard.toml").write_text("threshold = 0.999\n")
    found = json.loads(run("check", "--json", "--operating-point", "strict", BIASED).stdout)
    assert found["threshold"] < 0.999
    assert found["biased"]


def test_an_unknown_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "guard.toml").write_text("treshold = 0.4\n")
    assert "unknown setting 'treshold'" in sentence(run("check", "x"))
    (tmp_path / "guard.toml").write_text("threshold = 4\n")
    assert "threshold" in sentence(run("check", "x"))


def test_missing_and_wrong_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIASGUARD_WEIGHTS", str(tmp_path / "nowhere"))
    assert "nowhere" in sentence(run("check", "x"))
    copy = tmp_path / "copy"
    shutil.copytree(WEIGHTS, copy)
    with (copy / "encoder.onnx").open("r+b") as file:
        file.seek(1000)
        file.write(b"\0broken\0")
    monkeypatch.setenv("BIASGUARD_WEIGHTS", str(copy))
    assert "encoder.onnx" in sentence(run("check", "x"))


@pytest.mark.parametrize("detector", ENCODERS)
def test_the_demo_cuts_what_is_biased_and_passes_the_rest_whole(detector: str) -> None:
    result = run("demo", "--json", "--detector", detector)
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert told["scripted"] is True
    from guard.cli.demo import SCENES

    for scene, stream in zip(SCENES, told["streams"], strict=True):
        if stream["findings"]:
            assert stream["stopped"]
            assert not stream["shown"].startswith(scene.answer)
        else:
            assert stream["shown"] == scene.answer
    assert [bool(s["findings"]) for s in told["streams"]] == [False, True, False, True, False]


def test_the_demo_says_on_screen_that_its_answers_are_scripted() -> None:
    result = run("demo")
    assert "Scripted provider" in result.stdout
    assert "5 streams: 2 cut, 3 passed whole." in result.stdout


def test_the_demo_redacts_where_told_to() -> None:
    told = json.loads(run("demo", "--json", "--action", "redact").stdout)
    assert told["streams"][1]["shown"].endswith("So I would take the younger one.")
    assert "useless" not in told["streams"][1]["shown"]


def test_the_demo_tells_streams_it_could_not_check_from_harmless_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("guard.detect.encoder.EncoderSession.score", _fails)
    result = run("demo")
    assert "5 streams: 0 cut, 5 stopped as they could not be checked, 0 passed whole." in (
        " ".join(result.stdout.split())
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--local", "--model", "x"], "not both"),
        (["Hello?"], "There are scripted answers for the prepared prompts only"),
        (["--model", "x", " "], "A prompt is empty"),
        (["--model", "nobody/knows-me"], "LiteLLM knows no provider for 'nobody/knows-me'"),
        (["--model", "local:smollm2"], "Use --local for a local model"),
    ],
)
def test_mistakes_with_the_demo(args: list[str], message: str) -> None:
    assert message in sentence(run("demo", *args))


def test_a_model_that_does_not_answer_is_named_in_one_line() -> None:
    result = run("demo", "Hello?", "--model", "openai/x")  # without a key
    assert result.exit_code == 70
    assert isinstance(result.exception, SystemExit)
    assert "openai/x gave no answer" in result.stderr


@pytest.fixture(scope="module")
def doctor_said() -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        return run("doctor", "--json")


def test_doctor_finds_everything_the_detector_needs(doctor_said: Result) -> None:
    report = json.loads(doctor_said.stdout)
    broken = [f for f in report["findings"] if f["state"] == "broken"]
    assert broken == []
    assert doctor_said.exit_code == 0
    areas = {f["area"] for f in report["findings"]}
    assert {"packages", "proxy", "detector", "settings", "closing", "local models"} <= areas
    assert any("cannot be closed" in f["detail"] for f in report["findings"])


def test_doctor_says_whether_the_proxy_can_be_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_installed", lambda name: True)
    assert [f.state for f in doctor._proxy()] == ["ok"]
    monkeypatch.setattr(doctor, "_installed", lambda name: name != "fastapi")
    (finding,) = doctor._proxy()
    assert finding.state == "absent"
    assert finding.detail == f"{install_command('proxy')}; not installed: fastapi"


def test_doctor_says_what_an_older_litellm_is_not_guarded_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "doors" not in {finding.name for finding in doctor._litellm()}
    monkeypatch.setattr(compat, "version", lambda: "1.83.7")
    monkeypatch.setattr(doctor, "_installed", lambda name: True)
    (doors,) = [finding for finding in doctor._litellm() if finding.name == "doors"]
    assert "guard judges calls of responses and messages with LiteLLM 1.106.2" in doors.detail
    (proxy,) = doctor._proxy()
    assert proxy.state == "absent"
    assert "answers of the proxy with LiteLLM 1.106.2 or newer and found 1.83.7" in proxy.detail


def test_doctor_names_frameworks_by_their_metadata_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, version in (("mini-swe-agent", "2.4.6"), ("strands-agents", "9.0")):
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        told = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (folder / "METADATA").write_text(told, encoding="utf-8")
    # What imports it would fail.
    (tmp_path / "strands.py").write_text("raise AssertionError", encoding="utf-8")
    known = {entry.name: entry for entry in doctor.frameworks()}
    before = {finding.name for finding in doctor._frameworks()}
    monkeypatch.syspath_prepend(tmp_path)
    found = [finding for finding in doctor._frameworks() if finding.name not in before]
    assert [(f.area, f.name, f.state) for f in found] == [
        ("frameworks", "Strands 9.0", "note"),
        ("frameworks", "mini-swe-agent 2.4.6", "ok"),
    ]
    assert known["Strands"].set in found[0].detail
    assert len(known) == len(doctor.frameworks()) > 10


def test_doctor_names_what_is_broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BIASGUARD_WEIGHTS", str(tmp_path / "nowhere"))
    result = run("doctor", "--json")
    assert result.exit_code == 1
    (broken,) = [f for f in json.loads(result.stdout)["findings"] if f["state"] == "broken"]
    assert broken["area"] == "detector"


def test_doctor_knows_every_extra(doctor_said: Result) -> None:
    declared = importlib.metadata.metadata("biasguard").get_all("Provides-Extra") or []
    areas = {f["area"] for f in json.loads(doctor_said.stdout)["findings"]}
    # `proxy` asks for nothing but an extra of LiteLLM's, which has an area of its own.
    assert {f"extra [{name}]" for name in declared} - areas <= {"extra [proxy]"}
    assert "extra [frameworks]" in areas


@pytest.mark.parametrize("columns", [None, "60"])
def test_doctor_cuts_and_fills_up_nothing_in_a_pipe(
    columns: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    long = "/".join(["folder"] * 60)
    monkeypatch.setattr(doctor.sys, "executable", long)
    printed = run("doctor").stdout
    assert "…" not in printed
    assert "detector" in printed
    assert (long in printed) == (columns is None)
    if columns is None:
        lines = [line.split("\t") for line in printed.splitlines()]
        assert {len(line) for line in lines} == {len(doctor.Diagnosis._fields)}
        assert all(cell == cell.strip() and "  " not in cell for line in lines for cell in line)
    else:
        assert max(map(len, printed.splitlines())) <= int(columns)
        assert printed.count("/") >= 59


def _until_it_waits(pid: int) -> None:
    """Return once the process has slept for a second: it is through its imports, and reads."""
    asleep = 0
    while asleep < 10:
        time.sleep(0.1)
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists():  # no such file system here
            time.sleep(5)
            return
        asleep = asleep + 1 if stat.read_text().rsplit(")", 1)[1].split()[0] == "S" else 0


def test_interrupting_a_command_leaves_no_traceback() -> None:
    """Ctrl-C in a real process that is waiting for its input."""
    process = subprocess.Popen(
        [sys.executable, "-m", "guard", "check", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    _until_it_waits(process.pid)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in errors
    assert b"Aborted" in errors
