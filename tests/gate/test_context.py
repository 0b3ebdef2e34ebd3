"""The segments that a segment is judged beside: the last ones, and the heading it stands under."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.gate.context import Context, in_context, is_heading

ITEMS = [f"- Item {n} of the list.\n" for n in range(30)]


@given(st.lists(st.text(max_size=30), max_size=30), st.integers(0, 8))
def test_the_last_segments_are_shown_behind_at_most_one_heading(
    segments: list[str], most: int
) -> None:
    for at, (segment, shown) in enumerate(in_context(segments, most)):
        last = segments[max(0, at - most) : at] if most else []
        assert segment == segments[at]
        assert list(shown[len(shown) - len(last) :]) == last
        above = shown[: len(shown) - len(last)]
        assert len(above) <= 1
        assert all(is_heading(line) and line in segments[: at - len(last)] for line in above)


@pytest.mark.parametrize(
    "heading", ["Myths about old people:\n", "## Myths\n", "**Common misconceptions**\n", "MYTHS\n"]
)
def test_a_heading_is_shown_to_every_item_of_a_list(heading: str) -> None:
    for _, shown in in_context([heading, *ITEMS[:9]])[1:]:
        assert shown[0] == heading


def test_a_heading_ends_at_the_next_one_and_after_a_dozen_segments() -> None:
    under = in_context(["Myths:\n", *ITEMS[:4], "Facts:\n", *ITEMS])
    assert under[9][1][0] == "Facts:\n"
    assert under[-1][1] == tuple(ITEMS[27:29])


@pytest.mark.parametrize(
    "line",
    ["He left. ", "- an item", "1. an item\n", 'He said "no"', "", "  \n", "one " * 11],
)
def test_sentences_items_and_long_lines_are_no_headings(line: str) -> None:
    assert not is_heading(line)


def test_without_segments_nothing_is_shown() -> None:
    context = Context(0)
    for segment in ("Myths:\n", "- One.\n"):
        context.add(segment)
    assert context.shown() == ()
