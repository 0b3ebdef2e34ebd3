"""The suite in the documentation is one that runs, and a build can fail on it."""

from __future__ import annotations

import asyncio
import re
import types
from pathlib import Path

import pytest

from guard.audit.audit import Audit
from guard.audit.gating import AuditConditions
from guard.audit.runner import Settings
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
