"""JSON lines, CSV and text: how a row is read, and how verdicts are added to its own bytes.

Nothing is rendered anew. A row of JSON gets its verdict before the closing brace, so that the order
of keys, repeated keys, long numbers and escapes stay. In CSV the verdict's columns come first:
there a row with too many or too few fields keeps them under their own names.
"""

from __future__ import annotations

import base64
import codecs
import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from typing import IO, Any, Protocol

from guard.bulk.rows import (
    COLUMNS,
    MOST_READ,
    MOST_ROW,
    NO_OBJECT,
    RowText,
    checked_text,
    column_names,
)
from guard.bulk.sources import InputFile
from guard.errors import UsageError

_BOM = codecs.BOM_UTF8
_PIECE = 2**20
_SPACE = 4096  # bytes of white space that are looked through
_BLANK = b" \t\r\n"
_Bytes = bytes | memoryview


class LineFormat(Protocol):
    """A format whose rows follow each other as bytes."""

    def read_header(self, file: IO[bytes]) -> None:
        """Read what stands before the first row; raises UsageError if the column is not there."""
        ...

    def read_row(self, raw: bytes) -> RowText:
        """Return the text of a row."""
        ...

    def header(self) -> bytes:
        """Return what is written before the first row."""
        ...

    def joined(self, raw: bytes, verdict: bytes, fields: dict[str, Any]) -> Iterator[_Bytes]:
        """Yield a row with its verdict: its line, and the same as values."""
        ...


def line_format(file: InputFile, column: str, prefix: str) -> LineFormat:
    """Return the format of a file that is not Parquet."""
    if file.format == "text":
        return TextLines(prefix)
    if file.format == "jsonl":
        return JsonLines(column, prefix)
    return CsvRows(file, column, prefix)


def raw_rows(
    file: IO[bytes], form: LineFormat, name: str, end: int | None = None
) -> Iterator[bytes]:
    """Yield the rows from here to the offset ``end``, each with its line end.

    Raises UsageError if one is longer than MOST_ROW.
    """
    quoted = form.delimiter if isinstance(form, CsvRows) else None
    begin = file.tell()
    while end is None or begin < end:
        raw = file.readline(MOST_ROW + 1)
        if quoted and b'"' in raw:
            raw = _whole_record(file, raw, quoted, name, begin)
        if len(raw) > MOST_ROW:
            raise UsageError(
                f"{name} has a row of more than {MOST_ROW >> 20} MiB at byte {begin:,}; if its "
                "rows do not end with a line feed, convert it first."
            )
        if not raw:
            return
        begin += len(raw)
        yield raw


def is_blank(raw: bytes, form: LineFormat) -> bool:
    """Whether a line is no row, but copied as it is."""
    if isinstance(form, TextLines):
        return False
    return not raw.strip(_BLANK) if isinstance(form, JsonLines) else raw in (b"\n", b"\r\n")


def _whole_record(file: IO[bytes], raw: bytes, delimiter: bytes, name: str, begin: int) -> bytes:
    """Return a record of CSV with the further lines that its quoted fields hold."""
    lines, length = [raw], len(raw)
    inside = _is_open(raw, delimiter, False)
    while inside and length <= MOST_ROW:
        line = file.readline(MOST_ROW + 1)
        if not line:
            break
        lines.append(line)
        length += len(line)
        inside = _is_open(line, delimiter, True)
    if inside:
        raise UsageError(
            f"{name} has a quoted field at byte {begin:,} that is not closed within "
            f"{MOST_ROW >> 20} MiB; close it, or double the quotation mark."
        )
    return b"".join(lines)


_QUOTED = re.compile(rb'[^"]*(?:""[^"]*)*')


def _is_open(line: bytes, delimiter: bytes, inside: bool) -> bool:
    """Whether a quoted field is open at the end of a line, as Python's ``csv`` reads it."""
    at = 0
    while True:
        if not inside and line[at : at + 1] == b'"':
            inside, at = True, at + 1
        if inside:
            match = _QUOTED.match(line, at)
            assert match is not None  # it may be empty
            at = match.end() + 1
            if at > len(line):
                return True
            inside = False
        at = line.find(delimiter, at) + 1
        if not at:
            return False


# What stands before the closing brace if no member does.
_NO_MEMBER = (b"", b"{", b",", b":")


