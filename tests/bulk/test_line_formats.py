"""JSON lines, CSV and text: every byte of the input is in the output, beside the verdicts."""

from __future__ import annotations

import base64
import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.bulk import line_formats, planning
from guard.bulk.rows import COLUMNS
from guard.errors import UsageError
from tests.bulk.made import LINES, PREFIX, judged_file, planned, read_rows
from tests.rows import examples, rows

BOM = b"\xef\xbb\xbf"
ENDS = st.sampled_from([b"\n", b"\r\n"])
# What goes wrong when a library parses and renders rows anew.
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**53 + 1, -(2**70), 10**400]),
    st.floats(allow_nan=True),
    st.sampled_from(
        ["2020-01-01", "1e5", "00012", "\ud800", "\x00", "\x85\u2028", '"guard_biased"']
    ),
    st.text(max_size=20),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=5), st.floats(), max_size=3),
)
NUMBERS = st.sampled_from(
    ["1.0", "0.12345678901234567", "1E400", "-0.0", "9007199254740993", "1e-7"]
)
SPACE = st.sampled_from(["", " ", "\t", "  \r "])


@st.composite
def json_rows(draw: st.DrawFn) -> bytes:
    """A row of JSON, or something else, without its end."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.binary(max_size=20)).replace(b"\n", b"")
    if kind == 1:
        return json.dumps(draw(VALUES)).encode()
    members = [
        f"{json.dumps(key)}:{draw(SPACE)}{value}"
        for key, value in draw(
            st.lists(
                st.tuples(
                    st.sampled_from(["id", "text", "t\u00e9xt", "", "a.b"]),
                    st.one_of(NUMBERS, VALUES.map(json.dumps)),
                ),
                max_size=4,
            )
        )
    ]
    space = draw(SPACE)
    text = f"{draw(SPACE)}{{{space}{','.join(members)}{draw(SPACE)}}}{draw(SPACE)}"
    return text.encode("utf-8", "surrogatepass")


def without_verdict(line: bytes) -> bytes:
    """The row that an output's line was written for."""
    mark = b'"guard_biased":'
    at = line.rindex(mark)
    fields = json.loads(b"{" + line[at : line.rindex(b"}") + 1])
    assert [PREFIX + name for name in COLUMNS] == list(fields)
    assert fields["guard_unjudged"] is None or fields["guard_biased"] is None
    if line.startswith((b'{"guard_row":', b'{"guard_row_base64":')):
        found = json.loads(line)
        if "guard_row" in found:
            return str(found["guard_row"]).encode()
        return base64.b64decode(found["guard_row_base64"])
    comma = line[at - 1 : at] == b","
    return line[: at - comma] + line[line.rindex(b"}") :]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "BLOCK_ROWS", 3)
    monkeypatch.setattr(planning, "BLOCK_BYTES", 200)


