"""The review queue: people mark drawn decisions as right, wrong or unclear.

:func:`draw` and :func:`enlarge` fill the queue, :func:`next_item` serves it, :func:`mark` and
:func:`undo` write to it; :func:`agreement`, :func:`disputes` and
:func:`guard.watch.review_rates.estimates` read what was marked. All but the first two take a
connection: of :meth:`guard.watch.store.Store.reading` or, to change something, of
:meth:`guard.watch.store.Store.writing`.

A mark is about a decision: "right" says that what passed was harmless and what guard acted on was
biased. Of one reviewer's marks of a segment the last one holds. The segment itself has the verdict
that more than half of its reviewers gave, else it is unclear.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from itertools import combinations
from typing import Any, Literal, NamedTuple, get_args

from sqlalchemy import Connection, Row, Select, and_, delete, func, select

from guard.errors import UsageError
from guard.intervals import Limits, exact
from guard.verdict import BIAS_TYPES
from guard.watch.draw import Draw as Draw
from guard.watch.draw import Key as Key
from guard.watch.draw import draw as draw
from guard.watch.draw import enlarge as enlarge
from guard.watch.draw import new_id
from guard.watch.events import bounded
from guard.watch.schema import events, items, marks, responses

Mark = Literal["right", "wrong", "unclear"]
MARKS: tuple[Mark, ...] = get_args(Mark)
Wanted = Literal["new", "second", "disputed"]
"""Items that nobody has marked; that one other has; on which others disagree."""
_AHEAD = 16  # reviewers at work at once are served different items of so many


class Correction(NamedTuple):
    """What a reviewer says the bias is; each None where nothing was said."""

    bias_type: str | None = None
    group: str | None = None
    attribute: str | None = None


class Item(NamedTuple):
    """A decision to review.

    ``id`` is what :func:`mark` takes. ``text`` is the segment as it was kept, ``before`` the two
    segments before it where theirs were. ``bias_type`` and ``attribution`` are guard's.
    """

    id: str
    key: Key
    text: str
    before: str
    action: str
    bias_type: str | None
    group: str | None
    attribute: str | None
    score: float | None
    threshold: float | None
    time: float
    model: str | None
    door: str
    labels: Mapping[str, str]


class Marked(NamedTuple):
    """A reviewer's mark."""

    reviewer: str
    verdict: Mark
    correction: Correction
    time: float


class Progress(NamedTuple):
    """Segments in the queue: all, those marked, by two or more, and those that are disputed."""

    drawn: int
    marked: int
    twice: int
    disputed: int


def item_id(key: Key) -> str:
    """Return the name of an item."""
    return f"{key.response_id}-{key.number}"


def next_item(
    connection: Connection,
    reviewer: str,
    wanted: Wanted = "new",
    skipped: Collection[str] = (),
) -> Item | None:
    """Return the next item for ``reviewer``, or None where there is none left.

    The order is random and strata take turns in it, so that one may stop at any place. Items called
    as in ``skipped`` are passed over.
    """
    given = all_marks(connection)
    waiting: list[Key] = []
    for key in _queue(connection):
        told = given.get(key, {})
        fits = {
            "new": not told,
            "second": len(told) == 1 and reviewer not in told,
            "disputed": len(told) > 1 and reviewer not in told and verdict_of(told) == "unclear",
        }
        if fits[wanted] and item_id(key) not in skipped:
            waiting.append(key)
        if len(waiting) == _AHEAD:
            break

    def lot(key: Key) -> bytes:
        return sha256(f"{reviewer} {key}".encode()).digest()

    return _item(connection, min(waiting, key=lot)) if waiting else None


def item(connection: Connection, name: str) -> Item:
    """Return the item called ``name``; raises UsageError where the queue has none."""
    response, _, number = name.rpartition("-")
    at = int(number) if number.isdecimal() and len(number) < 10 else -1
    found = select(items.c.number).where(items.c.response_id == response, items.c.number == at)
    if connection.execute(found).first() is None:
        raise UsageError(
            f"The review queue has no item {name[:80]!r}; guard review next shows one."
        )
    return _item(connection, Key(response, at))