class _Pairs(list[tuple[str, Any]]):
    """The members of an object."""


# A number of any length is a number; only texts are read.
_DECODER = json.JSONDecoder(object_pairs_hook=_Pairs, parse_int=float)


class JsonLines:
    """One JSON object a line."""

    def __init__(self, column: str, prefix: str) -> None:
        self._column = column
        self._names = column_names(prefix)
        self._own = set(self._names.values())
        self._marks = [json.dumps(name).encode() for name in self._own]

    def read_header(self, file: IO[bytes]) -> None:
        """Leave the mark of the byte order, which stays with the first row."""

    def header(self) -> bytes:
        """Return nothing: there is no header."""
        return b""

    def read_row(self, raw: bytes) -> RowText:
        """Return the text of the column."""
        pairs = _members(raw)
        if isinstance(pairs, RowText):
            return pairs
        values = [value for key, value in pairs if key == self._column]
        if any(key in self._own for key, _ in pairs):
            return RowText(reason="clash")
        if len(values) != 1:
            return RowText(reason="repeated" if values else "missing")
        return checked_text(values[0])

    def keys(self, raw: bytes) -> list[str]:
        """Return the columns of a row, none if it is no object."""
        pairs = _members(raw)
        return [] if isinstance(pairs, RowText) else [key for key, _ in pairs]

    def clashing(self, raw: bytes) -> str | None:
        """Return a column of a row that has the name of a verdict's, written without escapes."""
        if not any(mark in raw for mark in self._marks):
            return None
        return next((key for key in self.keys(raw) if key in self._own), None)

    def joined(self, raw: bytes, verdict: bytes, fields: dict[str, Any]) -> Iterator[_Bytes]:
        """Yield the row with its verdict before the closing brace."""
        reason = fields[self._names["unjudged"]]
        brace = len(raw.rstrip(_BLANK)) - 1
        before = raw[max(0, brace - _SPACE) : brace].rstrip(_BLANK)[-1:]
        whole = reason not in ("row_too_long", "crashed") or _may_be_object(raw, brace, before)
        if reason in NO_OBJECT or not whole:
            yield from _wrapped(raw, verdict, self._names)
            return
        comma = b"" if (before or raw[:brace].rstrip(_BLANK)[-1:]) == b"{" else b","
        yield from (memoryview(raw)[:brace], comma, verdict[1:], raw[brace + 1 :])


def _may_be_object(raw: bytes, brace: int, before: bytes) -> bool:
    """Whether a row that was not read begins and ends as an object with members."""
    start = raw[:_SPACE].removeprefix(_BOM).lstrip(_BLANK)
    return start.startswith(b"{") and raw[brace:][:1] == b"}" and before not in _NO_MEMBER


def _members(raw: bytes) -> _Pairs | RowText:
    if len(raw) > MOST_READ:
        return RowText(reason="row_too_long")
    try:
        value = _DECODER.decode(raw.removeprefix(_BOM).decode("utf-8"))
    except UnicodeDecodeError:
        return RowText(reason="not_utf8")
    except (ValueError, RecursionError):
        return RowText(reason="not_json")
    return value if isinstance(value, _Pairs) else RowText(reason="not_object")


class TextLines:
    """One text a line; what is written is JSON lines with the column ``text``."""

    def __init__(self, prefix: str) -> None:
        self._names = column_names(prefix)

    def read_header(self, file: IO[bytes]) -> None:
        """Do nothing."""

    def header(self) -> bytes:
        """Return nothing: there is no header."""
        return b""

    def read_row(self, raw: bytes) -> RowText:
        """Return the line without its end."""
        if len(raw) > MOST_READ:
            return RowText(reason="row_too_long")
        try:
            return checked_text(_without_end(raw).decode("utf-8"))
        except UnicodeDecodeError:
            return RowText(reason="not_utf8")

    def joined(self, raw: bytes, verdict: bytes, fields: dict[str, Any]) -> Iterator[_Bytes]:
        """Yield an object of the text and its verdict."""
        yield from _wrapped(_without_end(raw) + b"\n", verdict, {**self._names, "row": "text"})


def _without_end(raw: bytes) -> bytes:
    return raw.removeprefix(_BOM).removesuffix(b"\n").removesuffix(b"\r")


