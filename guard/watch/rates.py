"""Rates from a store: how often responses were biased, and how often guard mitigated it.

The database returns sums, one row for each line of the report. A rate is a share of segments; its
interval allows for segments of one response being alike
(:func:`guard.results.intervals.clustered_share`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, String, and_, case, func, literal, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from guard.errors import UsageError
from guard.policy import NO_LABEL
from guard.results.estimate import UNDEFINED, Estimate
from guard.results.intervals import clustered_share
from guard.watch.events import clean
from guard.watch.schema import drops, events, responses

#: Columns of a response that a report can be broken down by.
COLUMNS = ("door", "model", "detector", "index_version", "settings", "outcome")
#: Dimensions of a finding.
FINDINGS = {"bias_type": events.c.bias_type, "group": events.c.group_name}
#: Labels whose names need no ``label.`` in front.
LABELS = ("release", "tenant")
#: Doors whose texts are no answers to users; reports that are not by door leave them out.
NON_ANSWER_DOORS = ("check", "error")
NONE = NO_LABEL
_SPAN = re.compile(r"(\d{1,6})([mhdw])")
_UNITS_S = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def rate_text(rate: Estimate) -> str:
    """Return a rate in per cent, with its interval if it has one."""
    text = percent_text(rate.value)
    has_interval = not (math.isnan(rate.value) or math.isnan(rate.low))
    return f"{text} [{_percent(rate.low)}, {_percent(rate.high)}]" if has_interval else text


def percent_text(share: float) -> str:
    """Return a share in per cent."""
    return "nan" if math.isnan(share) else f"{_percent(share)} %"


def _percent(share: float) -> str:
    return f"{100 * share:.3g}" if share < 0.1 else f"{100 * share:.1f}"


@dataclass(frozen=True, slots=True)
class RateLine:
    """One line of a report.

    ``by`` has the values of the breakdown. ``prevalence`` is the share of judged segments that were
    biased, before guard acted; ``mitigation`` the share of the biased ones that did not reach the
    user; ``unjudged`` the share of all segments that were not judged, which the other two leave
    out. ``segments`` are the judged ones. ``biased`` counts responses with a finding, ``leaked``
    those with a finding that reached the user. ``verdict_ms`` is the mean time that a segment's
    verdict took, in milliseconds; nan without a segment.
    """

    by: Mapping[str, str]
    responses: int
    segments: int
    findings: int
    mitigated: int
    unjudged_segments: int
    biased: int
    leaked: int
    prevalence: Estimate
    mitigation: Estimate
    unjudged: Estimate
    verdict_ms: float


@dataclass(frozen=True, slots=True)
class Report:
    """The lines of a report, and what they leave out.

    Times are seconds since 1970. ``running`` responses have not ended, ``future`` ones have a time
    after ``until``, ``dropped`` events were reported as not written since ``since``.
    """

    since: float
    until: float
    by: tuple[str, ...]
    lines: tuple[RateLine, ...]
    running: int
    future: int
    dropped: int


_MOST_NAMES = 16
_LONGEST_S = 50 * 365 * 86_400


def utc(seconds: float) -> str:
    """Return a time, seconds since 1970, as text."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def span_s(text: str, option: str) -> float:
    """Return the seconds of ``90m``, ``12h``, ``7d`` or ``2w``; raises UsageError on other text."""
    match = _SPAN.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise UsageError(f"{option} takes a time such as 90m, 12h, 7d or 2w, got {text[:40]!r}.")
    seconds = int(match[1]) * _UNITS_S[match[2]]
    if seconds > _LONGEST_S:
        raise UsageError(f"{option} takes at most 50 years, got {text[:40]!r}.")
    return seconds


