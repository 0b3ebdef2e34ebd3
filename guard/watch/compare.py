"""Compares the rates of two releases, models or periods, to say whether the new one is worse.

A row is one rate of one group of responses, on both sides. The sides have no response in common, so
the interval of a difference follows from those of the two shares (MOVER: Newcombe, Statistics in
Medicine 17, 1998, method 10; Zou and Donner, Statistics in Medicine 27, 2008). Those are Clopper
and Pearson's for the effective number of segments (Korn and Graubard, Survey Methodology 24, 1998):
they hold for rare findings, where Jeffreys' are too narrow. The effective number is the smaller one
of the side's own and the one that both sides' responses together imply. A side with three findings
does not show how alike the segments of a response are, and one with none or all has the second
number alone: its own would count no finding as weaker evidence than one finding.

The p-value of a row is one minus the greatest level whose interval leaves out 0. All rows are
corrected together by Benjamini and Hochberg (1995), except rows in which nothing happened on either
side: they cannot reject. The intervals shown are those of Benjamini and Yekutieli (Journal of the
American Statistical Association 100, 2005): of m rows of which R are shown to differ, each has the
level 1 - 0.05 max(R, 1) / m. So an interval leaves out 0 if and only if its row is shown to differ.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Literal, NamedTuple

from sqlalchemy import Connection, String, cast, select

from guard.errors import UsageError
from guard.results.estimate import UNDEFINED, Estimate
from guard.results.intervals import (
    ALPHA,
    LEAST_CLUSTERS,
    clopper_pearson,
    effective,
    false_discovery,
    p_text,
)
from guard.watch.events import clean
from guard.watch.rates import (
    COLUMNS,
    FINDINGS,
    LABELS,
    NONE,
    ShareSums,
    Sums,
    beginnings,
    dimensions,
    percent_text,
    shares_of,
    span_s,
    sums,
    utc,
)
from guard.watch.schema import responses

PERIOD = "period"
RATES: Mapping[str, str] = {"prevalence": "lower", "mitigation": "higher", "unjudged": "lower"}
"""The rates that are compared, and which of two values is the better one."""
_SHOWN_VALUES = 8
_LEAST_P, _GREATEST_P = 1e-12, 0.99

State = Literal["worse", "better", "not shown to differ", "nothing to test", "too few"]


class RateSide(NamedTuple):
    """One side: responses with the values ``only`` that began in [``since``, ``until``).

    Times are seconds since 1970; ``name`` is what the side is called.
    """

    name: str
    since: float
    until: float
    only: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CompareRow:
    """One rate of one group on both sides.

    ``base_of`` and ``new_of`` are the rates' denominators, ``base_events`` and ``new_events`` their
    numerators; ``difference`` is new - base as a share, with its interval. ``p`` and ``q`` are nan
    for a row that is not tested.
    """

    by: Mapping[str, str]
    rate: str
    base: Estimate
    base_events: int
    base_of: int
    new: Estimate
    new_events: int
    new_of: int
    difference: Estimate
    p: float
    q: float

    @property
    def state(self) -> State:
        """What the row shows."""
        if math.isnan(self.difference.low):
            return "too few"
        if math.isnan(self.q):
            return "nothing to test"
        if self.q >= ALPHA:
            return "not shown to differ"
        higher = self.difference.value > 0
        return "worse" if higher == (RATES[self.rate] == "lower") else "better"

    @property
    def q_text(self) -> str:
        """The q-value as text."""
        return p_text(self.q)

    @property
    def may_have_doubled(self) -> bool:
        """Whether a rate that is better lower, and not shown to differ, may be twice the base's."""
        undecided = self.state == "not shown to differ" and RATES[self.rate] == "lower"
        return undecided and 0 < self.base.value <= self.difference.high

    @property
    def may_be_new(self) -> bool:
        """Whether what is better rare happened on the new side alone, and may be chance."""
        undecided = self.state == "not shown to differ" and RATES[self.rate] == "lower"
        return undecided and not self.base_events and self.new_events > 0


