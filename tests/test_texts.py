"""Texts of others in tables and on terminals."""

from __future__ import annotations

import csv
import io

from hypothesis import given
from hypothesis import strategies as st

from guard.texts import csv_text, normalised, printable

TEXTS = st.text(alphabet=st.sampled_from("=+-@\t\r\n'\"ab,; 1"), max_size=6)


@given(st.lists(TEXTS, min_size=1, max_size=3), st.lists(TEXTS, min_size=1, max_size=3))
def test_no_cell_begins_as_a_formula_and_numbers_stay(header: list[str], row: list[str]) -> None:
    text = csv_text(header, [[*row, -1.5, None]], lineterminator="\r\n")
    read = list(csv.reader(io.StringIO(text, newline="")))
    assert read[-1][len(row) :] == ["-1.5", ""]
    for cell, given_ in zip([*read[0], *read[-1]], [*header, *row, "-1.5", ""], strict=True):
        executed = given_.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) and given_ != "-1.5"
        assert cell == ("'" if executed else "") + given_


@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_a_table_that_guard_reads_again_keeps_every_text(row: list[str]) -> None:
    text = csv_text(["a"], [row], lineterminator="\r\n", exact=True)
    assert list(csv.reader(io.StringIO(text, newline="")))[-1] == row


def test_what_a_terminal_acts_upon_is_replaced() -> None:
    assert printable("a\x1b[2Jb\u202ec") == "a\ufffd[2Jb\ufffdc"
    assert normalised("  Old\n PEOPLE ") == "old people"
