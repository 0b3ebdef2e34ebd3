"""The registry: what training may read, and what is said of a row that is not as it should be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from guard.datasets import records, registry
from guard.datasets.registry import DatasetFile
from guard.datasets.rows import BadRow
from guard.errors import UsageError
from guard.evaluate.sources import SOURCES
from tests.data import DATA, needs_data

FILES = [f for f in vars(registry).values() if isinstance(f, DatasetFile)]
HEARTS = {"text": "It isnâ€™t so.", "label": "neutral", "group": "Elbonian"}


def test_every_file_is_named_once() -> None:
    assert len({f.file for f in FILES}) == len(FILES)
    # What cannot be trained on is there to be evaluated on.
    assert {f.file for f in FILES if not f.trains} <= {s.file for s in SOURCES.values()}


@pytest.mark.parametrize("file", [f for f in FILES if not f.trains], ids=lambda f: str(f.file))
def test_evaluation_sets_and_sets_without_a_licence_are_not_trained_on(
    file: DatasetFile[Any], tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match="must not be trained on"):
        file.training_records(tmp_path)
    assert file.file.endswith("eval.jsonl") or file in (registry.STEREOBIAS, registry.ASSISTANT)


@needs_data
@pytest.mark.parametrize("file", [f for f in FILES if f.trains], ids=lambda f: str(f.file))
def test_every_row_that_training_reads_is_as_the_registry_says(file: DatasetFile[Any]) -> None:
    assert sum(1 for _ in file.training_records(DATA)) > 600


def test_a_bad_row_of_a_training_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / registry.TOXIGEN_DEMOS.file
    path.parent.mkdir()
    row = {"text": "Fine.", "label": "neutral", "category": "gender", "file": "neutral_women"}
    path.write_text(f"{json.dumps(row)}\n\n{json.dumps(row | {'label': 1})}\n")
    found = registry.TOXIGEN_DEMOS.training_records(tmp_path)
    assert next(found).category == "gender"
    with pytest.raises(UsageError, match=r"line 3: label 1 is not one of hate, neutral"):
        next(found)
    with pytest.raises(UsageError, match=r"posts\.jsonl cannot be read; name the folder"):
        registry.IMPLICIT_HATE.training_records(tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"text": "a \udc80"}, "the field text is not UTF-8 text; convert the file first"),
        ({"text": "\n"}, "the field text is empty"),
        ({"group": None}, "the field group must be text"),
        ({"label": ["neutral"]}, r"label \['neutral'\] is not one of stereotype, neutral"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRow, match=reason):
        records.Nationality.of(HEARTS | change)


def test_votes_are_a_whole_number() -> None:
    row = {"identity": "Elbonian", "attribute": "late", "region_votes": 2}
    assert records.RatedAssociation.of(row).known
    assert not records.RatedAssociation.of(row | {"region_votes": 1}).known
    with pytest.raises(BadRow, match="the field region_votes must be a whole number"):
        records.RatedAssociation.of(row | {"region_votes": "2"})


def test_apostrophes_of_hearts_are_repaired_beside_the_published_text() -> None:
    found = records.Lgbtq.of(HEARTS)
    assert found.text == HEARTS["text"]
    assert found.repaired == "It isn’t so."