@dataclass(frozen=True, slots=True)
class RateComparison:
    """The rows of a comparison; ``one_sided`` groups have responses on one side only.

    ``tested`` is the number of rows that were corrected together; ``level`` that of each interval.
    """

    base: RateSide
    new: RateSide
    by: tuple[str, ...]
    rows: tuple[CompareRow, ...]
    one_sided: tuple[str, ...]
    tested: int
    level: float

    @property
    def worse(self) -> tuple[CompareRow, ...]:
        """The rows that are shown to be worse on the new side."""
        return tuple(row for row in self.rows if row.state == "worse")

    @property
    def comparable(self) -> bool:
        """Whether any row has enough responses on both sides for an interval."""
        return any(row.state != "too few" for row in self.rows)

    @property
    def conclusion(self) -> str:
        """What the comparison shows, in one sentence."""
        names = f"{self.new.name} against {self.base.name}"
        if not self.rows:
            return f"{names}: no group has responses on both sides, so nothing could be compared."
        if not self.comparable:
            return f"{names}: too few responses on a side to compare them."
        if self.worse:
            named = "; ".join(
                f"{', '.join((*row.by.values(), row.rate))} {percent_text(row.base.value)} "
                f"to {percent_text(row.new.value)}, {points(row.difference)}"
                for row in self.worse
            )
            return f"{names}: shown to be worse: {named}."
        if any(row.state == "better" for row in self.rows):
            return f"{names}: not shown to be worse; what is shown to differ is better."
        return f"{names}: not shown to differ."


def compare_notes(comparison: RateComparison) -> list[str]:
    """Return what a reader of a comparison has to know."""
    notes = []
    if comparison.rows:
        notes.append(
            "If no rate differs and responses are independent, at most 5 % of such tables show a "
            "difference; if they are not, as the turns of one conversation, more do. The "
            f"differences' brackets hold {100 * comparison.level:.4g} %, so that they allow for "
            "all rows. “Nothing to test”: none or all on both sides."
        )
    if doubled := [row for row in comparison.rows if row.may_have_doubled]:
        named = ", ".join(" ".join((*row.by.values(), row.rate)) for row in doubled)
        notes.append(f"More responses are needed to exclude that it has doubled: {named}.")
    if fresh := [row for row in comparison.rows if row.may_be_new]:
        named = ", ".join(
            f"{' '.join((*row.by.values(), row.rate))} (0 to {percent_text(row.new.value)})"
            for row in fresh
        )
        notes.append(
            f"On the new side alone, which may be chance or the beginning of a new bias: {named}."
        )
    if comparison.one_sided:
        notes.append(f"Responses on one side only: {'; '.join(comparison.one_sided)}.")
    return notes


def points(difference: Estimate) -> str:
    """Return a difference of shares in percentage points, with its interval if it has one."""
    if math.isnan(difference.value):
        return "nan"
    value = f"{_signed(difference.value)} points"
    if math.isnan(difference.low):
        return value
    return f"{value} [{_signed(difference.low)}, {_signed(difference.high)}]"


def _signed(share: float) -> str:
    hundredths = round(10_000 * share) / 100
    # Zero has no sign, but an end that is near 0 must not look like 0.
    if hundredths == 0:
        return "0" if share == 0 else f"{100 * share:+.1g}"
    return f"{hundredths:+.2f}"


def sides(text: str, since: float, now: float) -> tuple[RateSide, RateSide]:
    """Return both sides of ``NAME=BASE,NEW``; ``since`` and ``now`` bound those without a period.

    Times are seconds since 1970. Raises UsageError on anything else, and on equal sides.
    """
    name, equals, values_text = text.partition("=")
    name = name.strip()
    row = next(csv.reader([values_text], skipinitialspace=True), [])
    values = [value for value in map(clean, map(str.strip, row)) if value]
    if not equals or not name or len(values) != 2:
        raise UsageError(
            "--compare takes NAME=BASE,NEW, such as release=7,8, with two values (one that has a "
            f'comma stands in "quotes"), got {text[:80]!r}.'
        )
    if name == PERIOD:
        base, new = (_side_of(value, now) for value in values)
        if base.since < new.until and new.since < base.until:
            raise UsageError(
                f"--compare: {base.name} and {new.name} overlap, so they share responses; give "
                "periods that do not."
            )
        return base, new
    return label_sides(name, values[0], values[1], since, now)


def label_sides(
    name: str, base: str, new: str, since: float, until: float
) -> tuple[RateSide, RateSide]:
    """Return the sides of two values of a dimension of responses, over one time.

    Raises UsageError if ``name`` is none, and if the values are equal.
    """
    if name in FINDINGS:
        raise UsageError(
            f"--compare takes a value of responses, and {name} is one of findings; compare "
            f"releases, models or periods, and add --by {name}."
        )
    known = name in (*COLUMNS, *LABELS) or (name.startswith("label.") and name != "label.")
    if not known:
        raise UsageError(
            f"--compare knows {', '.join((*COLUMNS, *LABELS))}, label.NAME and {PERIOD}, not "
            f"{name[:64]!r}."
        )
    if base == new:
        raise UsageError(
            f"--compare: both sides are {name} {base[:64]!r}; give two different values."
        )
    (name,) = dimensions(name)
    old, now = (RateSide(f"{name} {value}", since, until, {name: value}) for value in (base, new))
    return old, now


