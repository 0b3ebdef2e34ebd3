"""Two readings of a sample: who agrees with whom, and the figures by the label of both."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard import Guard
from guard.datasets.split import fold
from guard.errors import UsageError
from guard.evaluate import report
from guard.evaluate.baselines import Terms
from guard.evaluate.example import Example
from guard.evaluate.readings import (
    BOTH_READERS,
    FIELDS,
    PUBLISHED_LABEL,
    READINGS,
    ReaderLabel,
    Readings,
    agreed_label,
    agreements,
    key_of,
    read,
    relabelled,
    shipped_readings,
)
from guard.evaluate.run import evaluate
from guard.evaluate.sources import load
from guard.places import shipped
from guard.results.agreement import cohens_kappa
from guard.results.intervals import clopper_pearson
from tests.rows import examples as drawn
from tests.scripted import Scripted

ROOT = Path(__file__).parents[2]
TEXTS = ("BIAS one.", "BIAS two.", "Fine three.", "Fine four.", "Fine five.", "BIAS six.")
# By the file, then by readers A and B with ? for unsure; nobody has read the sixth text.
LABELS = ("1BB", "0BB", "1NN", "0NB", "0NN?")


def readings() -> Readings:
    found = {}
    for text, label in zip(TEXTS, LABELS, strict=False):
        sure = not label.endswith("?")
        found[key_of(text)] = {
            name: ReaderLabel(said == "B", sure)
            for name, said in zip("AB", label[1:3], strict=True)
        }
    return found


def told() -> list[Example]:
    return [
        Example(text, label.startswith("1"), text)
        for text, label in zip(TEXTS, (*LABELS, "0"), strict=True)
    ]


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join([",".join(FIELDS), *lines]) + "\n", encoding="utf-8")
    return path


def test_both_have_a_label_where_they_are_sure_and_agree() -> None:
    labels = [e and e.biased for e in relabelled(told(), readings())]
    assert labels == [True, True, False, None, None, None]
    assert agreed_label({"A": ReaderLabel(True, True)}) is None  # one reader
    assert agreed_label({}) is None


def test_agreement_is_that_of_every_two_and_of_both_with_the_published_label() -> None:
    found = {(a.first, a.second): a for a in agreements(told(), readings())}
    assert list(found) == [
        ("A", "B"),
        ("A", PUBLISHED_LABEL),
        ("B", PUBLISHED_LABEL),
        (BOTH_READERS, PUBLISHED_LABEL),
    ]
    ours = found["A", "B"]
    assert (ours.n, ours.agreed.value) == (5, 4 / 5)
    assert (ours.agreed.low, ours.agreed.high) == clopper_pearson(4, 5)
    # A says B 2 of 5 times, B 3 of 5: by chance (2*3 + 3*2) / 25 = .48.
    assert ours.kappa.value == pytest.approx((0.8 - 0.48) / 0.52)
    assert found["A", PUBLISHED_LABEL].agreed.value == 3 / 5
    both = found[BOTH_READERS, PUBLISHED_LABEL]
    assert (both.n, both.agreed.value) == (3, 1 / 3)
    assert agreements(told(), {}) == []


RATED = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40)


@drawn(100)
@given(RATED)
def test_kappa_is_one_where_all_agree_and_the_same_for_swapped_raters(
    pairs: list[tuple[bool, bool]],
) -> None:
    found = cohens_kappa(pairs)
    swapped = cohens_kappa([(b, a) for a, b in pairs])
    assert found == pytest.approx(swapped, nan_ok=True)
    one_label = len({label for pair in pairs for label in pair}) == 1
    assert math.isnan(found.value) == one_label
    if not one_label:
        assert -1 <= found.value <= 1
        assert found.low <= found.value <= found.high
        assert (found.value == 1) == all(a == b for a, b in pairs)


def test_figures_by_both_labels_stand_beside_the_official_ones(tmp_path: Path) -> None:
    place = tmp_path / "mine.csv"
    rows = [f"{text},{label[0]}" for text, label in zip(TEXTS, (*LABELS, "0"), strict=True)]
    place.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    data = load(str(place), None)
    assert data.readings == {}  # a file of the user's own has none
    guard = Guard(detector=Scripted())
    terms = Terms("none", ())
    result = evaluate(replace(data, readings=readings()), guard, terms=terms, draws=20)
    assert result.readings is not None
    assert (result.readings.read, result.readings.by_readers.n) == (5, 3)
    # The detector finds BIAS: right on all three by the readers, on one by the published label.
    assert result.readings.by_readers.figures["accuracy"].value == 1
    assert result.readings.by_published.figures["accuracy"].value == pytest.approx(1 / 3)
    assert result.whole.figures["accuracy"].value == pytest.approx(3 / 6)  # as without readings

    plain = json.loads(json.dumps(result.as_json()))["readings"]
    assert plain["texts_read"] == 5
    assert plain["by_readers"]["figures"]["accuracy"]["value"] == 1
    assert plain["agreements"][0]["agreed"]["value"] == 0.8
    assert plain["agreements"][0]["kappa"].keys() == {"value", "low", "high"}

    text = report.markdown([result])
    assert "by the readers' label" in text
    assert re.search(r"^\| A : B \| 5 \| 0\.800 \[", text, re.MULTILINE)
    assert "They are sure and agree on 3 of 5 texts." in text
    assert "No person has read the texts." in text
    assert not any(t in text for t in TEXTS)

    without = evaluate(data, guard, terms=terms, draws=20)
    assert without.readings is None
    assert without.as_json()["readings"] is None
    assert "two readings" not in report.markdown([without])
    assert without.whole == result.whole


def test_texts_on_which_the_readers_differ_give_nan_and_no_error(tmp_path: Path) -> None:
    place = tmp_path / "mine.csv"
    place.write_text("text,label\nFine four.,0\nFine five.,0\n", encoding="utf-8")
    data = replace(load(str(place), None), readings=readings())
    result = evaluate(data, Guard(detector=Scripted()), terms=Terms("none", ()), draws=20)
    assert result.readings is not None
    assert (result.readings.read, result.readings.by_readers.n) == (2, 0)
    assert "They are sure and agree on 0 of 2 texts." in report.markdown([result])
    assert result.as_json()["readings"]["by_readers"]["figures"]["accuracy"]["value"] is None


def test_readings_are_kept_without_a_text_and_read_back(tmp_path: Path) -> None:
    place = written(tmp_path / READINGS, "redditbias,0123,A,B,1", "redditbias,0123,B,N,0")
    assert read(place) == {
        "redditbias": {"0123": {"A": ReaderLabel(True, True), "B": ReaderLabel(False, False)}}
    }
    assert key_of("Fine, three!") == key_of("fine THREE") != key_of("fine four")


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (("redditbias,0123,A,X,1",), 2),
        (("redditbias,0123,A,B,yes",), 2),
        (("redditbias,0123,A,B,1", "redditbias,0123,A,N,1"), 3),
        (("redditbias,0123,A,B",), 2),
    ],
)
def test_a_line_that_is_no_reading_is_named(
    tmp_path: Path, lines: tuple[str, ...], line: int
) -> None:
    with pytest.raises(UsageError, match=rf"readings.csv, line {line}: "):
        read(written(tmp_path / READINGS, *lines))


def test_other_columns_are_named(tmp_path: Path) -> None:
    place = tmp_path / READINGS
    place.write_text("text,label\n", encoding="utf-8")
    with pytest.raises(UsageError, match="the columns are set, text, reader, label, sure"):
        read(place)


def test_the_shipped_readings_are_hashes_of_two_readers_on_two_sets() -> None:
    with (shipped("benchmarks") / "detector" / READINGS).open(encoding="utf-8") as lines:
        rows = list(csv.reader(lines))
    assert rows[0] == list(FIELDS)
    assert all(re.fullmatch("[0-9a-f]{16}", row[1]) for row in rows[1:])
    for name in ("redditbias", "emgsd"):
        found = shipped_readings(name)
        assert all(of_text.keys() == {"A", "B"} for of_text in found.values())
        assert len(found) == 150
    assert shipped_readings("toxicbias") == {}


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = ROOT / "benchmarks" / "detector" / "readings.py"
    spec = importlib.util.spec_from_file_location("readings_tool", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def forms(tool: ModuleType, folder: Path, **wrong: str) -> list[object]:
    """Write a sample of three made-up texts and both forms, filled in; a keyword replaces one."""
    chosen = [tool._drawn("redditbias", text) for text in TEXTS[:3]]
    tool.write_sample(chosen, folder)
    for reader in "AB":
        filled = wrong.get(reader, "number,label,sure\n1,B,1\n2,N,0\n3,N,1\n")
        (folder / f"reader-{reader}.csv").write_text(filled, encoding="utf-8")
    return chosen


def test_the_readers_see_texts_alone_and_their_forms_become_readings(
    tool: ModuleType, tmp_path: Path
) -> None:
    chosen = forms(tool, tmp_path)
    assert (tmp_path / "sample.txt").read_text("utf-8").splitlines() == [
        f"{number}\t{text}" for number, text in enumerate(TEXTS[:3], start=1)
    ]
    to = tmp_path / READINGS
    tool.keep(chosen, tmp_path, to)
    found = read(to)["redditbias"]
    assert found[key_of(TEXTS[1])] == {name: ReaderLabel(False, False) for name in "AB"}
    assert len(found) == 3
    assert not any(fold(text) in to.read_text("utf-8") for text in TEXTS)


@pytest.mark.parametrize(
    "wrong",
    [
        "number,label,sure\n1,B,1\n2,N,0\n",
        "number,label,sure\n1,B,1\n2,N,0\n2,N,1\n",
        "number,label,sure\n1,B,1\n2,,\n3,N,1\n",
        "number,label,sure\n1,B,1\n2,N,2\n3,N,1\n",
        "label,number,sure\n1,B,1\n2,N,1\n3,N,1\n",
    ],
)
def test_a_form_that_is_not_filled_in_is_not_kept(
    tool: ModuleType, tmp_path: Path, wrong: str
) -> None:
    chosen = forms(tool, tmp_path, B=wrong)
    with pytest.raises(SystemExit, match=r"reader-B\.csv"):
        tool.keep(chosen, tmp_path, tmp_path / READINGS)
    assert not (tmp_path / READINGS).exists()


def test_the_sample_is_the_same_each_time_and_of_texts_that_are_measured(
    tool: ModuleType, data: Path
) -> None:
    chosen = tool.sample(data)
    assert chosen == tool.sample(data)
    assert len({text.key for text in chosen}) == len(chosen) == 300
    for name in ("redditbias", "emgsd"):
        keys = {text.key for text in chosen if text.source == name}
        assert len(keys) == 150
        assert shipped_readings(name).keys() == keys
