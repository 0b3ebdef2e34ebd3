"""The list of planted faults fits the code, and a run tells found from not found."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.data import ROOT
from tests.mutants import __main__ as run
from tests.mutants.__main__ import Mutant, mutants
from tests.rows import rows


def test_there_are_82_and_at_least_five_each_for_promises_1_2_7_8_and_of_figures() -> None:
    found = Counter(one.promise for one in mutants())
    assert found.total() >= 82
    assert {promise for promise, n in found.items() if n >= 5} == {1, 2, 7, 8, 12}


@rows("mutant", mutants())
def test_each_fits_its_file_once_and_is_python(mutant: Mutant) -> None:
    file = ROOT / "guard" / mutant.file
    text = file.read_text("utf-8")
    planted = mutant.planted(text)
    assert planted != text
    compile(planted, str(file), "exec")


def test_a_fault_that_no_test_finds_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "guard").mkdir()
    file = tmp_path / "guard" / "one.py"
    file.write_text("ONE = 1\nTWO = 2\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text(
        "import runpy\n\ndef test_one():\n    assert runpy.run_path('guard/one.py')['ONE'] == 1\n"
    )
    monkeypatch.setattr(run, "room", lambda file: "tests")
    assert run.finder(Mutant("one.py", 1, "ONE = 1", "ONE = 3"), tmp_path) == (
        "tests/test_one.py::test_one"
    )
    assert run.finder(Mutant("one.py", 1, "TWO = 2", "TWO = 3"), tmp_path) is None
    assert file.read_text() == "ONE = 1\nTWO = 2\n"
    with pytest.raises(ValueError, match=r"must hold once: 'THREE'"):
        run.finder(Mutant("one.py", 1, "THREE", ""), tmp_path)
