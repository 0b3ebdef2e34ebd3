"""One table in five formats, each with any text and every number."""

from __future__ import annotations

import csv
import io
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import html
from rich.console import Console

from guard.results.estimate import Estimate
from guard.results.table import Column, Table, csv_text, json_text

ANY_TEXTS = st.text(st.characters(exclude_categories=()), max_size=60)
FORMULAS = st.text(alphabet=st.sampled_from("=+-@\t\r\n'\"ab,; 1"), max_size=6)
HOSTILE = "[bold]x[/bold] :smile: <b onload=x>'\"&</b> a|b \x1b[31m"


def measured() -> Table:
    table = Table("Scores", notes=["n: answers."])
    table.add_columns("measure")
    table.add_columns("n", unit="count")
    table.add_columns("coverage", unit="share")
    table.add_columns("value", unit="estimate")
    table.add_columns("q", unit="p")
    table.add_columns("reading")
    table.rows.append(["tau", 12_000, 0.5, Estimate(0.1234, 0.1, 0.2, 12_000), 0.0004, "worse"])
    nan = math.nan
    table.rows.append(["rho", nan, nan, Estimate(nan, nan, nan, 0), nan, ""])
    table.rows.append(["phi", 3, 1.0, "–", 0.04999, "better"])
    return table


def printed(table: Table, width: int, **options: object) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(table.rich(**options))  # type: ignore[arg-type]
    return out.getvalue()


def test_a_unit_rounds_for_people_and_data_keep_every_digit() -> None:
    table = measured()
    assert table.texts() == [
        ["tau", "12,000", "50.0%", "0.123 [0.100, 0.200]", "<.001", "worse"],
        ["rho", "–", "–", "–", "–", ""],
        ["phi", "3", "100.0%", "–", "<.05", "better"],
    ]
    assert list(table.lines())[:2] == [
        "measure\tn\tcoverage\tvalue\tq\treading",
        "tau\t12,000\t50.0%\t0.123 [0.100, 0.200]\t<.001\tworse",
    ]
    value = table.records()[0]["value"]
    assert (value["value"], value["low"], value["high"], value["n"]) == (0.1234, 0.1, 0.2, 12_000)
    assert '"coverage": null' in json_text(table.records())


@pytest.mark.parametrize("frame", ["framed", "ruled", "open", "listed"])
def test_text_has_any_width_and_its_figures_at_the_right(frame: str) -> None:
    for width in (40, 100, 200):
        lines = printed(measured(), width, frame=frame).splitlines()
        assert all(len(line) <= width for line in lines)
    wide = printed(measured(), 200, frame=frame)
    assert wide.lstrip().startswith("Scores")
    assert ("measure" in wide) == (frame != "listed")
    ends = [
        line.index(cell) + len(cell)
        for line in wide.splitlines()
        for cell in ("12,000", " 3 ")
        if cell in line
    ]
    assert ends[0] == ends[1] - 1


def test_markdown_has_the_alignment_and_says_what_is_left_out() -> None:
    head, rule, row, note = measured().markdown(1).replace("\n\n", "\n").split("\n")
    assert head == "| measure | n | coverage | value | q | reading |"
    assert rule == "| --- | ---: | ---: | ---: | ---: | --- |"
    assert row.count("|") == head.count("|")
    assert note == "2 further rows are in the page."


def test_html_is_a_table_that_a_screen_reader_reads() -> None:
    (root,) = html.fromstring(f"<div>{measured().html()}</div>").xpath("//table")
    assert root.findtext("caption") == "Scores"
    headers = root.xpath("./thead//th")
    assert [(th.text, th.get("scope"), th.get("class")) for th in headers][:2] == [
        ("measure", "col", None),
        ("n", "col", "figure"),
    ]
    first = root.xpath("./tbody/tr[1]/*")
    assert (first[0].tag, first[0].get("scope")) == ("th", "row")
    assert [cell.get("data-label") for cell in first] == measured().header
    assert root.xpath("./tbody/tr[1]//span[@class='worse']/text()") == ["worse"]
    page = measured().html(folded=True, most=1)
    assert page.count("</details>") == 1
    assert "2 further rows: --json has them all." in page
    assert '<p class="note">n: answers.</p>' in page


def test_texts_of_others_are_harmless_in_every_format() -> None:
    table = Table(HOSTILE, [Column(HOSTILE), Column("n", "figure")], [[HOSTILE, "=1"]])
    assert "[bold]x[/bold] :smile:" in printed(table, 200)
    (root,) = html.fromstring(f"<div>{table.html()}</div>").xpath("//table")
    assert not root.xpath("//b")
    assert not root.xpath("//*[@onload]")
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 3 for line in table.markdown().splitlines())
    assert table.csv().splitlines()[1].endswith(",'=1")


@given(st.lists(FORMULAS, min_size=1, max_size=3), st.lists(FORMULAS, min_size=1, max_size=3))
def test_no_cell_begins_as_a_formula_and_numbers_stay(header: list[str], row: list[str]) -> None:
    text = csv_text(header, [[*row, -1.5, None]], lineterminator="\r\n")
    read = list(csv.reader(io.StringIO(text, newline="")))
    assert read[-1][len(row) :] == ["-1.5", ""]
    for cell, given_ in zip([*read[0], *read[-1]], [*header, *row, "-1.5", ""], strict=True):
        executed = given_.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) and given_ != "-1.5"
        assert cell == ("'" if executed else "") + given_


@given(st.lists(FORMULAS, min_size=1, max_size=3))
def test_a_table_that_guard_reads_again_keeps_every_text(row: list[str]) -> None:
    table = Table("", [Column("a")], [row])
    text = table.csv(lineterminator="\r\n", exact=True)
    assert list(csv.reader(io.StringIO(text, newline="")))[-1] == row


def test_records_have_the_columns_of_all_and_of_their_mappings() -> None:
    rate = {"value": 0.5, "low": 0.4, "high": 0.6}
    records = [
        {"model": "a\x1b", "rate": rate, "labels": {"label.x": "1"}},
        {"model": "b", "labels": {"label.y": "2"}, "n": 3},
    ]
    assert Table.of_records("", records).csv().splitlines() == [
        "model,rate,rate_low,rate_high,label.x,label.y,n",
        "a\ufffd,0.5,0.4,0.6,1,,",
        "b,,,,,2,3",
    ]


@pytest.mark.parametrize("width", [20, 40, 60, 80])
def test_a_table_that_is_too_wide_becomes_several_with_whole_figures(width: int) -> None:
    header = ["name", *(f"figure {n}" for n in range(6))]
    table = Table.of_figures("t", header, [["x", *["0.123 [0.100, 0.200]"] * 6]])
    pieces = table.fitted(width)
    assert [name for piece in pieces for name in piece.header[1:]] == header[1:]
    assert all(piece.header[0] == "name" for piece in pieces)
    assert [piece.title for piece in pieces] == ["t", *["t, continued"] * (len(pieces) - 1)]
    for piece in pieces:
        assert "…" not in printed(piece, width, frame="ruled")
        assert piece.rows[0][1:] == ["0.123"] * (len(piece.columns) - 1)
    assert table.fitted(200) == [table]
