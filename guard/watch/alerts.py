"""Has a rate risen this week? A test that may be looked at as often as one likes.

A week begins on Monday, 00:00 UTC. It is held against the weeks before it, by three shares of its
responses: those in which bias was found, those in which it reached the user, and those of which a
segment was not judged. In a steady week an alarm is raised with a probability of at most
:data:`LEVEL`, over all looks, all shares and all groups together; so false alarms are, in the mean,
at least ten weeks apart (by the union bound, whatever ties the weeks to each other).

*How.* The weeks before give an upper limit b of the rate (Clopper and Pearson, Biometrika 26,
1934) that is too low with a probability of :data:`BASE`. In a week of a rate of at most b, the
likelihood ratio of a higher rate q against b is a supermartingale, and so is a mean of such ratios
with weights fixed before: over odds that are :data:`TIMES` those of b, and over the days of the
week on which the rise may begin (a mixture as of Robbins, Annals of Mathematical Statistics 41,
1970; that over beginnings is as of e-detectors, Shin, Ramdas and Rinaldo, New England Journal of
Statistics in Data Science 2, 2024). By Ville's inequality (1939; Ramdas, Grünwald, Vovk and Shafer,
Statistical Science 38, 2023) it ever reaches 1 / a with a probability of at most a.

What is counted is a response, however many segments it has. It is assumed that responses do not
depend on each other, and that a week is like any other: a baseline is one of whole weeks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from guard.errors import UsageError
from guard.intervals import exact
from guard.verdict import BIAS_TYPES
from guard.watch.rates import Sums, sums

Floats = NDArray[np.float64]

LEVEL = 0.05
BASE = 0.01
"""Of it, what the baseline's limits may take."""
TIMES = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
DAY_S = 86_400.0
DAYS = 7
_MOST_STATED = 10_000_000
_SEEN = 0.9

Share = Literal["biased", "leaked", "unjudged"]
SHARES: tuple[Share, ...] = ("biased", "leaked", "unjudged")


@dataclass(frozen=True, slots=True)
class Alert:
    """One share of one group: this week's beside the baseline's, and its upper ``limit``.

    ``evidence`` is the e-value, an ``alarm`` where it reaches ``needed``. Had the baseline's rate
    doubled as the week began, it would be seen within ``sees_double_after`` responses with a
    probability of 0.9; nan where that takes more than ten million.
    """

    share: Share
    by: Mapping[str, str]
    responses: int
    count: int
    baseline_responses: int
    baseline_count: int
    limit: float
    evidence: float
    needed: float
    sees_double_after: float

    @property
    def alarm(self) -> bool:
        """Whether the rate is higher than the baseline's."""
        return self.evidence >= self.needed


@dataclass(frozen=True, slots=True)
class Alerts:
    """What a look found; ``new`` groups have no baseline to be held against."""

    since: float
    until: float
    baseline_since: float
    found: tuple[Alert, ...]
    new: tuple[str, ...]

    @property
    def alarm(self) -> bool:
        """Whether any rate is higher than its baseline."""
        return any(alert.alarm for alert in self.found)


def week_of(now: float) -> float:
    """Return when the week began, in seconds since 1970: Monday, 00:00 UTC."""
    day = datetime.fromtimestamp(now, timezone.utc).replace(hour=0, minute=0, second=0)
    return (day.replace(microsecond=0) - timedelta(days=day.weekday())).timestamp()


def alerts(connection: Connection, now: float, weeks: int = 4, by: Sequence[str] = ()) -> Alerts:
    """Return how this week's rates stand to those of the ``weeks`` before it.

    Groups are those of the weeks before, and with ``bias_type`` all types of each: how many tests
    share the :data:`LEVEL` is known before the week begins. Raises UsageError where ``by`` names
    ``group``, of which there may be any number.
    """
    if "group" in by:
        raise UsageError("--alert knows no group, of which there may be any number; name others.")
    since = week_of(now)
    begin = since - weeks * DAYS * DAY_S
    before = _Counts(sums(connection, begin, since, by), by)
    days = [since + day * DAY_S for day in range(DAYS)]
    week = _Counts(sums(connection, since, now, by, starts=days), by)
    shares = SHARES[:2] if "bias_type" in by else SHARES
    tests = len(before.groups) * len(shares)
    found = [
        _alert(share, dict(zip(by, group, strict=True)), before, week, group, tests)
        for group in before.groups
        for share in shares
    ]
    new = [name for name in week.names if name not in before.names]
    return Alerts(since, now, begin, tuple(found), tuple(new))


