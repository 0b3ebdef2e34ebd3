"""The items of a page: compressed, so that a hundred thousand of them open at once.

An index of short columns is read when the page opens, the texts of a few hundred items when one of
them is looked at. Both are JSON, compressed by zlib, in base64: a browser reads them without any
library.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from guard.audit.reports.items import Row, Turn

CHUNK = 400
"""Items whose texts are read together."""
BUDGET = 15_000_000
"""Characters that the items of a page may take; longer texts are cut until they do."""
_LIMITS = (1_000_000, 8_000, 4_000, 2_000, 1_000, 500, 250, 120, 60, 0)


@dataclass(frozen=True, slots=True)
class Packed:
    """The items of a suite; ``limit`` is the length at which texts were cut."""

    index: str
    texts: Sequence[str]
    limit: int
    cut: int

    @property
    def size(self) -> int:
        """How many characters it takes."""
        return len(self.index) + sum(map(len, self.texts))


def pack(suites: Sequence[Sequence[Row]], budget: int = BUDGET) -> list[Packed]:
    """Return the items of each suite, their texts cut to where all fit into ``budget``."""
    suites_packed = [_pack(rows, _LIMITS[0]) for rows in suites]
    index = sum(len(one.index) for one in suites_packed)
    size = sum(one.size for one in suites_packed)
    lengths = [
        len(text) for rows in suites for row in rows for t in row.turns for text in _texts(t)
    ]
    texts, whole = size - index, max(1, sum(lengths))
    for limit in _LIMITS[1:]:
        if size <= budget:
            break
        # About as much is left of what is compressed as of the texts themselves.
        left = sum(min(length, limit) for length in lengths) / whole
        if limit and index + texts * left > budget:
            continue
        suites_packed = [_pack(rows, limit) for rows in suites]
        size = sum(one.size for one in suites_packed)
    return suites_packed


def _pack(rows: Sequence[Row], limit: int) -> Packed:
    cut = 0
    texts = []
    for start in range(0, len(rows), CHUNK):
        names = _TextTable()
        turns = []
        for row in rows[start : start + CHUNK]:
            cut += any(len(text) > limit for turn in row.turns for text in _texts(turn))
            turns.append([_turn(turn, names, limit) for turn in row.turns])
        texts.append(_compress({"texts": names.found, "turns": turns}))
    return Packed(_compress(_index(rows)), texts, limit, cut)


def _texts(turn: Turn) -> Iterator[str]:
    yield from (turn.asked, turn.said, turn.shown or "")


def _turn(turn: Turn, names: _TextTable, limit: int) -> list[int]:
    """Return the places of who was asked, of what, what was said, and shown: -1 for the same."""
    by, asked, said = (names.place(text) for text in (turn.by, *_cut_texts(turn, limit)[:2]))
    shown = -1 if turn.shown is None else names.place(_cut_texts(turn, limit)[2])
    return [by, asked, said, shown]


def _cut_texts(turn: Turn, limit: int) -> list[str]:
    return [text if len(text) <= limit else f"{text[:limit]}…" for text in _texts(turn)]


class _TextTable:
    """Texts by place: each stands once."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        place = self._places.setdefault(text, len(self.found))
        if place == len(self.found):
            self.found.append(text)
        return place


def _index(rows: Sequence[Row]) -> dict[str, Any]:
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


def _compress(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # Half a character is none that UTF-8 has.
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 6)).decode()
