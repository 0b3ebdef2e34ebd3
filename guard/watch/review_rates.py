"""Rates estimated from people's marks: how often guard stops harmless text and misses bias.

A marked segment has the weight N / n: its stratum has N segments, n of them marked (Horvitz and
Thompson 1952). A rate is a ratio of two weighted totals (Hájek 1971). A review may stop anywhere in
the queue, because the order is random within each stratum.

The intervals hold for rates near 0 and for very unequal weights
(:func:`guard.results.intervals.weighted`); :func:`guard.results.intervals.share_of_totals` joins
two totals to a ratio. The segments of one response are a cluster, also across strata: the variance
is that of the cluster sums of the linearised ratio (Särndal, Swensson and Wretman 1992, sections
5.5 and 5.6). There is no finite population correction, because a rate describes the guarded model
and not this period alone.

Unclear segments are left out of the rate and widen its interval: the interval begins where all
unclear decisions were right and ends where all were wrong.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, and_, func, select

from guard.results.estimate import UNDEFINED, Estimate
from guard.results.intervals import share_of_totals, weighted
from guard.texts import normalised
from guard.watch.rates import FINDINGS, NON_ANSWER_DOORS, NONE, dimension
from guard.watch.review import Key, Mark, all_marks, corrections, verdict_of
from guard.watch.schema import draws, events, items, responses

_COLUMNS = 11  # of a row, before the values of the breakdown
_NOT_STOPPED = ("pass", "flag")


@dataclass(frozen=True, slots=True)
class ReviewedRate(Estimate):
    """A rate and its 95 % interval, from ``n`` marked segments, ``unclear`` of them unclear.

    If the rate cannot be estimated, value and ends are nan and ``reason`` says why, in one clause.
    """

    unclear: int = 0
    reason: str = ""


class Reviewed(NamedTuple):
    """Rates estimated from reviewed samples.

    ``false_alarms``: share of the findings that were harmless, flagged ones too. ``over_blocking``:
    the same among findings kept from the user. ``harmless_stopped``: share of the harmless segments
    that were kept from the user. ``missed``: share of the biased segments in which guard found
    nothing.
    """

    false_alarms: ReviewedRate
    over_blocking: ReviewedRate
    harmless_stopped: ReviewedRate
    missed: ReviewedRate


@dataclass(frozen=True, slots=True)
class Marked:
    """An item of a sample, with the reviewers' verdict, None if it has no mark.

    ``stratum`` is (draw, name) and ``size`` its number of segments. ``inside`` says whether the
    response belongs to the report. ``of`` has the values of the breakdown by dimensions of a
    response; ``kinds`` those by dimensions of a finding or a miss, None if reviewers left them out.
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
    """What a total counts: the segments in ``domain`` that are a ``hit`` with their verdict."""

    name: str
    domain: Which
    hit: Callable[[Marked, Mark], bool]


class _NotEstimable(Exception):
    """A rate cannot be estimated; the message is the reason."""


def estimates(
    connection: Connection, since: float, until: float, by: Sequence[str] = ()
) -> dict[tuple[str, ...], Reviewed]:
    """Return the rates of responses that began in [``since``, ``until``), by the names ``by``.

    Times are seconds since 1970. ``by`` takes the names of :func:`guard.watch.rates.dimensions`; a
    key has their values, in the same order. Values that no item has are left out; without ``by``
    there is always the key ().
    """
    sample = _items(connection, since, until, by)
    keys = {item.of + item.kinds for item in sample if item.inside and item.kinds is not None}
    ordered = [name for name in by if name not in FINDINGS]
    ordered += [name for name in by if name in FINDINGS]
    places = [ordered.index(name) for name in by]
    width = sum(name not in FINDINGS for name in by)
    lines = {}
    for key in keys or ([()] if not by else []):
        rates = rates_of(sample, key[:width], key[width:] if len(by) > width else None)
        lines[tuple(key[place] for place in places)] = rates
    return lines


def nothing_reviewed() -> Reviewed:
    """Return the rates where no item was reviewed."""
    return Reviewed(*[_no_estimate("nothing is reviewed")] * 4)


def unreviewable(connection: Connection, since: float, until: float) -> int:
    """Return the number of segments in the draws of a period whose texts were not kept."""
    within = and_(draws.c.until > since, draws.c.since < until)
    return int(connection.scalar(select(func.sum(draws.c.unread)).where(within)) or 0)


