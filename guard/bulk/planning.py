"""Plans a job: reads each input once, and divides it into blocks of rows.

A block is read by itself: bytes that begin at a row, or rows of a row group. What a plan holds of a
block is five numbers, so that a hundred gigabytes are planned within 100 MB.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

from guard.bulk.arrow_rows import ParquetInput
from guard.bulk.line_formats import JsonLines, LineFormat, is_blank, line_format, raw_rows
from guard.bulk.sources import InputFile, input_state, open_input
from guard.errors import UsageError

#: The most rows and, but for a single longer row, bytes of a block.
BLOCK_ROWS, BLOCK_BYTES = 256, 2**20
# Rows of JSON that are searched for the column before a file is refused.
_SEARCHED = 1000
_PIECE = 2**20


class InputBlock(NamedTuple):
    """Rows that are read and judged together.

    ``file`` is the number of the input; ``begin`` and ``end`` are bytes, or rows of the row group
    ``group``. ``first`` is the number of the first row among all rows of the job.
    """

    number: int
    file: int
    group: int
    begin: int
    end: int
    first: int
    rows: int


@dataclass(frozen=True, slots=True)
class InputFacts:
    """What tells that an input is the same: its bytes. ``state`` changes when it is written."""

    path: str
    size: int
    digest: str
    rows: int
    state: str

    def check_unchanged(self) -> None:
        """Raise UsageError if the input was written since it was planned."""
        if input_state(self.path) != (self.size, self.state):
            raise UsageError(
                f"{self.path} was changed while it was judged; judge it again with another --to."
            )


class BlockPlan:
    """The blocks of all inputs, in order."""

    def __init__(self) -> None:
        self.inputs: list[InputFile] = []
        self.facts: list[InputFacts] = []
        self.rows = 0
        self._numbers = array("q")

    def __len__(self) -> int:
        return len(self._numbers) // 5

    def __getitem__(self, number: int) -> InputBlock:
        if not 0 <= number < len(self):
            raise IndexError(number)
        file, group, begin, end, first = self._numbers[5 * number : 5 * number + 5]
        after = self.rows if number + 1 == len(self) else self._numbers[5 * number + 9]
        return InputBlock(number, file, group, begin, end, first, after - first)

    def block_of(self, row: int) -> int:
        """Return the number of the block that has a row."""
        blocks = range(len(self))
        return bisect_right(blocks, row, key=lambda number: self._numbers[5 * number + 4]) - 1

    def add_input(self, file: InputFile, column: str, prefix: str) -> None:
        """Read an input and add its blocks; raises UsageError if it cannot be judged."""
        before, state = self.rows, input_state(file.path)
        digest = hashlib.blake2b(digest_size=16)
        if file.format == "parquet":
            self._add_groups(file, column, prefix)
            for piece in _pieces(file):
                digest.update(piece)
        else:
            self._add_lines(file, line_format(file, column, prefix), column, digest)
        self.inputs.append(file)
        facts = InputFacts(file.path, state[0], digest.hexdigest(), self.rows - before, state[1])
        self.facts.append(facts)

    def _add_groups(self, file: InputFile, column: str, prefix: str) -> None:
        source = ParquetInput(file, column)
        try:
            source.check(prefix)
            sizes = source.group_sizes()
        finally:
            source.close()
        for group, size in enumerate(sizes):
            for begin in range(0, size, BLOCK_ROWS):
                self._add_block(group, begin, min(size, begin + BLOCK_ROWS), self.rows)
                self.rows += min(size, begin + BLOCK_ROWS) - begin

    def _add_lines(self, file: InputFile, form: LineFormat, column: str, digest: Any) -> None:
        with open_input(file.path) as source:
            _check_encoding(file, source)
            digest.update(_header_bytes(source, form))
            at = begin = source.tell()
            rows = 0
            lines = raw_rows(source, form, file.name)
            if isinstance(form, JsonLines):
                lines = _checked_lines(lines, form, column, file.name)
            for raw in lines:
                digest.update(raw)
                if rows and (rows == BLOCK_ROWS or at + len(raw) - begin > BLOCK_BYTES):
                    self._add_block(0, begin, at, self.rows - rows)
                    begin, rows = at, 0
                at += len(raw)
                if not is_blank(raw, form):
                    rows += 1
                    self.rows += 1
            if rows:
                self._add_block(0, begin, at, self.rows - rows)

    def _add_block(self, group: int, begin: int, end: int, first: int) -> None:
        self._numbers.extend((len(self.inputs), group, begin, end, first))

    def check_unchanged(self) -> None:
        """Raise UsageError if an input was written since."""
        for facts in self.facts:
            facts.check_unchanged()


def _header_bytes(source: IO[bytes], form: LineFormat) -> bytes:
    """Read the header; return its bytes, and leave the file behind them."""
    form.read_header(source)
    end = source.tell()
    source.seek(0)
    return source.read(end)


def _pieces(file: InputFile) -> Iterator[bytes]:
    with open_input(file.path) as source:
        while piece := source.read(_PIECE):
            yield piece


def _check_encoding(file: InputFile, source: IO[bytes]) -> None:
    """Raise UsageError for UTF-16, UTF-32, gzip, and one JSON value over several lines."""
    start = source.read(4096)
    source.seek(0)
    if start.startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")) or _is_wide(start[:40]):
        raise UsageError(f"{file.name} is UTF-16 or UTF-32 text; convert it to UTF-8 first.")
    if start.startswith(b"\x1f\x8b"):
        raise UsageError(f"{file.name} is compressed; unpack it first, and judge what comes out.")
    if file.format == "jsonl" and start.split(b"\n")[0].strip() in (b"[", b"{"):
        raise UsageError(
            f"{file.name} is not JSON lines: an object there goes over several lines; convert it "
            "first, for example with: jq -c '.[]'"
        )


def _is_wide(start: bytes) -> bool:
    """Return whether text is UTF-16 without a mark: every second byte is 0, and no other is."""
    halves = sorted((start[::2], start[1::2]))
    return len(start) >= 8 and not any(halves[0]) and all(halves[1])


def _checked_lines(
    lines: Iterable[bytes], form: JsonLines, column: str, name: str
) -> Iterator[bytes]:
    """Yield the lines.

    Raises UsageError if one has a column of a verdict's name, or if none of the first has
    ``column``.
    """
    seen: set[str] = set()
    for number, raw in enumerate(lines):
        if number < _SEARCHED and column not in seen:
            seen.update(form.keys(raw))
        if number == _SEARCHED - 1:
            _check_seen(seen, column, name)
        if taken := form.clashing(raw):
            raise UsageError(
                f"{name} has a column {taken!r} in line {number + 1:,} already; give verdicts "
                "another name with --prefix."
            )
        yield raw
    _check_seen(seen, column, name)


def _check_seen(seen: set[str], column: str, name: str) -> None:
    if seen and column not in seen:
        listed = ", ".join(repr(key) for key in sorted(seen)[:20])
        raise UsageError(
            f"{name} has no column {column!r} in its first rows; name the one with the text by "
            f"--column ({listed})."
        )
