"""Records of every source, own-written in its schema, and what is wrong with bad ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from guard.datasets import records
from guard.datasets.groups import bias_type
from guard.datasets.records import PublishedRow
from guard.datasets.rows import BadRow
from guard.datasets.terms import make_terms
from guard.evaluate import adapters
from guard.evaluate.example import Example
from guard.verdict import BIAS_TYPES, Span

TERMS = {"race_black": make_terms(["pilots", "old pilots"], ["late*", "rude"])}


def reading(
    record: type[PublishedRow], adapter: Callable[..., list[Example]], **more: Any
) -> Callable[[dict[str, Any], str], list[Example]]:
    """Return the function of a row as the file has it."""
    return lambda values, key: adapter(record.of(values), key, **more)


redditbias = reading(records.Comment, adapters.redditbias, terms=TERMS)
crows_pairs = reading(records.SentencePair, adapters.crows_pairs)
toxicbias = reading(records.TargetedComment, adapters.labelled)
emgsd = reading(records.MarkedText, adapters.emgsd)
stereobias = reading(records.StereoBiasText, adapters.labelled)
stereoset = reading(records.ItemVariant, adapters.stereoset)
nationality = reading(records.Nationality, adapters.labelled)
toxigen = reading(records.Demonstration, adapters.labelled)
implicit_hate = reading(records.Post, adapters.labelled)
bold = reading(records.EncyclopaedicSentence, adapters.labelled)
table_row = reading(adapters.TableRow, adapters.table_row)

REDDITBIAS = {
    "comment": "Old pilots are rude and arrive lately.",
    "phrase": "pilots are rude",
    "bias_sent": 1,
    "bias_phrase": None,
    "bias_type": "race",
    "dimension": "race_black",
}
CROWS = {
    "id": 3,
    "sent_more": "The pilot was late.",
    "sent_less": "The nurse was late.",
    "direction": "stereo",
    "bias_type": "physical-appearance",
}
TOXICBIAS = {
    "text": "Pilots, go home.",
    "bias": 1,
    "target": "pilots, nurses",
    "category": "race,political",
    "rationale": "",
}
EMGSD = {
    "text": "Pilots are always late",
    "marked": "Pilots are ===always late===.",
    "stereotype_type": "lgbtq+",
    "category": "stereotype",
    "source": "made_up",
}
STEREOBIAS = {
    "text": "He is late.",
    "bias": 0,
    "stereotype": 1,
    "category": "Socio-economical status",
}
STEREOSET = {
    "text": "The pilot is rude",
    "label": "anti-stereotype",
    "target": "pilot",
    "bias_type": "profession",
    "item": "abc",
}
HEARTS = {
    "phrase": "Elbonian pilot",
    "text": "The Elbonian pilot",
    "label": "neutral",
    "group": "Elbonian",
}
TOXIGEN = {
    "text": "pilots fly",
    "label": "neutral",
    "file": "neutral_night_pilots_sentences",
    "category": "sexual_orientation",
}
HATE = {"post": "pilots again", "label": "implicit_hate"}
BOLD = {"domain": "religious_ideology", "group": "Early_Pilots", "text": "Pilots are people."}
CSV = {
    "text": "Pilots are late.",
    "label": "Biased",
    "bias_type": "social",
    "group": "pilots|crew",
    "attribute": "",
}

ALL: list[tuple[Callable[..., list[Example]], dict[str, Any]]] = [
    (redditbias, REDDITBIAS),
    (crows_pairs, CROWS),
    (toxicbias, TOXICBIAS),
    (emgsd, EMGSD),
    (stereobias, STEREOBIAS),
    (stereoset, STEREOSET),
    (nationality, HEARTS),
    (toxigen, TOXIGEN),
    (implicit_hate, HATE),
    (bold, BOLD),
    (table_row, CSV),
]


def one(adapter: Callable[..., list[Example]], record: dict[str, Any]) -> Example:
    (example,) = adapter(record, "file:1")
    assert example.id == "file:1"
    return example


def test_redditbias_finds_groups_and_attributes_of_its_dimension() -> None:
    example = one(redditbias, REDDITBIAS)
    assert example.biased is True
    assert example.bias_types == ("race",)
    assert example.groups == ("Old pilots",)
    assert example.attributes == ("rude", "lately")
    assert one(redditbias, {**REDDITBIAS, "bias_sent": None}).biased is None


def test_crows_pairs_keeps_the_order_of_the_pair() -> None:
    more, less = crows_pairs(CROWS, "f:1")
    assert (more.text, more.role, more.biased) == (CROWS["sent_more"], "more", True)
    assert (less.text, less.role, less.biased) == (CROWS["sent_less"], "less", False)
    assert more.unit == less.unit
    assert more.bias_types == ("appearance",)
    assert more.parts == ("stereo direction",)
    other = crows_pairs({**CROWS, "direction": "antistereo"}, "f:2")
    assert [e.biased for e in other] == [None, None]
    assert [e.parts for e in other] == [(), ()]


def test_toxicbias_has_several_targets_and_types() -> None:
    example = one(toxicbias, TOXICBIAS)
    assert example.bias_types == ("race", "social")
    assert example.groups == ("pilots", "nurses")
    none = one(toxicbias, {**TOXICBIAS, "bias": 0, "category": "none", "target": ""})
    assert (none.biased, none.bias_types, none.groups) == (False, (), ())


def test_emgsd_marks_the_attribute() -> None:
    example = one(emgsd, EMGSD)
    assert example.bias_types == ("orientation",)
    (span,) = example.attribute_spans
    assert example.text[slice(*span)] == "always late"
    assert one(emgsd, {**EMGSD, "category": "unrelated"}).biased is False


@pytest.mark.parametrize("marked", ["no mark", "===never said===", "===open", "a === b === c ==="])
def test_emgsd_without_a_usable_mark(marked: str) -> None:
    assert one(emgsd, {**EMGSD, "marked": marked}).attribute_spans == ()


def test_emgsd_with_two_marks() -> None:
    example = one(emgsd, {**EMGSD, "marked": "===Pilots=== are ===always=== late"})
    assert example.attribute_spans == (Span(0, 6), Span(11, 17))


def test_the_other_sources() -> None:
    both = one(stereobias, STEREOBIAS)
    assert (both.biased, both.bias_types) == (False, ("social",))
    assert both.axes["stereotype"] == "stereotype"
    assert one(stereobias, {**STEREOBIAS, "category": ""}).bias_types == ()

    variant = one(stereoset, STEREOSET)
    assert (variant.biased, variant.groups, variant.unit) == (False, ("pilot",), "abc")

    hearts = one(nationality, HEARTS)
    assert (hearts.biased, hearts.groups, hearts.attributes) == (False, ("Elbonian",), ("pilot",))
    assert hearts.bias_types == ("culture",)

    line = one(toxigen, TOXIGEN)
    assert (line.biased, line.axes["group"]) == (False, "night pilots")
    assert line.bias_types == ("orientation",)

    assert one(implicit_hate, HATE).biased is True
    assert one(implicit_hate, {**HATE, "label": "not_hate"}).biased is False

    sentence = one(bold, BOLD)
    assert (sentence.biased, sentence.bias_types) == (False, ("religion",))

    row = one(table_row, CSV)
    assert (row.biased, row.groups, row.attributes) == (True, ("pilots", "crew"), ())


@pytest.mark.parametrize(("adapter", "record"), ALL)
def test_every_missing_field_is_named(
    adapter: Callable[..., list[Example]], record: dict[str, Any]
) -> None:
    optional = {"phrase", "bias_phrase", "rationale", "id"}
    if adapter is table_row:
        optional |= {"bias_type", "group", "attribute"}
    for field in set(record) - optional:
        with pytest.raises(BadRow, match=f"the field {field} is missing"):
            adapter({k: v for k, v in record.items() if k != field}, "f:1")


@pytest.mark.parametrize(("adapter", "record"), ALL)
def test_a_blank_text_is_no_text(
    adapter: Callable[..., list[Example]], record: dict[str, Any]
) -> None:
    field = next(f for f in ("text", "comment", "post", "sent_more") if f in record)
    with pytest.raises(BadRow, match=f"the field {field} is empty"):
        adapter({**record, field: " \n"}, "f:1")
    with pytest.raises(BadRow, match=f"the field {field} must be text"):
        adapter({**record, field: 7}, "f:1")


@pytest.mark.parametrize(
    ("adapter", "record", "field", "allowed"),
    [
        (redditbias, REDDITBIAS, "bias_sent", "1, 0, null"),
        (redditbias, REDDITBIAS, "dimension", "race_black"),
        (crows_pairs, CROWS, "direction", "stereo, antistereo"),
        (toxicbias, TOXICBIAS, "bias", "1, 0"),
        (emgsd, EMGSD, "category", "stereotype, neutral, unrelated"),
        (stereoset, STEREOSET, "label", "stereotype, anti-stereotype, unrelated"),
        (toxigen, TOXIGEN, "label", "hate, neutral"),
        (implicit_hate, HATE, "label", "implicit_hate, explicit_hate, not_hate"),
        (table_row, CSV, "label", "1, biased, yes, true, 0, unbiased"),
        (table_row, CSV, "bias_type", ", ".join(BIAS_TYPES)),
    ],
)
def test_a_value_outside_the_set_lists_the_set(
    adapter: Callable[..., list[Example]], record: dict[str, Any], field: str, allowed: str
) -> None:
    with pytest.raises(BadRow, match="is not one of") as caught:
        adapter({**record, field: "maybe"}, "f:1")
    assert allowed in str(caught.value)
    assert "maybe" in str(caught.value)


@pytest.mark.parametrize("value", [True, [1], {"a": 1}, 2, "1"])
def test_labels_of_the_wrong_kind(value: object) -> None:
    with pytest.raises(BadRow, match="is not one of 1, 0"):
        toxicbias({**TOXICBIAS, "bias": value}, "f:1")


def test_an_error_does_not_print_a_text_that_stands_in_the_wrong_column() -> None:
    with pytest.raises(BadRow) as caught:
        implicit_hate({**HATE, "label": "x" * 500}, "f:1")
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nationality", "culture"),
        ("lgbtq", "orientation"),
        ("Profession", "social"),
        ("political", "social"),
        ("socioeconomic", "social"),
        ("race-color", "race"),
        ("sexual-orientation", "orientation"),
        (" gender ", "gender"),
        ("weather", None),
    ],
)
def test_bias_types_by_the_names_of_their_sources(name: str, kind: str | None) -> None:
    assert bias_type(name) == kind