def _items(connection: Connection, since: float, until: float, by: Sequence[str]) -> list[Marked]:
    """Return the items of all draws whose periods overlap this one."""
    i, e, r = items.c, events.c, responses.c
    names = [name for name in by if name not in FINDINGS]
    answer_columns = [dimension(name).label(f"of_{n}") for n, name in enumerate(names)]
    rows = connection.execute(
        select(
            *(i.draw_id, i.response_id, i.number, i.stratum, i.stratum_size),
            *(e.action, e.bias_type, e.group_name, r.time, r.outcome, r.door),
            *answer_columns,
        )
        .select_from(
            items.join(events, and_(e.response_id == i.response_id, e.number == i.number))
            .join(responses, r.id == i.response_id)
            .join(draws, draws.c.id == i.draw_id)
        )
        .where(draws.c.until > since)
        .order_by(i.draw_id, i.position)
    )
    marks_of = all_marks(connection)
    finding_names = [name for name in by if name in FINDINGS]
    sample = []
    for row in rows:
        marks = marks_of.get(Key(row.response_id, row.number))
        values = {"bias_type": row.bias_type, "group": row.group_name}
        if row.action == "pass":
            biases = corrections(marks or {})
            values = {
                "bias_type": next((bias.bias_type for bias in biases if bias.bias_type), None),
                "group": next((normalised(bias.group) for bias in biases if bias.group), None),
            }
        inside = since <= row.time < until and row.outcome != "running"
        known = row.action != "pass" or all(values[name] for name in finding_names)
        sample.append(
            Marked(
                (row.draw_id, row.stratum),
                row.stratum_size,
                row.response_id,
                verdict_of(marks) if marks else None,
                row.action,
                inside and ("door" in by or row.door not in NON_ANSWER_DOORS),
                tuple(str(value) for value in tuple(row)[_COLUMNS:]),
                tuple(values[name] or NONE for name in finding_names) if known else None,
            )
        )
    return sample


def rates_of(
    sample: Sequence[Marked], answer_values: tuple[str, ...], kinds: tuple[str, ...] | None
) -> Reviewed:
    """Return the rates of responses with the values ``of`` and findings with the values ``kinds``.

    With ``kinds`` None they are of all bias types and groups.
    """

    def in_responses(item: Marked) -> bool:
        return item.inside and item.of == answer_values

    def in_line(item: Marked) -> bool:
        return in_responses(item) and (kinds is None or item.kinds == kinds)

    def finding(item: Marked) -> bool:
        return in_line(item) and item.action != "pass"

    def stopped(item: Marked) -> bool:
        return in_line(item) and item.action not in _NOT_STOPPED

    def passed(item: Marked) -> bool:
        return in_responses(item) and item.action == "pass"

    def not_stopped(item: Marked) -> bool:
        return in_responses(item) and not stopped(item)

    untyped = sum(
        passed(item) and item.verdict == "wrong" and item.kinds is None for item in sample
    )

    missed = (
        _no_estimate(
            f"{untyped} missed segments have no type or group; set them with guard review mark"
        )
        if kinds is not None and untyped
        else _ratio_estimate(
            sample,
            # An unclear miss without a type could be of any type.
            _Side(
                "passed",
                passed,
                lambda item, v: v == "wrong" and (item.kinds is None or in_line(item)),
            ),
            _Side("was found", finding, lambda _, v: v == "right"),
            "no biased segment is among those reviewed",
        )
    )
    return Reviewed(
        _share(sample, finding, "no finding is among those reviewed"),
        _share(sample, stopped, "nothing that was stopped is among those reviewed"),
        _ratio_estimate(
            sample,
            _Side("was stopped", stopped, lambda _, v: v == "wrong"),
            _Side(
                "was not stopped",
                not_stopped,
                lambda item, v: v == ("right" if item.action == "pass" else "wrong"),
            ),
            "no harmless segment is among those reviewed",
        ),
        missed,
    )


def _ratio_estimate(
    sample: Sequence[Marked], part: _Side, rest: _Side, reason: str
) -> ReviewedRate:
    """Return the share of ``part`` in the sum of both totals, which come from different strata."""

    def limits(unclear: Mark | None) -> Estimate:
        return share_of_totals(
            _stratum_total(sample, part, unclear), _stratum_total(sample, rest, unclear)
        )

    either = [item for item in sample if part.domain(item) or rest.domain(item)]
    for side in (part, rest):
        if either and not any(side.domain(item) and item.verdict for item in either):
            return _no_estimate(f"nothing that {side.name} is reviewed")
    return _estimate(either, limits, reason)


