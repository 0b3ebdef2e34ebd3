"""The lines of a journal: their checksums, and how they are read from a file that is hurt."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from guard.audit.header import FORMAT, UNSUMMED
from guard.audit.records import Line
from guard.errors import UsageError

ANEW = 128
"""Lines after which a writer lets the compressor begin anew: damage reaches no further."""

_GZIP = 16 + zlib.MAX_WBITS
_RAW = -zlib.MAX_WBITS
_MAGIC = b"\x1f\x8b"
_BLOCK = 1 << 16
# Where reading can begin again behind damage: after a flush, or with a member.
_BEGINNINGS = re.compile(rb"\x00\x00\xff\xff|\x1f\x8b\x08")
_HEADER = b'{"k":"header"'
_SUM = re.compile(rb',"sum":"([0-9a-f]{12})"\}$')


class Reader:
    """The whole lines of a journal, from the first.

    ``torn`` says whether it ends without its end, as one does whose writer was killed or is still
    at work; ``damaged`` counts the lines, and runs of bytes, that are not what was written. Raises
    UsageError where the file is no journal, or several in one.
    """

    def __init__(self, path: Path) -> None:
        self.torn = False
        self.damaged = 0
        self._path = path

    def __iter__(self) -> Iterator[Line]:
        for text in self.texts():
            yield json.loads(text)

    def texts(self) -> Iterator[bytes]:
        """Yield each line as it was before its checksum."""
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
                    f"{self._path} is several journals in one file; give each of them alone."
                )
            else:
                self.damaged += 1

    def _first(self, line: bytes) -> tuple[bytes, bool, bytes]:
        """Return the seed of the sums, whether lines have them, and the header's own text."""
        try:
            header = json.loads(line)
            sums = header["format"] != UNSUMMED
        except (ValueError, TypeError, KeyError):
            raise self._no_journal() from None
        text = _checked(line, b"") if header["format"] == FORMAT else line
        if text is None:
            raise UsageError(
                f"The first line of {self._path} is not what was written; nothing that follows can "
                "be relied on."
            )
        return sum_of(b"", text), sums, text

    def _whole(self) -> Iterator[bytes]:
        rest, any_line = b"", False
        for text in self._inflated():
            if text is None:  # a gap: the line before it has no end
                self.damaged += 1
                rest = b""
                continue
            *whole, rest = (rest + text).split(b"\n")
            any_line = any_line or bool(whole)
            yield from whole
        if not any_line and (self.damaged or not rest.startswith(_HEADER[: len(rest)])):
            raise self._no_journal()  # of anything else not a byte is to be written over
        self.torn = self.torn or bool(rest)

    def _inflated(self) -> Iterator[bytes | None]:
        """Yield what can be unpacked, None for a gap; a member that has no end tears the file."""
        inflate, raw = zlib.decompressobj(_GZIP), False
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
                        self.torn = True
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
                        # A member that was entered behind its head still has its 8 bytes of tail.
                        data = data[8:] if raw else data
                        inflate, raw, ended = zlib.decompressobj(_GZIP), False, True
        self.torn = self.torn or not ended

    def _no_journal(self) -> UsageError:
        return UsageError(f"{self._path} is no journal of an audit.")


def _until_damage(inflate: Any, data: bytes) -> tuple[bytes, int]:
    """Return what can be unpacked of ``data``, in which something is wrong, and where that is."""
    text = bytearray()
    place = 0
    try:
        for place in range(len(data)):
            text += inflate.decompress(data[place : place + 1])
    except zlib.error:
        pass
    return bytes(text), place


def _beginning(data: bytes) -> tuple[int | None, bool]:
    """Return where lines can be read again in ``data``, and whether that is inside a member."""
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
    """Return the text of a line, without a checksum."""
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def sum_of(seed: bytes, text: bytes) -> bytes:
    """Return the checksum of a text; ``seed`` is that of the header, empty for the header."""
    return hashlib.sha256(seed + text).hexdigest()[:12].encode()


def summed(text: bytes, seed: bytes) -> bytes:
    """Return the line that is written for ``text``, a JSON object: its sum is the last member."""
    return b'%s,"sum":"%s"}\n' % (text[:-1], sum_of(seed, text))


def _checked(line: bytes, seed: bytes) -> bytes | None:
    """Return the text of a line; None where it is not what was written."""
    match = _SUM.search(line)
    if match is None:
        return None
    text = line[: match.start()] + b"}"
    return text if match.group(1) == sum_of(seed, text) else None


def _parsed(line: bytes) -> bytes | None:
    """Return a line of the format without sums; None where it is no JSON."""
    try:
        return line if isinstance(json.loads(line), dict) else None
    except ValueError:
        return None
