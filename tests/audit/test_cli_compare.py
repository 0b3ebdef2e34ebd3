"""The exit codes of a comparison through the installed command, offline."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from guard.audit.audit import Audit
from guard.audit.calls import Piece, Reply, Slot
from guard.audit.files import RUN_FILE
from guard.audit.runner import Settings
from guard.cli import main
from guard.core import Guard
from guard.errors import DetectorError
from guard.suites import Request
from tests.audit.gated_suite import NAME, GatedOptions, Saying, half, more, recorded
from tests.audit.tiny_suite import Tiny, TinyOptions
from tests.scripted import Scripted

ROOT = Path(__file__).parents[2]
SUITE = ("--suite", NAME)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    recorded(folder / "base")
    recorded(folder / "same")
    recorded(folder / "worse", more)
    recorded(folder / "other", model="openai/y")
    recorded(folder / "begun", most=20)
    recorded(folder / "few", options=GatedOptions(count=4))
    recorded(folder / "unread", lambda n, _: "?")
    guard = Guard(detector=Scripted("BIAS"))
    # The guard stops half of the answers that name the second.
    recorded(folder / "guarded", lambda n, s: "BIAS second" if n % 4 == 0 else half(n), guard=guard)
    return folder


def recorded_tiny(folder: Path) -> Path:
    audit = Audit.of(Tiny(TinyOptions()))
    model = Tellings()
    asyncio.run(audit.run(model, folder / RUN_FILE, None, Settings()))
    return folder


class Tellings(Saying):
    """Answers every question alike."""

    def __init__(self) -> None:
        super().__init__(lambda n, s: "first")

    async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
        return Reply((Piece("first"),))


def guard_command() -> list[str]:
    """The command as pip installed it, or as a checkout runs it."""
    script = Path(sys.executable).parent / "guard"
    return [str(script)] if script.is_file() else [sys.executable, "-m", "guard"]


def installed(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*guard_command(), "audit", *args],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={
            **{k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")},
            "PYTHONPATH": str(ROOT),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "HTTP_PROXY": "http://127.0.0.1:9",
        },
    )


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (("base", "same"), 0, "PASS: same is no worse than base"),
        (("base", "worse"), 1, "REGRESSION: worse is worse than base. Next:"),
        (("base", "same", "--axis", "nothing"), 2, "--axis 'nothing' matches none of 4 axes"),
        (("few", "few"), 3, "INCONCLUSIVE: whether few is worse than few"),
        (("base", "begun"), 4, "INCOMPLETE: begun and base"),
        (
            ("base", "other"),
            5,
            "different model (NOT allowed): base has 'openai/x'; other has 'openai/y'",
        ),
    ],
)
def test_every_exit_code(
    runs: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], code: int, told: str
) -> None:
    monkeypatch.chdir(runs)
    done = call("compare", *args, *SUITE)
    assert done.exit_code == code, done.output
    assert told in " ".join(done.output.split())


BROKEN_SUITE = """
from tests.audit.gated_suite import Gated


class Broken(Gated):
    def measures(self, records):
        raise {error}
"""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("RuntimeError('a bug')", "RuntimeError: a bug"),
        pytest.param(
            *("EOFError('a bug')", "EOFError: a bug"),  # click's own exit code for it is 1
            marks=pytest.mark.slow("starts a process for another error"),
        ),
    ],
)
def test_a_failure_of_guard_itself_is_no_verdict(
    runs: Path, tmp_path: Path, error: str, told: str
) -> None:
    shutil.copytree(runs / "base", tmp_path / "base")
    (tmp_path / "broken.py").write_text(BROKEN_SUITE.format(error=error))
    command = [sys.executable, "-m", "guard", "audit"]
    command += ["compare", "base", "base", "--suite", "broken:Broken"]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 70, done.stderr
    assert "Traceback" in done.stderr
    assert told in done.stderr


def test_an_error_of_guards_is_no_verdict(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise DetectorError("The detector is broken.")

    monkeypatch.setattr("guard.audit.baseline.read_side", fails)
    result = call("compare", str(runs / "base"), str(runs / "base"))
    assert result.exit_code == 70
    assert result.stderr == "Error: The detector is broken.\n"


def test_a_reader_that_left_is_no_verdict(runs: Path) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "guard", "audit", "compare", "base", "same", *SUITE]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=runs, env=env, stdout=writes, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writes)
    assert (done.returncode, done.stderr) == (2, "Error: Broken pipe.\n")


@pytest.fixture(scope="module")
def baseline(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A baseline of the first run, written by the installed command."""
    path = tmp_path_factory.mktemp("baseline") / "base.json"
    made = installed(runs, "baseline", "base", *SUITE, "--out", str(path))
    assert made.returncode == 0, made.stderr
    return path


IN_CI = ("run", *SUITE, "--plain-only", "--baseline", "base.json", "--json", "--replay")


def test_a_baseline_in_ci_through_the_installed_command(runs: Path, baseline: Path) -> None:
    """What got worse has an exit code of its own; :func:`test_every_exit_code` has the others."""
    worse = installed(baseline.parent, *IN_CI, str(runs / "worse"), "--out", "worse")
    assert worse.returncode == 1, worse.stderr
    assert "Traceback" not in worse.stderr
    assert json.loads(worse.stdout)["comparison"]["outcome"] == "regression"


