"""Draws decisions for people to review, at random and with known probability.

The segments that a draw stands for are those judged in its period, findings that are told twice
left out. They are split into strata: by action, bias type and model what guard acted on, by how
near the score came to the threshold and by model what it passed. Half of the sample are decisions
of each kind; within a kind a stratum gets its share by the root of its size, so that rare ones are
not left out. Within a stratum every segment has the same probability of being drawn.

Where only a share of the texts is kept (``review_share``), those kept are a random sample of the
stratum themselves, and a sample of them stands for all of it: two steps of equal probability make
one (Särndal, Swensson and Wretman 1992, section 9.3).
"""

from __future__ import annotations

import heapq
import math
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, or_, select

from guard.errors import UsageError
from guard.watch.rates import ASIDE
from guard.watch.schema import draws, events, items, responses
from guard.watch.store import Store

_CLOSE = ((0.5, "close"), (0.1, "near"), (-math.inf, "far"))  # score as a share of the threshold
_LEAST = 4  # a stratum is split no further where the parts would get fewer on average
_LOT = 5_000


class Draw(NamedTuple):
    """A sample that was added to the queue.

    Its ``size`` items stand for ``segments`` of those judged in [``since``, ``until``), and not for
    ``unread`` more, of which no text is kept.
    """

    id: str
    since: float
    until: float
    size: int
    segments: int
    unread: int


class Key(NamedTuple):
    """An event."""

    response_id: str
    number: int


class Name(NamedTuple):
    """What the segments of a stratum have in common; empty where they differ."""

    share: float  # of the texts that are kept
    action: str  # pass, or what was done
    kind: str  # the bias type, or how near the score came
    model: str

    def __str__(self) -> str:
        kept = f"{self.share:.3g} kept" if self.share < 1 else ""
        return " · ".join(part for part in (self.action, self.kind, self.model, kept) if part)


@dataclass(slots=True)
class Stratum:
    """How many segments there are, of how many a text is kept, and which of these come first."""

    size: int = 0
    kept: int = 0
    first: list[tuple[int, Key]] = field(default_factory=list)  # a heap of the negated lots


def draw(store: Store, since: float, until: float, size: int, seed: int = 0) -> Draw:
    """Draw about ``size`` of the segments judged in [``since``, ``until``) into the queue.

    Segments of a period that was drawn from before are left out: each is stood for once. One seed
    gives the same sample of the same store.

    Raises UsageError where no text is kept that a person could read, and as
    :meth:`guard.watch.store.Store.writing` does.
    """
    return _drawn(store, new_id(), since, until, size, seed)


def enlarge(store: Store, more: int) -> Draw:
    """Draw ``more`` segments from the period of the last draw, beside those that it has.

    Lots stay as they are, so that what is marked already is part of the larger sample. Raises as
    :func:`draw` does, and where there is no draw.
    """
    with store.reading() as connection:
        last = connection.execute(select(draws).order_by(draws.c.id.desc()).limit(1)).first()
    if last is None:
        raise UsageError("Nothing has been drawn yet; guard review draw begins.")
    return _drawn(store, last.id, last.since, last.until, last.size + more, last.seed)


def new_id() -> str:
    """Return 32 hexadecimal digits; later ones sort after earlier ones."""
    return f"{time.time_ns():016x}{secrets.token_hex(8)}"


def _drawn(store: Store, name: str, since: float, until: float, size: int, seed: int) -> Draw:
    with store.reading() as connection:  # guards go on writing
        before = select(draws.c.since, draws.c.until).where(draws.c.id < name)
        periods = [(row.since, row.until) for row in connection.execute(before)]
        found, unread = _strata(connection, since, until, periods, size, seed)
    strata = merged(found, size)
    unread += sum(s.size for s in strata.values() if not s.kept)
    rows = sampled(strata, size)
    if not rows:
        raise UsageError(_nothing(unread))
    segments = sum(s.size for s in strata.values() if s.kept)
    made = Draw(name, since, until, len(rows), segments, unread)
    row = {"id": name, "since": since, "until": until, "size": len(rows), "seed": seed}
    with store.writing() as connection:
        connection.execute(delete(items).where(items.c.draw_id == name))
        connection.execute(delete(draws).where(draws.c.id == name))
        connection.execute(draws.insert(), [{**row, "time": time.time(), "unread": unread}])
        connection.execute(items.insert(), [{**one, "draw_id": name} for one in rows])
    return made


