"""The suite in the documentation is one that runs, and a build can fail on it."""

from __future__ import annotations

import asyncio
import csv
import io
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from guard.audit.audit import Audit
from guard.audit.files import RUN_FILE
from guard.audit.gating import AuditConditions
from guard.audit.runner import Settings
from guard.cli import main
from guard.core import Guard
from guard.suites import Options
from guard.testing import check_suite
from tests.audit.test_runner import Saying
from tests.scripted import Scripted

DOCS = Path(__file__).parents[2] / "docs"
PAGE, AUDIT = DOCS / "writing-a-suite.md", DOCS / "audit.md"


@pytest.fixture(scope="module")
def module() -> types.ModuleType:
    code, _ = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(code.splitlines()) < 66
    found = types.ModuleType("drivers")
    exec(compile(code, "drivers", "exec"), found.__dict__)
    return found


def test_the_documented_suite_keeps_the_promises(module: types.ModuleType) -> None:
    check_suite(module.Drivers(Options()))


@pytest.mark.parametrize(
    ("says", "value", "coverage", "conclusion"),
    [
        ("The old one.", 1.0, 1.0, "Bias found: old preferred is above"),
        ("The young one.", 0.0, 1.0, "Bias found: old preferred is below"),
        ("Either of them.", None, 1.0, "no measure could be tested, because too few clusters"),
        ("Old or young?", None, 0.0, "no measure could be tested, because too few clusters"),
    ],
)
def test_the_documented_suite_runs(
    module: types.ModuleType,
    tmp_path: Path,
    says: str,
    value: float | None,
    coverage: float,
    conclusion: str,
) -> None:
    audit = Audit.of(module.Drivers(Options()))
    guard = Guard(detector=Scripted())
    run = audit.run(Saying(says), tmp_path / "run.db", guard, Settings())
    result = asyncio.run(run)
    found = result.as_json()
    assert [s["value"] for s in found["scores"]] == [value]
    assert found["coverage"] == found["guarded"]["coverage"] == coverage
    assert conclusion in found["conclusions"]["plain"][0]
    assert found["samples"] == 12
    met = AuditConditions(("bias", "coverage")).decide([(audit.suite, result)])
    statuses = {one.condition: one.status for one in met.results}
    bias = "failed" if conclusion.startswith("Bias found") else "undecided"
    assert statuses == {"bias": bias, "coverage": "passed" if coverage else "failed"}


def test_every_format_reports_it_without_a_line_of_the_suite(
    module: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _ = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert not re.search(r"chart|table|html|csv|junit|sarif|markdown", code, re.IGNORECASE)
    monkeypatch.setitem(sys.modules, "drivers", module)
    monkeypatch.setattr(module, "__file__", str(PAGE), raising=False)

    def says(request: Any, slot: Any) -> str:
        return "The old one, I think." if slot.item == "0-0" else "The old one."

    audit = Audit.of(module.Drivers(Options()))
    run = tmp_path / "run"
    run.mkdir()
    path = run / RUN_FILE
    guard = Guard(detector=Scripted("think"))
    asyncio.run(audit.run(Saying(says), path, guard, Settings()))
    names = ("html", "markdown", "junit", "sarif", "csv")
    files = {name: tmp_path / f"report.{name}" for name in names}
    options = [text for name, file in files.items() for text in (f"--{name}", str(file))]
    command = ["audit", "report", str(run), "--suite", "drivers:Drivers", *options]
    result = CliRunner().invoke(main, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    texts = {name: file.read_text("utf-8") for name, file in files.items()}
    measure = "old preferred"
    for name in ("html", "markdown", "junit", "sarif"):
        assert measure in texts[name], name
    # A chart of the measure in both arms, and the table of its values.
    chart = texts["html"].partition(f"<figcaption>{measure}</figcaption>")[2]
    svg, _, values = chart.partition("</svg>")
    assert {">plain<", ">guarded<"} <= set(re.findall(r">\w+<", svg))
    assert f"<caption>{measure}</caption>" in values.partition("</figure>")[0]
    # Both arms of each of the 12 items; the guard stopped one answer.
    rows = list(csv.DictReader(io.StringIO(texts["csv"])))
    assert len(rows) == 24
    assert [row["id"] for row in rows if row["outcome"] == "guarded"] == ["0-0"]


@pytest.mark.parametrize(
    "command",
    [
        ("plan", "--suite", "here_alone:Drivers"),
        ("report", "nothing", "--suite", "here_alone:Drivers"),
        ("compare", "nothing", "nothing", "--suite", "here_alone:Drivers"),
        ("history", "add", "nothing", "--suite", "here_alone:Drivers", "--store", "s.db"),
    ],
    ids=lambda command: command[0],
)
def test_a_suite_in_the_current_folder_needs_no_path(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    (code, _) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "here_alone.py").write_text(code, "utf-8")
    # Its file hides no library.
    (tmp_path / "numpy.py").write_text("raise AssertionError", "utf-8")
    script = "from guard.installed import main; import sys; sys.path.remove(''); main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "audit", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(DOCS.parent)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "cannot be loaded" not in done.stderr
    if command[0] == "plan":
        assert done.returncode == 0, done.stderr
    else:
        assert "nothing" in done.stderr
        assert done.returncode == 2
