"""Reads the rows of a file one at a time, each with its line; no file is loaded whole.

A file is a table (CSV, or with tabs, semicolons or bars for commas) or JSON lines, plain or
compressed (``.gz``, ``.xz``); StereoSet's nested JSON has its own reader. Names of columns and keys
are folded to lower case.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import lzma
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar, cast

from guard.errors import UsageError

T = TypeVar("T")
Values = Mapping[str, Any]
#: Is called with the reason why a row was skipped, with its file and line.
Skipped = Callable[[str], None]

#: The suffixes of compressed files.
COMPRESSED = (".gz", ".xz")
#: The errors of reading a damaged compressed file.
DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)
_DELIMITERS = ",\t;|"
_QUOTED = re.compile(r'"[^"]*"')
_HEAD = 4096
# Without its mark a UTF-16 file has a zero in every character of English, as in names of columns.
_UTF16 = re.compile(rb"(?:[^\0]\0){3}|(?:\0[^\0]){3}")
_CHUNK = 1 << 16
# An item of a nested file has a few kilobytes; a longer one has lost its closing bracket.
_LONGEST_ITEM = 1 << 20


class BadRow(ValueError):
    """A row cannot be read; the message is the reason, without the place and the row."""


class FileRow(NamedTuple):
    """One record and its first line; ``broken`` is the reason if it could not be read.

    ``item`` counts the items of a nested file, from 1; ``line`` is 0 in a file without lines.
    """

    line: int
    values: Values
    broken: str = ""
    item: int = 0

    @property
    def place(self) -> str:
        """The line and item of the row, for messages."""
        places = [f"line {self.line}"] if self.line else []
        return ", ".join(places + ([f"item {self.item}"] if self.item else []))


def convert_rows(
    path: Path,
    rows: Iterable[FileRow],
    make: Callable[[FileRow], T],
    skipped: Skipped | None,
    hint: str = "Correct the row or give --skip-bad.",
) -> Iterator[T]:
    """Yield ``make(row)`` for each row; ``make`` raises ValueError with the reason for a bad row.

    The reason goes to ``skipped``. If that is None, a bad row raises UsageError with file, line,
    reason and ``hint``.
    """
    for row in rows:
        try:
            if row.broken:
                raise BadRow(row.broken)
            result = make(row)
        except ValueError as error:  # noqa: PERF203 - any single row may be bad
            reason = f"{path}, {row.place}: {error}"
            if skipped is None:
                raise UsageError(f"{reason}. {hint}") from None
            skipped(reason)
        else:
            yield result


def has_surrogate(text: str) -> bool:
    """Whether ``text`` has a lone surrogate, of a JSON escape or of bytes that are not UTF-8."""
    return not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text)


def text_field(row: Values, name: str) -> str:
    """Return the text of a field with its whitespace collapsed, "" for null.

    Raises BadRow if the field is missing, is not a text, or has bytes that are not UTF-8.
    """
    if name not in row:
        raise BadRow(f"'{name}' is missing")
    value = row[name]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadRow(f"'{name}' must be a string")
    if has_surrogate(value):
        raise BadRow(f"'{name}' is not UTF-8 text; convert the file first")
    return " ".join(value.split())


def is_nested(path: Path) -> bool:
    """Whether the file is one JSON object that contains the rows, as StereoSet is published."""
    head = _checked_head(path).lstrip()
    return head.startswith("{") and re.search(r'"data"\s*:\s*\{', head) is not None


def column_names(path: Path) -> tuple[str, ...]:
    """Return the columns of a table, or the keys of the first object of JSON lines."""
    first = _first_line(path)
    if not first.startswith(("{", "[")):
        return tuple(_parsed_header(path, first)[0])
    return next((tuple(row.values) for row in read_rows(path) if not row.broken), ())


def read_rows(path: Path) -> Iterator[FileRow]:
    """Yield the rows of a table or of JSON lines, without blank lines.

    Raises UsageError if the file cannot be read or is empty.
    """
    first = _first_line(path)
    if first.startswith("{"):
        return object_rows(path)
    if first.startswith("["):
        raise UsageError(f"{path} is a JSON list; write one object a line instead (JSON lines).")
    return _table_rows(path, first)


def nested_objects(path: Path, key: str) -> Iterator[FileRow]:
    """Yield the objects of the list that a JSON file has under ``key``, at any depth.

    Raises UsageError if there is no such list or it is broken: reading cannot continue after a
    broken object.
    """
    opening = re.compile(rf'"{re.escape(key)}"\s*:\s*\[')
    decoder = json.JSONDecoder()
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        buffer, line, number = "", 1, 0
        while (start := opening.search(buffer)) is None:
            # The end of the chunk may have cut the key.
            passed, buffer = buffer[:-200], buffer[-200:]
            line += passed.count("\n")
            if not (more := file.read(_CHUNK)):
                raise UsageError(f"{path} has no list named '{key}'.")
            buffer += more
        line += buffer.count("\n", 0, start.end())
        buffer = buffer[start.end() :]
        while True:
            rest = buffer.lstrip(", \t\r\n")
            line += buffer.count("\n", 0, len(buffer) - len(rest))
            buffer = rest
            if buffer.startswith("]"):
                return
            try:
                item, end = decoder.raw_decode(buffer)
            except json.JSONDecodeError as error:
                more = file.read(_CHUNK) if len(buffer) < _LONGEST_ITEM else ""
                if not more:
                    reason = f"{path}, line {line}: item {number + 1} of '{key}' is not JSON"
                    raise UsageError(f"{reason} ({error.msg}); fix the file.") from None
                buffer += more
                continue
            except RecursionError:
                reason = f"{path}, line {line}: item {number + 1} of '{key}'"
                raise UsageError(f"{reason} is nested too deeply; fix the file.") from None
            number += 1
            yield _object_row(line, item, number)
            line += buffer.count("\n", 0, end)
            buffer = buffer[end:]


def _decoded_lines(path: Path) -> Iterator[str]:
    # Bytes that are not UTF-8 become surrogates, so that their row can be named.
    with open_decompressed(path) as file:
        try:
            for number, raw in enumerate(file):
                yield raw.decode("utf-8" if number else "utf-8-sig", errors="surrogateescape")
        except DAMAGED as error:
            raise UsageError(f"{path} cannot be read: {error}.") from None


def open_decompressed(path: Path) -> IO[bytes]:
    """Open a file for reading bytes, decompressed; a damaged one raises one of DAMAGED."""
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path))
    return lzma.open(path) if path.suffix == ".xz" else path.open("rb")


def _checked_head(path: Path) -> str:
    """Return the beginning of a file; raise UsageError unless it is text and can be read twice."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode):
            raise UsageError(
                f"{path} is a pipe or a device, and a file of statements is read more than once; "
                "write it to a file first."
            )
        with open_decompressed(path) as file:
            head = file.read(_HEAD)
    except (OSError, *DAMAGED) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be read: {reason}.") from None
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or _UTF16.search(head):
        raise UsageError(f"{path} is UTF-16; save it as UTF-8.")
    if b"\r" in head and b"\n" not in head:
        raise UsageError(
            f"{path} ends its lines with CR alone, as old Macs did; save it with LF or CRLF."
        )
    return head.decode("utf-8-sig", errors="replace")


