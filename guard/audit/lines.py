"""The lines of a journal: their checksums, and reading them from a damaged file."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from guard.audit.calls import Line
from guard.audit.files import GZIP
from guard.audit.header import FORMAT, WITHOUT_CHECKSUMS
from guard.errors import UsageError

FULL_FLUSH_EVERY = 128
"""Lines after which the compressor is reset, which limits the reach of damage."""

_GZIP = 16 + zlib.MAX_WBITS
_RAW = -zlib.MAX_WBITS
_BLOCK = 1 << 16
# Where reading can resume after damage: behind a flush, or at a gzip member.
_BEGINNINGS = re.compile(rb"\x00\x00\xff\xff|\x1f\x8b\x08")
_HEADER = b'{"k":"header"'
_SUM = re.compile(rb',"sum":"([0-9a-f]{12})"\}$')


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
        except (ValueError, TypeError, KeyError):
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
    except ValueError:
        return None
