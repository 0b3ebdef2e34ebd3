"""Forms: how their slots are filled, what their labels stand on, and their split."""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.train import forms
from guard.train.config import ONWARD_QUOTAS, QUOTAS, REPEATS
from guard.train.own import corpus_folder
from guard.train.rows import FORMS, TrainingRow, in_validation
from guard.verdict import BIAS_TYPES
from tests.rows import examples

KEYS = {"form", "harmless", "biased", "bias_type", "group", "attribute", "slots", "context",
        "biased_context", "harmless_context"}  # fmt: skip


@pytest.fixture(scope="module")
def every() -> list[TrainingRow]:
    return list(forms.form_rows(seed=17))


def said(row: TrainingRow, part: str) -> str | None:
    span = getattr(row, part)
    return None if span is None else row.text[span.start : span.end]


def test_every_file_of_forms_is_a_kind_and_every_kind_has_a_file() -> None:
    files = {path.stem for path in (corpus_folder() / "forms").glob("*.jsonl")}
    assert files == set(FORMS)
    assert set(forms.JOINED) <= set(FORMS)


def test_every_form_is_whole() -> None:
    names = []
    for kind, form in forms.all_forms():
        names.append(form["form"])
        assert form["form"].startswith(f"{kind}-"), form
        assert form.keys() <= KEYS, form
        assert form.get("harmless") or form.get("biased"), form
        if form.get("biased"):
            assert form["bias_type"] in BIAS_TYPES, form
            assert form["group"], form
            assert form["attribute"], form
    assert len(names) == len(set(names))


def test_a_kind_has_what_an_epoch_draws_of_it_and_both_labels(every: list[TrainingRow]) -> None:
    by_kind = defaultdict(list)
    for row in every:
        by_kind[row.source].append(row)
    for kind in FORMS:
        found = by_kind[kind]
        assert len(found) * REPEATS[kind] >= QUOTAS[kind] * 0.8, kind
        assert 0.15 < sum(r.biased for r in found) / len(found) < 0.85, kind
        assert any(in_validation(r.family) for r in found), kind


def test_half_of_the_rows_of_a_run_that_goes_on_are_of_forms() -> None:
    of_forms = sum(ONWARD_QUOTAS[kind] for kind in FORMS)
    assert 0.4 < of_forms / sum(ONWARD_QUOTAS.values()) < 0.6


def test_spans_are_the_words_that_the_form_names(every: list[TrainingRow]) -> None:
    known = {form["form"]: form for _, form in forms.all_forms()}
    for row in every:
        form = known[row.family.removeprefix("form:")]
        if not row.spans:
            assert row.group is None or row.biased, row
            continue
        assert row.biased
        assert row.attribute is not None
        if "{" not in form["attribute"]:
            found = said(row, "attribute")
            assert found is not None
            assert found.lower() == form["attribute"].lower(), row
    spans = [row.spans for row in every if row.biased]
    assert sum(spans) > 0.98 * len(spans)


def test_the_biased_half_is_a_reference_of_the_harmless_one_of_its_own_form(
    every: list[TrainingRow],
) -> None:
    for row in every:
        assert all(p.family == row.family for p in row.partners)
        assert not row.biased or not row.partners
        assert row.alone is row.biased


def test_texts_that_the_guard_joins_stay_in_one_piece(every: list[TrainingRow]) -> None:
    assert any(". " in r.text for r in every if r.source == "refuted")
    assert any("?" in r.text[:-1] for r in every if r.source == "answers")
    assert {t.pool for t in forms.whole_texts()} == {"forms"}
    joined = {f["form"] for kind, f in forms.all_forms() if kind in forms.JOINED}
    assert not {t.family.removeprefix("form:") for t in forms.whole_texts()} & joined


def test_a_harmless_text_behind_another_is_no_text_of_its_own() -> None:
    known = {form["form"]: form for _, form in forms.all_forms()}
    for text in forms.whole_texts():
        form = known[text.family.removeprefix("form:")]
        behind = form.get("context") or form.get("harmless_context")
        assert text.biased or not behind, form


def test_a_second_sentence_is_judged_behind_the_first(every: list[TrainingRow]) -> None:
    found = [r for r in every if r.source == "second"]
    assert all(r.context for r in found)


SLOTS = st.lists(st.integers(1, 5), min_size=0, max_size=4).map(
    lambda sizes: {f"s{i}": [f"{i}-{n}" for n in range(size)] for i, size in enumerate(sizes)}
)


@examples(200)
@given(slots=SLOTS, most=st.integers(1, 20), seed=st.integers(0, 99))
def test_a_form_is_filled_in_different_ways_from_the_seed(
    slots: dict[str, Any], most: int, seed: int
) -> None:
    form = {"form": "any-001", "slots": slots}
    found = forms.form_fillings(form, seed, most)
    assert found == forms.form_fillings(form, seed, most)
    assert len(found) == min(most, prod(map(len, slots.values())))
    assert len({tuple(sorted(one.items())) for one in found}) == len(found)
    assert all(one[name] in slots[name] for one in found for name in slots)


def test_slots_of_one_key_are_filled_together() -> None:
    pairs = [["Chad", "Chadians"], ["Peru", "Peruvians"]]
    form = {"form": "any-001", "slots": {"country,people": pairs, "x": ["a", "b"]}}
    found = forms.form_fillings(form, 1)
    assert len(found) == 4
    assert all([one["country"], one["people"]] in pairs for one in found)
