from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guard.local.model import load_model
from guard.local.text import Detokenizer, Stops


@pytest.mark.parametrize("said", ["plain", "héllo wörld", "日本語 😀👩‍🚀", "  spaces  \n"])
def test_characters_come_out_whole(folder: Path, said: str) -> None:
    tokenizer = load_model(str(folder)).tokenizer
    text = Detokenizer(tokenizer)
    pieces = [text.add(token) for token in tokenizer(said)["input_ids"]]
    assert "".join(pieces) == said
    assert "\ufffd" not in "".join(pieces)
    assert text.rest() == ""


def test_half_a_character_comes_out_at_the_end(folder: Path) -> None:
    tokenizer = load_model(str(folder)).tokenizer
    text = Detokenizer(tokenizer)
    tokens = tokenizer("a😀")["input_ids"][:-1]
    assert "".join(text.add(token) for token in tokens) == "a"
    assert text.rest() == "\ufffd"


def test_bytes_that_are_no_text_are_not_held_for_ever(folder: Path) -> None:
    tokenizer = load_model(str(folder)).tokenizer
    text = Detokenizer(tokenizer)
    stray = tokenizer("é")["input_ids"][1]
    said = "".join(text.add(stray) for _ in range(100))
    assert len(said) > 80


def test_marks_of_the_template_have_no_text(folder: Path) -> None:
    tokenizer = load_model(str(folder)).tokenizer
    text = Detokenizer(tokenizer)
    assert text.add(tokenizer.eos_token_id) == ""
    assert text.add(tokenizer("x")["input_ids"][0]) == "x"


# How quickly examples are drawn depends on what else the machine does.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    said=st.text("ab", max_size=30),
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3).map(tuple),
    cuts=st.lists(st.integers(0, 30)),
)
def test_stops_do_not_depend_on_how_text_is_cut(
    said: str, stops: tuple[str, ...], cuts: list[int]
) -> None:
    held = Stops(stops)
    places = sorted({0, len(said), *(c for c in cuts if c < len(said))})
    out = "".join(held.feed(said[a:b]) for a, b in pairwise(places))
    hit = held.hit
    out += held.rest()
    # (end, start) of each stop in the text: the one that is complete first cuts at its start.
    found = [(said.find(s) + len(s), said.find(s)) for s in stops if s in said]
    assert hit is bool(found)
    assert out == (said[: min(found)[1]] if found else said)
