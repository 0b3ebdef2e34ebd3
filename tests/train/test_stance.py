"""Rows about stance: what is filled into frames and lists, and what their labels stand on."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest

from guard.train import stance
from guard.train.config import QUOTAS, REPEATS, TrainConfig
from guard.train.corpus import Corpus, build_corpus
from guard.train.own import corpus_folder
from guard.train.rows import TrainingRow, fold, in_validation

STATEMENTS = TrainConfig(work=Path()).statements
SOURCES = ("framed", "listed", "carried")
Rows = dict[str, list[TrainingRow]]


@pytest.fixture(scope="module")
def rows() -> Rows:
    """The rows of each source."""
    return {
        "framed": list(stance.framed_rows(STATEMENTS)),
        "listed": list(stance.listed_rows(STATEMENTS)),
        "carried": list(stance.carried_rows()),
    }


@pytest.fixture(scope="module")
def every(rows: Rows) -> list[TrainingRow]:
    return [row for source in SOURCES for row in rows[source]]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, rows: Rows) -> Corpus:
    """One of these rows alone: no other source has their families."""
    config = TrainConfig(work=tmp_path_factory.mktemp("run"), data=None, invented=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("guard.train.own.own_rows", lambda statements: iter(()))
        for source in SOURCES:
            patch.setattr(stance, f"{source}_rows", lambda *_, of=source: iter(rows[of]))
        return build_corpus(config)


def said(row: TrainingRow, part: str) -> str | None:
    span = getattr(row, part)
    return None if span is None else row.text[span.start : span.end]


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_has_what_an_epoch_draws_of_it_and_both_labels(source: str, rows: Rows) -> None:
    found = rows[source]
    assert {r.source for r in found} == {source}
    assert len(found) * REPEATS.get(source, 1) >= QUOTAS[source] * 0.8
    assert 0.2 < sum(r.biased for r in found) / len(found) < 0.8


def test_every_slot_is_filled(every: list[TrainingRow]) -> None:
    assert not any(re.search(r"[{}]", " ".join([r.text, *r.context])) for r in every)


def test_spans_are_known_of_biased_rows_alone_and_lie_in_their_text(
    every: list[TrainingRow],
) -> None:
    for row in every:
        assert row.biased or not row.spans
        if row.spans:
            assert said(row, "attribute")
            assert said(row, "group") != ""


def test_what_is_filled_in_reads_as_its_place_wants() -> None:
    one = stance.Claim("women", "are late", "gender")
    filled = stance._filled_pattern(
        "{G} {p}; {S}, and {G}? He said {s} {P1}.", {"": one, "1": one}, one
    )
    assert filled == "Women are late; Women are late, and women? He said women are late are late."


def test_a_frame_trains_or_validates_as_a_whole(corpus: Corpus, every: list[TrainingRow]) -> None:
    trained = {row.family for row in corpus.train if row.source in SOURCES}
    assert trained
    assert not any(map(in_validation, trained))
    held_out = {row.family for row in every if in_validation(row.family)}
    assert len([f for f in held_out if f.startswith("frame:")]) >= 20


def test_a_statement_stands_in_frames_that_endorse_and_in_frames_that_do_not(rows: Rows) -> None:
    labels = defaultdict(set)
    for one in stance.plain_claims(STATEMENTS):
        for row in rows["framed"]:
            if one.predicate in row.text:
                labels[one].add(row.biased)
        if len(labels) > 40:
            break
    both = [one for one, found in labels.items() if found == {True, False}]
    assert len(both) > len(labels) / 2


def test_a_carried_sentence_is_the_same_behind_either_context(rows: Rows) -> None:
    texts: dict[str, dict[bool, TrainingRow]] = defaultdict(dict)
    for row in rows["carried"]:
        texts[row.family][row.biased] = row
    assert len(texts) >= 400
    for one in texts.values():
        assert one[True].text == one[False].text
        assert one[True].context != one[False].context


@pytest.mark.parametrize(("file", "field"), [("frames", "frame"), ("lists", "lines")])
def test_no_pattern_is_written_twice(file: str, field: str) -> None:
    lines = (corpus_folder() / f"{file}.jsonl").read_text(encoding="utf-8").splitlines()
    folded = [fold(re.sub(r"\{\w+\}", "", str(json.loads(line)[field]))) for line in lines]
    assert len(folded) == len(set(folded))