def last_two(
    connection: Connection,
    name: str,
    since: float,
    until: float,
    *,
    only: Mapping[str, str] | None = None,
) -> tuple[str, str] | None:
    """Return the values of a dimension that began last in a time, the last but one first.

    ``only`` filters by the values of dimensions of responses. Of values with too few responses to
    be compared none is taken if two others have enough.
    """
    began = beginnings(connection, since, until, [name], only=only)
    lines = sums(connection, since, until, [name], only=only)
    enough = {line.by[name] for line in lines if _has_enough(shares_of(line).prevalence)}
    values = [key[0] for key in sorted(began, key=lambda key: began[key].first) if key[0] != NONE]
    comparable = [value for value in values if value in enough]
    last = comparable if len(comparable) > 1 else values
    return (last[-2], last[-1]) if len(last) > 1 else None


def _side_of(text: str, now: float) -> RateSide:
    first, dots, last = text.partition("..")
    if not dots:
        raise UsageError(
            f"--compare {PERIOD} takes FROM..TO,FROM..TO, such as 14d..7d,7d..now or "
            f"2030-01-01..2030-01-08,2030-01-08..2030-01-15, got {text[:40]!r}."
        )
    since, until = _moment_of(first.strip(), now), _moment_of(last.strip(), now)
    if since >= until:
        raise UsageError(f"--compare: {text[:40]!r} ends before it begins; swap its times.")
    return RateSide(f"{PERIOD} {text}", since, until, {})


def _moment_of(text: str, now: float) -> float:
    if text == "now":
        return now
    try:
        moment = datetime.fromisoformat(text.removesuffix("Z"))
        return moment.replace(tzinfo=moment.tzinfo or timezone.utc).timestamp()
    except (ValueError, OverflowError):
        return now - span_s(text, f"--compare {PERIOD}")


def compare(
    connection: Connection,
    base: RateSide,
    new: RateSide,
    by: Sequence[str] = (),
    *,
    only: Mapping[str, str] | None = None,
) -> RateComparison:
    """Compare the rates of two sides, broken down by the names ``by``.

    ``only`` filters both sides as in :func:`guard.watch.rates.sums`. Raises UsageError if ``by``
    has what is compared, and if a side has no response; the error says which values there are.
    """
    for name in base.only:
        if _same_label(name) in map(_same_label, by):
            raise UsageError(f"--by {name} is what --compare compares; leave it out of --by.")
    both = {} if only is None else only
    of_responses = {name: value for name, value in both.items() if name not in FINDINGS}
    for side in (base, new):
        _check_side(connection, side, of_responses)
    old_sums, new_sums = (
        sums(connection, side.since, side.until, by, only={**both, **side.only})
        for side in (base, new)
    )
    pairs, one_sided = _paired_groups(_by_group(old_sums, by), _by_group(new_sums, by))
    # All bias types of a group of responses have the same unjudged segments.
    rates = list(RATES)[: 2 if set(by) & set(FINDINGS) else 3]
    untested = [
        (group, rate, getattr(shares_of(a), rate), getattr(shares_of(b), rate))
        for group, a, b in pairs
        for rate in rates
    ]
    p = [p_value(a, b) for _, _, a, b in untested]
    q = false_discovery(p).tolist()
    tested, different = sum(not math.isnan(x) for x in p), sum(x < ALPHA for x in q)
    level = 1 - ALPHA * max(different, 1) / max(tested, 1)
    rows = [
        CompareRow(
            group, rate,
            a.rate, int(a.y), int(a.x), b.rate, int(b.y), int(b.x),
            difference(a, b, level), p_of, q_of,
        )
        for (group, rate, a, b), p_of, q_of in zip(untested, p, q, strict=True)
    ]  # fmt: skip
    rows.sort(key=lambda row: tuple(row.by.values()))
    return RateComparison(base, new, tuple(by), tuple(rows), tuple(one_sided), tested, level)


def _same_label(name: str) -> str:
    return name.removeprefix("label.")


Group = tuple[str, ...]


def _by_group(lines: Sequence[Sums], by: Sequence[str]) -> dict[Group, dict[Group, Sums]]:
    """Return sums by the values of responses' dimensions, then by those of findings'."""
    groups: dict[Group, dict[Group, Sums]] = {}
    for line in lines:
        outer = tuple(line.by[name] for name in by if name not in FINDINGS)
        inner = tuple(line.by[name] for name in by if name in FINDINGS)
        groups.setdefault(outer, {})[inner] = line
    return groups