def _first_line(path: Path) -> str:
    _checked_head(path)
    for line in _decoded_lines(path):
        if line.strip():
            return line.lstrip()
    raise UsageError(f"{path} is empty.")


def _parsed_header(path: Path, line: str) -> tuple[list[str], str]:
    bare = _QUOTED.sub("", line)
    delimiter = max(_DELIMITERS, key=bare.count)
    try:
        names = next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise UsageError(f"{path}, line 1: the header is broken: {error}.") from None
    names = [name.strip().casefold() for name in names]
    for name in names:
        if name and names.count(name) > 1:
            raise UsageError(f"{path} has {names.count(name)} columns {name!r}; keep one of them.")
    return names, delimiter


def _table_rows(path: Path, first: str) -> Iterator[FileRow]:
    header, delimiter = _parsed_header(path, first)
    reader = csv.reader(_decoded_lines(path), delimiter=delimiter, strict=True)
    began = False
    while True:
        line = reader.line_num + 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield FileRow(line, {}, f"the table is broken: {error}")
            continue
        if not any(value.strip() for value in values):
            continue
        if not began:
            began = True
        elif len(values) != len(header):
            yield FileRow(line, {}, f"the row has {len(values)} fields, the header {len(header)}")
        else:
            yield FileRow(line, dict(zip(header, values, strict=True)))


def object_rows(path: Path) -> Iterator[FileRow]:
    """Yield the rows of a file of JSON lines, without blank lines.

    Raises UsageError if the file cannot be read.
    """
    _checked_head(path)
    for number, line in enumerate(_decoded_lines(path), 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except ValueError:
            yield FileRow(number, {}, "the line is not JSON")
        except RecursionError:
            yield FileRow(number, {}, "the line is nested too deeply")
        else:
            yield _object_row(number, item)


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON lines.

    Raises UsageError if it cannot be read, and for the first line that is no object in UTF-8.
    """
    return convert_rows(path, object_rows(path), whole_values, None, "Correct the line.")


def whole_values(row: FileRow) -> dict[str, Any]:
    """Return the values of a row; raise BadRow if one is a text that is not UTF-8."""
    if any(isinstance(value, str) and has_surrogate(value) for value in row.values.values()):
        raise BadRow("the line is not UTF-8 text; convert the file first")
    return dict(row.values)


def _object_row(line: int, item: Any, number: int = 0) -> FileRow:
    if not isinstance(item, dict):
        return FileRow(line, {}, f"the {'item' if number else 'line'} is not a JSON object", number)
    return FileRow(line, {key.casefold(): value for key, value in item.items()}, item=number)
