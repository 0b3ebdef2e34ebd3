"""The journal of one suite's audit: what was asked and answered, written once and never changed.

A file of compressed JSON lines (gzip, one member a run), the first of which is the header. A line
is flushed through the compressor to the operating system before the next call is made, so a
process that is killed loses no answer it had; what it was writing then is cut off when the journal
is opened again. The disk is told to keep it every few seconds (:data:`SYNC_S`). A finished journal
is a plain ``.jsonl.gz``.

Every line ends with a checksum over its text and the header's, so a line that was edited, or comes
from another journal, is seen and left out; damaged bytes cost the lines up to the next place where
the compressor began anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from filelock import FileLock, Timeout

from guard.audit.calls import Call, Guarded
from guard.audit.header import UNSUMMED, Header
from guard.audit.lines import ANEW, Reader, encoded, sum_of, summed
from guard.audit.records import Line, line_of, record_of
from guard.errors import UsageError

SYNC_S = 5.0
"""A machine that loses power loses at most the answers of so many seconds."""

_GZIP = 16 + zlib.MAX_WBITS
_LEVEL = 6


class Calls(Mapping[str, Call]):
    """The outcome that counts of each request by key: an answer before any failure.

    Held as the lines they are written in, and read where they are asked for: an audit of 160,000
    calls takes a tenth of the memory that way.
    """

    def __init__(self) -> None:
        self._lines: dict[str, bytes] = {}
        self._failed: set[str] = set()

    def take(self, call: Call, text: bytes) -> bool:
        """Hold ``call``, whose line is ``text``; return False where it is a second answer."""
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
        """Let go of everything."""
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
    """What a journal has: its header, calls and readings by key; ``damaged`` lines are left out."""

    header: Header
    calls: Calls = field(default_factory=Calls)
    readings: dict[str, Guarded] = field(default_factory=dict)
    damaged: int = 0
    torn: bool = False

    def digest(self) -> str:
        """Return the SHA-256 of what was asked, answered and read, in whatever order it came."""
        found = hashlib.sha256(encoded(self.header.line()))
        for line in self.calls.lines():
            found.update(b"\n" + line)
        for key in sorted(self.readings):
            found.update(b"\n" + encoded(line_of(self.readings[key])))
        return found.hexdigest()


class Journal:
    """Appends to one journal, and holds what it has: calls and readings by key.

    A request that failed is asked again by the next run. Raises UsageError where the file is no
    journal, is of an audit that cannot be compared with ``header``, is being written by another
    process, or cannot be written. A journal of a smaller sample goes on as that of ``header``.
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
        self._seed = sum_of(b"", encoded(header.line()))
        if found is None:
            self._file = self.path.open("wb")
            self._write(header.line())
            return
        self.damaged = found.damaged
        if found.damaged:
            shutil.copyfile(self.path, self.path.with_name(f"{self.path.name}.damaged"))
        if found.damaged or found.torn or found.header != header:
            write(self.path, _renewed(self.path, header))
        self._file = self.path.open("ab")

    def add(self, record: Call | Guarded) -> None:
        """Write ``record``; when this returns the operating system has it.

        Raises UsageError where it cannot be written; ``calls`` and ``readings`` have it all the
        same.
        """
        text = encoded(line_of(record))
        if isinstance(record, Guarded):
            self.readings[record.key] = record
        else:
            self.calls.take(record, text)
        try:
            self._write_text(text, self._seed)
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def _write(self, line: Line) -> None:
        self._write_text(encoded(line), b"")

    def _write_text(self, text: bytes, seed: bytes) -> None:
        self._lines += 1
        flush = zlib.Z_SYNC_FLUSH if self._lines % ANEW else zlib.Z_FULL_FLUSH
        data = self._deflate.compress(summed(text, seed)) + self._deflate.flush(flush)
        self._file.write(data)
        self._file.flush()
        if time.monotonic() - self._synced > SYNC_S:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()

    def close(self) -> None:
        """End the file so that any tool can read it; raises UsageError where it cannot be."""
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
            if kind is None:  # what ended the audit says more
                raise


def load(path: Path) -> Contents:
    """Return what the journal at ``path`` has, which may still be being written.

    Raises UsageError where ``path`` is no journal, or has more than one answer to a request.
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
                        f"{path} has more than one reading by the guard of a request "
                        f"({record.key}); lines of another run are in it."
                    )
            elif not found.calls.take(record, text):
                raise UsageError(
                    f"{path} has more than one outcome of a request ({record.key}: 2 answers)."
                )
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    if found is None:
        raise UsageError(f"{path} is no journal of an audit.")
    found.damaged, found.torn = reading.damaged, reading.torn
    return found


def inspect(path: Path, header: Header) -> Contents | None:
    """Return what an audit with ``header`` can go on from at ``path``; None where nothing is there.

    Raises UsageError where something is that it cannot go on from.
    """
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return None
    if not path.is_file():
        raise UsageError(f"{path} is no file; give another --out.")
    first = next(iter(Reader(path)), None)
    if first is None:
        return None  # killed before its first line was whole
    Header.of(first, path).check_growing(header, path)
    if first["format"] == UNSUMMED:
        raise UsageError(
            f"{path} is a journal of format {UNSUMMED}, without checksums: it can be scored and "
            "replayed, not gone on with; give another --out."
        )
    return load(path)


def header_at(path: Path) -> Header | None:
    """Return the header of the journal at ``path``; None where there is none yet."""
    if not path.is_file() or not path.stat().st_size:
        return None
    first = next(iter(Reader(path)), None)
    return None if first is None else Header.of(first, path)


def agreed(path: Path, wanted: Header) -> Header:
    """Return the header to go on with at ``path``: a larger sample there serves a smaller one."""
    there = header_at(path)
    if there is not None and there.holds(wanted):
        return replace(wanted, sampling=there.sampling)
    return wanted


def check_writable(path: Path) -> None:
    """Raise UsageError where no journal can be written at ``path``; leaves nothing but folders."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(b"\0" * 4096)
            file.flush()
    except OSError as error:
        raise _unwritable(path, error) from None


def write(path: Path, lines: Iterable[Line]) -> None:
    """Write a whole journal: all of it appears under its name, or nothing.

    Raises UsageError where it cannot be written.
    """
    beside = path.with_name(f".{path.name}.new")
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    seed = b""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            for number, line in enumerate(lines, 1):
                text = encoded(line)
                file.write(deflate.compress(summed(text, seed)))
                seed = seed or sum_of(b"", text)
                if not number % ANEW:
                    file.write(deflate.flush(zlib.Z_FULL_FLUSH))
            file.write(deflate.flush(zlib.Z_FINISH))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise _unwritable(path, error) from None


def _renewed(path: Path, header: Header) -> Iterator[Line]:
    """Yield the lines of the journal at ``path`` behind ``header``."""
    lines = iter(Reader(path))
    next(lines, None)
    yield header.line()
    yield from (line for line in lines if _record(line) is not None)


def _record(line: Line) -> Call | Guarded | None:
    """Return the record of a line; None where it is none that this guard writes."""
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
