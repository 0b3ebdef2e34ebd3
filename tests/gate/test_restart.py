"""What an answer says again at its beginning is told from what it says anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from guard.gate.restart import Restart
from tests.rows import rows


def read(said: str, text: str, sizes: list[int]) -> tuple[int, str]:
    repeat = Restart(said)
    again, rest, at, turn = 0, "", 0, 0
    while at < len(text):
        piece = text[at : at + sizes[turn % len(sizes)]]
        at, turn = at + len(piece), turn + 1
        if repeat.over:
            rest += piece
            continue
        more, out = repeat.feed(piece)
        again, rest = again + more, rest + out
        held = at - again - len(rest)
        assert repeat.over or held <= 2 * len(said) + 64 + len(piece)
    if not repeat.over:
        more, out = repeat.finish()
        again, rest = again + more, rest + out
    return again, rest


@rows(
    "said, text, again",
    [
        ("So it is.", "So it is. More.", 9),
        ("So it is. ", "  so  it is.\nMore.", 13),
        ("So it is.", "So it is.", 9),
        ("So it is", "So it isn't.", 0),
        ("So it is.", "So it was.", 0),
        ("So it is.", "So it", 0),
        ("Well.", "Well. More.", 0),
        ("", "More.", 0),
        ("So it is.", " " * 500 + "So it is.", 0),
        ("Straße zwei", "STRASSE ZWEI.", 12),
    ],
)
def test_a_repeat_equals_the_released_text_but_for_white_space_and_case(
    said: str, text: str, again: int
) -> None:
    assert read(said, text, [1]) == (again, text[again:])


SHORT = st.text(alphabet="ab A\n", max_size=12)


@given(SHORT, SHORT, SHORT, st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_a_repeat_does_not_depend_on_the_chunks(
    said: str, before: str, after: str, sizes: list[int]
) -> None:
    for text in (said + after, before + said + after, after):
        again, rest = read(said, text, sizes)
        assert (again, rest) == read(said, text, [10**9])
        assert text[again:] == rest
