"""The review queue: people mark drawn decisions as right, wrong or unclear.

:func:`draw` and :func:`enlarge` fill the queue, :func:`next_item` serves it, :func:`mark` and
:func:`undo` write to it; :func:`agreement`, :func:`disputes` and
:func:`guard.watch.review_rates.estimates` read the marks. All but the first two take a connection:
from :meth:`guard.watch.store.Store.reading` or, to write, from
:meth:`guard.watch.store.Store.writing`.

A mark judges a decision: "right" means that what passed was harmless, or that what guard acted on
was biased. A reviewer's last mark of a segment replaces the earlier ones. A segment's verdict is
that of more than half of its reviewers, else unclear.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from hashlib import sha256
from itertools import combinations, islice
from typing import Literal, NamedTuple, get_args

from sqlalchemy import Connection, and_, delete, func, select

from guard.errors import UsageError
from guard.results.agreement import Agreement, agreement_of
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
"""Items that nobody has marked, that one other reviewer has, or on which others disagree."""
_AHEAD = 16  # items at the head of the queue, of which each reviewer is served another


class Correction(NamedTuple):
    """The bias as a reviewer sees it; None for what the reviewer left out."""

    bias_type: str | None = None
    group: str | None = None
    attribute: str | None = None


class ReviewItem(NamedTuple):
    """A decision to review.

    :func:`mark` takes its ``id``. ``text`` is the segment as stored, ``before`` the two segments
    before it, if stored. ``bias_type``, ``group`` and ``attribute`` are guard's finding. ``time``
    is in seconds since 1970.
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


class ReviewerMark(NamedTuple):
    """A reviewer's mark."""

    reviewer: str
    verdict: Mark
    correction: Correction
    time: float


class ReviewProgress(NamedTuple):
    """Counts of segments in the queue: all, marked, marked by two or more, disputed."""

    drawn: int
    marked: int
    twice: int
    disputed: int


def item_id(key: Key) -> str:
    """Return the id of an item."""
    return f"{key.response_id}-{key.number}"


def named(reviewer: str) -> str:
    """Return a reviewer's name as it is stored."""
    return bounded(reviewer.strip()) or ""


def next_item(
    connection: Connection,
    reviewer: str,
    wanted: Wanted = "new",
    skipped: Collection[str] = (),
) -> ReviewItem | None:
    """Return the next item for ``reviewer``, None if none is left.

    The order is random and interleaves the strata, so that a review may stop anywhere. Items whose
    ids are in ``skipped`` are passed over.
    """
    reviewer = named(reviewer)
    fits: Mapping[Wanted, Callable[[Mapping[str, ReviewerMark]], bool]] = {
        "new": lambda by_reviewer: not by_reviewer,
        "second": lambda by_reviewer: len(by_reviewer) == 1,
        "disputed": lambda by_reviewer: (
            len(by_reviewer) > 1 and verdict_of(by_reviewer) == "unclear"
        ),
    }
    waiting = (
        key
        for key, by_reviewer in _queue(connection)
        if reviewer not in by_reviewer and fits[wanted](by_reviewer) and item_id(key) not in skipped
    )

    def shuffled(key: Key) -> bytes:
        return sha256(f"{reviewer} {key}".encode()).digest()

    next_key = min(islice(waiting, _AHEAD), key=shuffled, default=None)
    return None if next_key is None else _item(connection, next_key)


def item(connection: Connection, id_: str) -> ReviewItem:
    """Return the item with an id; raises UsageError if the queue has none."""
    response_id, _, digits = id_.rpartition("-")
    key = Key(response_id, int(digits) if digits.isdecimal() and len(digits) < 10 else -1)
    i, e = items.c, events.c
    in_queue = (
        select(i.number)
        .join(events, and_(e.response_id == i.response_id, e.number == i.number))
        .where(i.response_id == key.response_id, i.number == key.number)
    )
    if connection.execute(in_queue).first() is None:
        raise UsageError(f"The review queue has no item {id_[:80]!r}; guard review next shows one.")
    return _item(connection, key)


def mark(
    connection: Connection,
    id_: str,
    reviewer: str,
    verdict: str,
    correction: Correction | None = None,
) -> ReviewItem:
    """Write ``reviewer``'s mark of the item with an id; it replaces an earlier one of theirs.

    Raises UsageError if there is no such item, or on an invalid value.
    """
    marked = item(connection, id_)
    if verdict not in MARKS:
        raise UsageError(f"A mark is right, wrong or unclear, not {verdict[:40]!r}.")
    if not reviewer.strip():
        raise UsageError("A mark needs its reviewer's name: give --reviewer NAME.")
    bias = correction or Correction()
    if bias.bias_type is not None and bias.bias_type not in BIAS_TYPES:
        known = ", ".join(BIAS_TYPES)
        raise UsageError(f"A bias type is one of {known}, not {bias.bias_type[:40]!r}.")
    row = {
        "id": new_id(connection.scalar(select(func.max(marks.c.id)))),
        "response_id": marked.key.response_id,
        "number": marked.key.number,
        "reviewer": named(reviewer),
        "time": time.time(),
        "verdict": verdict,
        "bias_type": bias.bias_type,
        "group_name": bounded(bias.group),
        "attribute_name": bounded(bias.attribute),
    }
    connection.execute(marks.insert(), [row])
    return marked