class _Counts:
    """Responses, and those of each share, by group and day."""

    def __init__(self, lines: Sequence[Sums], by: Sequence[str]) -> None:
        self._at = by.index("bias_type") if "bias_type" in by else None
        self._n: dict[tuple[str, ...], Floats] = {}
        self._of: dict[tuple[Share, tuple[str, ...]], Floats] = {}
        for line in lines:
            group = tuple(line.by.values())
            self._n.setdefault(self._whole(group), np.zeros(DAYS))[line.part] = line.responses
            counts: Mapping[Share, int] = {
                "biased": line.biased,
                "leaked": line.leaked,
                "unjudged": line.silent,
            }
            for share, count in counts.items():
                self._of.setdefault((share, group), np.zeros(DAYS))[line.part] = count
        self.groups = sorted(group for whole in self._n for group in self._groups(whole))
        self.names = [", ".join(whole) for whole in sorted(self._n)]

    def n(self, group: tuple[str, ...]) -> Floats:
        """Return the responses that could be of ``group``, by day."""
        return self._n.get(self._whole(group), np.zeros(DAYS))

    def of(self, share: Share, group: tuple[str, ...]) -> Floats:
        """Return those of the share, by day."""
        return self._of.get((share, group), np.zeros(DAYS))

    def _whole(self, group: tuple[str, ...]) -> tuple[str, ...]:
        return group if self._at is None else (*group[: self._at], *group[self._at + 1 :])

    def _groups(self, whole: tuple[str, ...]) -> list[tuple[str, ...]]:
        if self._at is None:
            return [whole]
        return [(*whole[: self._at], kind, *whole[self._at :]) for kind in BIAS_TYPES]


def _alert(
    share: Share,
    by: Mapping[str, str],
    before: _Counts,
    week: _Counts,
    group: tuple[str, ...],
    tests: int,
) -> Alert:
    base_n, base_count = before.n(group).sum(), before.of(share, group).sum()
    n, count = week.n(group), week.of(share, group)
    needed = tests / (LEVEL - BASE)
    limit = exact(base_count, base_n, 1 - 2 * BASE / tests)[1]
    return Alert(
        share,
        by,
        int(n.sum()),
        int(count.sum()),
        int(base_n),
        int(base_count),
        limit,
        float(evidence(n, count, limit)),
        needed,
        sees_double_after(base_count / base_n, limit, needed),
    )


def evidence(n: Floats, count: Floats, limit: float) -> Floats:
    """Return the e-value of counts by day against a rate of at most ``limit``.

    ``n`` and ``count`` are (..., days), 0 for days that have not begun; the value is (...).
    """
    if not 0 < limit < 1:
        return np.ones(np.shape(n)[:-1])
    odds = limit / (1 - limit) * np.array(TIMES)
    higher = odds / (1 + odds)
    # Of the days from each on: a rise may begin with any of them.
    since, marked = (np.flip(np.cumsum(np.flip(x, -1), -1), -1)[..., None] for x in (n, count))
    logs = marked * np.log(higher / limit) + (since - marked) * np.log((1 - higher) / (1 - limit))
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(logs).mean(axis=(-1, -2)))


def sees_double_after(rate: float, limit: float, needed: float) -> float:
    """Return the responses after which twice ``rate`` gives the evidence that is ``needed``.

    With a probability of 0.9, where it is twice as high from the first day on.
    """
    if not 0 < rate < 1:
        return math.nan
    from scipy.special import bdtrik  # type: ignore[import-untyped]

    n = np.unique(np.geomspace(1, _MOST_STATED, 400).round())
    fewest = np.maximum(np.ceil(bdtrik(1 - _SEEN, n, min(2 * rate, 0.999))), 0)
    of_day = np.zeros((2, len(n), DAYS))
    of_day[0, :, 0], of_day[1, :, 0] = n, np.nan_to_num(fewest)
    seen = np.flatnonzero(evidence(of_day[0], of_day[1], limit) >= needed)
    return float(n[seen[0]]) if len(seen) else math.nan
