"""The journal of one suite's audit: an append-only log of requests and answers.

A file of compressed JSON lines (gzip, one member a run), the first of which is the header. Each
line is flushed to the operating system before the next call is made, so a killed process loses no
answer; a line cut short is removed when the journal is opened again. The file is synced to disk
every :data:`SYNC_S` seconds. A finished journal is a plain ``.jsonl.gz``.

Every line ends with a checksum over its text and the header's, so lines that were edited or come
from another journal are detected and left out. Damaged bytes cost the lines up to the compressor's
next full flush.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from guard.audit.calls import Call, Guarded, Line, line_of, record_of
from guard.audit.files import GZIP, check_folders
from guard.audit.header import FORMAT, WITHOUT_CHECKSUMS, Header
from guard.errors import UsageError

SYNC_S = 5.0
"""A power failure loses at most the answers of this many seconds."""

_GZIP = 16 + zlib.MAX_WBITS
_LEVEL = 6
FULL_FLUSH_EVERY = 128
"""Lines after which the compressor is reset, which limits the reach of damage."""

_RAW = -zlib.MAX_WBITS
_BLOCK = 1 << 16
# Where reading can resume after damage: behind a flush, or at a gzip member.
_BEGINNINGS = re.compile(rb"\x00\x00\xff\xff|\x1f\x8b\x08")
_HEADER = b'{"k":"header"'
_SUM = re.compile(rb',"sum":"([0-9a-f]{12})"\}$')


class Calls(Mapping[str, Call]):
    """The outcome of each request by key: its answer, else its failure.

    Calls are stored as journal lines and parsed on access, which takes a tenth of the memory.
    """

    def __init__(self) -> None:
        self._lines: dict[str, bytes] = {}
        self._failed: set[str] = set()

    def add(self, call: Call, text: bytes) -> bool:
        """Store ``call``, whose line is ``text``; return False where it is a second answer."""
        if call.key in self._lines and call.key not in self._failed:
            return call.reply is None
        if call.reply is None:
            self._failed.add(call.key)
        else:
            self._failed.discard(call.key)
        self._lines[call.key] = text
        return True

    @property
    def answers(self) -> int:
        """How many requests have an answer."""
        return len(self._lines) - len(self._failed)

    def lines(self) -> Iterator[bytes]:
        """Yield the lines, by key."""
        for key in sorted(self._lines):
            yield self._lines[key]

    def clear(self) -> None:
        """Remove all calls."""
        self._lines.clear()
        self._failed.clear()

    def __getitem__(self, key: str) -> Call:
        found = record_of(json.loads(self._lines[key]))
        assert isinstance(found, Call)
        return found

    def __contains__(self, key: object) -> bool:
        return key in self._lines

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)


@dataclass(slots=True)
class Contents:
    """A journal's header, calls and readings by key.

    ``damaged`` counts the lines left out. ``truncated`` means that the file's end is missing.
    """

    header: Header
    calls: Calls = field(default_factory=Calls)
    readings: dict[str, Guarded] = field(default_factory=dict)
    damaged: int = 0
    truncated: bool = False

    def digest(self) -> str:
        """Return the SHA-256 of the header, calls and readings, independent of their order."""
        found = hashlib.sha256(encoded(self.header.line()))
        for line in self.calls.lines():
            found.update(b"\n" + line)
        for key in sorted(self.readings):
            found.update(b"\n" + encoded(line_of(self.readings[key])))
        return found.hexdigest()


class Journal:
    """Appends to one journal; has its calls and readings by key.

    The next run asks failed requests again. A journal of a smaller sample grows to that of
    ``header``. Raises UsageError where the file is not a journal, is of an audit that is not
    comparable with ``header``, is locked by another process, or cannot be written.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.damaged = 0
        self._lock = FileLock(f"{path}.lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
        except Timeout:
            raise UsageError(
                f"{path} is being written by another audit; wait for it, or give another --out."
            ) from None
        except OSError as error:
            raise _unwritable(path, error) from None
        try:
            self._open(header)
        except OSError as error:
            self._lock.release()
            raise _unwritable(path, error) from None
        except BaseException:
            self._lock.release()
            raise

    def _open(self, header: Header) -> None:
        self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._lines = 0
        self._synced = time.monotonic()
        found = inspect(self.path, header)
        self.calls = found.calls if found else Calls()
        self.readings = found.readings if found else {}
        self._seed = checksum(b"", encoded(header.line()))
        if found is None:
            self._file = self.path.open("wb")
            self._write(encoded(header.line()), b"")
            return
        self.damaged = found.damaged
        if found.damaged:
            shutil.copyfile(self.path, self.path.with_name(f"{self.path.name}.damaged"))
        if found.damaged or found.truncated or found.header != header:
            write(self.path, _intact_lines(self.path, header))
        self._file = self.path.open("ab")

    def add(self, record: Call | Guarded) -> None:
        """Write ``record`` and flush it to the operating system.

        Raises UsageError where it cannot be written; ``calls`` or ``readings`` has it even then.
        """
        text = encoded(line_of(record))
        if isinstance(record, Guarded):
            self.readings[record.key] = record
        else:
            self.calls.add(record, text)
        try:
            self._write(text, self._seed)
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def _write(self, text: bytes, seed: bytes) -> None:
        self._lines += 1
        flush = zlib.Z_SYNC_FLUSH if self._lines % FULL_FLUSH_EVERY else zlib.Z_FULL_FLUSH
        data = self._deflate.compress(with_checksum(text, seed)) + self._deflate.flush(flush)
        self._file.write(data)
        self._file.flush()
        if time.monotonic() - self._synced > SYNC_S:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()

    def close(self) -> None:
        """Finish the gzip file; raises UsageError where it cannot be written."""
        if self._file.closed:
            return
        try:
            self._file.write(self._deflate.flush(zlib.Z_FINISH))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _unwritable(self.path, error) from None
        finally:
            with contextlib.suppress(OSError):
                self._file.close()
            self._lock.release()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except UsageError:
            if kind is None:  # the error that ended the audit says more
                raise


def load(path: Path) -> Contents:
    """Return the contents of the journal at ``path``, which another process may be writing.

    Raises UsageError where ``path`` is not a journal, or has two answers to a request.
    """
    if not path.is_file():
        raise UsageError(f"There is no journal at {path}.")
    reading = Reader(path)
    found: Contents | None = None
    try:
        for text in reading.texts():
            line = json.loads(text)
            if found is None:
                found = Contents(Header.of(line, path))
                continue
            record = _record(line)
            if record is None:
                reading.damaged += 1
            elif isinstance(record, Guarded):
                before = found.readings.setdefault(record.key, record)
                if (before.reading, before.text, before.types) != (
                    record.reading, record.text, record.types,
                ):  # fmt: skip
                    raise UsageError(
                        f"{path} has two readings by the guard of the request {record.key}, so it "
                        "mixes several runs; give another --out and run the audit again."
                    )
            elif not found.calls.add(record, text):
                raise UsageError(
                    f"{path} has two answers to the request {record.key}, so it mixes several "
                    "runs; give another --out and run the audit again."
                )
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    if found is None:
        raise UsageError(f"{path} is not a journal of an audit.")
    found.damaged, found.truncated = reading.damaged, reading.truncated
    return found


def inspect(path: Path, header: Header) -> Contents | None:
    """Return the contents at ``path`` from which an audit with ``header`` resumes; None for none.

    Raises UsageError where it cannot resume from them.
    """
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return None
    if not path.is_file():
        raise UsageError(f"{path} is not a file; give another --out.")
    first = next(iter(Reader(path)), None)
    if first is None:
        return None  # its writer was killed within the first line
    Header.of(first, path).check_compatible(header, path)
    if first["format"] == WITHOUT_CHECKSUMS:
        raise UsageError(
            f"{path} is a journal of format {WITHOUT_CHECKSUMS}, without checksums: it can be "
            "scored and replayed, but not resumed; give another --out."
        )
    return load(path)


def header_at(path: Path) -> Header | None:
    """Return the header of the journal at ``path``; None where there is none yet."""
    if not path.is_file() or not path.stat().st_size:
        return None
    first = next(iter(Reader(path)), None)
    return None if first is None else Header.of(first, path)


def resumed_header(path: Path, wanted: Header) -> Header:
    """Return the header to resume with: a journal at ``path`` may have a larger sample."""
    there = header_at(path)
    if there is not None and there.contains_sample(wanted):
        return replace(wanted, sampling=there.sampling)
    return wanted


def check_writable(path: Path) -> None:
    """Raise UsageError where no journal can be written at ``path``; creates its folders."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(b"\0" * 4096)
            file.flush()
    except OSError as error:
        raise _unwritable(path, error) from None


def check_place(path: Path) -> None:
    """Raise UsageError where a file is in the place of a folder above ``path``; writes nothing."""
    try:
        check_folders(path)
    except OSError as error:
        raise _unwritable(path.parent, error) from None


def write(path: Path, lines: Iterable[Line]) -> None:
    """Write a whole journal atomically; raises UsageError where it cannot be written."""
    temporary = path.with_name(f".{path.name}.new")
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    seed = b""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            for number, line in enumerate(lines, 1):
                text = encoded(line)
                file.write(deflate.compress(with_checksum(text, seed)))
                seed = seed or checksum(b"", text)
                if not number % FULL_FLUSH_EVERY:
                    file.write(deflate.flush(zlib.Z_FULL_FLUSH))
            file.write(deflate.flush(zlib.Z_FINISH))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise _unwritable(path, error) from None


def _intact_lines(path: Path, header: Header) -> Iterator[Line]:
    """Yield ``header`` and the intact lines of the journal at ``path``."""
    lines = iter(Reader(path))
    next(lines, None)
    yield header.line()
    yield from (line for line in lines if _record(line) is not None)


def _record(line: Line) -> Call | Guarded | None:
    """Return the record of a line; None for a line that this version does not write."""
    try:
        return record_of(line)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _unwritable(path: Path, error: OSError) -> UsageError:
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    if isinstance(error, FileExistsError | NotADirectoryError) and not place.is_dir():
        return UsageError(f"{place} is a file where a folder is needed; give another.")
    return UsageError(
        f"{path} cannot be written: {error.strerror or error}; give another folder, or make room."
    )


class Reader:
    """Reads the complete lines of a journal, in order.

    ``truncated`` says whether the file's end is missing: its writer was killed or is still running.
    ``damaged`` counts damaged lines and byte ranges. Raises UsageError where the file is not a
    journal, or holds several.
    """

    def __init__(self, path: Path) -> None:
        self.truncated = False
        self.damaged = 0
        self._path = path

    def __iter__(self) -> Iterator[Line]:
        for text in self.texts():
            yield json.loads(text)

    def texts(self) -> Iterator[bytes]:
        """Yield the text of each line without its checksum."""
        seed: bytes | None = None
        sums = True
        for line in self._whole():
            if seed is None:
                seed, sums, text = self._first(line)
                yield text
                continue
            written = _checked(line, seed) if sums else _parsed(line)
            if written is not None:
                yield written
            elif line.startswith(_HEADER):
                raise UsageError(
                    f"{self._path} holds several journals; split it into a file for each."
                )
            else:
                self.damaged += 1

    def _first(self, line: bytes) -> tuple[bytes, bool, bytes]:
        """Return the seed of the checksums, whether lines have them, and the header's text."""
        try:
            header = json.loads(line)
            sums = header["format"] != WITHOUT_CHECKSUMS
        except (ValueError, TypeError, KeyError, RecursionError):
            raise self._no_journal() from None
        text = _checked(line, b"") if header["format"] == FORMAT else line
        if text is None:
            raise UsageError(
                f"The first line of {self._path} is damaged, so nothing in the file can be relied "
                "on; restore it from a copy, or run the audit again."
            )
        return checksum(b"", text), sums, text

    def _whole(self) -> Iterator[bytes]:
        rest, any_line = b"", False
        for text in self._inflated():
            if text is None:  # a gap cuts the line before it
                self.damaged += 1
                rest = b""
                continue
            *whole, rest = (rest + text).split(b"\n")
            any_line = any_line or bool(whole)
            yield from whole
        if not any_line and (self.damaged or not rest.startswith(_HEADER[: len(rest)])):
            raise self._no_journal()  # so that no other file is ever overwritten
        self.truncated = self.truncated or bool(rest)

    def _inflated(self) -> Iterator[bytes | None]:
        """Yield what can be decompressed, and None for each gap."""
        inflate, raw = zlib.decompressobj(_GZIP), False
        ended = True  # no member is open
        with self._path.open("rb") as file:
            while data := file.read(_BLOCK):
                if file.tell() == len(data) and not data.startswith(GZIP[: len(data)]):
                    raise self._no_journal()
                while data:
                    ended, before = False, inflate.copy()
                    try:
                        text = inflate.decompress(data)
                    except zlib.error:
                        self.truncated = True
                        text, place = _until_damage(before, data)
                        yield text
                        yield None
                        data = data[place:] + file.read()
                        begin, raw = _beginning(data)
                        if begin is None:
                            return
                        data = data[begin:]
                        inflate = zlib.decompressobj(_RAW if raw else _GZIP)
                        continue
                    if text:
                        yield text
                    data = inflate.unused_data
                    if inflate.eof:
                        # A member entered behind its header still has its trailer of 8 bytes.
                        data = data[8:] if raw else data
                        inflate, raw, ended = zlib.decompressobj(_GZIP), False, True
        self.truncated = self.truncated or not ended

    def _no_journal(self) -> UsageError:
        return UsageError(f"{self._path} is not a journal of an audit.")


def _until_damage(inflate: Any, data: bytes) -> tuple[bytes, int]:
    """Return what can be decompressed of the damaged ``data``, and where the damage is."""
    text = bytearray()
    place = 0
    try:
        for place in range(len(data)):
            text += inflate.decompress(data[place : place + 1])
    except zlib.error:
        pass
    return bytes(text), place


def _beginning(data: bytes) -> tuple[int | None, bool]:
    """Return where reading can resume in ``data``, and whether that is inside a member."""
    for match in _BEGINNINGS.finditer(data):
        raw = match.group().startswith(b"\x00")
        place = match.end() if raw else match.start()
        inflate = zlib.decompressobj(_RAW if raw else _GZIP)
        try:
            if inflate.decompress(data[place : place + _BLOCK], _BLOCK).startswith(b'{"k":'):
                return place, raw
        except zlib.error:
            continue
    return None, False


def encoded(line: Line) -> bytes:
    """Return the text of a line without its checksum."""
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def checksum(seed: bytes, text: bytes) -> bytes:
    """Return the checksum of a text; ``seed`` is that of the header, empty for the header."""
    return hashlib.sha256(seed + text).hexdigest()[:12].encode()


def with_checksum(text: bytes, seed: bytes) -> bytes:
    """Return the line for ``text``, a JSON object, with the checksum as its last member."""
    return b'%s,"sum":"%s"}\n' % (text[:-1], checksum(seed, text))


def _checked(line: bytes, seed: bytes) -> bytes | None:
    """Return the text of a line; None where its checksum is missing or wrong."""
    match = _SUM.search(line)
    if match is None:
        return None
    text = line[: match.start()] + b"}"
    return text if match.group(1) == checksum(seed, text) else None


def _parsed(line: bytes) -> bytes | None:
    """Return a line of the format without checksums; None where it is not JSON."""
    try:
        return line if isinstance(json.loads(line), dict) else None
    except (ValueError, RecursionError):
        return None
