"""One short row for each statement of an index, so that the statements need not be parsed.

So an index opens quickly, however many statements it has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from guard.retrieve.statement import BiasStatement, fold_words, parse_statement
from guard.verdict import BIAS_TYPES

#: ``offset`` of the statement's line in bytes; ``fold`` and ``group``, hashes of the folded
#: statement and group; ``first``, the first row with the same fold; ``type``, an id into
#: BIAS_TYPES.
ROW = np.dtype(
    [
        ("offset", "<u8"),
        ("fold", "<u8"),
        ("group", "<u8"),
        ("first", "<u4"),
        ("type", "u1"),
        ("implicit", "?"),
    ]
)
Table = NDArray[np.void]


def fold_key(text: str) -> int:
    """Return a hash of the folded ``text``, the same for near-copies.

    64 bits: among 100,000 statements two have the same hash with probability 3e-10.
    """
    return int.from_bytes(
        hashlib.blake2b(fold_words(text).encode(), digest_size=8).digest(), "little"
    )


def table_of(statements: Iterable[BiasStatement]) -> Table:
    """Return one row for each statement; the offsets are 0 until the file is written."""
    rows = [
        (0, fold_key(s.statement), fold_key(s.group), 0, BIAS_TYPES.index(s.bias_type), s.implicit)
        for s in statements
    ]
    return with_first(np.array(rows, ROW))


def with_first(table: Table) -> Table:
    """Set the column ``first`` of ``table`` and return it."""
    _, first, inverse = np.unique(table["fold"], return_index=True, return_inverse=True)
    table["first"] = first[inverse]
    return table


class StatementLines(Sequence[BiasStatement]):
    """The statements of a file of JSON lines, each parsed on access.

    A verdict quotes a handful of 100,000; parsing all would take most of the time to load an index.
    """

    def __init__(self, data: bytes, offsets: NDArray[np.uint64]) -> None:
        """Read from ``data``, in which the line of row i begins at ``offsets[i]``."""
        self._data = data
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, row: int) -> BiasStatement: ...
    @overload
    def __getitem__(self, row: slice) -> tuple[BiasStatement, ...]: ...
    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return tuple(self[i] for i in range(*row.indices(len(self))))
        return parse_statement(self.line(range(len(self))[row]).decode())

    def __iter__(self) -> Iterator[BiasStatement]:
        return (self[row] for row in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # equal to tuples, which hash by their content

    def line(self, row: int) -> bytes:
        """Return the line of ``row`` with its line break."""
        end = int(self._offsets[row + 1]) if row + 1 < len(self) else len(self._data)
        return self._data[int(self._offsets[row]) : end]
