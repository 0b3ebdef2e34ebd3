"""Counts of the statements that guard ships: what its datasheet promises."""

import json
import re
from collections import Counter

import pytest

from guard.places import shipped
from guard.retrieve.statement import BiasStatement, fold_words, read_statements, statement_lines
from guard.train.own import corpus_folder
from guard.verdict import BIAS_TYPES

FOLDER = shipped("index")
SOURCE = FOLDER / "statements.jsonl"


@pytest.fixture(scope="module")
def statements() -> tuple[BiasStatement, ...]:
    return read_statements(SOURCE)


def frame(statement: BiasStatement) -> str:
    """The statement without its group and attribute, case and punctuation folded."""
    text = fold_words(statement.statement)
    for phrase in sorted((statement.group, statement.attribute), key=len, reverse=True):
        text = re.sub(rf"\b{re.escape(fold_words(phrase))}\b", "_", text)
    return text


def test_enough_of_every_type(statements):
    counts = Counter(s.bias_type for s in statements)
    assert len(statements) >= 3000
    assert set(counts) == set(BIAS_TYPES)
    assert min(counts.values()) >= 190


def test_many_groups(statements):
    assert len({fold_words(s.group) for s in statements}) >= 1000


def test_about_a_quarter_is_implicit(statements):
    assert 0.2 <= sum(s.implicit for s in statements) / len(statements) <= 0.3


def test_no_statement_twice(statements):
    counts = Counter(fold_words(s.statement) for s in statements)
    assert [text for text, count in counts.items() if count > 1] == []


def test_frames_differ_where_group_and_attribute_are_masked(statements):
    frames = Counter(frame(s) for s in statements)
    assert len(frames) / len(statements) >= 0.95
    assert frames.most_common(1)[0][1] / len(statements) <= 0.01


def test_explicit_statements_hold_their_group_and_attribute(statements):
    missing = [
        s.statement
        for s in statements
        if not s.implicit
        and not all(p.casefold() in s.statement.casefold() for p in (s.group, s.attribute))
    ]
    assert missing == []


def test_lengths(statements):
    assert [s.statement for s in statements if not 4 <= len(s.statement.split()) <= 25] == []


def test_the_file_is_in_its_one_spelling(statements):
    assert statement_lines(statements) == SOURCE.read_text(encoding="utf-8")


def test_the_harmless_texts_of_the_training_are_no_statements(statements):
    known = {fold_words(s.statement) for s in statements}
    for name, key in (("negatives.jsonl", "text"), ("pairs.jsonl", "harmless")):
        with open(corpus_folder() / name, encoding="utf-8") as file:
            assert not known & {fold_words(json.loads(line)[key]) for line in file}


def test_the_datasheets_counts_are_right(statements):
    """Rows of the table are `| type | statements | implicit |`."""
    rows = re.findall(
        r"^\| (\w+) \| (\d+) \| (\d+) \|$", (FOLDER / "README.md").read_text("utf-8"), re.M
    )
    told = {kind: (int(count), int(implicit)) for kind, count, implicit in rows}
    counted = {
        kind: (
            sum(s.bias_type == kind for s in statements),
            sum(s.bias_type == kind and s.implicit for s in statements),
        )
        for kind in BIAS_TYPES
    }
    counted["all"] = (len(statements), sum(s.implicit for s in statements))
    assert told == counted