def _wrapped(raw: bytes, verdict: bytes, names: dict[str, str]) -> Iterator[bytes]:
    """Yield an object that holds a row as a string, and its verdict.

    A row that is not UTF-8 is Base64. It comes in pieces, as it may be long.
    """
    body, end = (raw[:-1], b"\n") if raw.endswith(b"\n") else (raw, b"")
    pieces = range(0, len(body), 3 * _PIECE)
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for at in pieces:
            decoder.decode(body[at : at + 3 * _PIECE])
        decoder.decode(b"", final=True)
        name = names["row"]
    except UnicodeDecodeError:
        name = names["row_base64"]
    yield f'{{{json.dumps(name)}:"'.encode()
    decoder = codecs.getincrementaldecoder("utf-8")()
    for at in pieces:
        piece = body[at : at + 3 * _PIECE]
        if name == names["row_base64"]:
            yield base64.b64encode(piece)
        else:
            yield json.dumps(decoder.decode(piece), ensure_ascii=False)[1:-1].encode()
    yield b'",' + verdict[1:] + end


class CsvRows:
    """Records of CSV or TSV with a header, their quoted fields over several lines where need be."""

    def __init__(self, file: InputFile, column: str, prefix: str) -> None:
        self.delimiter = file.delimiter.encode()
        self._file = file
        self._column = column
        self._names = [prefix + name for name in COLUMNS]
        self._header = b""
        self._at = self._count = 0

    def read_header(self, file: IO[bytes]) -> None:
        """Read the header; raises UsageError unless it has the column once and no verdict's."""
        name = self._file.name
        self._header = next(raw_rows(file, self, name), b"")
        fields = self._fields(self._header.removeprefix(_BOM))
        if fields is None or not any(fields):
            raise UsageError(
                f"{name} does not begin with a header: a line with the columns' names."
            )
        check_columns(fields, self._column, self._names, name)
        self._at, self._count = fields.index(self._column), len(fields)

    def header(self) -> bytes:
        """Return the header with the verdict's columns."""
        mark = _BOM if self._header.startswith(_BOM) else b""
        return mark + self._line(self._names) + self.delimiter + self._header[len(mark) :]

    def read_row(self, raw: bytes) -> RowText:
        """Return the text of the column."""
        if len(raw) > MOST_READ:
            return RowText(reason="row_too_long")
        try:
            fields = self._fields(raw)
        except UnicodeDecodeError:
            return RowText(reason="not_utf8")
        if fields is None:
            return RowText(reason="not_csv")
        if len(fields) != self._count:
            return RowText(reason="ragged")
        return checked_text(fields[self._at])

    def joined(self, raw: bytes, verdict: bytes, fields: dict[str, Any]) -> Iterator[_Bytes]:
        """Yield the record after its verdict."""
        yield self._line([_as_field(value) for value in fields.values()])
        yield self.delimiter
        yield raw

    def _fields(self, raw: bytes) -> list[str] | None:
        """Return the fields of a record; None if it is no record."""
        csv.field_size_limit(MOST_READ)
        # The line end goes, so that one within an unquoted field is an error.
        text = raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        lines = io.StringIO(text, newline="")
        try:
            records = list(csv.reader(lines, delimiter=self._file.delimiter, strict=True))
        except csv.Error:
            return None
        return records[0] if len(records) == 1 else None

    def _line(self, fields: Sequence[str]) -> bytes:
        line = io.StringIO()
        csv.writer(line, delimiter=self._file.delimiter, lineterminator="").writerow(fields)
        # A group's name may have a lone surrogate.
        return line.getvalue().encode("utf-8", "replace")


def _as_field(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_columns(columns: Sequence[str], column: str, own: Sequence[str], name: str) -> None:
    """Raise UsageError unless ``columns`` has ``column`` once, and none of a verdict's ``own``."""
    if columns.count(column) != 1:
        what = "has no column" if column not in columns else "has more than one column"
        listed = ", ".join(repr(c) for c in columns[:20])
        raise UsageError(
            f"{name} {what} {column!r}; name the one with the text by --column ({listed})."
        )
    for taken in own:
        if taken in columns:
            raise UsageError(
                f"{name} has a column {taken!r} already; give verdicts another name with --prefix."
            )
