"""What people's marks say of all segments: how often guard stops harmless text and misses bias.

A segment of the sample stands for as many as its stratum has for each that is marked (Horvitz and
Thompson 1952); a rate is a ratio of two such totals (Hájek 1971). Marks may stop at any place of
the queue, because its order is random within each stratum.

Intervals are right for rates near 0 and for strata of very different weights
(:func:`guard.intervals.weighted`); two totals are joined to a ratio by
:func:`guard.intervals.share_of_two`. Segments of one response, also in several strata, are a
cluster: the variance is that of the clusters' sums (Särndal, Swensson and Wretman 1992, section
5.6, by linearisation). It is about the guarded model's behaviour, not about this period alone:
none of it is left out where much of a stratum was marked.

"Unclear" bounds a rate: the interval begins where every unclear decision was right, and ends where
every one was wrong. The rate itself leaves them out.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, and_, func, select

from guard.intervals import Limits, share_of_two, weighted
from guard.watch.rates import ASIDE, FINDINGS, NONE, dimension
from guard.watch.review import Key, Mark, all_marks, verdict_of
from guard.watch.schema import draws, events, items, responses

_COLUMNS = 11  # of a row, before those of a breakdown
_NOT_STOPPED = ("pass", "flag")


class Estimate(NamedTuple):
    """A rate and its 95 % interval, from ``marked`` segments, of which ``unclear`` were unclear.

    Where the rate is not known its numbers are nan, and ``reason`` says why, in one clause.
    """

    value: float
    low: float
    high: float
    marked: int
    unclear: int
    reason: str = ""


class Reviewed(NamedTuple):
    """Rates from reviewed samples.

    ``false_alarms``: share of the findings that were harmless, whatever guard did about them;
    ``over_blocking``: the same of those that it kept from the user. ``harmless_stopped``: share of
    the harmless segments that were kept from the user; ``missed``: share of the biased segments in
    which guard found nothing.
    """

    false_alarms: Estimate
    over_blocking: Estimate
    harmless_stopped: Estimate
    missed: Estimate


@dataclass(frozen=True, slots=True)
class Marked:
    """An item of a sample, with its verdict where it has one.

    ``stratum`` is the draw's and the name; ``size`` the segments in it. ``of`` are the values of
    the breakdown, of a response; ``kinds`` those of a finding or a miss, None where they are not
    known.
    """

    stratum: tuple[str, str]
    size: int
    response_id: str
    verdict: Mark | None
    action: str
    inside: bool
    of: tuple[str, ...]
    kinds: tuple[str, ...] | None


Which = Callable[[Marked], bool]


class _Side(NamedTuple):
    """What a total counts: of the segments in ``domain``, those that ``hit`` with their verdict."""

    name: str
    domain: Which
    hit: Callable[[Marked, Mark], bool]


class _Unknown(Exception):
    """A rate cannot be estimated; the text is the reason."""


def estimates(
    connection: Connection, since: float, until: float, by: Sequence[str] = ()
) -> dict[tuple[str, ...], Reviewed]:
    """Return the rates of responses that began in [``since``, ``until``), by the names ``by``.

    Keys are the values of ``by``, in its order, as :func:`guard.watch.rates.report` has them; the
    names are those of :func:`guard.watch.rates.dimensions`. Nothing is returned for what was not
    drawn; without ``by`` there is always one line.
    """
    found = _items(connection, since, until, by)
    keys = {one.of + one.kinds for one in found if one.inside and one.kinds is not None}
    ordered = [name for name in by if name not in FINDINGS]
    ordered += [name for name in by if name in FINDINGS]
    places = [ordered.index(name) for name in by]
    width = sum(name not in FINDINGS for name in by)
    lines = {}
    for key in keys or ([()] if not by else []):
        rates = rates_of(found, key[:width], key[width:] if len(by) > width else None)
        lines[tuple(key[place] for place in places)] = rates
    return lines


def nothing_reviewed() -> Reviewed:
    """Return the rates of what no reviewed sample has anything of."""
    return Reviewed(*[_nothing("nothing is reviewed")] * 4)


def unread(connection: Connection, since: float, until: float) -> int:
    """Return how many segments the draws from this period could not stand for."""
    within = and_(draws.c.until > since, draws.c.since < until)
    return int(connection.scalar(select(func.sum(draws.c.unread)).where(within)) or 0)


def _items(connection: Connection, since: float, until: float, by: Sequence[str]) -> list[Marked]:
    """Return the items of all draws that reach into the period."""
    i, e, r = items.c, events.c, responses.c
    names = [name for name in by if name not in FINDINGS]
    of = [dimension(name).label(f"of_{n}") for n, name in enumerate(names)]
    rows = connection.execute(
        select(
            *(i.draw_id, i.response_id, i.number, i.stratum, i.stratum_size),
            *(e.action, e.bias_type, e.group_name, r.time, r.outcome, r.door),
            *of,
        )
        .select_from(
            items.join(events, and_(e.response_id == i.response_id, e.number == i.number))
            .join(responses, r.id == i.response_id)
            .join(draws, draws.c.id == i.draw_id)
        )
        .where(draws.c.until > since)
        .order_by(i.draw_id, i.position)
    )
    given = all_marks(connection)
    kinds = [name for name in by if name in FINDINGS]
    found = []
    for row in rows:
        marks = given.get(Key(row.response_id, row.number))
        told = {"bias_type": row.bias_type, "group": row.group_name}
        if row.action == "pass":
            said = [one.correction for one in (marks or {}).values() if one.verdict == "wrong"]
            told = {
                "bias_type": next((one.bias_type for one in said if one.bias_type), None),
                "group": next((_plain(one.group) for one in said if one.group), None),
            }
        inside = since <= row.time < until and row.outcome != "running"
        known = row.action != "pass" or all(told[name] for name in kinds)
        found.append(
            Marked(
                (row.draw_id, row.stratum),
                row.stratum_size,
                row.response_id,
                verdict_of(marks) if marks else None,
                row.action,
                inside and ("door" in by or row.door not in ASIDE),
                tuple(str(value) for value in tuple(row)[_COLUMNS:]),
                tuple(told[name] or NONE for name in kinds) if known else None,
            )
        )
    return found


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def rates_of(
    every: Sequence[Marked], of: tuple[str, ...], kinds: tuple[str, ...] | None
) -> Reviewed:
    """Return the rates of the items whose response is ``of``, and of the findings ``kinds``.

    With ``kinds`` None they are of all bias types and groups.
    """
    within = [one for one in every if one.inside and one.of == of]
    untyped = sum(
        one.action == "pass" and one.verdict == "wrong" and one.kinds is None for one in within
    )

    def here(one: Marked) -> bool:
        return one.inside and one.of == of

    def ours(one: Marked) -> bool:
        return here(one) and (kinds is None or one.kinds == kinds)

    def found(one: Marked) -> bool:
        return ours(one) and one.action != "pass"

    def stopped(one: Marked) -> bool:
        return ours(one) and one.action not in _NOT_STOPPED

    def passed(one: Marked) -> bool:
        return here(one) and one.action == "pass"

    def others(one: Marked) -> bool:
        return here(one) and not stopped(one)

    missed = (
        _nothing(f"{untyped} misses have no type or group; guard review mark gives them")
        if kinds is not None and untyped
        else _ratio(
            every,
            # Of what type an unclear one would be nobody knows.
            _Side(
                "passed", passed, lambda one, v: v == "wrong" and (one.kinds is None or ours(one))
            ),
            _Side("was found", found, lambda one, v: v == "right"),
            "no biased segment is among those reviewed",
        )
    )
    return Reviewed(
        _share(every, found, "no finding is among those reviewed"),
        _share(every, stopped, "nothing that was stopped is among those reviewed"),
        _ratio(
            every,
            _Side("was stopped", stopped, lambda one, v: v == "wrong"),
            _Side(
                "was not stopped",
                others,
                lambda one, v: v == ("right" if one.action == "pass" else "wrong"),
            ),
            "no harmless segment is among those reviewed",
        ),
        missed,
    )


def _ratio(every: Sequence[Marked], one: _Side, other: _Side, reason: str) -> Estimate:
    """Return the share of ``one`` in both totals, which no stratum may have both of."""

    def of(unclear: Mark | None) -> Limits:
        return share_of_two(_total(every, one, unclear), _total(every, other, unclear))

    either = [x for x in every if one.domain(x) or other.domain(x)]
    for side in (one, other):
        if either and not any(side.domain(x) and x.verdict for x in either):
            return _nothing(f"nothing that {side.name} is reviewed")
    return _estimate(either, of, reason)


def _share(every: Sequence[Marked], domain: Which, reason: str) -> Estimate:
    """Return the share of the segments in ``domain`` on which the decision was wrong."""

    def of(unclear: Mark | None) -> Limits:
        given = _counted(every, domain, unclear)
        x = sum(g.weight for g in given if g.inside)
        if not x:
            return Limits(math.nan, math.nan, math.nan)
        y = sum(g.weight for g in given if g.inside and g.verdict == "wrong")
        off = [g._replace(value=((g.verdict == "wrong") - y / x) * g.inside) for g in given]
        return _limits(y, x, off)

    return _estimate([one for one in every if domain(one)], of, reason)


def _total(every: Sequence[Marked], side: _Side, unclear: Mark | None) -> Limits:
    """Return how many segments of the period hit."""
    given = [
        g._replace(value=float(g.inside and side.hit(g.one, g.verdict)))
        for g in _counted(every, side.domain, unclear)
    ]
    n = sum(g.weight for g in given)
    share = _limits(sum(g.weight * g.value for g in given), n, given)
    return Limits(*(n * end for end in share))


class _Counted(NamedTuple):
    """A marked item with the segments that it stands for, and whether it is in the domain."""

    one: Marked
    verdict: Mark
    weight: float
    inside: bool
    value: float = 0.0


def _counted(every: Sequence[Marked], domain: Which, unclear: Mark | None) -> list[_Counted]:
    """Return the marked items of the strata that have anything in ``domain``.

    Those that are unclear count as ``unclear``, and not at all where that is None.
    """
    strata: dict[tuple[str, str], list[Marked]] = defaultdict(list)
    for one in every:
        strata[one.stratum].append(one)
    found = []
    for group in strata.values():
        if not any(map(domain, group)):
            continue
        told = [(one, unclear if one.verdict == "unclear" else one.verdict) for one in group]
        given = [(one, verdict) for one, verdict in told if verdict is not None]
        if not given:
            raise _Unknown("a part of the sample has no mark yet, or none but unclear")
        weight = group[0].size / len(given)
        found += [_Counted(one, verdict, weight, domain(one)) for one, verdict in given]
    return found


def _limits(count: float, n: float, given: Sequence[_Counted]) -> Limits:
    """Return the interval of ``count / n``; the variance is that of the weighted values' sum."""
    strata: dict[tuple[str, str], list[_Counted]] = defaultdict(list)
    for g in given:
        strata[g.one.stratum].append(g)
    off: dict[str, float] = defaultdict(float)
    heaviest = 0.0
    for group in strata.values():
        clusters = Counter(g.one.response_id for g in group)
        mean = sum(g.value for g in group) / len(group) if len(clusters) > 1 else 0.0
        scale = math.sqrt(len(clusters) / max(len(clusters) - 1, 1))
        for g in group:
            off[g.one.response_id] += scale * g.weight * (g.value - mean)
        if any(g.inside for g in group):
            # Another hit would come with others of its response.
            alike = sum(size * size for size in clusters.values()) / len(group)
            heaviest = max(heaviest, group[0].weight * alike)
    df = len({g.one.response_id for g in given}) - len(strata)
    return weighted(count, n, sum(value**2 for value in off.values()), heaviest, df)


def _estimate(
    domain: Sequence[Marked], of: Callable[[Mark | None], Limits], reason: str
) -> Estimate:
    """Return the rate with unclear marks left out, and the interval with them on either side."""
    marked = sum(one.verdict is not None for one in domain)
    unclear = sum(one.verdict == "unclear" for one in domain)
    if not marked:
        return _nothing("nothing is reviewed" if not domain else "no item has a mark yet")
    try:
        value, low, high = of(None)
        if unclear:
            low, high = of("right").low, of("wrong").high
    except _Unknown as error:
        return _nothing(str(error), marked, unclear)
    if math.isnan(value):
        return _nothing(reason, marked, unclear)
    # Bounds of unclear marks that leave nothing to divide by are no bounds.
    low, high = (0.0 if math.isnan(low) else low), (1.0 if math.isnan(high) else high)
    return Estimate(value, max(low, 0.0), min(high, 1.0), marked, unclear)


def _nothing(reason: str, marked: int = 0, unclear: int = 0) -> Estimate:
    return Estimate(math.nan, math.nan, math.nan, marked, unclear, reason)
