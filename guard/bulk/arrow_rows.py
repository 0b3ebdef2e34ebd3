"""Parquet: texts read page by page, and tables written with the verdicts' columns added."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from guard.bulk.line_formats import check_columns
from guard.bulk.rows import COLUMNS, MOST_READ, RowText, checked_text
from guard.bulk.sources import InputFile, arrow_modules, open_input
from guard.errors import UsageError

# Bytes of a batch that is read, and of a row group that is written.
_BATCH, _GROUP = 4 * 2**20, 32 * 2**20
_MOST_ROWS = 65_536


class ParquetInput:
    """A Parquet file whose ``column`` is read forward, so that a reader decodes a page once."""

    def __init__(self, file: InputFile, column: str) -> None:
        _, parquet = arrow_modules()
        self._name, self._column = file.name, column
        self._source: IO[bytes] = open_input(file.path)
        try:
            self.file = parquet.ParquetFile(self._source, pre_buffer=False, buffer_size=2**20)
        except Exception as error:  # of Arrow, or OSError
            self._source.close()
            raise UsageError(f"{file.name} is no Parquet file that can be read: {error}") from None
        self._group, self._row = -1, 0
        self._rows: Iterator[RowText] = iter(())

    def close(self) -> None:
        """Close the file."""
        self.file.close(force=True)
        self._source.close()

    def check(self, prefix: str) -> None:
        """Raise UsageError unless the column is there once and holds text."""
        pyarrow, _ = arrow_modules()
        schema = self.file.schema_arrow
        own = [prefix + name for name in COLUMNS]
        check_columns(schema.names, self._column, own, self._name)
        kind = schema.field(self._column).type
        inner = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
        if str(inner) not in _TEXTS:
            raise UsageError(
                f"{self._name}: the column {self._column!r} holds {kind}, not text; name another "
                "one with --column."
            )

    def group_sizes(self) -> list[int]:
        """Return the number of rows of each row group."""
        metadata = self.file.metadata
        return [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]

    def texts(self, group: int, begin: int, end: int) -> list[RowText]:
        """Return the texts of a row group's rows ``begin`` to ``end``."""
        if group != self._group or begin < self._row:
            self._group, self._row = group, 0
            self._rows = self._texts_of(group)
        texts = list(islice(self._rows, begin - self._row, end - self._row))
        self._row = end
        return texts

    def _texts_of(self, group: int) -> Iterator[RowText]:
        names = [self._column]
        for batch in self.batches(group, _BATCH, names):
            yield from map(_read_value, _as_binary(batch.column(0)))

    def batches(self, group: int, most: int, columns: list[str] | None = None) -> Iterator[Any]:
        """Yield the batches of a row group, each of about ``most`` bytes at most."""
        size = self.file.metadata.row_group(group)
        each = max(1, size.total_byte_size // max(1, size.num_rows))
        rows = max(1, min(_MOST_ROWS, most // each))
        yield from self.file.iter_batches(batch_size=rows, row_groups=[group], columns=columns)


_TEXTS = {
    *("string", "large_string", "string_view", "binary", "large_binary", "binary_view", "null"),
}


def _as_binary(values: Any) -> list[bytes | None]:
    """Return the bytes of an array of texts: those that are not UTF-8 are told apart here."""
    pyarrow, _ = arrow_modules()
    if pyarrow.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    listed: list[bytes | None] = values.cast(pyarrow.large_binary()).to_pylist()
    return listed


def _read_value(value: bytes | None) -> RowText:
    if value is None:
        return RowText(reason="null")
    if len(value) > MOST_READ:
        return RowText(reason="row_too_long")
    try:
        return checked_text(value.decode("utf-8"))
    except UnicodeDecodeError:
        return RowText(reason="not_utf8")


def write_parquet(
    file: InputFile, column: str, prefix: str, verdicts: Iterator[dict[str, Any]], target: Path
) -> None:
    """Write a file's rows with their verdicts' columns; each row's are one of ``verdicts``.

    The schema, its metadata and the columns' compression stay; row groups are made anew.
    """
    pyarrow, parquet = arrow_modules()
    source = ParquetInput(file, column)
    try:
        schema = source.file.schema_arrow
        added = [pyarrow.field(prefix + c, getattr(pyarrow, _KINDS[c])()) for c in COLUMNS]
        whole = pyarrow.schema([*schema, *added], metadata=schema.metadata)
        with parquet.ParquetWriter(target, whole, compression=_compression(source)) as writer:
            for table in _tables(source, schema):
                rows = list(islice(verdicts, table.num_rows))
                columns = [
                    pyarrow.array([_encodable(row[field.name]) for row in rows], field.type)
                    for field in added
                ]
                arrays = [*table.columns, *columns]
                writer.write_table(
                    pyarrow.Table.from_arrays(arrays, schema=whole),
                    row_group_size=max(1, table.num_rows),
                )
    finally:
        source.close()


# The columns' types; texts else.
_KINDS = {
    **dict.fromkeys(COLUMNS, "string"),
    "biased": "bool_",
    "score": "float64",
    "threshold": "float64",
    "unjudged_segments": "int32",
}


def _tables(source: ParquetInput, schema: Any) -> Iterator[Any]:
    """Yield the rows in tables of a bounded size."""
    pyarrow, _ = arrow_modules()
    waiting: list[Any] = []
    for group in range(source.file.metadata.num_row_groups):
        for batch in source.batches(group, _BATCH):
            waiting.append(batch)
            rows, size = sum(b.num_rows for b in waiting), sum(b.nbytes for b in waiting)
            if rows >= _MOST_ROWS or size >= _GROUP:
                yield pyarrow.Table.from_batches(waiting, schema)
                waiting = []
    if waiting:
        yield pyarrow.Table.from_batches(waiting, schema)


_WRITTEN = {"UNCOMPRESSED": "NONE"}  # Arrow's reader has another word for it than its writer


def _compression(source: ParquetInput) -> Any:
    """Return the codec of each column, for a writer."""
    metadata = source.file.metadata
    if not metadata.num_row_groups:
        return "NONE"
    group = metadata.row_group(0)
    columns = [group.column(n) for n in range(group.num_columns)]
    codecs = {c.path_in_schema: _WRITTEN.get(c.compression, c.compression) for c in columns}
    usual = next(iter(codecs.values()), "NONE")
    return usual if len(set(codecs.values())) == 1 else codecs


def _encodable(value: Any) -> Any:
    """Return a value with lone surrogates replaced: a group's name may have them."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
