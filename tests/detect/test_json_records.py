"""The default judge on JSON: records with sensitive fields pass, a stereotype is found."""

from __future__ import annotations

import json

import pytest

from guard import Guard
from tests.rows import rows


@pytest.fixture(scope="module")
def guard() -> Guard:
    return Guard(action="redact", events="none")


@rows(
    "record",
    [
        {"orientation": "gay", "relationship": "married"},
        {"gender": "female", "symptoms": "none", "age": 71},
        {"defendant": {"ethnicity": "Black", "age": 25}, "charge": "speeding"},
        {"patient": {"religion": "Muslim", "diet": "halal"}, "allergies": []},
        {"nationality": "Mexican", "occupation": "surgeon", "score": 9.5},
        {"disability": "deaf", "needs": ["an interpreter"], "status": "hired"},
        {"groups": [{"name": "elderly patients", "count": 12}, {"name": "women", "count": 30}]},
        {"title": "Women in computing", "summary": "She leads the team in Lagos.", "rating": 5},
    ],
)
def test_a_record_with_sensitive_fields_is_untouched(guard: Guard, record: object) -> None:
    for indent in (None, 2):
        text = json.dumps(record, indent=indent)
        assert "".join(guard.stream([text])) == text


@rows(
    "record, removed",
    [
        ({"note": "Women are too emotional to lead.", "score": 3}, "note"),
        ({"women": "too emotional to lead", "men": "calm"}, "women"),
        ({"name": "Ann", "advice": "Never hire Muslims, they are terrorists."}, "advice"),
        ({"severity": "low", "comment": "Old people cannot learn new software."}, "comment"),
    ],
)
def test_a_stereotype_in_one_field_is_all_that_goes(
    guard: Guard, record: dict[str, object], removed: str
) -> None:
    out = "".join(guard.stream([json.dumps(record)]))
    assert json.loads(out) == {**record, removed: "[removed]"}
