"""The recipes for build servers run as they stand; the pytest plugin maps verdicts to outcomes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from guard.audit.comparison import AxisComparison, Comparison, Flip
from guard.audit.run_file import record_cassette
from guard.errors import GuardError, UsageError
from guard.testing import AuditGate
from tests.audit.gated_suite import NAME, GatedOptions, more, recorded
from tests.audit.recipe import record, unfair

ROOT = Path(__file__).parents[1]
RECIPE = ROOT / "examples" / "ci"
SUITE = ("--suite", NAME)
OTHERS = pytest.mark.slow("runs the command in a process for each verdict")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    recorded(folder / "base")
    recorded(folder / "worse", more)
    recorded(folder / "other", model="openai/y")
    recorded(folder / "begun", most=20)
    recorded(folder / "few", options=GatedOptions(count=4))
    recorded(folder / "silent", lambda n, sample: "zxcv")
    (folder / "floors.toml").write_text('[floor]\n"*" = 0\n')
    return folder


@pytest.fixture
def gate(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AuditGate:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return AuditGate(runs, tmp_path / "out")


def test_a_pass_returns_the_comparison(gate: AuditGate, runs: Path) -> None:
    found = gate.compare("base", runs / "base", *SUITE)
    assert (found.outcome, found.exit_code) == ("pass", 0)
    assert found.axes[0].name == "gated/plain/first"
    ran = gate.run(*SUITE, "--plain-only", "--replay", "base", "--baseline", "base")
    assert ran is not None
    assert ran.outcome == "pass"


def test_conditions_without_a_baseline_decide_the_test(gate: AuditGate) -> None:
    replay = (*SUITE, "--plain-only", "--replay", "base", "--fail-on")
    assert gate.run(*replay, "coverage") is None
    # The suite compares no value of a fair model, so bias cannot be decided.
    with pytest.raises(pytest.fail.Exception, match=r"gated, bias, plain arm: UNDECIDED\."):
        gate.run(*replay, "bias")
    with pytest.raises(pytest.skip.Exception, match=r"INCONCLUSIVE: --fail-on bias\."):
        gate.run(*replay, "bias", inconclusive="skip")


def test_a_suite_without_a_readable_answer_is_undecided_and_no_crash(gate: AuditGate) -> None:
    replay = (*SUITE, "--plain-only", "--replay", "silent", "--fail-on", "coverage")
    told = r"UNDECIDED\. No answer could be read\."
    with pytest.raises(pytest.fail.Exception, match=told):
        gate.run(*replay, "--config", "floors.toml")


@OTHERS
def test_a_run_file_in_which_nothing_fails_is_a_mistake(gate: AuditGate, runs: Path) -> None:
    text = f'[run]\nsuite = "{NAME}"\nplain_only = true\n'
    for name in ("base", "silent"):
        (runs / f"{name}.toml").write_text(f'{text}replay = "{name}"\n')
        with pytest.raises(UsageError, match=r"guard_audit\.run needs --fail-on"):
            gate.run(f"{name}.toml")


@OTHERS
def test_conditions_and_a_baseline_both_decide_the_test(gate: AuditGate) -> None:
    replay = (*SUITE, "--plain-only", "--replay", "base", "--baseline", "base")
    assert gate.run(*replay, "--fail-on", "coverage") is not None
    worse = ("--replay", "worse", "--baseline", "base", "--fail-on", "coverage")
    with pytest.raises(pytest.fail.Exception, match="REGRESSION: "):
        gate.run(*SUITE, "--plain-only", *worse)


@pytest.mark.parametrize(
    ("new", "told"),
    [
        ("worse", "REGRESSION: worse is worse than base.\n"),
        pytest.param("begun", "INCOMPLETE: begun and base", marks=OTHERS),
        pytest.param("other", "NOT COMPARABLE: other and base", marks=OTHERS),
    ],
)
def test_every_other_verdict_fails_with_the_lines_of_the_command(
    gate: AuditGate, new: str, told: str
) -> None:
    with pytest.raises(pytest.fail.Exception) as failed:
        gate.compare("base", new, *SUITE, inconclusive="skip")
    assert str(failed.value).startswith(told)
    assert "\nNext: " in str(failed.value)
    if new == "worse":
        assert "In gated/plain/first these got worse: g" in str(failed.value)


def test_an_inconclusive_comparison_never_passes(gate: AuditGate) -> None:
    with pytest.raises(pytest.fail.Exception, match="INCONCLUSIVE: whether few is worse"):
        gate.compare("few", "few", *SUITE)
    with pytest.raises(pytest.skip.Exception, match="INCONCLUSIVE: whether few is worse"):
        gate.compare("few", "few", *SUITE, inconclusive="skip")


def test_a_run_that_is_not_comparable_says_what_differs(gate: AuditGate) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"so no call was made\. It has another model"):
        gate.run(*SUITE, "--plain-only", "--replay", "other", "--baseline", "base")


def test_a_mistake_is_one_sentence(gate: AuditGate) -> None:
    needs = "guard_audit.run needs --fail-on CONDITIONS or --baseline FILE"
    with pytest.raises(UsageError, match=needs):
        gate.run(*SUITE, "--replay", "base")
    with pytest.raises(UsageError, match=r"^There is no run and no baseline at nowhere\.$"):
        gate.compare("base", "nowhere", *SUITE)


def test_a_crash_is_no_verdict_whatever_its_exit_code(gate: AuditGate, runs: Path) -> None:
    (runs / "crashing.py").write_text("import os\nos._exit(1)\n")
    with pytest.raises(
        GuardError, match=r"^guard audit compare failed with exit code 1: "
    ) as raised:
        gate.compare("base", "base", "--suite", "crashing:Suite")
    assert not isinstance(raised.value, UsageError)
    (runs / "ending.py").write_text("import os\nos._exit(0)\n")
    with pytest.raises(GuardError, match=r"^guard audit run failed with exit code 0: "):
        gate.run("--suite", "ending:Suite", "--replay", "base", "--fail-on", "bias")


def test_an_unknown_value_of_inconclusive_is_refused(gate: AuditGate) -> None:
    with pytest.raises(UsageError, match=r"^inconclusive takes 'fail' or 'skip', got 'pass'\.$"):
        gate.compare("base", "base", *SUITE, inconclusive="pass")  # type: ignore[arg-type]


def test_a_comparison_is_read_back_as_it_was_written() -> None:
    nan, inf = float("nan"), float("inf")
    axis = AxisComparison(
        "s/plain/m/a=b", "s", "plain", "m", {"a": "b"}, -inf, 0.1, 0.2, 0.1, nan, nan, 0.1, nan,
        0.0, nan, nan, 1.0, "exact", nan, 3, "item", 3, "inconclusive", True, "few", 7,
        [Flip("i", "C", "I", nan)],
    )  # fmt: skip
    found = Comparison("a", "b", "inconclusive", [axis], [], ["x"], {"alpha": 0.05})
    assert repr(Comparison.from_dict(found.to_dict())) == repr(found)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    shutil.copytree(RECIPE, tmp_path / "ci", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "ci"


def offline(folder: Path) -> dict[str, str]:
    """The environment of a build server without a network, with guard as it is installed there."""
    guard = folder / "bin" / "guard"
    guard.parent.mkdir(exist_ok=True)
    guard.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m guard "$@"\n')
    guard.chmod(0o755)
    given = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
    return {
        **given,
        "PATH": f"{guard.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GITHUB_STEP_SUMMARY": str(folder / "step.md"),
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "HTTP_PROXY": "http://127.0.0.1:9",
    }


def steps(workflow: str = "audit.yml", job: str = "bias") -> dict[str, str]:
    """The shell lines of a workflow's job, but for those that install guard."""
    read = yaml.safe_load((RECIPE / workflow).read_text("utf-8"))
    found = {s["name"]: s["run"] for s in read["jobs"][job]["steps"] if "run" in s}
    # Not from an index, where anybody could register the name.
    install = r"pip install 'biasguard\[audit\] @ git\+https://YOUR-GIT-SERVER/.*'"
    assert re.fullmatch(install, found.pop("Install"))
    return found