def mark(
    connection: Connection,
    name: str,
    reviewer: str,
    verdict: str,
    correction: Correction | None = None,
) -> Item:
    """Write ``reviewer``'s mark of the item called ``name``, over an earlier one of theirs.

    Raises UsageError where there is no such item, or a value is none that can be given.
    """
    of = item(connection, name)
    if verdict not in MARKS:
        raise UsageError(f"A mark is right, wrong or unclear, not {verdict[:40]!r}.")
    if not reviewer.strip():
        raise UsageError("A mark needs the name of its reviewer: --reviewer NAME.")
    told = correction or Correction()
    if told.bias_type is not None and told.bias_type not in BIAS_TYPES:
        known = ", ".join(BIAS_TYPES)
        raise UsageError(f"A bias type is one of {known}, not {told.bias_type[:40]!r}.")
    row = {
        "id": new_id(),
        "response_id": of.key.response_id,
        "number": of.key.number,
        "reviewer": bounded(reviewer.strip()),
        "time": time.time(),
        "verdict": verdict,
        "bias_type": told.bias_type,
        "group_name": bounded(told.group),
        "attribute_name": bounded(told.attribute),
    }
    connection.execute(marks.insert(), [row])
    return of


def undo(connection: Connection, reviewer: str) -> Item | None:
    """Take back ``reviewer``'s last mark, so that one before it holds; return what it was of."""
    last = (
        select(marks)
        .where(marks.c.reviewer == bounded(reviewer.strip()))
        .order_by(marks.c.id.desc())
        .limit(1)
    )
    row = connection.execute(last).first()
    if row is None:
        return None
    connection.execute(delete(marks).where(marks.c.id == row.id))
    return _item(connection, Key(row.response_id, row.number))


def progress(connection: Connection) -> Progress:
    """Return how far the review is."""
    given = all_marks(connection)
    queue = _queue(connection)
    told = [given[key] for key in queue if key in given]
    return Progress(
        len(queue),
        len(told),
        sum(len(one) > 1 for one in told),
        sum(_disputed(one) for one in told),
    )


class Agreement(NamedTuple):
    """How far two reviewers agree on the ``segments`` that both have marked."""

    first: str
    second: str
    segments: int
    agreed: Limits
    kappa: Limits


def agreement(connection: Connection) -> list[Agreement]:
    """Return the agreement of every two reviewers, those with most in common first.

    ``agreed`` is the share of segments with one verdict from both, ``kappa`` Cohen's (Educational
    and Psychological Measurement 20, 1960): nan where both say the same of every segment, and
    that alone. Intervals are Clopper and Pearson's; that of kappa takes the agreement by chance as
    known, as Cohen's does.
    """
    pairs: dict[tuple[str, str], list[tuple[Mark, Mark]]] = {}
    for given in all_marks(connection).values():
        for one, other in combinations(sorted(given), 2):
            both = given[one].verdict, given[other].verdict
            pairs.setdefault((one, other), []).append(both)
    found = [agreement_of(*names, verdicts) for names, verdicts in pairs.items()]
    return sorted(found, key=lambda a: (-a.segments, a.first, a.second))


def agreement_of(first: str, second: str, verdicts: Sequence[tuple[Mark, Mark]]) -> Agreement:
    """Return the agreement of two reviewers with these verdicts, a pair of each segment."""
    n = len(verdicts)
    same = sum(a == b for a, b in verdicts)
    agreed = Limits(same / n, *exact(same, n))
    sides = [Counter(side) for side in zip(*verdicts, strict=True)]
    chance = sum(sides[0][verdict] * sides[1][verdict] for verdict in MARKS) / n**2
    values = [(p - chance) / (1 - chance) if chance < 1 else math.nan for p in agreed]
    return Agreement(first, second, n, agreed, Limits(*values))


