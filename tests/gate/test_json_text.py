"""In JSON each string is a text of its own; what is removed of it leaves the document whole."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from guard import Guard
from guard.gate import Gate
from guard.gate.escapes import Escapes
from guard.gate.json_text import JsonReader
from guard.policy import DEFAULT_POINTS, Policy
from guard.verdict import Channel, Scores, Verdict
from tests.rows import examples, rows
from tests.scripted import Scripted

MARK = "[removed]"
STOP = Policy().message
SAID = [
    "",
    " ",
    "x",
    "ok. fine",
    'a "b" c',
    "back\\slash\\",
    "né 👩‍🚀",
    "line\nline\n",
    "{[,:]}",
    "\x00",
]
# With the hold "association" what is before the first group goes out.
BIASED = [
    "women BIAS",
    "Women BIAS.",
    'women "BIAS" c\\',
    "Fine. Men BIAS. Fine.",
    "👩‍🚀 men BIAS\n",
]
strings = st.sampled_from([*SAID, *BIASED, "long " * 80, "long " * 60 + "men BIAS."])
keys = st.sampled_from(["a", "b c", "né", 'q"', "\\"])
documents = st.recursive(
    strings | st.integers() | st.floats(allow_nan=False) | st.sampled_from([None, True, False]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=8,
).filter(lambda made: isinstance(made, (list, dict)))


def verdict_of(biased: bool) -> Verdict:
    scores = Scores(float(biased), bias_type="gender")
    return Policy().verdict(scores, DEFAULT_POINTS, detector="x", index_version="", elapsed_ms=0.0)


def cut(text: str, size: int) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


def redacted(text: str, size: int, **policy: Any) -> str:
    guard = Guard(detector=Scripted(), action="redact", **policy)
    return "".join(guard.stream(cut(text, size)))


def same(out: Any, said: Any) -> bool:
    """Whether a document is the one that was said, but for strings with something removed."""
    if isinstance(said, dict):
        return list(out) == list(said) and all(same(out[key], said[key]) for key in said)
    if isinstance(said, list):
        return len(out) == len(said) and all(map(same, out, said))
    if isinstance(said, str) and "BIAS" in said:
        return isinstance(out, str) and "BIAS" not in out and out.count(MARK) == 1
    return type(out) is type(said) and out == said


@given(
    document=documents,
    ascii=st.booleans(),
    indent=st.sampled_from([None, 0, 2]),
    separators=st.sampled_from([None, (",", ":"), (" , ", " : ")]),
    size=st.integers(1, 60),
    hold=st.sampled_from(["sentence", "association"]),
)
@examples(400)
def test_a_document_keeps_its_keys_its_types_and_its_harmless_strings(
    document: Any, ascii: bool, indent: int | None, separators: Any, size: int, hold: str
) -> None:
    text = json.dumps(document, ensure_ascii=ascii, indent=indent, separators=separators)
    out = redacted(text, size, hold=hold)
    assert same(json.loads(out), document), out
    assert out == redacted(text, len(text), hold=hold)
    if "BIAS" not in text:
        assert out == text


@given(lines=st.lists(documents, min_size=1, max_size=4), size=st.integers(1, 60))
@examples(100)
def test_json_lines_stay_lines(lines: list[Any], size: int) -> None:
    out = redacted("".join(json.dumps(line) + "\n" for line in lines), size)
    assert all(same(json.loads(a), b) for a, b in zip(out.splitlines(), lines, strict=True))


@given(
    made=st.lists(documents, min_size=1, max_size=3),
    fence=st.sampled_from(["```json", "```", "~~~ JSON", "````json5"]),
    indent=st.sampled_from([None, 2]),
    size=st.integers(1, 60),
)
@examples(200)
def test_a_document_in_a_fence_is_read_as_one(
    made: list[Any], fence: str, indent: int | None, size: int
) -> None:
    close = fence.rstrip("jsonJSON5 ")
    blocks = [f"{fence}\n{json.dumps(one, indent=indent)}\n{close}" for one in made]
    text = "Here it is:\n\n" + "\n\nAnd so:\n\n".join(blocks) + "\n\nBIAS is so. Fine.\n"
    out = redacted(text, size)
    assert out == redacted(text, len(text))
    found = re.findall(rf"^{fence}\n(.*?)\n{close}$", out, re.DOTALL | re.MULTILINE)
    assert all(same(json.loads(block), one) for block, one in zip(found, made, strict=True))
    assert out.endswith(f"\n\n{MARK} Fine.\n")


@given(
    text=st.lists(st.sampled_from([*'{}[]",:\\ \nu00e9x1.-tf', "BIAS "]), max_size=40).map("".join),
    size=st.integers(1, 20),
)
@examples(400)
def test_what_is_no_json_is_judged_all_the_same(text: str, size: int) -> None:
    out = redacted(text, size)
    assert "BIAS" not in out
    assert out == redacted(text, len(text) or 1)
    if "BIAS" not in text:
        assert out == text


@given(text=st.text(st.sampled_from('{}[]",:\\ \nx1tru')), size=st.integers(1, 20))
@examples(200)
def test_the_pieces_are_the_reading(text: str, size: int) -> None:
    escapes = Escapes(letters=False)
    reader = JsonReader(escapes)
    pieces, rest = [], ""
    for part in cut(text, size):
        if not reader.over:
            pieces += reader.feed(part)
            part = reader.rest
        rest += part
    reading = "".join(piece.text for piece in pieces)
    assert len(reading) + len(rest) <= len(text)
    assert text.endswith(rest)
    assert reading + rest == text or "\\" in text
    # Between strings there is nothing that could be judged.
    for piece in pieces:
        if piece.kind == "structure":
            assert not set(piece.text) - set('{}[]",: \n1tru-.')


@rows(
    "text, windows",
    [
        ('{"a": "x. y", "b": 1}', ["a", "a: x.", " y", "b"]),
        ('{"long key": "x", "b": "y"}', ["long key", "long key: x", "b", "b: y"]),
        ('{"a": ["x", "y"], "a": "z"}', ["a", "a: x", "a: y", "a: z"]),
        ('{"a": {"b": "x"}}', ["a", "a b", "a b: x"]),
        ('{"a": [{"b": ["x", "y"]}, {"b": "z"}]}', ["a", "a b", "a b: x", "a b: y", "a b: z"]),
        ('[["x"], {"a": ""}]', ["x", "a"]),
        ('["x"] y', ["x", '"x"] y']),
        ('{"a": "x" y', ["a", "a: x", '"a": "x" y']),
        ('{"a": "\\u0042"', ["a", "a: B"]),
        ("[1] So.", ["[1] So."]),
        ("{so}", ["{so}"]),
        ("[Note] So.", ["[Note] So."]),
        ('"x"', ['"x"']),
        ('["a"]["b"]', ["a", "b"]),
        ('{"a" "b"}', ["a", '"a" "b"}']),
        ('{1: "b"}', ['{1: "b"}']),
        ('["a", nullx', ["a", '"a", nullx']),
        ('["a", tr, "b"]', ["a", '"a", tr, "b"]']),
        ('["a", 1e, "b"]', ["a", '"a", 1e, "b"]']),
        (r'["a\\", "b\""]', ["a\\", 'b"']),
        ('["Women"\n are lazy', ["Women", '"Women"  are lazy']),
        ('["Women", "" are lazy', ["Women", '"Women", "" are lazy']),
        ('{"a": "Women"}\nAre lazy', ["a", "a: Women", "Are lazy"]),
        ('Sure:\n\n{"a": "x"}', ["Sure:\n", "a", "a: x"]),
        ('\ufeff{"a": "x"}', ["a", "a: x"]),
        ('["a", ' + "7" * 600 + ', "b"]', ["a", "b"]),
        ('{"' + "k" * 200 + '": "x"}', ["k" * 200, "k" * 80 + ": x"]),
        ('So:\n```json\n{"a": "x"}\n```\nYes.', ["So:\n", "```json\n", "a", "a: x", "Yes."]),
        ('["' + "long " * 60 + 'end"]', None),
    ],
)
def test_a_string_is_judged_with_its_key(text: str, windows: list[str] | None) -> None:
    seen: list[str] = []
    guard = Guard(detector=Scripted(before=lambda window: seen.append(window.text)))
    assert "".join(guard.stream(cut(text, 2))) == text
    assert seen == windows if windows is not None else all("[" not in each for each in seen)


def test_where_nothing_can_be_put_the_answer_ends() -> None:
    assert redacted('{"x": "y", "BIAS": "z"}', 3) == '{"x": "y", "' + STOP
    assert redacted('{"BIAS": 1}', 3) == '{"' + STOP


def test_where_no_other_string_fits_the_answer_ends() -> None:
    gate = Gate(Policy(action="redact"), Channel(), fixed=True)
    gate.feed('{"x": "y"}')
    for biased, action in ((False, "pass"), (True, "terminate")):
        assert gate.resolve(verdict_of(biased)).decision.action == action


def test_a_mark_is_written_as_json() -> None:
    out = redacted('{"a": "BIAS"}', 3, replacement='[a "mark"]\n')
    assert json.loads(out) == {"a": '[a "mark"]\n'}


def test_a_stopped_document_is_not_complete() -> None:
    guard = Guard(detector=Scripted(), message="")
    out = "".join(guard.stream(cut('{"a": "x", "b": "BIAS", "c": 1}', 4)))
    assert out == '{"a": "x", "b": "'


def test_spans_are_those_of_the_text_as_it_was_sent() -> None:
    text = '{"a\\u0062": "x", "c": ["d", "\\u0042IAS is. z"]}'
    guard = Guard(detector=Scripted(), action="flag")
    spans = [text[d.span.start : d.span.end] for d in guard.trail(text).decisions]
    assert spans[:2] == ["a\\u0062", 'a\\u0062": "x']
    assert spans[-2].endswith('"\\u0042IAS is.')
    assert spans[-1] == " z"


def test_deep_and_long_structure_is_read_in_bounds() -> None:
    deep = "[" * 300 + '"BIAS"' + "]" * 300
    assert "BIAS" not in redacted(deep, 50)
    many = "{" + ", ".join(f'"k{n}": "x"' for n in range(1500)) + "}"
    assert redacted(many, 1000) == many
    assert "BIAS" not in redacted('["a", ' + "1" * 60 + ' "BIAS"]', 7)


def test_structure_opens_no_marks() -> None:
    text = '{"m": ["BIAS] y"], "z": ["fine"]}'
    outs = {redacted(text, size) for size in (1, 2, 3, 7, len(text))}
    assert outs == {'{"m": ["[removed]"], "z": ["fine"]}'}


def test_as_many_fences_and_lines_as_one_chunk_may_have_are_read() -> None:
    for line in ('```json\n{"a": "b"}\n```\n', "```\nx\n```\n", "So.\n", '["a"]\n'):
        text = line * 1500
        assert redacted(text, len(text)) == text
