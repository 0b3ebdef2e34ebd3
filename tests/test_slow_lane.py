"""The tenth of the slow tests that each day runs."""

from __future__ import annotations

import datetime
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import in_tenth
from tests.data import ROOT


@given(st.text(), st.dates(max_value=datetime.date(9999, 1, 1)))
def test_ten_days_in_a_row_run_each_slow_test_once(name: str, first: datetime.date) -> None:
    days = [first + datetime.timedelta(days=n) for n in range(10)]
    assert sum(in_tenth(name, day) for day in days) == 1


TESTS = """
import pytest

def test_quick(): ...

@pytest.mark.slow
@pytest.mark.parametrize("number", range(100))
def test_slow(number): ...
"""


def test_the_option_leaves_out_slow_tests_alone(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS, encoding="utf-8")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)

    def collected(*options: str) -> set[str]:
        command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--collect-only", "-q"]
        done = subprocess.run(
            [*command, *options, "test_some.py"], cwd=tmp_path, capture_output=True, text=True,
            check=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        return set(re.findall(r"^test_some.py::.*$", done.stdout, re.MULTILINE))

    slow, default = collected("-m", "slow"), collected()
    assert len(slow) == 100
    assert default == {"test_some.py::test_quick"}
    today = collected("-m", "slow or not slow", "--tenth", "2026-05-04")
    assert today - slow == default
    day = datetime.date(2026, 5, 4)
    assert today & slow == {name for name in slow if in_tenth(name, day)}
    assert 0 < len(today & slow) < 100
