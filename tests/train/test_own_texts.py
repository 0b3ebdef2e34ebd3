"""Counts of the harmless sentences and minimal pairs written for the training."""

import json
from collections import Counter

import pytest

from guard.retrieve.statement import fold_words
from guard.train.own import corpus_folder
from guard.verdict import BIAS_TYPES

KINDS = {
    "bare_mention",
    "reported",
    "quoted_opposed",
    "opposed",
    "self_description",
    "definition",
    "statistic",
    "question",
    "negation",
    "encyclopaedic",
    "assistant",
    "object_abuse",
    "individual",
    "positive_neutral",
    "reclaimed",
    "counter_speech",
    "refusal",
}


def rows(name: str) -> list[dict]:
    return [json.loads(line) for line in (corpus_folder() / name).read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def negatives() -> list[dict]:
    return rows("negatives.jsonl")


@pytest.fixture(scope="module")
def pairs() -> list[dict]:
    return rows("pairs.jsonl")


def test_enough_negatives_of_every_kind(negatives):
    counts = Counter(row["kind"] for row in negatives)
    assert len(negatives) >= 3000
    assert set(counts) >= KINDS
    assert min(counts[kind] for kind in KINDS) >= 25


def test_frames_of_pairs_count_once(pairs):
    def frame(row: dict) -> str:
        masked = row["biased"].casefold()
        for term in (row["group"], row["attribute"]):
            masked = masked.replace(term.casefold(), " _ ")
        return fold_words(masked)

    counts = Counter(frame(row) for row in pairs)
    assert len(counts) >= 1200


def test_negatives_name_a_type_or_none(negatives):
    assert {row["bias_type"] for row in negatives} == {None, *BIAS_TYPES}


def test_a_third_of_the_assistant_answers_names_a_group(negatives):
    named = [row["bias_type"] is not None for row in negatives if row["kind"] == "assistant"]
    assert sum(named) / len(named) >= 1 / 3


def test_enough_pairs_of_every_type(pairs):
    assert len(pairs) >= 1500
    counts = Counter(row["bias_type"] for row in pairs)
    assert set(counts) == set(BIAS_TYPES)
    assert min(counts.values()) >= 600


def test_the_biased_side_holds_group_and_attribute(pairs):
    missing = [
        row["biased"]
        for row in pairs
        if not all(row[k].casefold() in row["biased"].casefold() for k in ("group", "attribute"))
    ]
    assert missing == []


def test_no_text_twice(negatives, pairs):
    texts = [row["text"] for row in (*negatives, *rows("unseen.jsonl"))]
    texts += [row[side] for row in pairs for side in ("biased", "harmless")]
    counts = Counter(map(fold_words, texts))
    assert [text for text, count in counts.items() if count > 1] == []
