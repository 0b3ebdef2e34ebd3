"""Windows and scores survive the way as JSON, and nothing but exact ones is read."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.detect.description import DetectorDescription, weights_hash
from guard.detect.wire import (
    MalformedMessage,
    plain_scores,
    plain_window,
    read_scores,
    read_window,
)
from guard.verdict import BIAS_TYPES, Attribution, Reference, Scores, Span, Window
from tests.rows import examples, rows
from tests.scripted import Scripted

# Lone surrogates, too: LiteLLM passes them on.
TEXTS = st.text(st.characters(), max_size=40)
SHARES = st.floats(0, 1)
KINDS = st.sampled_from(BIAS_TYPES)
WINDOWS = st.builds(
    Window, TEXTS, st.lists(TEXTS, max_size=3).map(tuple), st.one_of(st.none(), TEXTS)
)
REFERENCES = st.builds(Reference, TEXTS, KINDS, TEXTS, TEXTS, st.floats(-1, 1))


@st.composite
def judged(draw: st.DrawFn) -> tuple[str, Scores]:
    """A text and scores of it."""
    text = draw(TEXTS)
    ends = st.integers(0, len(text))
    spans = st.tuples(ends, ends).map(lambda pair: Span(min(pair), max(pair)))
    pairs = st.lists(st.builds(Attribution, TEXTS, TEXTS, spans, spans), max_size=2).map(tuple)
    references = st.lists(REFERENCES, max_size=3).map(tuple)
    implied = st.one_of(st.none(), SHARES)
    whole = st.builds(Scores, SHARES, KINDS, pairs, references, st.none(), implied)
    reasons = st.sampled_from(["language", "failure", "overload", "unusable"])
    return text, draw(st.one_of(whole, st.builds(Scores, unjudged=reasons)))


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value).encode())


@given(WINDOWS)
@examples(200)
def test_a_window_comes_back_as_it_was(window: Window) -> None:
    assert read_window(through_json(plain_window(window))) == window


@given(judged())
@examples(200)
def test_scores_come_back_to_the_last_digit(pair: tuple[str, Scores]) -> None:
    text, scores = pair
    assert read_scores(through_json(plain_scores(scores)), text) == scores


def test_every_field_travels() -> None:
    window = plain_window(Window("a", ("b",), "c"))
    assert window.keys() == set(Window.__dataclass_fields__)
    assert plain_scores(Scores(0.5, "age")).keys() == set(Scores.__dataclass_fields__)
    assert len(Attribution.__dataclass_fields__) == 4
    assert len(Reference.__dataclass_fields__) == 5


EXACT = plain_scores(
    Scores(
        0.5, "age", (Attribution("a", "b", Span(0, 1), Span(1, 2)),),
        (Reference("s", "age", "g", "a", 0.5),), implied=0.5,
    )
)  # fmt: skip
WRONG: list[tuple[tuple[Any, ...], Any]] = [
    (("score",), float("nan")), (("score",), float("inf")), (("score",), 1.5), (("score",), -0.1),
    (("score",), "0.5"), (("score",), True), (("score",), None), (("score",), 10**400),
    (("bias_type",), "unknown"), (("bias_type",), None), (("bias_type",), ["age"]),
    (("unjudged",), "bored"), (("unjudged",), False), (("implied",), 2), (("implied",), "no"),
    (("attributions",), None), (("attributions",), {}), (("attributions", 0), "pair"),
    (("attributions", 0, "group"), 1), (("attributions", 0, "group_span"), [0, 3]),
    (("attributions", 0, "group_span"), [-1, 1]), (("attributions", 0, "group_span"), [2, 1]),
    (("attributions", 0, "group_span"), [0]), (("attributions", 0, "group_span"), [0.0, 1.0]),
    (("attributions", 0, "attribute_span"), [True, 2]), (("attributions", 0, "more"), 1),
    (("references",), "none"), (("references", 0, "similarity"), float("nan")),
    (("references", 0, "similarity"), 2), (("references", 0, "bias_type"), None),
    (("references", 0, "statement"), None), (("more",), 1),
]  # fmt: skip


@rows("path, value", WRONG)
def test_anything_else_is_no_score(path: tuple[Any, ...], value: Any) -> None:
    wrong: Any = copy.deepcopy(EXACT)
    place = wrong
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(MalformedMessage):
        read_scores(through_json(wrong), "ab")


@pytest.mark.parametrize("name", sorted(EXACT))
def test_a_missing_field_is_no_score(name: str) -> None:
    wrong = {key: value for key, value in EXACT.items() if key != name}
    with pytest.raises(MalformedMessage, match=name):
        read_scores(wrong, "ab")


@rows(
    "value",
    [None, [], "text", {}, {"text": 1}, {"text": "a", "context": "b"}, {"text": "a", "user": 1},
     {"text": "a", "context": [1]}, {"text": "secret", "more": "secret"}],
)  # fmt: skip
def test_anything_else_is_no_window(value: Any) -> None:
    with pytest.raises(MalformedMessage) as error:
        read_window(value)
    assert "secret" not in str(error.value)


class Limited(Scripted):
    thresholds = (0.25, 0.75)
    languages = ("en", "de")


@pytest.mark.parametrize("detector", [Scripted(), Limited()])
def test_a_description_comes_back_as_it_was(detector: Scripted) -> None:
    description = DetectorDescription.of(detector, [None, "v1"], 7)
    back = DetectorDescription.read(through_json(description.to_plain()))
    assert back == description
    assert back.index_version == "v1"


@rows(
    "name, value",
    [("detector", 1), ("weights", None), ("operating_points", []), ("thresholds", [1, 0]),
     ("thresholds", [0]), ("thresholds", [0, 0.5, 1]), ("thresholds", 1), ("languages", "en"),
     ("every_language", "no"), ("index_versions", None), ("limits", {}),
     ("limits", {"windows": 0}), ("operating_points", {"strict": {"age": 2}})],
)  # fmt: skip
def test_anything_else_describes_no_detector(name: str, value: Any) -> None:
    plain = {**DetectorDescription.of(Scripted(), ["v1"], 7).to_plain(), name: value}
    with pytest.raises(MalformedMessage):
        DetectorDescription.read(plain)
    for wrong in (None, [], "x", {k: v for k, v in plain.items() if k != name}):
        with pytest.raises(MalformedMessage):
            DetectorDescription.read(wrong)


def test_the_hash_is_that_of_the_weights_and_of_the_members() -> None:
    class Other(Scripted):
        weights_digest = "other"

    class Pair(Scripted):
        first = Scripted()

    class OtherPair(Scripted):
        first = Other()

    hashes = [weights_hash(detector) for detector in (Scripted(), Other(), Pair(), OtherPair())]
    assert len(set(hashes)) == 4
    assert all(len(one) == 64 for one in hashes)
