"""The shipped words, and how they are compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.mentions.lexicon import Lexicon, fold_word, shipped_lexicon
from tests.mentions.words import listed


@given(st.text(max_size=20), st.integers(0, 20))
def test_the_fold_of_a_beginning_begins_the_fold(word: str, at: int) -> None:
    assert fold_word(word).startswith(fold_word(word[:at]))


def test_sections_share_no_word_and_list_none_twice() -> None:
    names, bearers, openers = listed("name"), listed("bearer"), listed("opener")
    everything = [*names, *bearers, *openers, *listed("pronoun")]
    assert len(everything) == len(set(everything))
    assert names == sorted(names)


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("women", "name"),
        ("Wives", "name"),
        ("w0m3n", "name"),
        ("@s1ans", "name"),
        ("muslimssss", "name"),
        ("$women$", "name"),
        ("neighbours", "name"),
        ("users", "bearer"),
        ("older", "opener"),
        ("they", "pronoun"),
        ("jehovah", "name"),
    ],
)
def test_a_word_is_known_in_its_plural_and_disguised(word: str, kind: str) -> None:
    assert kind in shipped_lexicon().kinds(word)


@pytest.mark.parametrize("word", ["table", "wombat", "bass", "1", "100", "level5", "too", "soon"])
def test_other_words_are_not(word: str) -> None:
    assert not shipped_lexicon().kinds(word)


def test_names_of_several_words_are_known_by_their_folds() -> None:
    words = Lexicon({"name": ["gen z", "down syndrome"]})
    assert "first" in words.kinds("Down")
    assert words.begins_name(("gen",))
    assert words.is_name(("gen", "z"))
    assert words.may_begin("syn", pronouns=False)
