"""A removed line leaves the lines around it as they were, and is still read as what it was."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from guard import Guard
from guard.gate.layout import opening
from tests.rows import examples, rows
from tests.scripted import Scripted

MARK = "[removed]"
OPENINGS = ["- ", "* ", "1. ", "12) ", "# ", "### ", "> ", "  - ", "> - ", "    2. "]


def shown(text: str, size: int, **policy: Any) -> str:
    guard = Guard(detector=Scripted(), action="redact", **policy)
    return "".join(guard.stream([text[i : i + size] for i in range(0, len(text), size)]))


@given(
    openings=st.lists(st.sampled_from(OPENINGS), min_size=1, max_size=6),
    biased=st.sets(st.integers(0, 5)),
    size=st.integers(1, 30),
)
@examples(200)
def test_a_line_keeps_its_end_indent_and_markers(
    openings: list[str], biased: set[int], size: int
) -> None:
    said = ["BIAS is so" if n in biased else f"line {n}" for n in range(len(openings))]
    lines = [o + s + "\n" for o, s in zip(openings, said, strict=True)]
    wanted = [o + (MARK if "BIAS" in s else s) for o, s in zip(openings, said, strict=True)]
    assert shown("".join(lines), size).splitlines() == wanted


@given(
    cells=st.lists(
        st.lists(st.sampled_from(["x", "BIAS is", "a b", ""]), min_size=3, max_size=3),
        min_size=1,
        max_size=4,
    ),
    size=st.integers(1, 30),
)
@examples(100)
def test_a_row_keeps_its_bars(cells: list[list[str]], size: int) -> None:
    head = ["| one | two | three |", "|---|---|---|"]
    table = [*head, *(f"| {' | '.join(row)} |" for row in cells)]
    out = shown("".join(f"{line}\n" for line in table), size).splitlines()
    assert out[:2] == head
    for line, now in zip(table, out, strict=True):
        assert now.count("|") == 4
        assert now == line or MARK in now
        assert "BIAS" not in now


@given(at=st.integers(0, 3), size=st.integers(1, 30))
def test_code_stays_in_its_fence(at: int, size: int) -> None:
    code = ["x = 1", "y = 2", "def f():", "    return x"]
    code.insert(at, "# BIAS is here")
    text = "\n".join(["Code:", "```python", *code, "```", "Behind it.", ""])
    lines = shown(text, size).splitlines()
    assert lines[-2:] == ["```", "Behind it."]
    assert lines[1] == "```python"
    assert len(lines) == len(text.splitlines())
    assert f"# {MARK}" in lines


@rows(
    "text, length",
    [
        ("So it is.", 0),
        ("  2. So it is.", 5),
        ("> - So it is.", 4),
        ("#hash", 0),
        ("X. ", 0),
        ("X. So it is.", 0),
        (" > ", 1),
        ("| a | b |\n", 1),
        ("- [ ] task", 6),
        ("- [a] task", 2),
        ("```python", 3),
        ("```", 0),
    ],
)
def test_what_opens_a_line(text: str, length: int) -> None:
    assert opening(text) == length
    assert not re.search(r"\w{3}", text[:length])


@rows(
    "said, out",
    [
        # A partner is elsewhere.
        ("It (so) is (and. BIAS is) so. Fine).", "It (so) is (and. [removed]) Fine)."),
        ("BIAS (is here! But fine) then.", "[removed] ( But fine) then."),
        ("**It is so. BIAS is it.** Fine.", "**It is so. [removed]** Fine."),
        ("“It is so. BIAS is it.” Fine.", "“It is so. [removed]” Fine."),
        ('"It is so. BIAS is it." Fine.', '"It is so. [removed]" Fine.'),
        ("_It is so. BIAS is snake_case._ Fine.", "_It is so. [removed]_ Fine."),
        ("`x. BIAS` is. Fine.", "`x. [removed]` Fine."),
        # There is none, or it goes, too.
        ('It is. BIAS :) is (so) **it** "is" 5 * 3. Fine.', "It is. [removed] Fine."),
        ("A) It is. BIAS b) is so. Fine.", "A) It is. [removed] Fine."),
        (r"It \(is. BIAS is\) so. Fine.", r"It \(is. [removed] Fine."),
        ("It (is so.\n\nBIAS is) so.\n\nFine.", "It (is so.\n\n[removed]\n\nFine."),
        # Around all of it.
        ('"BIAS is so."\nFine.', '"[removed]"\nFine.'),
        ("**BIAS is so.**\n", "**[removed]**\n"),
        ('```\nx = [\n    "BIAS is",\n]\n```\n', '```\nx = [\n    "[removed]",\n]\n```\n'),
        # Tags stay, and nothing of what is in them.
        ("<p>BIAS is so.</p>\n<p>Fine.</p>", "<p>[removed]</p>\n<p>Fine.</p>"),
        ('<a title="BIAS" href=x>BIAS</a>\n', "<a>[removed]</a>\n"),
        ('<img alt="BIAS is"/>\n<p>So.</p>', "<img>\n<p>So.</p>"),
        ("<lazy>BIAS</lazy>\n", "[removed]\n"),
        ("<think>It is. BIAS is.</think>\nSo.", "<think>It is. [removed]</think>\nSo."),
        ("<!-- BIAS -->\n<p>So.</p>", "<!-- [removed] -->\n<p>So.</p>"),
        ("| a | BIAS | **b** |\n", "| [removed] | | |\n"),
        ("BIAS\n===\nFine.", "[removed]\n===\nFine."),
        ("- [ ] BIAS\n- [x] so\n", "- [ ] [removed]\n- [x] so\n"),
        ("<p>Fine.</p><p>BIAS is so.</p><p>Fine.</p>", "<p>Fine.</p><p>[removed]</p><p>Fine.</p>"),
        ("<b>BIAS is so.</b> Fine.", "<b>[removed]</b> Fine."),
        ("So<br>BIAS<br/>Fine", "So<br>[removed]<br>Fine"),
        ("<td>x</td><td>BIAS</td>", "<td>x</td><td>[removed]</td>"),
        ("[[ ## a ## ]]\nBIAS\n\n[[ ## b ## ]]\nx", "[[ ## a ## ]]\n[removed]\n\n[[ ## b ## ]]\nx"),
        # One after another.
        ("**BIAS is. BIAS was.** Fine.", "**[removed]** Fine."),
        ("So. BIAS is. BIAS was. BIAS will. Fine.", "So. [removed] Fine."),
        ("BIAS is. BIAS was.\nBIAS will.\n\nBIAS.", "[removed]\n[removed]\n\n[removed]"),
        ("(So. BIAS is. BIAS was.) Fine.", "(So. [removed]) Fine."),
    ],
)
def test_what_stays_of_what_is_removed(said: str, out: str) -> None:
    assert {shown(said, size) for size in (1, 2, 3, 7, len(said))} == {out}


def test_what_is_out_between_two_removed_passages_parts_them() -> None:
    said = "So women BIAS. And men BIAS. Men BIAS. Fine."
    outs = {shown(said, size, hold="association") for size in (1, 3, len(said))}
    assert outs == {"So [removed] And [removed] Fine."}