def _paired_groups(
    base: Mapping[Group, Mapping[Group, Sums]], new: Mapping[Group, Mapping[Group, Sums]]
) -> tuple[list[tuple[Mapping[str, str], Sums, Sums]], list[str]]:
    """Return the groups that both sides have, and the names of the others.

    Where one side has no finding of a kind, it has the other's line without findings: its responses
    are all the same.
    """
    pairs = []
    for outer in base.keys() & new.keys():
        old_lines, new_lines = base[outer], new[outer]
        kinds = [
            kind
            for kind in dict.fromkeys((*old_lines, *new_lines))
            if any(lines[kind].f for lines in (old_lines, new_lines) if kind in lines)
        ]
        for kind in kinds or list(old_lines)[:1]:
            line = old_lines.get(kind) or new_lines.get(kind)
            assert line is not None
            pairs.append((line.by, _of_kind(old_lines, kind), _of_kind(new_lines, kind)))
    one_sided = sorted(", ".join(outer) for outer in base.keys() ^ new.keys())
    return pairs, one_sided


def _of_kind(lines: Mapping[Group, Sums], kind: Group) -> Sums:
    line = lines.get(kind)
    if line is not None:
        return line
    other = next(iter(lines.values()))
    return other._replace(f=0, ff=0, fj=0, m=0, mm=0, fm=0, biased=0, leaked=0)


def _limits(side: ShareSums, together: ShareSums, level: float) -> Estimate:
    """Return the share of a side with limits for a difference; the module says which."""
    segments = together.x / effective(*together, level)  # that count as one
    n = side.x / segments
    if 0 < side.y < side.x:
        n = min(n, effective(*side, level))
    return Estimate(side.y / side.x, *clopper_pearson(n * side.y / side.x, n, level))


def _has_enough(side: ShareSums) -> bool:
    """Return whether a side has enough responses for an interval, by Kish's effective number."""
    return bool(side.x) and side.x**2 / side.xx >= LEAST_CLUSTERS - 1e-9


def difference(base: ShareSums, new: ShareSums, level: float = 1 - ALPHA) -> Estimate:
    """Return new - base with its interval; without ends if a side has too few responses.

    Too few: fewer than six, unequal ones counted by Kish's effective number.
    """
    if not (base.x and new.x):
        return UNDEFINED
    change = new.y / new.x - base.y / base.x
    if not (_has_enough(base) and _has_enough(new)):
        return Estimate(change)
    old, now = (_limits(side, base + new, level) for side in (base, new))
    below = math.hypot(now.value - now.low, old.high - old.value)
    above = math.hypot(now.high - now.value, old.value - old.low)
    return Estimate(change, max(change - below, -1.0), min(change + above, 1.0))


def p_value(base: ShareSums, new: ShareSums) -> float:
    """Return the p-value of a difference; nan if there is no interval, or nothing happened."""
    both = base + new
    if math.isnan(difference(base, new).low) or not 0 < both.y < both.x:
        return math.nan

    def holds_0(alpha: float) -> bool:
        interval = difference(base, new, 1 - alpha)
        return interval.low <= 0 <= interval.high

    if holds_0(_GREATEST_P):
        return 1.0
    low, high = math.log(_LEAST_P), math.log(_GREATEST_P)
    for _ in range(40):
        middle = (low + high) / 2
        if holds_0(math.exp(middle)):
            low = middle
        else:
            high = middle
    return math.exp(high)


def _check_side(connection: Connection, side: RateSide, both: Mapping[str, str]) -> None:
    """Raise UsageError if a side has no response."""
    names = tuple(side.only)
    there = beginnings(connection, side.since, side.until, names, only=both)
    if tuple(side.only.values()) in there:
        return
    span = f"from {utc(side.since)} to {utc(side.until)}"
    if not there:
        hint = "give a time" if names else "give a period"
        raise UsageError(
            f"--compare: no response {span} has ended; {hint} in which responses were guarded."
        )
    ((name, value),) = side.only.items()
    known = sorted(there, key=lambda key: -there[key].responses)
    values = [key[0] for key in known if key[0] != NONE]
    if not values:
        labels = ", ".join(_label_names(connection, side)) or "none"
        raise UsageError(f"--compare: no response {span} has a {name}; labels there: {labels}.")
    listed = ", ".join(values[:_SHOWN_VALUES]) + (" ..." if values[_SHOWN_VALUES:] else "")
    earlier = beginnings(connection, 0.0, side.since, names, only={**both, **side.only})
    hint = ", and it has some before; --since reaches back to them" if earlier else ""
    raise UsageError(
        f"--compare: no response {span} has {name} {value[:64]!r}; there are {listed}{hint}."
    )


def _label_names(connection: Connection, side: RateSide) -> Iterator[str]:
    within = (responses.c.time >= side.since, responses.c.time < side.until)
    texts = select(cast(responses.c.labels, String)).where(*within).distinct().limit(1_000)
    names = {name for text in connection.scalars(texts) for name in json.loads(text)}
    yield from sorted(names)