def _share(sample: Sequence[Marked], domain: Which, reason: str) -> ReviewedRate:
    """Return the share of the segments in ``domain`` on which the decision was wrong."""

    def limits(unclear: Mark | None) -> Estimate:
        weighed = _weighed(sample, domain, unclear)
        total = sum(w.weight for w in weighed if w.inside)
        if not total:
            return UNDEFINED
        wrong = sum(w.weight for w in weighed if w.inside and w.verdict == "wrong")
        share = wrong / total
        linearised = [
            w._replace(value=((w.verdict == "wrong") - share) * w.inside) for w in weighed
        ]
        return _share_limits(wrong, total, linearised)

    return _estimate([item for item in sample if domain(item)], limits, reason)


def _stratum_total(sample: Sequence[Marked], side: _Side, unclear: Mark | None) -> Estimate:
    """Return the estimated number of the period's segments that are hits."""
    weighed = [
        w._replace(value=float(w.inside and side.hit(w.item, w.verdict)))
        for w in _weighed(sample, side.domain, unclear)
    ]
    n = sum(w.weight for w in weighed)
    share = _share_limits(sum(w.weight * w.value for w in weighed), n, weighed)
    return Estimate(*(n * end for end in (share.value, share.low, share.high)))


class _Weighed(NamedTuple):
    """A marked item, the number of segments it represents, and whether it is in the domain."""

    item: Marked
    verdict: Mark
    weight: float
    inside: bool
    value: float = 0.0


def _weighed(sample: Sequence[Marked], domain: Which, unclear: Mark | None) -> list[_Weighed]:
    """Return the marked items of the strata that have an item in ``domain``.

    Unclear items get the verdict ``unclear``; with None they are left out.
    """
    strata: dict[tuple[str, str], list[Marked]] = defaultdict(list)
    for item in sample:
        strata[item.stratum].append(item)
    weighed = []
    for items_ in strata.values():
        if not any(map(domain, items_)):
            continue
        verdicts = [(i, unclear if i.verdict == "unclear" else i.verdict) for i in items_]
        marked = [(item, verdict) for item, verdict in verdicts if verdict is not None]
        if not marked:
            raise _NotEstimable("a stratum of the sample has no mark yet, or only unclear ones")
        weight = items_[0].size / len(marked)
        weighed += [_Weighed(item, verdict, weight, domain(item)) for item, verdict in marked]
    return weighed


def _share_limits(count: float, n: float, weighed: Sequence[_Weighed]) -> Estimate:
    """Return the interval of ``count / n``, by the variance of the sum of the weighted values."""
    strata: dict[tuple[str, str], list[_Weighed]] = defaultdict(list)
    for w in weighed:
        strata[w.item.stratum].append(w)
    deviations: dict[str, float] = defaultdict(float)
    heaviest = 0.0
    for group in strata.values():
        clusters = Counter(w.item.response_id for w in group)
        mean = sum(w.value for w in group) / len(group) if len(clusters) > 1 else 0.0
        scale = math.sqrt(len(clusters) / max(len(clusters) - 1, 1))
        for w in group:
            deviations[w.item.response_id] += scale * w.weight * (w.value - mean)
        if any(w.inside for w in group):
            # One more hit could bring the other segments of its response with it.
            cluster_size = sum(size * size for size in clusters.values()) / len(group)
            heaviest = max(heaviest, group[0].weight * cluster_size)
    df = len({w.item.response_id for w in weighed}) - len(strata)
    return weighted(count, n, sum(value**2 for value in deviations.values()), heaviest, df)


def _estimate(
    domain: Sequence[Marked], limits: Callable[[Mark | None], Estimate], reason: str
) -> ReviewedRate:
    """Return the rate without unclear items, and the interval with all right to all wrong."""
    marked = sum(item.verdict is not None for item in domain)
    unclear = sum(item.verdict == "unclear" for item in domain)
    if not marked:
        return _no_estimate("nothing is reviewed" if not domain else "no item has a mark yet")
    try:
        rate = limits(None)
        right, wrong = (limits("right"), limits("wrong")) if unclear else (rate, rate)
    except _NotEstimable as error:
        return _no_estimate(str(error), marked, unclear)
    if math.isnan(rate.value):
        return _no_estimate(reason, marked, unclear)
    # Without a denominator there is no bound but 0 and 1.
    low = 0.0 if math.isnan(right.low) else max(right.low, 0.0)
    high = 1.0 if math.isnan(wrong.high) else min(wrong.high, 1.0)
    return ReviewedRate(rate.value, low, high, marked, unclear=unclear)


def _no_estimate(reason: str, marked: int = 0, unclear: int = 0) -> ReviewedRate:
    return ReviewedRate(math.nan, n=marked, unclear=unclear, reason=reason)