def test_a_baseline_in_ci(
    runs: Path, baseline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(baseline.parent)
    same = call(*IN_CI, str(runs / "same"), "--out", str(tmp_path / "same"))
    assert same.exit_code == 0, same.stderr
    told = json.loads(same.stdout)
    assert told["comparison"]["outcome"] == "pass"
    assert told["suites"][0]["complete"]
    other = call(*IN_CI, str(runs / "other"), "--out", str(tmp_path / "other"))
    assert other.exit_code == 5
    assert "so no call was made. It has another model" in other.stderr
    assert not (tmp_path / "other" / "run.db").exists()


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["audit", *args], catch_exceptions=False)


def compared(*args: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(call("compare", *args, *SUITE, "--json").stdout)
    return read


def test_what_is_meant_is_allowed_by_name(runs: Path) -> None:
    found = compared(str(runs / "base"), str(runs / "other"), "--allow", "model")
    assert found["exit_code"] == 0
    assert found["differences"][0]["allowed"]
    unknown = call("compare", str(runs / "base"), str(runs / "other"), "--allow", "modell", *SUITE)
    assert unknown.exit_code == 2
    assert "--allow takes one of version, data, " in unknown.output


def test_one_run_is_compared_with_itself_plain_against_guarded(runs: Path) -> None:
    found = compared(str(runs / "guarded"))
    axes = {axis["name"]: axis for axis in found["axes"]}
    assert axes["gated/effect/stopped_others"]["difference"] == pytest.approx(0.5)
    assert axes["gated/effect/stopped_others"]["verdict"] == "regression"
    assert found["exit_code"] == 1
    alone = call("compare", str(runs / "base"), *SUITE)
    assert alone.exit_code == 2
    assert "has no guarded arm of gated; give a second run" in alone.output


def test_a_suite_that_no_side_has_is_named_with_those_they_have(runs: Path) -> None:
    result = call("compare", str(runs / "base"), str(runs / "same"), "--suite", "mist")
    assert result.exit_code == 2
    told = "Neither side has a suite 'mist'; they have gated (MODULE:CLASS names it)."
    assert result.stderr == f"Error: {told}\n"


def test_a_tolerance_of_audit_toml_decides(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    args = (str(runs / "base"), str(runs / "worse"))
    assert compared(*args)["exit_code"] == 1
    Path("audit.toml").write_text('[tolerance]\n"gated/*" = 0.4\n')
    found = compared(*args)
    assert found["exit_code"] == 0
    assert {axis["tolerance"] for axis in found["axes"]} == {0.4}
    Path("mine.toml").write_text('[tolerance]\n"gated/*" = 0.01\n')
    assert compared(*args, "--config", "mine.toml")["exit_code"] == 1


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--axis", "x"), "--axis belongs to --baseline"),
        (("--baseline", "nowhere"), "There is no run and no baseline at nowhere"),
        (("--baseline", "edited.json"), "was edited: its checksum"),
        (("--baseline", "audit.toml"), "audit.toml is not a baseline"),
    ],
)
def test_a_baseline_that_cannot_be_used_is_named_before_anything_is_asked(
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("baseline", str(runs / "base"), *SUITE, "--out", "edited.json").exit_code == 0
    path = Path("edited.json")
    path.write_text(path.read_text().replace('"openai/x"', '"openai/z"'))
    Path("audit.toml").write_text("[floor]\n")
    result = call(
        "run", *SUITE, "--replay", str(runs / "same"), "--out", "o", "--plain-only", *args
    )
    assert result.exit_code == 2, result.output
    assert told in result.output
    assert not Path("o").exists()


def test_a_run_is_no_baseline_before_its_end(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "b.json"
    result = call("baseline", str(runs / "begun"), *SUITE, "--out", str(out))
    assert result.exit_code == 4
    assert "cannot be a baseline yet: 100 samples have no outcome" in result.output
    assert not out.exists()


def test_answers_that_cannot_be_read_are_no_pass(runs: Path) -> None:
    found = compared(str(runs / "unread"), str(runs / "unread"))
    assert found["exit_code"] == 3
    assert compared(str(runs / "base"), str(runs / "unread"))["exit_code"] == 1


def test_a_journal_of_another_suite_is_not_comparable_as_its_baseline_is_not(
    runs: Path, tmp_path: Path
) -> None:
    other = recorded_tiny(tmp_path / "tiny")
    tiny = ("--suite", "tests.audit.tiny_suite:Tiny")
    made = call("baseline", str(other), *tiny, "--out", str(tmp_path / "tiny.json"))
    assert made.exit_code == 0, made.output
    for new in (other, other / "run.db", tmp_path / "tiny.json"):
        result = call("compare", str(runs / "base"), str(new), *SUITE)
        assert result.exit_code == 5, result.output
        assert "They have no suite in common" in result.output
    neither = call("compare", str(runs / "base"), str(runs / "same"), "--suite", f"{NAME},mist")
    assert neither.exit_code == 2
    assert "Neither side has a suite 'mist'; they have gated." in neither.output
    # A suite of one's own that nobody named is still a mistake, and no baseline leaves it out.
    result = call("baseline", str(other), *SUITE, "--out", str(tmp_path / "b.json"))
    assert result.exit_code == 2
    assert "which guard does not know; name it with --suite MODULE:CLASS" in result.output


def test_a_suite_without_axes_of_its_own_does_not_pass_as_unbiased(tmp_path: Path) -> None:
    run = str(recorded_tiny(tmp_path / "tiny"))
    result = call("compare", run, run, "--suite", "tests.audit.tiny_suite:Tiny")
    assert result.exit_code == 3  # so few answers are no evidence
    assert "tiny: only coverage was compared, which says nothing about bias." in result.output