def sampled(strata: Mapping[Name, Stratum], size: int) -> list[dict[str, Any]]:
    """Return the rows of about ``size`` items; in their order the strata take turns."""
    drawn: list[tuple[float, dict[str, Any]]] = []
    for name, count in _allocated({n: s for n, s in strata.items() if s.kept}, size).items():
        stratum = strata[name]
        common = {
            "stratum": str(name)[:512],
            "stratum_size": stratum.size,
            "stratum_drawn": count,
            "probability": count / stratum.size,
            "weight": stratum.size / count,
        }
        lots = sorted((-lot, key) for lot, key in stratum.first)[:count]
        for place, (lot, key) in enumerate(lots):
            turn = (place + (lot % 2**20) / 2**20) / count
            drawn.append((turn, {**common, **key._asdict()}))
    drawn.sort(key=lambda one: one[0])
    return [{**row, "position": n} for n, (_, row) in enumerate(drawn)]


def _nothing(unread: int) -> str:
    if not unread:
        return "No segment was judged in this time, so there is nothing to review."
    return (
        f"Of the {unread:,} segments that were judged in this time no text is kept, so nobody can "
        "review them. Set keep_text = 'redacted', with review_share = 0.01 for one in a hundred of "
        "the segments that pass, or keep_text = 'full', and draw once some have been written."
    )


def _strata(
    connection: Connection,
    since: float,
    until: float,
    drawn: Sequence[tuple[float, float]],
    size: int,
    seed: int,
) -> tuple[dict[Name, Stratum], int]:
    """Return the finest strata, and the number of segments of which no text is ever kept."""
    e, r = events.c, responses.c
    query = (
        select(
            e.response_id,
            e.number,
            e.action,
            e.bias_type,
            e.score,
            e.threshold,
            e.text_share,
            e.text.is_not(None),
            r.model,
        )
        .select_from(events.join(responses, r.id == e.response_id))
        .where(e.time >= since, e.time < until, e.unjudged.is_(None), e.counted)
        .where(r.door.not_in(ASIDE))
        .where(*(or_(e.time < begin, e.time >= end) for begin, end in drawn))
    )
    return gathered(connection.execution_options(yield_per=_LOT).execute(query), size, seed)


def gathered(
    rows: Iterable[Sequence[Any]], size: int, seed: int
) -> tuple[dict[Name, Stratum], int]:
    """Return the finest strata of ``rows``, and how many of them belong to none.

    A row has the event, its action, bias type, score, threshold, the share of texts like its own
    that are kept, whether its own is, and the model.
    """
    strata: dict[Name, Stratum] = {}
    unread = 0
    key = seed.to_bytes(8, "big", signed=True)
    for id_, number, action, bias_type, score, threshold, share, kept, model in rows:
        if not share:
            unread += 1
            continue
        name = Name(share, action, bias_type or _band(score, threshold), model or "")
        stratum = strata.setdefault(name, Stratum())
        stratum.size += 1
        if kept:
            stratum.kept += 1
            lot = blake2b(f"{id_} {number}".encode(), digest_size=8, key=key).digest()
            entry = (-int.from_bytes(lot, "big"), Key(id_, number))
            if len(stratum.first) < size:
                heapq.heappush(stratum.first, entry)
            else:
                heapq.heappushpop(stratum.first, entry)
    return strata, unread


def _band(score: float | None, threshold: float | None) -> str:
    share = (score or 0.0) / threshold if threshold else 1.0
    return next(name for least, name in _CLOSE if share >= least)


def merged(strata: Mapping[Name, Stratum], size: int) -> dict[Name, Stratum]:
    """Return the finest strata of which ``size`` items are enough for all, at four each."""
    merged: dict[Name, Stratum] = {}
    for level in range(3):
        merged = {}
        for name, stratum in strata.items():
            own = name._replace(
                model="" if level > 0 else name.model, kind="" if level > 1 else name.kind
            )
            into = merged.setdefault(own, Stratum())
            into.size += stratum.size
            into.kept += stratum.kept
            into.first = heapq.nlargest(size, chain(into.first, stratum.first))
        if len(merged) * _LEAST <= size:
            break
    return merged


def _allocated(strata: Mapping[Name, Stratum], size: int) -> dict[Name, int]:
    """Return how many of each stratum are drawn: one at least, and half of all of each kind."""
    kinds = [
        {name: s for name, s in strata.items() if (name.action == "pass") == passed}
        for passed in (True, False)
    ]
    taken = dict.fromkeys(strata, 1)
    for kind, other in (kinds, kinds[::-1]):
        most = max(size // 2, size - sum(s.kept for s in other.values()))
        _fill(taken, kind, most)
    return taken


def _fill(taken: dict[Name, int], strata: Mapping[Name, Stratum], most: int) -> None:
    left = {name: s for name, s in strata.items() if taken[name] < s.kept}
    while left and sum(taken[name] for name in strata) < most:
        name = max(left, key=lambda n: (math.sqrt(left[n].size) / (taken[n] + 1), n))
        taken[name] += 1
        if taken[name] >= left[name].kept:
            del left[name]