def dimensions(text: str) -> tuple[str, ...]:
    """Return the names in a list such as ``model,bias_type``; raises UsageError on unknown ones."""
    names = tuple(dict.fromkeys(clean(n.strip()) for n in text.split(",") if n.strip()))
    if len(names) > _MOST_NAMES:
        raise UsageError(f"--by takes at most {_MOST_NAMES} names, got {len(names):,}.")
    for name in names:
        label = name.startswith("label.") and name != "label."
        if name not in (*COLUMNS, *FINDINGS, *LABELS) and not label:
            known = ", ".join((*COLUMNS, *FINDINGS, *LABELS))
            raise UsageError(f"--by knows {known} and label.NAME, not {name[:64]!r}.")
    return names


def report(
    connection: Connection,
    since: float,
    until: float,
    by: Sequence[str] = (),
    *,
    only: Mapping[str, str] | None = None,
) -> Report:
    """Return the rates of the responses that began in [``since``, ``until``).

    Times are seconds since 1970; :func:`sums` documents ``only``.
    """
    lines = [line_of(s) for s in sums(connection, since, until, by, only=only)]
    count = select(func.count()).select_from(responses)
    within = and_(responses.c.time >= since, responses.c.time < until)
    dropped = select(func.coalesce(func.sum(drops.c.events), 0))
    return Report(
        since,
        until,
        tuple(by),
        tuple(sorted(lines, key=lambda line: tuple(line.by.values()))),
        int(connection.scalar(count.where(within, responses.c.outcome == "running")) or 0),
        int(connection.scalar(count.where(responses.c.time >= until)) or 0),
        int(connection.scalar(dropped.where(drops.c.time >= since)) or 0),
    )


class Sums(NamedTuple):
    """Sums over the responses of one line: of their counts, squares and products.

    A response has j judged segments, u unjudged ones, f findings and m mitigated findings; ``jj``
    is the sum of j², ``uj`` that of u·j, and so on. Of ``responses``, ``biased`` have a finding,
    ``leaked`` one that reached the user, ``with_unjudged`` an unjudged segment. The verdicts took
    ``ms`` milliseconds, all together. ``part`` is the
    index in ``starts`` of the part that the responses began in.
    """

    by: Mapping[str, str]
    part: int
    responses: int
    j: float
    jj: float
    u: float
    uu: float
    uj: float
    with_unjudged: int
    ms: float = 0
    f: float = 0
    ff: float = 0
    fj: float = 0
    m: float = 0
    mm: float = 0
    fm: float = 0
    biased: int = 0
    leaked: int = 0


def sums(
    connection: Connection,
    since: float,
    until: float,
    by: Sequence[str] = (),
    *,
    starts: Sequence[float] = (),
    only: Mapping[str, str] | None = None,
) -> list[Sums]:
    """Return the sums of the responses that began in [``since``, ``until``).

    Times are seconds since 1970. ``starts``, rising times from ``since`` on, splits the period into
    parts with sums of their own. ``only`` filters by the values of dimensions; a bias type or group
    in it filters findings, and must be in ``by`` too. The judged segments of a line by type or
    group are all of its responses', whatever their type: the denominator of its prevalence.
    """
    of_response = [name for name in by if name not in FINDINGS]
    of_finding = [name for name in by if name in FINDINGS]
    filters = {} if only is None else only
    where = _ended(since, until, (*by, *filters))
    where += [dimension(name) == value for name, value in filters.items() if name not in FINDINGS]
    keys = [dimension(name).label(f"by_{n}") for n, name in enumerate(of_response)]
    parts = [_part(starts, 0).label("part")] if len(starts) > 1 else []
    totals = _grouped(connection, _totals_query(where, not of_finding), [*keys, *parts])
    by_finding = {}
    if of_finding:
        findings = [dimension(name) == filters[name] for name in of_finding if name in filters]
        query = _finding_sums(where, of_finding, findings)
        by_finding = _grouped(connection, query, [*keys, *parts], len(of_finding))
    return list(_joined(totals, by_finding, of_response, of_finding, by, bool(parts)))