def shell(folder: Path, lines: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", lines],
        cwd=folder,
        env=offline(folder),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.slow("runs the audits of the workflow in processes")
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_workflow_passes_and_fails_as_a_build_should(example: Path) -> None:
    audit, report = steps()["Audit"], steps()["Report"]
    done = shell(example, audit)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS: this run is no worse than audit.baseline.json" in done.stdout
    assert shell(example, report).returncode == 0
    assert "pass" in (example / "step.md").read_text("utf-8")
    for name in ("report.html", "junit.xml", "guard.sarif"):
        assert (example / name).stat().st_size > 300
    # The same answers from an unfair model: a build that fails, and says where to look.
    worse = record(example / "recorded", unfair)
    record_cassette(worse, example / "cassette" / worse.name)
    shutil.rmtree(example / "run")
    done = shell(example, audit)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "REGRESSION: this run is worse than audit.baseline.json" in done.stdout
    assert "Next: In sai_asa/plain/" in done.stdout


@pytest.mark.slow("runs eight audits in processes")
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_workflow_of_shards_judges_what_they_are_together(example: Path) -> None:
    workflow = yaml.safe_load((RECIPE / "shards.yml").read_text("utf-8"))
    numbers = workflow["jobs"]["shard"]["strategy"]["matrix"]["shard"]
    lines = steps("shards.yml", "shard")["Audit"]
    for number in numbers:
        done = shell(example, lines.replace("${{ matrix.shard }}", str(number)))
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"This is shard {number} of 8" in done.stdout
    last = steps("shards.yml")
    for name, told in (("Merge", "from 8 shards"), ("Compare", "PASS: "), ("Report", "")):
        done = shell(example, last[name])
        assert done.returncode == 0, done.stdout + done.stderr
        assert told in done.stdout
    assert (example / "report.html").stat().st_size > 300


@pytest.mark.slow("runs the audits of the pytest example in processes")
def test_the_pytest_example_runs_as_it_stands(example: Path) -> None:
    def ran() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
        return subprocess.run(
            command, cwd=example, env=offline(example), capture_output=True, text=True, check=False
        )

    done = ran()
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    baseline = example / "audit.baseline.json"
    baseline.write_text(baseline.read_text().replace("saying", "other"))
    done = ran()
    assert done.returncode == 1
    assert "was edited: its checksum does not match" in done.stdout
    assert "Traceback" not in done.stdout
