"""The tenth of the slow tests that each day runs."""

from __future__ import annotations

import datetime
import re
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import in_tenth
from tests.data import ROOT


@given(st.text(), st.dates(max_value=datetime.date(9999, 1, 1)))
def test_ten_days_in_a_row_run_each_slow_test_once(name: str, first: datetime.date) -> None:
    days = [first + datetime.timedelta(days=n) for n in range(10)]
    assert sum(in_tenth(name, day) for day in days) == 1


def collected(*options: str) -> set[str]:
    where = "tests/doors/test_failures.py"  # it has slow tests and others
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q"]
    done = subprocess.run(
        [*command, *options, where], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(re.findall(rf"^{where}::.*$", done.stdout, re.MULTILINE))


def test_the_option_leaves_out_slow_tests_alone() -> None:
    slow, default = collected("-m", "slow"), collected()
    today = collected("-m", "slow or not slow", "--tenth", "2026-05-04")
    assert default
    assert today - slow == default
    day = datetime.date(2026, 5, 4)
    assert today & slow == {name for name in slow if in_tenth(name, day)}