def undo(connection: Connection, reviewer: str) -> ReviewItem | None:
    """Take back ``reviewer``'s last mark; return its item, None if there was no mark.

    An earlier mark of the same segment is valid again.
    """
    last = (
        select(marks)
        .join(
            events,
            and_(events.c.response_id == marks.c.response_id, events.c.number == marks.c.number),
        )
        .where(marks.c.reviewer == named(reviewer))
        .order_by(marks.c.id.desc())
        .limit(1)
    )
    row = connection.execute(last).first()
    if row is None:
        return None
    connection.execute(delete(marks).where(marks.c.id == row.id))
    return _item(connection, Key(row.response_id, row.number))


def progress(connection: Connection) -> ReviewProgress:
    """Return how much of the queue is marked."""
    queue = _queue(connection)
    marked = [by_reviewer for _, by_reviewer in queue if by_reviewer]
    return ReviewProgress(
        len(queue),
        len(marked),
        sum(len(by_reviewer) > 1 for by_reviewer in marked),
        sum(_disputed(by_reviewer) for by_reviewer in marked),
    )


def agreement(connection: Connection) -> list[Agreement]:
    """Return the agreement of every two reviewers, those with most in common first.

    ``agreed`` is the share of segments to which both gave the same verdict. ``kappa`` is Cohen's
    (Educational and Psychological Measurement 20, 1960); it is nan if both gave one same verdict
    to every segment. Intervals are Clopper and Pearson's; that of kappa takes the agreement by
    chance as known, as Cohen's does.
    """
    pairs: dict[tuple[str, str], list[tuple[Mark, Mark]]] = {}
    for by_reviewer in all_marks(connection).values():
        for first, second in combinations(sorted(by_reviewer), 2):
            verdicts = by_reviewer[first].verdict, by_reviewer[second].verdict
            pairs.setdefault((first, second), []).append(verdicts)
    agreements = [agreement_of(*names, both) for names, both in pairs.items()]
    return sorted(agreements, key=lambda a: (-a.n, a.first, a.second))


def disputes(connection: Connection) -> list[tuple[ReviewItem, dict[str, ReviewerMark]]]:
    """Return the items on which reviewers disagree without a majority, with their marks."""
    return [
        (_item(connection, key), by_reviewer)
        for key, by_reviewer in _queue(connection)
        if by_reviewer and _disputed(by_reviewer)
    ]


def confirmed(connection: Connection) -> list[tuple[ReviewItem, Correction]]:
    """Return the items whose decision was wrong, each with the bias as reviewers see it.

    For an item that passed (a miss) each value is the first that a reviewer gave; for one that
    guard acted on (a false alarm) there are none.
    """
    errors = []
    for key, by_reviewer in _queue(connection):
        if by_reviewer and verdict_of(by_reviewer) == "wrong":
            wrong = _item(connection, key)
            values = zip(*corrections(by_reviewer), strict=True)
            first = (next(filter(None, column), None) for column in values)
            errors.append((wrong, Correction(*first) if wrong.action == "pass" else Correction()))
    return errors


def corrections(by_reviewer: Mapping[str, ReviewerMark]) -> list[Correction]:
    """Return the corrections of the reviewers who say that a decision was wrong."""
    return [m.correction for m in by_reviewer.values() if m.verdict == "wrong"]


def all_marks(connection: Connection) -> dict[Key, dict[str, ReviewerMark]]:
    """Return the valid marks, by segment and reviewer."""
    marks_of: dict[Key, dict[str, ReviewerMark]] = {}
    for row in connection.execute(select(marks).order_by(marks.c.id)):
        bias = Correction(row.bias_type, row.group_name, row.attribute_name)
        marked = ReviewerMark(row.reviewer, row.verdict, bias, row.time)
        marks_of.setdefault(Key(row.response_id, row.number), {})[row.reviewer] = marked
    return marks_of


def verdict_of(by_reviewer: Mapping[str, ReviewerMark]) -> Mark:
    """Return the verdict that more than half of the reviewers gave, else "unclear"."""
    [(verdict, count)] = Counter(m.verdict for m in by_reviewer.values()).most_common(1)
    return verdict if 2 * count > len(by_reviewer) else "unclear"


def _disputed(by_reviewer: Mapping[str, ReviewerMark]) -> bool:
    verdicts = {m.verdict for m in by_reviewer.values()}
    return len(verdicts) > 1 and verdict_of(by_reviewer) == "unclear"


def _queue(connection: Connection) -> list[tuple[Key, dict[str, ReviewerMark]]]:
    """Return the segments of the queue in order, each once, with their marks by reviewer.

    A segment whose event was deleted while it was being drawn is left out.
    """
    marks_of = all_marks(connection)
    i, e = items.c, events.c
    rows = connection.execute(
        select(i.response_id, i.number)
        .join(events, and_(e.response_id == i.response_id, e.number == i.number))
        .group_by(i.response_id, i.number)
        .order_by(func.min(i.draw_id), func.min(i.position))
    )
    return [(key, marks_of.get(key, {})) for key in map(Key._make, rows)]


def _item(connection: Connection, key: Key) -> ReviewItem:
    e, r = events.c, responses.c
    row = connection.execute(
        select(events, r.model, r.door, r.labels)
        .join(responses, r.id == e.response_id)
        .where(e.response_id == key.response_id, e.number == key.number)
    ).first()
    if row is None:
        raise UsageError(
            f"{item_id(key)} was deleted from the store; guard review next shows another."
        )
    before = (
        select(e.text)
        .where(e.response_id == key.response_id, e.number < key.number, e.text_share > 0)
        .where(e.channel == row.channel, e.choice == row.choice, e.tool == row.tool)
        .order_by(e.number.desc())
        .limit(2)
    )
    texts = [text for text in connection.scalars(before) if text]
    return ReviewItem(
        item_id(key),
        key,
        row.text or "",
        "".join(reversed(texts)),
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
