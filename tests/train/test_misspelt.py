"""Spelling mistakes of the training: one a row, and the spans stay with their words."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from guard.retrieve.phrases import find_phrase
from guard.train.misspelt import misspelt_row
from guard.train.rows import TrainingRow
from tests.rows import examples

WORDS = st.lists(st.text("abcdefg", min_size=1, max_size=8), min_size=1, max_size=4)


@examples(300)
@given(before=WORDS, group=WORDS, between=WORDS, attribute=WORDS, seed=st.integers(0, 999))
def test_a_mistake_changes_one_place_and_the_spans_follow(
    before: list[str], group: list[str], between: list[str], attribute: list[str], seed: int
) -> None:
    parts = [" ".join(words) for words in (["Xx", *before], ["Yy", *group], between,
                                           ["Zz", *attribute])]  # fmt: skip
    text = " ".join(parts) + "."
    spans = [find_phrase(text, parts[1]), find_phrase(text, parts[3])]
    row = TrainingRow(text, True, "own", "family", group=spans[0], attribute=spans[1], spans=True)
    found = misspelt_row(row, random.Random(seed))
    assert abs(len(found.text) - len(text)) <= 1
    assert found.biased
    assert found.family == row.family
    for old, new in ((row.group, found.group), (row.attribute, found.attribute)):
        assert old is not None
        assert new is not None
        was, now = text[old.start : old.end], found.text[new.start : new.end]
        assert abs(len(was) - len(now)) <= 1
        assert now[0] == was[0]
        assert now == was or found.text != text
        # What lies before and behind the span is spelt as before, or the mistake is there.
        assert found.text[: new.start] == text[: old.start] or now == was


def test_a_text_of_short_words_stays() -> None:
    row = TrainingRow("a-b.", False, "own", "family")
    assert misspelt_row(row, random.Random(0)) is row


def test_all_kinds_of_mistakes_occur_and_often_in_the_group() -> None:
    text = "Plumbers from the valley bring nothing but trouble."
    row = TrainingRow(text, True, "own", "f", group=find_phrase(text, "Plumbers"))
    found = [misspelt_row(row, random.Random(seed)) for seed in range(300)]
    texts = {one.text for one in found}
    assert "Plumbers fromthe valley bring nothing but trouble." in texts
    assert "Plumers from the valley bring nothing but trouble." in texts
    assert "Plumbbers from the valley bring nothing but trouble." in texts
    assert "Plubmers from the valley bring nothing but trouble." in texts
    in_group = sum(not one.text.startswith("Plumbers") for one in found)
    assert in_group > 60