@given(
    lines=st.lists(st.tuples(json_rows(), ENDS), max_size=12),
    bom=st.booleans(),
    last=st.booleans(),
)
@examples(100)
def test_json_lines_keep_every_byte(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[tuple[bytes, bytes]],
    bom: bool,
    last: bool,
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    content = BOM * bom + b'{"text": "first"}\n' + b"".join(row + end for row, end in lines)
    content = content.removesuffix(b"\n") if last else content
    source, target = folder / "in.jsonl", folder / "out.jsonl"
    source.write_bytes(content)
    judged_file(source, target)
    written = target.read_bytes().split(b"\n")
    kept = [without_verdict(line) if b'"guard_' in line else line for line in written]
    # What is wrapped ends with a line feed alone; a carriage return before it is in the row.
    assert b"\n".join(kept) == content


@given(
    records=st.lists(
        st.tuples(st.lists(st.text(max_size=8), min_size=1, max_size=4), st.booleans(), ENDS),
        max_size=12,
    ),
    bom=st.booleans(),
    last=st.booleans(),
    delimiter=st.sampled_from([",", "\t"]),
)
@examples(100)
def test_csv_keeps_every_byte(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[tuple[list[str], bool, bytes]],
    bom: bool,
    last: bool,
    delimiter: str,
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    suffix = "csv" if delimiter == "," else "tsv"
    content = BOM * bom + delimiter.join(["id", "text", "id"]).encode() + b"\r\n"
    for fields, quoted, end in records:
        line = io.StringIO()
        style = csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL
        csv.writer(line, delimiter=delimiter, quoting=style, lineterminator="").writerow(fields)
        content += line.getvalue().encode("utf-8", "replace") + end
    content = content.removesuffix(b"\n").removesuffix(b"\r") if last else content
    source, target = folder / f"in.{suffix}", folder / f"out.{suffix}"
    source.write_bytes(content)
    judged_file(source, target)
    written = target.read_bytes()
    form = line_formats.line_format(planned(source).inputs[0], "text", PREFIX)
    assert written.startswith(BOM) == bom
    kept = BOM * bom
    with open(target, "rb") as file:
        file.seek(len(BOM) * bom)
        for raw in line_formats.raw_rows(file, form, "out"):
            if line_formats.is_blank(raw, form):
                kept += raw
                continue
            for _ in COLUMNS:  # each is a whole field, quoted or not
                raw = _without_field(raw, delimiter.encode())
            kept += raw
    assert kept == content


def _without_field(raw: bytes, delimiter: bytes) -> bytes:
    if not raw.startswith(b'"'):
        return raw.partition(delimiter)[2]
    at = 1
    while raw[at : at + 1] != b'"' or raw[at + 1 : at + 2] == b'"':
        at += 2 if raw[at : at + 1] == b'"' else 1
    assert raw[at + 1 : at + 2] == delimiter
    return raw[at + 2 :]


@given(texts=st.lists(st.text(max_size=10), max_size=12), bom=st.booleans())
@examples(60)
def test_each_line_of_text_is_a_row(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], bom: bool
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    lines = [t.replace("\n", " ").replace("\r", " ").replace("\ufeff", "") for t in texts]
    source, target = folder / "in.txt", folder / "out.jsonl"
    source.write_bytes(BOM * bom + "".join(f"{line}\n" for line in lines).encode())
    judged_file(source, target)
    written = [json.loads(line) for line in target.read_bytes().splitlines()]
    assert [row["text"] for row in written] == lines + [""] * (bom and not lines)


JSON_REASONS = [
    (b'{"text": "She reads."}', None),
    (b'{"text": "a", "n": NaN, "big": 1' + b"0" * 5000 + b"}", None),
    (b'{"text": "\\ud800"}', None),
    (b'{"t\\u0065xt": "a"}', None),
    (b'{"text": null}', "null"),
    (b'{"text": 3}', "not_text"),
    (b'{"text": ["a"]}', "not_text"),
    (b'{"text": " \\n"}', "empty"),
    (b'{"other": "a"}', "missing"),
    (b'{"text": "a", "text": "b"}', "repeated"),
    (b'{"text": "a", "guard\\u005fbiased": false}', "clash"),
    (b'"a"', "not_object"),
    (b"[" * 100_000, "not_json"),
    (b'{"text": "a"', "not_json"),
    (b'{"text": "a\x00"}', "not_json"),
    (b'{"text": "caf\xe9"}', "not_utf8"),
    (b'{"text": "' + b"a" * 1_000_001 + b'"}', "too_long"),
    (b'{"text": "' + b"a" * 2**23 + b'"}', "row_too_long"),
]


def test_a_row_that_cannot_be_judged_says_why(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(b"\n".join(row for row, _ in JSON_REASONS))
    found, counts = judged_file(source, target)
    assert [row.reason for row in found] == [reason for _, reason in JSON_REASONS]
    assert sum(counts.unjudged.values()) == len([1 for _, reason in JSON_REASONS if reason])
    lines = target.read_bytes().split(b"\n")
    assert [without_verdict(line) for line in lines] == [row for row, _ in JSON_REASONS]
    for line, (_, reason) in zip(lines, JSON_REASONS, strict=True):
        written = json.loads(line, parse_int=float)
        assert written["guard_unjudged"] == reason
        assert (written["guard_biased"] is None) == (reason is not None)


def test_a_row_of_csv_that_cannot_be_judged_says_why(tmp_path: Path) -> None:
    cases = [
        (b"1,She reads.", None),
        (b'2,"two\nlines, and ""quotes"""', None),
        (b'3,5" pipe', None),
        (b"4", "ragged"),
        (b"5,He said women, are slow", "ragged"),
        (b"6,", "empty"),
        (b"7,caf\xe9", "not_utf8"),
        (b"8,a\rb", "not_csv"),
        (b'9,"a"b', "not_csv"),
    ]
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_bytes(b"id,text\n" + b"\n".join(row for row, _ in cases) + b"\n")
    found, _ = judged_file(source, target)
    assert [row.reason for row in found] == [reason for _, reason in cases]
    # Under their own names, also beside too many fields.
    text = target.read_bytes().decode("utf-8", "replace").replace("\r", " ")
    written = list(csv.DictReader(io.StringIO(text)))
    assert [row["guard_unjudged"] or None for row in written] == [reason for _, reason in cases]
    assert [row["id"] for row in written] == [str(n + 1) for n in range(len(cases))]


@rows(
    "name, content, said",
    [
        ("a.csv", b"", "does not begin with a header"),
        ("a.csv", b"\r\n", "does not begin with a header"),
        ("a.csv", b"id,name\n1,b\n", "has no column 'text'"),
        ("a.csv", b"text,text\n1,b\n", "has more than one column 'text'"),
        ("a.csv", b"text,guard_score\na,b\n", "has a column 'guard_score' already"),
        ("a.csv", b'text\n"never closed\n', "a quoted field at byte 5 that is not closed"),
        ("a.csv", b"\xff\xfet\0e\0x\0t\0", "is UTF-16"),
        ("a.txt", "All is well.\n".encode("utf-16-le"), "is UTF-16"),
        ("a.jsonl", '{"text": "a"}\n'.encode("utf-16-be"), "is UTF-16"),
        ("a.jsonl", b'[\n{"text": "a"}\n]\n', "is not JSON lines"),
        ("a.jsonl", b'{"body": "a"}\n', "has no column 'text' in its first rows"),
        ("a.jsonl", b'{"text": "a", "guard_biased": 1}\n', "has a column 'guard_biased' in line 1"),
    ],
)
def test_a_file_that_cannot_be_judged_is_refused(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UsageError) as error:
        planned(path)
    assert said in str(error.value)


@rows("name, content", [("a.jsonl", b""), ("a.csv", b"text"), ("a.txt", b""), ("a.jsonl", b"\n\n")])
def test_a_file_without_rows_gives_one_without_rows(
    tmp_path: Path, name: str, content: bytes
) -> None:
    source, target = tmp_path / name, tmp_path / f"out-{name}"
    source.write_bytes(content)
    found, _ = judged_file(source, target)
    assert found == []
    written = target.read_bytes()
    assert written.endswith(content)
    assert name == "a.csv" or written == content


def test_rows_without_an_end_are_refused_before_they_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_formats, "MOST_ROW", 1000)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a"}\n' + b"a" * 2000)
    with pytest.raises(UsageError, match="has a row of more than"):
        planned(path)


def test_a_long_row_that_is_not_read_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_formats, "MOST_READ", 20)
    cases = [
        b'{"text": "as long as it gets"}',
        b"{" + b" " * 9000 + b"}",
        b'{"text": "as long as it gets",}',
        b'{"text": "as long as it gets"',
        b"\xff" * 50,
    ]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(b"\n".join(cases) + b"\n")
    found, _ = judged_file(source, target)
    assert {row.reason for row in found} == {"row_too_long"}
    lines = target.read_bytes().splitlines()
    assert [without_verdict(line) for line in lines] == cases
    for line in lines:
        json.loads(line)


def test_blocks_are_read_by_themselves(tmp_path: Path, small_blocks: None) -> None:
    path = tmp_path / "a.csv"
    texts = [f"number {n}\nand {'x' * (n % 70)}" for n in range(50)]
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([["text"], *([t] for t in texts)])
    plan = planned(path)
    assert len(plan) > 16
    assert [row.text for row in read_rows(plan)] == texts
    assert [plan.block_of(plan[n].first) for n in range(len(plan))] == list(range(len(plan)))
    assert sum(plan[n].rows for n in range(len(plan))) == plan.rows == 50


@pytest.mark.parametrize("reason", ["crashed", "row_too_long"])
@pytest.mark.parametrize("raw", [b"[1, 2]\n", b'"a"', b"{}", b"1\n", b"no json }\n", b'{"a": 1}\n'])
def test_a_row_that_was_not_read_is_joined_as_an_object(raw: bytes, reason: str) -> None:
    form = line_formats.JsonLines("text", PREFIX)
    verdict = LINES.of_reason(reason)
    joined = b"".join(form.joined(raw, verdict, json.loads(verdict)))
    row = json.loads(joined)
    assert row[f"{PREFIX}unjudged"] == reason
    assert row.get("a") == (1 if raw.startswith(b'{"a"') else None)
