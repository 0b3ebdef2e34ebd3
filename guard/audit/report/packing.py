"""The items of a page, compressed so that a page of a hundred thousand items opens at once.

The page reads an index of short columns when it opens, and the texts of a few hundred items when
one of them is opened. Both are JSON, compressed by zlib, in base64, which a browser reads without a
library.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from guard.audit.report.items import ItemRow, Turn

CHUNK = 400
"""The number of items whose texts are read together."""
BUDGET = 15_000_000
"""The most characters of a page's items; long texts are cut to fit."""
_LIMITS = (1_000_000, 8_000, 4_000, 2_000, 1_000, 500, 250, 120, 60, 0)


@dataclass(frozen=True, slots=True)
class Packed:
    """The items of a suite; ``limit`` is the length at which texts were cut.

    ``lengths`` counts the texts of each length, as they were before.
    """

    index: str
    texts: Sequence[str]
    limit: int
    cut: int
    lengths: Counter[int]

    @property
    def size(self) -> int:
        """The number of characters."""
        return len(self.index) + sum(map(len, self.texts))


def pack_suites(suites: Sequence[Sequence[ItemRow]], budget: int = BUDGET) -> list[Packed]:
    """Return the items of each suite, with long texts cut so that all fit into ``budget``."""
    suites_packed = [_pack_rows(rows, _LIMITS[0]) for rows in suites]
    index = sum(len(one.index) for one in suites_packed)
    size = sum(one.size for one in suites_packed)
    lengths = Counter[int]()
    for suite_packed in suites_packed:
        lengths += suite_packed.lengths
    texts, whole = size - index, max(1, sum(n * times for n, times in lengths.items()))
    for limit in _LIMITS[1:]:
        if size <= budget:
            break
        # Compressed texts are assumed to shrink by the same share as the texts themselves.
        left = sum(min(n, limit) * times for n, times in lengths.items()) / whole
        if limit and index + texts * left > budget:
            continue
        suites_packed = [_pack_rows(rows, limit) for rows in suites]
        size = sum(one.size for one in suites_packed)
    return suites_packed


def _pack_rows(rows: Sequence[ItemRow], limit: int) -> Packed:
    cut, lengths = 0, Counter[int]()
    texts = []
    for start in range(0, len(rows), CHUNK):
        names = _TextTable()
        turns = []
        for row in rows[start : start + CHUNK]:
            of_row = [len(text) for turn in row.turns for text in _turn_texts(turn)]
            cut += any(length > limit for length in of_row)
            lengths.update(of_row)
            turns.append([_turn_indices(turn, names, limit) for turn in row.turns])
        texts.append(_compress_text({"texts": names.found, "turns": turns}))
    return Packed(_compress_text(_row_index(rows)), texts, limit, cut, lengths)


def _turn_texts(turn: Turn) -> Iterator[str]:
    yield from (turn.asked, turn.answer, turn.shown or "")


def _turn_indices(turn: Turn, names: _TextTable, limit: int) -> list[int]:
    """Return the indices of role, request, answer and shown text; -1 where that is the answer."""
    cut = [text if len(text) <= limit else f"{text[:limit]}…" for text in _turn_texts(turn)]
    places = [names.place(text) for text in (turn.by, *cut[:2])]
    return [*places, -1 if turn.shown is None else names.place(cut[2])]


class _TextTable:
    """Distinct texts with an index each."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        place = self._places.setdefault(text, len(self.found))
        if place == len(self.found):
            self.found.append(text)
        return place


def _row_index(rows: Sequence[ItemRow]) -> dict[str, Any]:
    names = _TextTable()
    names.place("")

    def column(name: str) -> list[int]:
        return [names.place(getattr(row, name)) for row in rows]

    return {
        "id": [row.id for row in rows],
        "sample": [row.sample for row in rows],
        **{name: column(name) for name in ("about", "plain", "guarded", "side", "base")},
        "types": [names.place(", ".join(row.types)) for row in rows],
        "names": names.found,
    }


def _compress_text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # Half a surrogate pair has no UTF-8.
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 6)).decode()
