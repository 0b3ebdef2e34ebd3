"""The walk over a wire format: what no table knows is judged, and what is cut takes its repeats."""

from __future__ import annotations

from typing import Any

import pytest

from guard.doors.strings import is_name
from guard.doors.walk import NamedText, Shape, TextPlace, Walk, has_prose
from guard.errors import UsageError
from tests.rows import rows

TEXT = "so it goes"
SAID = Shape({"text": NamedText("content", "said")}, kept=frozenset({"type"}))
OUTER = Shape(inner={"said": SAID}, kept=frozenset({"id", "said"}))


def texts_of(value: Any, shape: Shape = Shape()) -> dict[str, str]:  # noqa: B008
    """The texts that a walk visits, by slot."""
    texts: dict[str, str] = {}

    def visit(place: TextPlace, kind: str, text: str) -> str:
        texts[place.slot] = text
        return text

    walk = Walk(visit)
    assert walk.over(value, shape) is value or isinstance(value, (list, tuple))
    assert walk.changes == 0
    return texts


def silenced(value: Any, shape: Shape, **options: bool) -> Any:
    """What is left of a value whose texts are all withheld."""
    return Walk(lambda place, kind, text: "", **options).over(value, shape)


@rows(
    "value, expected",
    [
        ({"novelty": TEXT}, {"novelty": TEXT}),
        ({"type": "verse", "id": "m_1", "usage": {"tier": "low"}}, {}),
        ({"type": TEXT, "id": TEXT}, {"type": TEXT, "id": TEXT}),
        ({"usage": {"note": TEXT}}, {"usage.note": TEXT}),
        ({"deep": [{"n": 1}, {"n": ["so", "it"]}]}, {"deep.1.n": "so it"}),
        ({TEXT: None}, {f"{TEXT}.key": TEXT}),
    ],
)
def test_a_string_is_judged_unless_it_fits_a_field_that_is_known(
    value: Any, expected: dict[str, str]
) -> None:
    assert texts_of(value) == expected


def test_a_text_that_is_read_by_name_is_judged_whatever_it_looks_like() -> None:
    assert texts_of({"said": {"text": "so", "more": "so"}}, OUTER) == {
        "said": "so",
        "said.more": "so",
    }


def test_words_of_sources_are_not_visited_at_any_depth() -> None:
    cited = {"title": TEXT, "note": [{"title": TEXT}, {"comment": TEXT}], "list": ["http://x.y"]}
    assert texts_of(cited, Shape(quoted=frozenset({"title"}))) == {"note.1.comment": TEXT}


@rows(
    "value, expected",
    [
        # Its own text: what could repeat it goes.
        ({"type": "a", "text": TEXT, "novelty": 1}, {"type": "a", "text": ""}),
        # A text of an object in it: its own other fields stay.
        (
            {"id": "m", "novelty": 1, "said": {"type": "a", "text": TEXT}},
            {"id": "m", "novelty": 1, "said": {"type": "a", "text": ""}},
        ),
        # A text that nobody knows.
        ({"id": "m", "novelty": TEXT, "said": {"text": ""}}, {"id": "m", "said": {"text": ""}}),
        # Where an object belongs, nothing else remains.
        ({"id": "m", "said": TEXT}, {"id": "m"}),
        ({"id": "m", "said": [{"text": TEXT}, TEXT]}, {"id": "m", "said": [{"text": ""}]}),
    ],
)
def test_what_could_repeat_a_withheld_text_goes_with_it(value: Any, expected: Any) -> None:
    assert silenced(value, SAID if "text" in value else OUTER) == expected


def test_an_opening_object_goes_out_without_fields_that_nobody_knows() -> None:
    def opened(value: Any) -> tuple[Any, bool, int]:
        walk = Walk(lambda place, kind, text: "", strips=True, opens=True)
        return walk.over(value, SAID), walk.dropped, walk.changes

    assert opened({"type": "a", "text": ""}) == ({"type": "a", "text": ""}, False, 0)
    assert opened({"type": "a", "novelty": TEXT}) == ({"type": "a"}, True, 0)
    assert opened({"type": "a", "text": TEXT}) == ({"type": "a", "text": ""}, False, 1)


def test_a_value_that_is_not_json_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"carries a\.b of type bytes"):
        texts_of({"a": {"b": b"x"}})


def test_a_field_has_prose_if_a_string_in_it_must_be_judged() -> None:
    assert has_prose("novelty", [{"a": TEXT}])
    assert not has_prose("usage", {"prompt_tokens": 1, "tier": "low"})


@rows(
    "name, expected",
    [("get_weather", True), ("", True), ("a b", False), ("a" * 129, False), ("wörd", False)],
)
def test_a_name_is_not_prose(name: str, expected: bool) -> None:
    assert is_name(name) == expected
