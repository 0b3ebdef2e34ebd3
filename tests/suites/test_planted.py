"""What a report says of a planted model is what was planted."""

from __future__ import annotations

import re

import pytest

from tests.suites.planted import ROWS, WHERE, Row, audited, cells_of, says_bias, says_withheld

QUICK = [row for row in ROWS if not row.size]
UNLUCKY = {("hbb", "sample", "fair"): 1, ("hbb", "sample", "refusing"): 1}
"""The seed of a quick audit, if not 0: that is the one of 20 fair models in ``planted.md`` which is
called biased, also if it declines some of the questions."""


@pytest.mark.parametrize(
    "row", QUICK, ids=lambda row: f"{row.suite}{row.probabilities}-{row.truth}"
)
def test_a_quick_audit_says_what_was_planted(row: Row) -> None:
    result = audited(row, UNLUCKY.get((row.suite, row.probabilities, row.truth), 0))
    assert says_bias(result) == (row.truth == "biased" and row.suite != "open_text")
    told = "found" if says_bias(result) else "not found"  # a fair model is not called unknown
    assert result.bias == ("" if row.suite == "open_text" else told)
    assert says_withheld(result) == (row.truth == "refusing")


@pytest.mark.slow("audits eighteen models")
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_committed_table_is_of_this_code(row: Row) -> None:
    cells = [line.strip("| ").split(" | ") for line in WHERE.read_text("utf-8").splitlines()]
    made = cells_of(row, 1)
    (printed,) = (c for c in cells if c[:3] == made[:3])
    assert printed[5] == made[5]
    assert re.fullmatch(r"\d+ of \d+", printed[3])