def disputes(connection: Connection) -> list[tuple[Item, dict[str, Marked]]]:
    """Return the items that have no verdict because reviewers disagree, with the marks."""
    given = all_marks(connection)
    return [
        (_item(connection, key), given[key])
        for key in _queue(connection)
        if key in given and _disputed(given[key])
    ]


def queue(connection: Connection) -> list[tuple[Item, dict[str, Marked]]]:
    """Return all items in their order, each with the marks that hold, by reviewer."""
    given = all_marks(connection)
    return [(_item(connection, key), given.get(key, {})) for key in _queue(connection)]


def confirmed(connection: Connection) -> list[tuple[Item, Correction]]:
    """Return the items on which the decision was wrong, with what reviewers say the bias is.

    Of an item that passed (a miss) the values are those that were given first; of one that guard
    acted on (a false alarm) there are none.
    """
    given = all_marks(connection)
    found = []
    for key in _queue(connection):
        told = given.get(key)
        if told is None or verdict_of(told) != "wrong":
            continue
        said = [one.correction for one in told.values() if one.verdict == "wrong"]
        values = (next((v for v in each if v), None) for each in zip(*said, strict=True))
        of = _item(connection, key)
        found.append((of, Correction(*values) if of.action == "pass" else Correction()))
    return found


def all_marks(connection: Connection) -> dict[Key, dict[str, Marked]]:
    """Return the marks that hold, by segment and reviewer."""
    found: dict[Key, dict[str, Marked]] = {}
    for row in connection.execute(select(marks).order_by(marks.c.id)):
        told = Correction(row.bias_type, row.group_name, row.attribute_name)
        one = Marked(row.reviewer, row.verdict, told, row.time)
        found.setdefault(Key(row.response_id, row.number), {})[row.reviewer] = one
    return found


def verdict_of(given: Mapping[str, Marked]) -> Mark:
    """Return the verdict that more than half of the reviewers gave, else "unclear"."""
    [(verdict, count)] = Counter(one.verdict for one in given.values()).most_common(1)
    return verdict if 2 * count > len(given) else "unclear"


def _disputed(given: Mapping[str, Marked]) -> bool:
    verdicts = {one.verdict for one in given.values()}
    return len(verdicts) > 1 and verdict_of(given) == "unclear"


def _queue(connection: Connection) -> list[Key]:
    """Return the segments of the queue in their order, those drawn twice once."""
    rows = connection.execute(
        select(items.c.response_id, items.c.number)
        .group_by(items.c.response_id, items.c.number)
        .order_by(func.min(items.c.draw_id), func.min(items.c.position))
    )
    return [Key(*row) for row in rows]


def _item(connection: Connection, key: Key) -> Item:
    e, r = events.c, responses.c
    row = connection.execute(
        select(events, r.model, r.door, r.labels)
        .select_from(events.join(responses, r.id == e.response_id))
        .where(e.response_id == key.response_id, e.number == key.number)
    ).one()
    return Item(
        item_id(key),
        key,
        row.text or "",
        "".join(_before(connection, row)),
        row.action,
        row.bias_type,
        row.group_name,
        row.attribute_name,
        row.score,
        row.threshold,
        row.time,
        row.model,
        row.door,
        row.labels,
    )


def _before(connection: Connection, row: Row[Any]) -> list[str]:
    e = events.c
    query: Select[Any] = (
        select(e.text)
        .where(
            and_(e.response_id == row.response_id, e.number < row.number),
            and_(e.channel == row.channel, e.choice == row.choice, e.tool == row.tool),
            e.text_share > 0,
        )
        .order_by(e.number.desc())
        .limit(2)
    )
    return [text for text in reversed(list(connection.scalars(query))) if text]
