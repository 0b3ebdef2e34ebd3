import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.errors import BiasIndexError
from guard.retrieve.statement import BiasStatement, fold_words, read_statements, statement_lines
from guard.verdict import BIAS_TYPES

GOOD = {
    "statement": "Those Ruritanians never pay.",
    "bias_type": "culture",
    "group": "Ruritanians",
    "attribute": "never pay",
}

# Printable signs alone: to draw any and leave out the others would leave out most texts.
printable = st.just(" ") | st.characters(codec="utf-8", exclude_categories=["C", "Z"])
word = st.text(printable, min_size=1).filter(lambda t: bool(fold_words(t)) and t.isprintable())


def statements(word: st.SearchStrategy[str]) -> st.SearchStrategy[BiasStatement]:
    """Statements whose texts are drawn from ``word``."""
    return st.builds(
        BiasStatement,
        statement=word,
        bias_type=st.sampled_from(BIAS_TYPES),
        group=word,
        attribute=word,
        implicit=st.booleans(),
        note=st.just("") | word,
    )


statement = statements(word)


@given(st.lists(statement))
def test_written_statements_are_read_back(tmp_path_factory, many):
    path = tmp_path_factory.getbasetemp() / "some.jsonl"
    path.write_text(statement_lines(many), encoding="utf-8")
    assert read_statements(path) == tuple(many)


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x0c"])
def test_only_a_line_feed_ends_a_line(tmp_path, separator):
    path = tmp_path / "some.jsonl"
    one = BiasStatement(f"Those Ruritanians{separator}never pay.", "culture", "Ruritanians", "pay")
    path.write_bytes(statement_lines([one]).encode())
    assert read_statements(path) == (one,)


def test_optional_keys_and_blank_lines(tmp_path):
    path = tmp_path / "some.jsonl"
    path.write_text(f"\n{json.dumps(GOOD)}\r\n\n", encoding="utf-8")
    assert read_statements(path) == (BiasStatement(**GOOD),)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        (json.dumps({k: v for k, v in GOOD.items() if k != "group"}), "'group' is missing"),
        (json.dumps(GOOD | {"colour": "red"}), "unknown key 'colour'"),
        (json.dumps(GOOD | {"bias_type": "nationality"}), "unknown bias type 'nationality'"),
        (json.dumps(GOOD | {"statement": " "}), "'statement' is empty"),
        (json.dumps(GOOD | {"statement": "?!"}), "'statement' has no word"),
        (json.dumps(GOOD | {"attribute": None}), "'attribute' must be a string"),
        (json.dumps(GOOD | {"note": "a\nb"}), "'note' has a line break"),
        (json.dumps(GOOD | {"group": "a\0b"}), "'group' has a control character"),
        (json.dumps(GOOD | {"implicit": "yes"}), "'implicit' must be true or false"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, wrong):
    path = tmp_path / "some.jsonl"
    path.write_text(f"{json.dumps(GOOD)}\n{line}\n", encoding="utf-8")
    with pytest.raises(BiasIndexError) as caught:
        read_statements(path)
    assert f"{path}, line 2: " in str(caught.value)
    assert wrong in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BiasIndexError, match=r"no statements file at .*absent"):
        read_statements(tmp_path / "absent.jsonl")


def test_a_file_that_is_not_utf8_is_named(tmp_path):
    path = tmp_path / "latin.jsonl"
    path.write_bytes("é".encode("latin-1"))
    with pytest.raises(BiasIndexError, match="latin"):
        read_statements(path)


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Those  RURITANIANS, never_pay!", "those ruritanians never pay"),
        ("ﬁne…", "fine"),
        ("—", ""),
    ],
)
def test_fold(text, folded):
    assert fold_words(text) == folded