def _ended(since: float, until: float, names: Sequence[str]) -> list[ColumnElement[bool]]:
    """Return what holds for the responses of a report by ``names``."""
    where = [responses.c.time >= since, responses.c.time < until, responses.c.outcome != "running"]
    return where if "door" in names else [*where, responses.c.door.not_in(NON_ANSWER_DOORS)]


class Began(NamedTuple):
    """When the first response of a period began, seconds since 1970, and how many there are."""

    first: float
    responses: int


def beginnings(
    connection: Connection,
    since: float,
    until: float,
    by: Sequence[str],
    *,
    only: Mapping[str, str] | None = None,
) -> dict[tuple[str, ...], Began]:
    """Return when each group of responses that began in [``since``, ``until``) first appeared.

    The groups are those of the values of ``by``, dimensions of responses; ``only`` filters by the
    values of such dimensions.
    """
    filters = {} if only is None else only
    where = _ended(since, until, (*by, *filters))
    where += [dimension(name) == value for name, value in filters.items()]
    keys = [dimension(name).label(f"by_{n}") for n, name in enumerate(by)]
    query = select(func.min(responses.c.time), func.count(), *keys).where(*where).group_by(*keys)
    return {
        tuple(map(str, key)): Began(float(first), int(count))
        for first, count, *key in connection.execute(query)
        if count
    }


def _part(starts: Sequence[float], first: int) -> ColumnElement[Any]:
    """Return the index of the last start before a response, by binary search: it runs per row."""
    if len(starts) == 1:
        return literal(first)
    half = len(starts) // 2
    later = responses.c.time >= starts[half]
    return case((later, _part(starts[half:], first + half)), else_=_part(starts[:half], first))


def dimension(name: str) -> ColumnElement[Any]:
    """Return the expression of a dimension's value, "(none)" for a missing one."""
    if name in FINDINGS:
        return func.coalesce(FINDINGS[name], NONE)
    if name in COLUMNS:
        return func.coalesce(responses.c[name], NONE)
    return func.coalesce(_Label(responses.c.labels, literal(name.removeprefix("label."))), NONE)


class _Label(FunctionElement[str]):
    """The value of a label: of (labels, name)."""

    type = String()
    inherit_cache = True


@compiles(_Label)
def _label(element: _Label, compiler: Any, **options: Any) -> str:
    labels, name = (compiler.process(clause, **options) for clause in element.clauses)
    return f"({labels} ->> {name})"


@compiles(_Label, "sqlite")
def _label_in_sqlite(element: _Label, compiler: Any, **options: Any) -> str:
    # A JSON path would be compared with a name as it is escaped in the JSON text.
    labels, name = (compiler.process(clause, **options) for clause in element.clauses)
    return f"(SELECT value FROM json_each({labels}) WHERE key = {name})"


def _totals_query(where: Sequence[Any], with_findings: bool) -> Select[Any]:
    r = responses.c
    j, u, f, m = r.judged, r.unjudged, r.found, r.mitigated
    columns: list[Any] = [
        func.count(),
        *(func.sum(x) for x in (j, j * j, u, u * u, u * j)),
        func.sum(case((u > 0, 1), else_=0)),
        func.sum(r.judging_ms),
    ]
    if with_findings:
        columns += [func.sum(x) for x in (f, f * f, f * j, m, m * m, f * m)]
        columns += [func.sum(case((x, 1), else_=0)) for x in (f > 0, f > m)]
    return select(*columns).select_from(responses).where(*where)


def _finding_sums(
    where: Sequence[Any], of_finding: Sequence[str], findings: Sequence[Any]
) -> Select[Any]:
    names = [FINDINGS[name].label(f"of_{n}") for n, name in enumerate(of_finding)]
    per_response = (
        select(
            events.c.response_id,
            *names,
            func.count().label("f"),
            func.sum(case((events.c.action != "flag", 1), else_=0)).label("m"),
        )
        .where(events.c.bias_type.is_not(None), events.c.counted, *findings)
        .group_by(events.c.response_id, *names)
        .subquery()
    )
    f, m, j = per_response.c.f, per_response.c.m, responses.c.judged
    values = [
        func.coalesce(per_response.c[name.name], NONE).label(f"found_{name.name}") for name in names
    ]
    return (
        select(
            *values,
            *(func.sum(x) for x in (f, f * f, f * j, m, m * m, f * m)),
            func.count(),
            func.sum(case((f > m, 1), else_=0)),
        )
        .select_from(per_response.join(responses, responses.c.id == per_response.c.response_id))
        .where(*where)
        .group_by(*values)
    )


