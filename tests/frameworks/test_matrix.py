"""What the matrix calls wrong, without running a framework."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import frameworks
from tests.frameworks.__main__ import faults
from tests.frameworks.programs import OWN, PROXY
from tests.rows import rows

STOPPED = {
    **{"case": "text", "action": "terminate", "requests": 1, "guarded": 1, "stops": 1},
    **{"leaked": False, "seen": "Well. [stop]"},
}
CELL = "1: Well. [stop]"


def row(**more: Any) -> dict[str, Any]:
    return {**STOPPED, **more}


def test_a_row_as_it_was_measured_is_right() -> None:
    assert faults(row(), row(), CELL) == []
    assert faults(row(), row(), None) == []
    own = row(case=f"text{OWN}", guarded=0, leaked=True)
    assert faults(own, own, CELL) == []
    behind = row(case=f"text{PROXY}", guarded=0)
    assert faults(behind, behind, CELL) == []


@rows(
    "before, after, expected, told",
    [
        (None, row(), CELL, "did not run"),
        (row(), None, CELL, "did not run"),
        (row(), row(), "", "measured.csv says nothing"),
        (row(), row(seen="Well."), "1: Well.", "installed before, it is 1: Well. [stop]"),
        (row(), row(requests=4, guarded=4), CELL, f"measured.csv says {CELL}"),
        (row(), row(leaked=True), CELL, "the biased sentence got out"),
        (row(guarded=0), row(), CELL, "guard saw 0 requests"),
        (row(guarded=2), row(), CELL, "guard saw 2 requests"),
        (row(stops=0), row(), CELL, "no sink heard the stop"),
        (row(case=f"text{OWN}"), row(case=f"text{OWN}"), CELL, "guard sees this client"),
        (row(case=f"text{PROXY}", leaked=True), row(case=f"text{PROXY}"), CELL, "got out"),
    ],
)
def test_what_differs_leaks_or_is_not_guarded_is_wrong(
    before: Any, after: Any, expected: str, told: str
) -> None:
    assert any(told in problem for problem in faults(before, after, expected))


def test_what_is_measured_is_read_as_it_was_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(frameworks, "MEASURED", tmp_path / "measured.csv")
    cells = {
        ("One", "text, streamed", "terminate"): '1: "a", b',
        ("One", "text, streamed", "raise"): "2: raises Error",
        ("Two", "json", "terminate"): "1: []",
    }
    frameworks.write(cells)
    assert frameworks.measured() == cells
