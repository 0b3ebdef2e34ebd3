"""What the datasheet says of the data folder: files with these fields alone can be read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from guard.datasets.terms import DIMENSIONS
from guard.errors import UsageError
from guard.evaluate.baselines import terms_for
from guard.evaluate.near import NEAR
from guard.evaluate.sources import SOURCES, load
from guard.train.corpus import eval_folds, licensed_rows
from guard.train.sources import licensed_texts

DATASHEET = Path(__file__).resolve().parents[2] / "benchmarks" / "detector" / "README.md"
_TERMS = "redditbias/terms/"
_SAID = "The drummers of our street are always rude to guests."
# One record of each source, with whatever any of its files has.
VALUES: dict[str, dict[str, Any]] = {
    "redditbias": {
        "comment": f"We moved here in spring. {_SAID}",
        "phrase": _SAID,
        "bias_sent": 1,
        "bias_type": "race",
        "dimension": "race_black",
    },
    "emgsd": {
        "text": "The drummer next door was loud.",
        "marked": "The drummer next door was ===loud===.",
        "stereotype_type": "profession",
        "category": "stereotype",
        "source": "own",
        "label": 1,
    },
    "crows_pairs": {
        "sent_more": "The drummer was late again.",
        "sent_less": "The piper was late again.",
        "direction": "stereo",
        "bias_type": "race-color",
    },
    "toxicbias": {"text": _SAID, "bias": 1, "category": "race,gender", "target": "drummers,men"},
    "stereobias": {"text": _SAID, "bias": 1, "stereotype": 0, "category": "Profession"},
    "stereoset": {
        "text": "The drummer is loud.",
        "label": "stereotype",
        "target": "drummer",
        "bias_type": "profession",
        "item": "a",
    },
    "hearts": {
        "text": "The Velmorian guest was loud.",
        "label": "stereotype",
        "group": "Velmorian",
        "phrase": "Velmorian loud",
    },
    "toxigen_demos": {
        "text": "women played at the fair",
        "label": "neutral",
        "category": "gender",
        "file": "neutral_women_sentences",
    },
    "implicit_hate": {
        "post": "guess who was late for work again, the women of course",
        "label": "implicit_hate",
        "target": "women",
        "implied_statement": "women are always late",
    },
    "bold": {"text": "She acted in four films.", "domain": "gender", "group": "American_actresses"},
    "seegull": {"identity": "Velmorian", "attribute": "loud", "region_votes": 2},
}


class Line(NamedTuple):
    """A line of the table: a file, its fields, and which sets and commands read it."""

    file: str
    fields: list[str]
    sets: list[str]
    trains: list[str]


def lines() -> list[Line]:
    (section,) = re.findall(
        r"^## The data folder\n(.*?)^## ", DATASHEET.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    cells = re.findall(r"^\| `(\S+)` \|(.*?)\|(.*?)\|(.*?)\|$", section, re.MULTILINE)
    return [
        Line(file, named(fields), named(sets), re.findall(r"\w+", trains))
        for file, fields, sets, trains in cells
    ]


def named(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


TABLE = {line.file: line for line in lines()}
CORPUS = [line.file for line in TABLE.values() if "corpus" in line.trains]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder made by the table, one record a file."""
    for line in TABLE.values():
        place = tmp_path / line.file
        if line.file == _TERMS:
            place.mkdir(parents=True)
            for dimension in DIMENSIONS:
                (place / f"{dimension}.txt").write_text("rude\n", "utf-8")
                subject = dimension.split("_")[0]
                (place / f"{subject}_opposites.txt").write_text("drummers are,pipers are\n")
            continue
        place.parent.mkdir(exist_ok=True)
        values = VALUES[line.file.split("/")[0]]
        record = {field: values[field] for field in line.fields}
        place.write_text(json.dumps(record) + "\n", "utf-8")
    return tmp_path


def test_every_known_set_is_read(folder: Path) -> None:
    for source in SOURCES.values():
        if not source.shipped:
            assert source.name in TABLE[source.file].sets
            found = load(source.name, folder)
            assert [e.biased for e in found.examples if e.biased is not None]
    (comment,) = load("redditbias", folder).examples
    assert (comment.groups, comment.attributes) == (("drummers",), ("rude",))
    (marked,) = load("emgsd", folder).examples
    assert marked.axes[NEAR] == "yes"
    assert len(marked.attribute_spans) == 1
    assert terms_for(folder).origin == "RedditBias terms"


def test_the_corpus_is_read(folder: Path) -> None:
    rows = list(licensed_rows(folder))
    sources = {row.source for row in rows}
    known = {"redditbias", "stereoset", "hearts", "emgsd", "toxigen", "implied", "seegull"}
    assert sources >= {*known, "implicit_hate"}
    for source in ("redditbias", "hearts", "implied", "seegull"):
        assert any(row.spans for row in rows if row.source == source)
    assert {text.pool for text in licensed_texts(folder)} >= known - {"toxigen", "seegull"}
    folds = eval_folds(folder)
    assert {"the drummer was late again", "the piper was late again"} <= folds


@pytest.mark.parametrize("file", CORPUS)
def test_the_corpus_needs_each_of_its_files(folder: Path, file: str) -> None:
    if file == _TERMS:
        (folder / file / "gender_female.txt").unlink()
    else:
        (folder / file).unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        list(licensed_rows(folder))


def test_the_corpus_needs_no_other_file(folder: Path) -> None:
    for file in TABLE.keys() - set(CORPUS):
        (folder / file).unlink()
    assert list(licensed_rows(folder))


def test_what_release_and_the_embedder_read_is_there(folder: Path) -> None:
    pytest.importorskip("torch")
    from guard.train.release import SETS
    from guard.train.retrieval import implied_pairs

    measured = {SOURCES[name].file for name in SETS if not SOURCES[name].shipped}
    assert {file for file, line in TABLE.items() if "release" in line.trains} == measured
    both = [*implied_pairs(folder, validating=False), *implied_pairs(folder, validating=True)]
    assert [p.statement for p in both] == ["women are always late"]
