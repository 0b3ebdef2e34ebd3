"""When a group, an attribute or a span counts as right."""

from __future__ import annotations

import math

import pytest

from guard.evaluate.matching import attribute_right, group_right, pair_right, token_f1
from guard.verdict import Attribution, Span

NOWHERE = Span(0, 1)


@pytest.mark.parametrize(
    ("said", "wanted", "right"),
    [
        ("women", "Women", True),
        ("woman", "women", True),
        ("men", "women", False),
        ("black", "black people", True),  # the paper's own example takes them for the same
        ("black people", "blacks", True),
        ("people", "black people", False),
        ("white people", "black people", False),
        ("the Jewish community", "Jewish people", True),
        ("ladies", "lady", True),
        ("", "women", False),
        ("women", "", False),
    ],
)
def test_group(said: str, wanted: str, right: bool) -> None:
    assert group_right([said], [wanted]) is right


@pytest.mark.parametrize(
    ("said", "wanted", "right"),
    [
        ("are lazy", "lazy", True),
        ("so very lazy and dull", "dull", True),
        ("the", "the best", False),
        ("criminals", "criminal", True),
        ("mentally sick", "mentally ill", True),
        ("kind", "lazy", False),
    ],
)
def test_attribute(said: str, wanted: str, right: bool) -> None:
    assert attribute_right([said], [wanted]) is right


def test_any_of_the_acceptable_terms_is_right_and_none_of_none() -> None:
    assert group_right(["nurses"], ["pilots", "nurse"])
    assert not group_right(["nurses"], [])
    assert not group_right([], ["nurses"])


def test_group_and_attribute_must_be_of_one_pair() -> None:
    split = [
        Attribution("pilots", "late", NOWHERE, NOWHERE),
        Attribution("nurses", "kind", NOWHERE, NOWHERE),
    ]
    assert pair_right(split, ["pilots"], ["late"])
    assert not pair_right(split, ["pilots"], ["kind"])


def test_token_f1_counts_words_by_place() -> None:
    text = "Cats are sly and cats are proud."
    marked = [Span(9, 12)]  # sly
    assert token_f1(text, [Span(9, 12)], marked) == 1
    assert token_f1(text, [Span(9, 16)], marked) == pytest.approx(2 / 3)  # sly and
    assert token_f1(text, [Span(0, 4)], [Span(17, 21)]) == 0  # the same word elsewhere
    assert token_f1(text, [], marked) == 0
    assert math.isnan(token_f1(text, [Span(0, 4)], []))
    assert token_f1(text, [Span(9, 10)], marked) == 1  # a part of a word is the word