def _grouped(
    connection: Connection, query: Select[Any], keys: Sequence[Any], more: int = 0
) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return the sums of ``query`` by ``keys`` and by the ``more`` columns that it begins with."""
    rows = connection.execute(query.add_columns(*keys).group_by(*keys))
    grouped = {}
    for row in rows:
        values = tuple(row)
        end = len(values) - len(keys)
        grouped[(*values[end:], *values[:more])] = tuple(map(_number, values[more:end]))
    return grouped


def _number(value: Any) -> float:
    return 0.0 if value is None else float(value)


def _joined(
    totals: Mapping[tuple[Any, ...], tuple[float, ...]],
    by_finding: Mapping[tuple[Any, ...], tuple[float, ...]],
    of_response: Sequence[str],
    of_finding: Sequence[str],
    by: Sequence[str],
    by_part: bool,
) -> Iterable[Sums]:
    """Join the sums of responses (keys: dimensions, part) with those of findings (and finding)."""
    width = len(of_response)
    for key, values in totals.items():
        if not values[0]:
            continue  # no response: SQL returns a row of nulls
        part = int(key[width]) if by_part else 0
        findings = [k[len(key) :] for k in by_finding if k[: len(key)] == key]
        # A line without findings has a rate of 0.
        for names in findings or [(NONE,) * len(of_finding)]:
            dimension_values = dict(
                zip((*of_response, *of_finding), (*key[:width], *names), strict=True)
            )
            ordered = {name: str(dimension_values[name]) for name in by}
            added = by_finding.get((*key, *names), ()) if of_finding else ()
            yield Sums(ordered, part, int(values[0]), *values[1:], *added)  # type: ignore[arg-type]


class ShareSums(NamedTuple):
    """Sums over responses of a share's denominators x and numerators y, their squares and products.

    They are the arguments of :func:`guard.results.intervals.clustered_share`.
    """

    x: float
    xx: float
    y: float
    yy: float
    xy: float

    def __add__(self, other: object) -> ShareSums:
        """Return the sums over the responses of both."""
        if not isinstance(other, ShareSums):
            return NotImplemented
        return ShareSums(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def rate(self) -> Estimate:
        """The share y / x and its interval."""
        if not self.x:
            return UNDEFINED
        return Estimate(self.y / self.x, *clustered_share(*self))


class Shares(NamedTuple):
    """The three rates of a line, as sums."""

    prevalence: ShareSums
    mitigation: ShareSums
    unjudged: ShareSums


def shares_of(s: Sums) -> Shares:
    """Return what the rates of sums are computed from."""
    squares = s.jj + 2 * s.uj + s.uu
    return Shares(
        ShareSums(s.j, s.jj, s.f, s.ff, s.fj),
        ShareSums(s.f, s.ff, s.m, s.mm, s.fm),
        ShareSums(s.j + s.u, squares, s.u, s.uu, s.uj + s.uu),
    )


def line_of(s: Sums) -> RateLine:
    """Return the report line of sums."""
    shares = shares_of(s)
    return RateLine(
        s.by,
        int(s.responses),
        int(s.j),
        int(s.f),
        int(s.m),
        int(s.u),
        int(s.biased),
        int(s.leaked),
        shares.prevalence.rate,
        shares.mitigation.rate,
        shares.unjudged.rate,
        s.ms / (s.j + s.u) if s.j + s.u else math.nan,
    )
