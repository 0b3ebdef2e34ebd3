"""Parquet: the table without the verdicts' columns is the input's, with types and metadata."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.bulk import arrow_rows, planning
from guard.bulk.rows import COLUMNS
from guard.errors import UsageError
from tests.bulk.made import PREFIX, judged_file, planned, read_rows
from tests.rows import examples

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

TIMES = st.integers(-(2**62), 2**62)
COLUMN_KINDS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.timestamp("ns"), TIMES),
    (pa.timestamp("us", "Europe/Berlin"), st.integers(0, 2**50)),
    (pa.date32(), st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1))),
    (pa.decimal128(38, 9), st.decimals(-(10**20), 10**20, places=9).map(decimal.Decimal)),
    (pa.list_(pa.int64()), st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=3)),
    (pa.struct([("a", pa.int64()), ("b", pa.string())]), st.just({"a": 2**53 + 1, "b": None})),
    (pa.large_string(), st.text(st.characters(codec="utf-8"), max_size=9)),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["a", "b", "2020-01-01"])),
    (pa.binary(), st.binary(max_size=5)),
    (pa.bool_(), st.booleans()),
]
TEXTS = [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()), pa.binary()]


@st.composite
def tables(draw: st.DrawFn) -> Any:
    count = draw(st.integers(0, 25))
    kinds = draw(st.lists(st.sampled_from(COLUMN_KINDS), max_size=5))
    some = st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=9))
    drawn = draw(st.lists(some, min_size=count, max_size=count))
    kind = draw(st.sampled_from(TEXTS))
    texts: list[Any] = [t.encode() if kind == pa.binary() and t is not None else t for t in drawn]
    arrays = [pa.array(texts, kind)]
    fields = [pa.field("text", kind, metadata={"about": "said"})]
    for number, (other, values) in enumerate(kinds):
        several = st.lists(st.one_of(st.none(), values), min_size=count, max_size=count)
        arrays.append(pa.array(draw(several), other))
        fields.append(pa.field(f"c.{number}", other))
    metadata = draw(st.sampled_from([None, {"pandas": "{}", "k": "v"}]))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata))


@given(table=tables(), group=st.integers(1, 10), codec=st.sampled_from(["snappy", "zstd", "none"]))
@examples(80)
def test_parquet_keeps_its_table(
    tmp_path_factory: pytest.TempPathFactory, table: Any, group: int, codec: str
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    source, target = folder / "in.parquet", folder / "out.parquet"
    pq.write_table(table, source, row_group_size=group, compression=codec)
    judged_file(source, target)
    before, after = pq.read_table(source), pq.read_table(target)
    own = [PREFIX + name for name in COLUMNS]
    assert after.schema.names[-len(own) :] == own
    kept = after.drop_columns(own)
    assert kept.schema.equals(before.schema, check_metadata=True)
    assert kept.equals(before)
    written = pq.ParquetFile(target).metadata
    if table.num_rows:
        codecs = {written.row_group(0).column(0).compression}
        assert codecs == {"UNCOMPRESSED" if codec == "none" else codec.upper()}
    for text, reason in zip(
        after["text"].to_pylist(), after["guard_unjudged"].to_pylist(), strict=True
    ):
        assert (reason == "null") == (text is None)


def test_reading_goes_forward_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "BLOCK_ROWS", 7)
    monkeypatch.setattr(arrow_rows, "_BATCH", 300)
    path = tmp_path / "a.parquet"
    texts = [f"text {n}" for n in range(100)]
    pq.write_table(pa.table({"n": range(100), "text": texts}), path, row_group_size=30)
    plan = planned(path)
    assert [row.text for row in read_rows(plan)] == texts
    source = arrow_rows.ParquetInput(plan.inputs[0], "text")
    for number in (3, 4, 0, 2, 2, len(plan) - 1):
        block = plan[number]
        read = source.texts(block.group, block.begin, block.end)
        assert [row.text for row in read] == texts[block.first : block.first + block.rows]
    source.close()


def test_text_that_is_not_utf8_is_a_row_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    raw = pa.array([b"caf\xe9", b"tea", None], pa.binary())
    broken = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    pq.write_table(pa.table({"text": broken}), path)
    rows, _ = judged_file(path, tmp_path / "out.parquet")
    assert [row.reason for row in rows] == ["not_utf8", None, "null"]


def test_what_is_no_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 no")
    with pytest.raises(UsageError, match="is no Parquet file"):
        planned(path)


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.list_(pa.string()), pa.struct([("a", pa.string())])], ids=str
)
def test_a_column_that_holds_no_text_is_refused(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array([None], kind)}), path)
    with pytest.raises(UsageError, match="not text; name another one"):
        planned(path)
