"""Draws decisions for people to review: a stratified random sample with known probabilities.

The population of a draw is the segments judged in its period; a finding that overlapping segments
share counts once. Findings are stratified by action, bias type and model; segments that passed by
how near the score came to the threshold and by model. Half of the sample are findings, half passed.
Within each half, strata are allocated in proportion to the square root of their size, at least one
item each, so that rare ones are represented. Within a stratum every segment has the same
probability of being drawn.

If only a share of the texts is kept (``review_share``), the kept ones are a random sample of their
stratum, and the draw from them is the second phase of a two-phase sample with equal probabilities
(Särndal, Swensson and Wretman 1992, section 9.3).
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

from sqlalchemy import Connection, delete, exists, or_, select, text

from guard.errors import UsageError
from guard.watch.rates import NON_ANSWER_DOORS
from guard.watch.schema import draws, events, items, responses
from guard.watch.store import Store

_CLOSE = ((0.5, "close"), (0.1, "near"), (-math.inf, "far"))  # score as a share of the threshold
_MIN_ITEMS = 4  # per stratum, on average; else strata are merged
_FETCH = 5_000  # rows read at a time

_ALL_DRAWS = select(draws.c.id, draws.c.since, draws.c.until, draws.c.size).order_by(draws.c.id)


class Draw(NamedTuple):
    """A sample that was added to the queue.

    Its ``size`` items represent ``segments`` segments judged in [``since``, ``until``), seconds
    since 1970. They do not represent ``unread`` more, whose texts are not kept.
    """

    id: str
    since: float
    until: float
    size: int
    segments: int
    unread: int


class Key(NamedTuple):
    """The key of an event: the ``number``-th decision of a response."""

    response_id: str
    number: int


class StratumName(NamedTuple):
    """The values that define a stratum; empty if its segments differ in one."""

    share: float  # of texts kept
    action: str
    kind: str  # the bias type of a finding; else how near the score came to the threshold
    model: str

    def __str__(self) -> str:
        kept = f"{self.share:.3g} kept" if self.share < 1 else ""
        return " · ".join(part for part in (self.action, self.kind, self.model, kept) if part)


@dataclass(slots=True)
class DrawStratum:
    """A stratum: its segments, those with a kept text, and the first of these by random number."""

    size: int = 0
    with_text: int = 0
    first: list[tuple[int, Key]] = field(default_factory=list)  # a heap of negated random numbers


def draw(store: Store, since: float, until: float, size: int, seed: int = 0) -> Draw:
    """Draw about ``size`` of the segments judged in [``since``, ``until``) into the queue.

    Times are seconds since 1970. Segments of periods that were drawn from before are left out, so
    that each is represented once. The same seed gives the same sample of the same store.

    Raises UsageError if no readable text is kept, and as :meth:`guard.watch.store.Store.writing`
    does.
    """
    return _drawn(store, None, since, until, size, seed)


def enlarge(store: Store, more: int) -> Draw:
    """Enlarge the last draw by ``more`` segments of its period.

    The random numbers are the same, so the larger sample contains what is marked already. Raises
    as :func:`draw` does, and UsageError if there is no draw.
    """
    with store.reading() as connection:
        last = connection.execute(select(draws).order_by(draws.c.id.desc()).limit(1)).first()
    if last is None:
        raise UsageError("Nothing has been drawn yet; run guard review draw without --more first.")
    return _drawn(store, last.id, last.since, last.until, last.size + more, last.seed)


def new_id(last: str | None) -> str:
    """Return 32 hexadecimal digits that sort after ``last``, also if the clock was set back."""
    return f"{max(time.time_ns(), int((last or '0')[:16], 16) + 1):016x}{secrets.token_hex(8)}"


def _drawn(
    store: Store, name: str | None, since: float, until: float, size: int, seed: int
) -> Draw:
    """Draw under the id ``name``, or under a new one."""
    with store.reading() as connection:  # which blocks no guard from writing
        known = connection.execute(_ALL_DRAWS).all()
        name = name or new_id(known[-1].id if known else None)
        periods = [(row.since, row.until) for row in known if row.id < name]
        finest, unread = _strata_of(connection, since, until, periods, size, seed)
    strata = merged(finest, size)
    unread += sum(s.size for s in strata.values() if not s.with_text)
    rows = sampled(strata, size)
    if not rows:
        raise UsageError(_nothing_drawn(unread))
    segments = sum(s.size for s in strata.values() if s.with_text)
    drawn = Draw(name, since, until, len(rows), segments, unread)
    row = {"id": name, "since": since, "until": until, "size": len(rows), "seed": seed}
    with store.writing() as connection:
        if not store.is_sqlite:  # where one writer waits for the other anyway
            # The items, too: the order in which the draw deletes them is not that of forget.
            tables = f"{draws.name}, {items.name}"
            connection.execute(text(f"LOCK TABLE {tables} IN EXCLUSIVE MODE"))
        if connection.execute(_ALL_DRAWS).all() != known:
            raise UsageError("Another draw was made at the same time; run the command again.")
        connection.execute(delete(items).where(items.c.draw_id == name))
        connection.execute(delete(draws).where(draws.c.id == name))
        connection.execute(draws.insert(), [{**row, "time": time.time(), "unread": unread}])
        connection.execute(items.insert(), [{**item, "draw_id": name} for item in rows])
        # Responses deleted since they were read; whoever deletes one now waits for this lock.
        kept = exists().where(responses.c.id == items.c.response_id)
        gone = connection.execute(delete(items).where(items.c.draw_id == name, ~kept)).rowcount
    return drawn._replace(size=len(rows) - gone)


def sampled(strata: Mapping[StratumName, DrawStratum], size: int) -> list[dict[str, Any]]:
    """Return the rows of about ``size`` items, in an order that interleaves the strata."""
    drawn: list[tuple[float, dict[str, Any]]] = []
    for name, count in _allocated_draws(
        {n: s for n, s in strata.items() if s.with_text}, size
    ).items():
        stratum = strata[name]
        common = {
            "stratum": str(name)[:512],
            "stratum_size": stratum.size,
            "stratum_drawn": count,
            "probability": count / stratum.size,
            "weight": stratum.size / count,
        }
        first = sorted((-negated, key) for negated, key in stratum.first)[:count]
        for place, (number, key) in enumerate(first):
            turn = (place + (number % 2**20) / 2**20) / count
            drawn.append((turn, {**common, **key._asdict()}))
    drawn.sort(key=lambda item: item[0])
    return [{**row, "position": n} for n, (_, row) in enumerate(drawn)]


def _nothing_drawn(unread: int) -> str:
    if not unread:
        return (
            "No segment was judged in this time outside the periods of earlier draws, so there is "
            "nothing to review."
        )
    return (
        f"No text is kept of the {unread:,} segments that were judged in this time, so nobody can "
        "review them. Set keep_text = 'redacted' with review_share = 0.01, which keeps 1 % of the "
        "segments that pass, or keep_text = 'full'; then draw once new segments are in the store."
    )


def _strata_of(
    connection: Connection,
    since: float,
    until: float,
    drawn: Sequence[tuple[float, float]],
    size: int,
    seed: int,
) -> tuple[dict[StratumName, DrawStratum], int]:
    """Return the finest strata, and the number of segments whose texts are never kept."""
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
        .where(r.door.not_in(NON_ANSWER_DOORS))
        .where(*(or_(e.time < begin, e.time >= end) for begin, end in drawn))
    )
    return gathered(connection.execution_options(yield_per=_FETCH).execute(query), size, seed)


def gathered(
    rows: Iterable[Sequence[Any]], size: int, seed: int
) -> tuple[dict[StratumName, DrawStratum], int]:
    """Return the finest strata of ``rows``, and the number of rows in none.

    A row is (response_id, number, action, bias_type, score, threshold, share, has_text, model).
    ``share`` is the probability with which such a text is kept, ``has_text`` whether this one is.
    A stratum holds the ``size`` segments with a text that have the lowest random numbers.
    """
    strata: dict[StratumName, DrawStratum] = {}
    unread = 0
    key = seed.to_bytes(8, "big", signed=True)
    for id_, number, action, bias_type, score, threshold, share, has_text, model in rows:
        if not share:
            unread += 1
            continue
        name = StratumName(share, action, bias_type or _band(score, threshold), model or "")
        stratum = strata.setdefault(name, DrawStratum())
        stratum.size += 1
        if has_text:
            stratum.with_text += 1
            random = blake2b(f"{id_} {number}".encode(), digest_size=8, key=key).digest()
            entry = (-int.from_bytes(random, "big"), Key(id_, number))
            if len(stratum.first) < size:
                heapq.heappush(stratum.first, entry)
            else:
                heapq.heappushpop(stratum.first, entry)
    return strata, unread


def _band(score: float | None, threshold: float | None) -> str:
    share = (score or 0.0) / threshold if threshold else 1.0
    return next(name for lowest, name in _CLOSE if share >= lowest)


def merged(strata: Mapping[StratumName, DrawStratum], size: int) -> dict[StratumName, DrawStratum]:
    """Merge strata, by model and then by kind, until ``size`` items are four each on average."""
    merged: dict[StratumName, DrawStratum] = {}
    for level in range(3):
        merged = {}
        for name, stratum in strata.items():
            coarser = name._replace(
                model="" if level > 0 else name.model, kind="" if level > 1 else name.kind
            )
            into = merged.setdefault(coarser, DrawStratum())
            into.size += stratum.size
            into.with_text += stratum.with_text
            into.first = heapq.nlargest(size, chain(into.first, stratum.first))
        if len(merged) * _MIN_ITEMS <= size:
            break
    return merged


def _allocated_draws(
    strata: Mapping[StratumName, DrawStratum], size: int
) -> dict[StratumName, int]:
    """Return the items to draw of each stratum: at least one, and half of all from each side."""
    halves = [
        {name: s for name, s in strata.items() if (name.action == "pass") == passed}
        for passed in (True, False)
    ]
    counts = dict.fromkeys(strata, 1)
    for half, other in (halves, halves[::-1]):
        # A half that has too few segments leaves its items to the other.
        total = max(size // 2, size - sum(s.with_text for s in other.values()))
        _allocate(counts, half, total)
    return counts


def _allocate(
    counts: dict[StratumName, int], strata: Mapping[StratumName, DrawStratum], total: int
) -> None:
    """Raise ``counts`` to ``total`` items, in proportion to the root of the strata's sizes."""
    open_ = {name: s for name, s in strata.items() if counts[name] < s.with_text}
    while open_ and sum(counts[name] for name in strata) < total:
        name = max(open_, key=lambda n: (math.sqrt(open_[n].size) / (counts[n] + 1), n))
        counts[name] += 1
        if counts[name] >= open_[name].with_text:
            del open_[name]
