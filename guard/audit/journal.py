"""The journal of one suite's audit: what was asked and answered, written once and never changed.

A file of compressed JSON lines (gzip, one member a run), the first of which is the header. A line
is flushed through the compressor to the operating system before the next call is made, so a
process that is killed loses no answer it had; what it was writing then is cut off when the journal
is opened again. A finished journal is a plain ``.jsonl.gz``.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from guard.audit.calls import Call, Guarded
from guard.audit.header import Header
from guard.audit.records import Line, line_of, record_of
from guard.errors import UsageError

_GZIP = 16 + zlib.MAX_WBITS
_MAGIC = b"\x1f\x8b"
_LEVEL = 6
_BLOCK = 1 << 16


class Journal:
    """Appends to one journal, and holds what it has: calls and readings by key.

    ``calls`` has the outcome that counts: an answer wherever there is one, for a request that
    failed is asked again by the next run. Raises UsageError where the file is no journal, is of an
    audit that cannot be compared with ``header``, or is being written by another process.
    """

    def __init__(self, path: Path, header: Header) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(f"{path}.lock")
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise UsageError(
                f"{path} is being written by another audit; wait for it, or give another --out."
            ) from None
        self.path = path
        self.calls: dict[str, Call] = {}
        self.readings: dict[str, Guarded] = {}
        try:
            self._file = self._open(header)
        except BaseException:
            self._lock.release()
            raise

    def _open(self, header: Header) -> Any:
        self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        if self.path.is_file() and self.path.stat().st_size:
            reading = Reader(self.path)
            lines = list(reading)
            if lines:
                Header.of(lines[0], self.path).check(header, self.path)
                for line in lines[1:]:
                    self._take(record_of(line))
                if reading.damaged:
                    self.path.rename(self.path.with_name(f"{self.path.name}.damaged"))
                if reading.torn:
                    write(self.path, lines)
                return self.path.open("ab")
        file = self.path.open("wb")
        file.write(self._packed(header.line()))
        file.flush()
        return file

    def add(self, record: Call | Guarded) -> None:
        """Write ``record``; when this returns the operating system has it."""
        self._file.write(self._packed(line_of(record)))
        self._file.flush()
        self._take(record)

    def close(self) -> None:
        """End the file so that any tool can read it."""
        if not self._file.closed:
            self._file.write(self._deflate.flush(zlib.Z_FINISH))
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._lock.release()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, record: Call | Guarded) -> None:
        if isinstance(record, Guarded):
            self.readings[record.key] = record
        elif record.reply is not None or record.key not in self.calls:
            self.calls[record.key] = record

    def _packed(self, line: Line) -> bytes:
        data = self._deflate.compress(_encoded(line))
        return data + self._deflate.flush(zlib.Z_SYNC_FLUSH)


class Reader:
    """The whole lines of a journal, from the first.

    ``torn`` says whether it ends without its end, as one does whose writer was killed or is still
    at work; ``damaged`` whether what follows the last line is nothing that was ever written.
    Raises UsageError where the file is no journal.
    """

    def __init__(self, path: Path) -> None:
        self.torn = False
        self.damaged = False
        self._path = path

    def __iter__(self) -> Iterator[Line]:
        rest, first = b"", True
        for text in self._inflated():
            *whole, rest = (rest + text).split(b"\n")
            for line in whole:
                try:
                    yield json.loads(line)
                except ValueError:
                    if first:
                        raise self._no_journal() from None
                    self.torn = self.damaged = True
                    return
                first = False
        self.torn = self.torn or bool(rest)

    def _inflated(self) -> Iterator[bytes]:
        """Yield what can be unpacked; a member that has no end tears the file."""
        inflate = zlib.decompressobj(_GZIP)
        ended = True  # no member is open
        with self._path.open("rb") as file:
            while data := file.read(_BLOCK):
                if file.tell() == len(data) and not data.startswith(_MAGIC[: len(data)]):
                    raise self._no_journal()
                while data:
                    ended, before = False, inflate.copy()
                    try:
                        text = inflate.decompress(data)
                    except zlib.error:
                        self.torn = self.damaged = True
                        yield _until_damage(before, data)
                        return
                    if text:
                        yield text
                    data = inflate.unused_data
                    if inflate.eof:
                        inflate, ended = zlib.decompressobj(_GZIP), True
        self.torn = self.torn or not ended

    def _no_journal(self) -> UsageError:
        return UsageError(f"{self._path} is no journal of an audit.")


def _until_damage(inflate: Any, data: bytes) -> bytes:
    """Return what can be unpacked of ``data``, in which something is wrong."""
    text = bytearray()
    try:
        for place in range(len(data)):
            text += inflate.decompress(data[place : place + 1])
    except zlib.error:
        pass
    return bytes(text)


def read(path: Path) -> tuple[Header, list[Call | Guarded]]:
    """Return the header and the records of a journal, which may still be being written.

    Raises UsageError where ``path`` is no journal or has no header.
    """
    if not path.is_file():
        raise UsageError(f"There is no journal at {path}.")
    lines = iter(Reader(path))
    first = next(lines, None)
    if first is None:
        raise UsageError(f"{path} is no journal of an audit.")
    return Header.of(first, path), [record_of(line) for line in lines]


def latest(
    records: Iterable[Call | Guarded],
) -> tuple[dict[str, Call], dict[str, Guarded]]:
    """Return the outcome of each request by key, an answer before any failure, and the readings."""
    calls: dict[str, Call] = {}
    readings: dict[str, Guarded] = {}
    for record in records:
        if isinstance(record, Guarded):
            readings[record.key] = record
        elif record.reply is not None or record.key not in calls:
            calls[record.key] = record
    return calls, readings


def write(path: Path, lines: Iterable[Line]) -> None:
    """Write a whole journal: all of it appears under its name, or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    with beside.open("wb") as file:
        for line in lines:
            file.write(deflate.compress(_encoded(line)))
        file.write(deflate.flush(zlib.Z_FINISH))
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def _encoded(line: Line) -> bytes:
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass") + b"\n"
