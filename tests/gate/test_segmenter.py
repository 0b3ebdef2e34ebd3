"""Segments depend on the text alone, tile it, and are bounded."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.gate import Segmenter, split
from tests.rows import rows

# Letters, every kind of mark a rule looks at, and words that rules know by name.
PIECES = [
    *"ab AI1.!?…。！？,;:'\"”)」*#|-\n\t",
    "Dr.", "e.g.", "No.", "etc.", "...", "```", "\n\n", "1. ", "- ", "word ", "  ", "x" * 30,
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=120).map("".join)
limits = st.sampled_from([(240, 80, 32), (120, 40, 16), (80, 0, 4), (100, 20, 8)])


def pieces(text: str) -> list[str]:
    return [s.text for s in split(text)]


@rows(
    "text, expected",
    [
        ("One. Two! Three?", ["One.", " Two!", " Three?"]),
        ("Dr. Wu met Mr. Li. They spoke.", ["Dr. Wu met Mr. Li.", " They spoke."]),
        ("Use tools, e.g. hammers. Done.", ["Use tools, e.g. hammers.", " Done."]),
        ("The U.S. army left. J. K. Rowling stayed.",
         ["The U.S. army left.", " J. K. Rowling stayed."]),
        ("Pi is 3.14 and e is 2.72. Next.", ["Pi is 3.14 and e is 2.72.", " Next."]),
        ("See example.org/a.b?x=1 now. Then go.", ["See example.org/a.b?x=1 now.", " Then go."]),
        ("No. They left.", ["No.", " They left."]),
        ("It is No. 5. Good.", ["It is No. 5.", " Good."]),
        ("Tea, milk, etc. are here. Pens, etc. That is all.",
         ["Tea, milk, etc. are here.", " Pens, etc.", " That is all."]),
        ("Well... maybe. Well... Yes.", ["Well... maybe.", " Well...", " Yes."]),
        ("Well… maybe. So… No.", ["Well… maybe.", " So…", " No."]),
        ("He said \"Stop.\" She left.", ["He said \"Stop.\"", " She left."]),
        ("“Why?” he asked. “No.”", ["“Why?” he asked.", " “No.”"]),
        ("(Really.) Yes.", ["(Really.)", " Yes."]),
        ("**Bold.** Plain.", ["**Bold.**", " Plain."]),
        ("1. First\n2. Second\n- third\n* fourth",
         ["1. First\n", "2. Second\n", "- third\n", "* fourth"]),
        ("a wrapped\nline goes on. End.", ["a wrapped\nline goes on.", " End."]),
        ("A paragraph\n\nAnother", ["A paragraph\n", "\n", "Another"]),
        ("# Title\nText here.", ["# Title\n", "Text here."]),
        ("Some words\n###### Small\nText", ["Some words\n", "###### Small\n", "Text"]),
        ("List:\nfirst", ["List:\n", "first"]),
        ("| a | b |\n| c | d |", ["| a | b |\n", "| c | d |"]),
        ("```py\nx = a.b. c\ny = 1\n```\nDone. Ok.",
         ["```py\n", "x = a.b. c\n", "y = 1\n", "```\n", "Done.", " Ok."]),
        ("他来了。「真的。」她走了！好？！行",
         ["他来了。", "「真的。」", "她走了！", "好？！", "行"]),
        ("What?! No!!! Ok", ["What?!", " No!!!", " Ok"]),
        ("i am here. i am not", ["i am here.", " i am not"]),
    ],
)  # fmt: skip
def test_boundaries(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


def test_a_sentence_is_complete_with_the_character_after_its_full_stop() -> None:
    segmenter = Segmenter()
    assert segmenter.feed("They left.") == []
    assert [s.text for s in segmenter.feed(" ")] == ["They left."]


def test_text_without_punctuation_is_cut_at_words_with_an_overlap() -> None:
    text = "word " * 200
    first, second, *_ = split(text)
    assert len(first.text) <= 240
    assert first.text.endswith(" ")
    assert first.end - second.start >= 80
    assert first.release == second.start < first.end == second.fresh
    assert text[second.start - 1 : second.start + 1] in ("d ", " w")


def test_a_forced_cut_prefers_a_clause() -> None:
    text = "a" * 20 + " word" * 33 + ", and then" + " more" * 40
    assert split(text)[0].text.endswith(",")


@rows(
    "text",
    [
        '"Why?" he asked. "So." She left.',
        "It is ... so. It is ... She left.",
        "See no. 5 there. Rain etc. and snow etc. She left.",
        "2. Dr. Wu left. I. 3.14 is so, e.g. here. She left.",
        "```py\nx. y. z\n```\nIt is. She left.",
        "~~~\nx. y. z\n~~~\nIt is. She left.",
        "# A heading\nwithout an end\n  - an item\n\nA list:\n1. one\n2. two",
        '他来了。"她走了。" Yes?!) No.',
        "word " * 100,
    ],
)
def test_text_that_comes_by_single_characters_has_the_same_segments(text: str) -> None:
    slow, fast = Segmenter(), Segmenter()
    got = [segment for character in text for segment in slow.feed(character)]
    assert got + slow.finish() == split(text)
    got = [s for character in text if not fast.takes(character) for s in fast.feed(character)]
    assert got + fast.finish() == split(text)


def test_text_that_is_only_added_is_held_no_longer_than_other_text() -> None:
    segmenter = Segmenter(240, 80, 32)
    for _ in range(100):
        if not segmenter.takes("word "):
            segmenter.feed("word ")
        assert len(segmenter.open) <= 240


@given(texts, limits, st.data())
def test_chunking_does_not_matter(
    text: str, limit: tuple[int, int, int], data: st.DataObject
) -> None:
    whole = split(text, *limit)
    size = data.draw(st.integers(1, 1 + len(text)))
    segmenter = Segmenter(*limit)
    got = [s for i in range(0, len(text), size) for s in segmenter.feed(text[i : i + size])]
    assert got + segmenter.finish() == whole


@given(texts, limits)
def test_segments_tile_the_text_and_are_bounded(text: str, limit: tuple[int, int, int]) -> None:
    longest, overlap, _ = limit
    position = 0
    segments = split(text, *limit)
    for segment in segments:
        assert segment.fresh == position
        assert segment.start <= segment.fresh < segment.end
        assert text[segment.start : segment.end] == segment.text
        assert len(segment.text) <= longest
        assert segment.start < segment.release <= segment.end
        position = segment.end
    assert position == len(text)
    for before, after in pairwise(segments):
        assert after.start == before.release
        # A phrase up to the overlap's length stands whole in one of the two.
        assert before.release == before.end or before.end - after.start >= overlap


@given(texts, limits)
def test_the_text_held_is_bounded(text: str, limit: tuple[int, int, int]) -> None:
    longest, _, lookahead = limit
    segmenter = Segmenter(*limit)
    for char in text:
        segmenter.feed(char)
        # A marker after a line break is read up to seven characters past the spaces before it.
        assert segmenter.held <= longest + lookahead + 8


@pytest.mark.parametrize("text", [" " * 5_000, "\n" * 5_000, "\t " * 2_500, " a" + " " * 5_000])
def test_white_space_is_held_no_longer_than_words(text: str) -> None:
    segmenter = Segmenter()
    segments = []
    for char in text:
        segments += segmenter.feed(char)
        assert segmenter.lead >= 0
        assert segmenter.held <= 240 + 32 + 8
    assert "".join(s.text[s.fresh - s.start :] for s in segments + segmenter.finish()) == text


def test_text_after_the_end_of_a_channel_begins_a_new_segment() -> None:
    segmenter = Segmenter()
    segmenter.feed("Half a sen")
    segmenter.finish()
    (segment,) = segmenter.feed("tence. ")
    assert (segment.text, segment.start, segment.fresh) == ("tence.", 10, 10)
