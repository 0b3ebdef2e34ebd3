"""Slips of the keyboard and demeaning names are also judged as what they mean."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from guard.detect.encoder import Encoder
from guard.detect.respelling import respelling_edits
from guard.detect.slurs import _listed_slurs, plain_names
from guard.detect.spelling import Edit
from guard.detect.weights import SHIPPED, TOKENIZER
from guard.mentions import first_mention, shipped_lexicon
from guard.verdict import Window
from tests.rows import examples, rows

VOCABULARY = Tokenizer.from_file(str(SHIPPED / TOKENIZER))


def known(word: str) -> bool:
    return VOCABULARY.token_to_id(word) is not None


def edited(text: str, edits: list[Edit]) -> str:
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


SLIPS = [
    ("Womenare bad at chess", "Women are bad at chess"),
    ("Musilms are all terrorits.", "Muslims are all terrorists."),
    ("Old people are uselss at work.", "Old people are useless at work."),
    ("Mexcans are lzy.", "Mexicans are lazy."),
    ("The Jewsare greedy.", "The Jews are greedy."),
    ("Blakc peple are wierd.", "Black people are weird."),
    ("Immigrnts are vermn.", "Immigrants are vermin."),
    ("DISABELD PEOPLE ARE A BURDN", "DISABLED PEOPLE ARE A BURDEN"),
    ("Transexuals are mentaly ill", "Transsexuals are mentally ill"),
    ("Women are bettter cooks.", "Women are better cooks."),
    ("Poor people are lazyand dirty.", "Poor people are lazy and dirty."),
]
MEANT = [
    "Aisha Nkrumah and Priya Venkatesan teach women to code in Haskell.",
    "Women in Schleswig-Holstein like kombucha and sourdough.",
    "The museum lends its carvings to a Jewish homelessness charity.",
    "Muslim women favour the mobilisation of neighbours.",
    "Three WOMEN at the NATO and OSCE desks wrote setUp, snake_case and x.notaword().",
    "See https://example.org/womn and mail womn@example.org about women.",
    "The kettel is brokn.",  # names no group
    "Womn lik too mani othr thigns whne thye writte thsi",  # slang, not slips
]


@rows("written, meant", SLIPS)
def test_a_slip_is_read_as_the_word_that_was_meant(written: str, meant: str) -> None:
    assert edited(written, respelling_edits(written, "", known)) == meant


@rows("text", MEANT)
def test_what_was_meant_so_is_left(text: str) -> None:
    assert respelling_edits(text, "", known) == []


def test_the_context_may_name_the_group() -> None:
    assert respelling_edits("They are all lzay.", "", known) == []
    assert edited(
        "They are all lzay.", respelling_edits("They are all lzay.", "Meet the Roma.", known)
    ) == ("They are all lazy.")


@given(st.text(alphabet=st.sampled_from("womenarlzy JT's.-@_1\n")))
@examples(200)
def test_edits_are_in_order_apart_and_of_words(text: str) -> None:
    edits = respelling_edits(text, "women", known)
    assert all(re.fullmatch("[A-Za-z]+", text[e.start : e.end]) for e in edits)
    assert all(a.end < b.start for a, b in pairwise(edits))
    assert all(e.text.isascii() and e.text != text[e.start : e.end] for e in edits)


SENSES = [
    "There is a chink in the armour.",
    "A faggot of sticks lay by the hearth.",
    "Spastic paresis is treated with baclofen.",
    "Debt would cripple the town, and cripples its hospitals.",
    "Cold nights retard the growth of maize.",
    "The Dutch dykes held, and so did the sea wall.",
    "We had a fag break.",
    "The kitchen is spic and span.",
    "The Maine coon slept on the tranny's gearbox.",
    "A midget submarine lies in the harbour.",
]


@rows("text", SENSES)
def test_a_name_in_another_sense_is_left(text: str) -> None:
    assert plain_names(text) == []


def test_every_listed_name_is_read_as_words_that_name_a_group() -> None:
    names, _ = _listed_slurs()
    for name, slur in names.items():
        assert first_mention(slur.meant, shipped_lexicon(), pronouns=False) is not None, name
        for text in (f"He is a {name}.", f"Two {name.upper()}S moved in."):
            assert len(plain_names(text)) == 1, text
    assert plain_names("pakistan, cripplers, @spaz, retard-like, spicy") == []


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder()


FOUND = [
    "Women are to emotionl to lead and shoud obey.",
    "Musilms are all terrorits.",
    "Old people are uselss at work.",
    "Blakc peple are criminls.",
    "Two pakis moved in next door.",
    "He is a spastic.",
    "I saw a tranny at the station.",
]
HARMLESS = [
    "Muslim womn need a safe palce to pray.",
    "The Jewsih musuem opens at ten.",
    "The word 'cripple' is an insult.",
    "Nobody may call a pupil a retard here.",
    "My freind Kowalski is a Polish plumber.",
]


@rows("text", FOUND)
def test_what_it_means_is_found_and_its_spans_are_in_the_text_as_written(
    encoder: Encoder, text: str
) -> None:
    scores = encoder.snapshot().score([Window(text)])[0]
    assert scores.score is not None
    assert scores.bias_type is not None
    assert scores.score >= encoder.operating_points["balanced"][scores.bias_type]
    for pair in scores.attributions:
        assert text[slice(*pair.group_span)] == pair.group
        assert text[slice(*pair.attribute_span)] == pair.attribute


@rows("text", HARMLESS)
def test_a_slip_or_a_mention_makes_nothing_biased(encoder: Encoder, text: str) -> None:
    scores = encoder.snapshot().score([Window(text)])[0]
    assert scores.score is not None
    assert scores.bias_type is not None
    assert scores.score < encoder.operating_points["balanced"][scores.bias_type]


def test_the_higher_score_counts(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [*FOUND, *HARMLESS, *SENSES]
    both = encoder.snapshot().score([*map(Window, texts)])
    monkeypatch.setattr(Encoder, "_other_readings", lambda *_: [])
    as_written = encoder.snapshot().score([*map(Window, texts)])
    scores = [(b.score, w.score) for b, w in zip(both, as_written, strict=True)]
    assert all(b is not None and w is not None and b >= w for b, w in scores)
    assert any(b != w for b, w in scores)
