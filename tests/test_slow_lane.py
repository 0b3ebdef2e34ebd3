"""The slow lane: which tests are whose turn, what a record keeps, and what a failure becomes."""

from __future__ import annotations

import argparse
import datetime
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import slow_lane
from tests.data import ROOT
from tests.slow_lane import Lane, Slice, outcomes, run_lane


@given(st.text(), st.dates(max_value=datetime.date(9999, 1, 1)), st.integers(1, 20))
def test_each_test_is_in_one_slice_and_its_turn_comes_within_ten_days(
    name: str, first: datetime.date, of: int
) -> None:
    assert sum(Slice(number, of).has(name) for number in range(1, of + 1)) == 1
    days = [first + datetime.timedelta(days=n) for n in range(10)]
    assert sum(Slice.of_day(day).has(name) for day in days) == 1


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/0", "-1/2", "", "٣/٤"])
def test_what_is_no_slice_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be I/N"):
        Slice.read(text)


runs = pytest.mark.slow("starts pytest several times")
SOME = "tests/test_some.py"
TESTS = """
import os
import pathlib
import pytest
from hypothesis import given, strategies as st
from tests.rows import examples, rows

def test_quick(): ...

drawn = set()

@examples(80)
@given(st.integers())
def test_property(number): drawn.add(number)

@pytest.mark.slow("it is said to be")
@pytest.mark.parametrize("number", range(40))
def test_slow(number): ...

@pytest.mark.slow("it is said to be")
@rows("number", [1, 2])
def test_rows(number): assert number < FAILS

@pytest.mark.slow("it is said to be", limit_s=20)
def test_in_company():
    assert "PYTEST_XDIST_WORKER" not in os.environ

@pytest.mark.slow("it is said to be")
def test_skipped(): pytest.skip("it needs a thing")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with this one's settings and conftest."""
    (tmp_path / "tests").mkdir()
    (tmp_path / SOME).write_text(TESTS.replace("FAILS", "3"), encoding="utf-8")
    # As here pytest knows the options only when it has read this file.
    (tmp_path / "tests" / "conftest.py").write_text("from tests.conftest import *\n")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    monkeypatch.setattr(slow_lane, "ROOT", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:cacheprovider")
    # A test may run in a worker, but what it starts is none.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    return tmp_path


def test_the_default_run_leaves_slow_tests_out_and_a_slice_takes_its_part(folder: Path) -> None:
    def collected(*options: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "--collect-only", "-q", *options],
            cwd=folder, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return set(re.findall(rf"^{SOME}::.*$", done.stdout, re.MULTILINE))

    default = collected()
    assert default == {f"{SOME}::test_quick", f"{SOME}::test_property"}
    every = collected("-m", "slow or hypothesis")
    assert len(every) == 44
    part = collected("-m", "slow or hypothesis", "--slice", "2/4")
    assert part == {name for name in every if Slice(2, 4).has(name)}
    assert 0 < len(part) < len(every)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("@pytest.mark.slow\ndef test_it(): ...", "test_it must say why it is slow"),
        pytest.param(
            "@pytest.mark.slow('')\ndef test_it(): ...", "test_it must say why", marks=runs
        ),
        ("import scipy\n\ndef test_it(): ...", "It imports scipy at its top"),
    ],
)
def test_a_test_that_slows_down_the_others_is_refused(folder: Path, code: str, said: str) -> None:
    (folder / SOME).write_text(f"import pytest\n\n{code}\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "1"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode not in (0, pytest.ExitCode.NO_TESTS_COLLECTED)
    assert f"ERROR {SOME}" in done.stdout
    assert said in done.stdout


@runs
def test_what_fails_is_run_alone_and_a_second_run_goes_on(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    record = folder / "record.jsonl"
    everything = Slice(1, 1)
    assert run_lane([], everything, record, None) == Lane(True, 42, 1, 0)
    said = capfd.readouterr().out
    company = f"{SOME}::test_in_company"
    assert f"{company} failed beside others and passed alone." in said
    assert "slow lane: 42 passed, 1 passed only alone, 0 failed" in said
    ended = outcomes(record)
    assert sorted(name for name, how in ended.items() if how != "passed") == [
        f"{SOME}::test_skipped"
    ]
    # What passed is not run again; a test that fails twice fails the lane.
    (folder / SOME).write_text(TESTS.replace("FAILS", "2"), encoding="utf-8")
    kept = [line for line in record.read_text("utf-8").splitlines(True) if "rows" not in line]
    record.write_text("".join(kept) + '{"id": "half a li', encoding="utf-8")
    assert run_lane([], everything, record, None) == Lane(True, 0, 0, 1)
    said = capfd.readouterr().out
    assert f"{SOME}::test_rows failed beside others and failed or did not end alone." in said
    assert "slow lane: 0 passed, 0 passed only alone, 1 failed" in said
    assert outcomes(record)[f"{SOME}::test_rows"] == "failed"


@runs
def test_a_file_that_cannot_be_imported_and_a_crash_are_failures(folder: Path) -> None:
    (folder / "tests" / "test_other.py").write_text("import what_is_not_there\n", encoding="utf-8")
    (folder / SOME).write_text(
        "import os, pytest\n\n@pytest.mark.slow('ends the worker')\ndef test_it(): os._exit(3)\n",
        encoding="utf-8",
    )
    record = folder / "record.jsonl"
    assert run_lane([], Slice(1, 1), record, None) == Lane(True, 0, 0, 3)
    failed = {f"{SOME}::test_it", "tests/test_other.py", slow_lane.CRASHED}
    assert outcomes(record) == dict.fromkeys(failed, "failed")


@runs
def test_workers_that_do_not_begin_are_no_success(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "tests" / "conftest.py").write_text(
        "from tests.conftest import *\nimport os\n"
        "if 'PYTEST_XDIST_WORKER' in os.environ:\n    os._exit(3)\n"
    )
    assert run_lane([], Slice(1, 1), folder / "record.jsonl", None).failed == 1
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p what_is_not_there")
    with pytest.raises(RuntimeError, match="no failed test says why"):
        run_lane([], Slice(1, 1), folder / "other.jsonl", None)


def test_what_is_no_record_is_said(tmp_path: Path) -> None:
    for content in ("null\n", '{"id": "a"}\n', "x\n", "\n"):
        (tmp_path / "record").write_text(content)
        with pytest.raises(ValueError, match=r"record is no record of a run: delete it\.$"):
            outcomes(tmp_path / "record")


@pytest.mark.parametrize("minutes", ["0", "-5", "nan", "inf"])
def test_a_time_that_is_none_is_refused(minutes: str) -> None:
    with pytest.raises(SystemExit) as ended:
        slow_lane.main(["--minutes", minutes])
    assert ended.value.code == 2


@runs
def test_at_the_end_of_its_time_a_run_is_interrupted_and_says_so(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / SOME).write_text(
        "import time, pytest\n\n@pytest.mark.slow('it sleeps')\ndef test_it(): time.sleep(600)\n",
        encoding="utf-8",
    )
    record = folder / "record.jsonl"
    assert run_lane([], Slice(1, 1), record, time.monotonic() + 8) == Lane(False, 0, 0, 0)
    assert "The time was over before all of these tests had run." in capfd.readouterr().out
    assert outcomes(record) == {}
