"""Tests whether a rate has risen this week: a sequential test, valid however often it is run.

A week begins on Monday, 00:00 UTC. It is compared with the weeks before it, the baseline, by three
shares of its responses: those in which bias was found, those in which bias reached the user, and
those with an unjudged segment. If no rate has risen, the probability of an alarm in a week is at
most :data:`LEVEL`, over all runs, shares and groups together. So the expected time to a false alarm
is at least ten weeks (by the union bound, however the weeks depend on each other).

*Method.* The baseline gives an upper limit b of the rate (Clopper and Pearson, Biometrika 26, 1934)
that is too low with a probability of :data:`BASE`, shared by all tests. If the rate is at most b,
the likelihood ratio of a higher rate q against b is a supermartingale, and so is a mean of such
ratios with fixed weights. The mean here is over q, whose odds are :data:`TIMES` those of b (a
mixture: Robbins, Annals of Mathematical Statistics 41, 1970), and over the day of the week on which
the rise begins (as in e-detectors: Shin, Ramdas and Rinaldo, New England Journal of Statistics in
Data Science 2, 2024). By Ville's inequality (1939; Ramdas, Grünwald, Vovk and Shafer, Statistical
Science 38, 2023) it ever reaches 1 / a with a probability of at most a.

The level is divided before the week begins. A share that the baseline has in no response gets a
small part of it, so that what never happens costs the others little. With ``release`` in the
breakdown, a part is kept for releases that have no whole week of baseline: each is compared with
the responses of an earlier release, until it began. That is the last one that has
:data:`LEAST_BASELINE` of them, for a release that was taken back after minutes is no baseline; if
none has, the one with the most. The choice sees no finding, so it leaves the level as it is. The
k-th of the new releases has 1 / (k (k + 1)) of that part, for their number is not known before.

*Interval of the difference.* The test inverted gives a limit of the week's rate that holds at all
times, below and, by the complement, above. With the baseline's limits these bound the difference:
each end holds with 95 %, over all runs, shares and groups together. The lower end is above 0 if and
only if there is an alarm.

Every week starts from zero: evidence that is never reset has to outgrow years of quiet, and a chart
with an average run length (CUSUM) needs a known rate before the change.

The test counts responses, however many segments they have. It assumes that responses are
independent, and that weeks are alike, so the baseline is whole weeks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from guard.errors import UsageError
from guard.results.estimate import UNDEFINED, Estimate
from guard.results.intervals import clopper_pearson
from guard.verdict import BIAS_TYPES
from guard.watch.rates import FINDINGS, NONE, Sums, beginnings, sums

Floats = NDArray[np.float64]

LEVEL = 0.05
BASE = 0.01
"""The part of LEVEL that the baseline's limits use."""
NEW_RELEASES = 0.25
"""The part of LEVEL that is kept for new releases, if the breakdown has releases."""
NEVER_BEFORE = 0.2
"""The part of a level for shares that the baseline has in no response, if it has any in one."""
TIMES = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
DAY_S = 86_400.0
DAYS = 7
LEAST_BASELINE = 500
"""The responses of a baseline below which a group without an alarm counts as not tested.

With fewer the upper limit of a rate of 2 % is more than twice as high.
"""
_MAX_RESPONSES = 10_000_000  # up to which sees_double_after searches
_POWER = 0.9

Group = tuple[str, ...]
"""The values of a breakdown."""
Share = Literal["biased", "leaked", "unjudged"]
AlertState = Literal["ALARM", "lower", "not shown to differ", "not tested"]
RELEASES = ("release", "label.release")
"""The dimensions whose new values are compared with the value before."""
SHARES: tuple[Share, ...] = ("biased", "leaked", "unjudged")


@dataclass(frozen=True, slots=True)
class Alert:
    """The test of one share of one group: this week against the baseline.

    ``limit`` is the upper limit of the baseline's rate. ``evidence`` is the e-value; it is an
    ``alarm`` if it reaches ``needed``. If the baseline's rate doubled when the week began, the test
    would detect it within ``sees_double_after`` responses with a probability of 0.9; nan if that
    takes more than ten million. ``difference`` is this week's rate less the baseline's, with its
    interval. ``against`` is the release whose responses are the baseline of a new release, else
    empty. A baseline of fewer than :data:`LEAST_BASELINE` responses is ``small``: a rise or a fall
    that it shows holds, but where it shows neither there was no test.
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
    difference: Estimate
    against: str = ""

    @property
    def alarm(self) -> bool:
        """Whether the rate is higher than the baseline's."""
        return self.evidence >= self.needed

    @property
    def tested(self) -> bool:
        """Whether there is a response to test, and a baseline that can show a difference."""
        if not self.responses or self.limit >= 1:
            return False
        return self.alarm or self.difference.high < 0 or not self.small

    @property
    def small(self) -> bool:
        """Whether the baseline has too few responses for a test."""
        return self.baseline_responses < LEAST_BASELINE

    @property
    def happened(self) -> bool:
        """Whether any response of either period is in the share."""
        return self.count > 0 or self.baseline_count > 0

    @property
    def shown(self) -> bool:
        """Whether a table has a line for it: it happened, or the group has none this week."""
        return self.happened or not self.responses

    @property
    def state(self) -> AlertState:
        """What the test shows."""
        if not self.tested:
            return "not tested"
        if self.alarm:
            return "ALARM"
        return "lower" if self.difference.high < 0 else "not shown to differ"


@dataclass(frozen=True, slots=True)
class Alerts:
    """The tests of a week; ``new`` groups have no baseline. Times are seconds since 1970."""

    since: float
    until: float
    baseline_since: float
    results: tuple[Alert, ...]
    new: tuple[str, ...]

    @property
    def alarm(self) -> bool:
        """Whether any rate is higher than its baseline."""
        return any(alert.alarm for alert in self.results)

    @property
    def tested(self) -> bool:
        """Whether anything was tested."""
        return any(alert.tested for alert in self.results)

    @property
    def notes(self) -> list[str]:
        """What a reader has to know of releases' baselines, and why a group was not tested."""
        notes = []
        taken = dict.fromkeys(
            f"{_named(alert)} with {alert.against}" for alert in self.results if alert.against
        )
        if taken:
            notes.append(
                f"Of the releases before a new one, the last with at least {LEAST_BASELINE} "
                f"responses is taken, else the one with the most: {'; '.join(taken)}."
            )
        untested = [alert for alert in self.results if alert.responses and not alert.tested]
        few = dict.fromkeys(
            f"{_named(alert) or 'all responses'} ({alert.baseline_responses:,})"
            for alert in untested
            if alert.small
        )
        if few:
            notes.append(
                "Not tested where there is no alarm, because the baseline has fewer than "
                f"{LEAST_BASELINE} responses: {'; '.join(few)}."
            )
        full = dict.fromkeys(
            f"{_named(alert) or 'all responses'} ({alert.share})"
            for alert in untested
            if not alert.small
        )
        if full:
            notes.append(
                "Not tested, because every response of the baseline is in the share: "
                f"{'; '.join(full)}."
            )
        if not self.results:
            notes.append("No response ended in the weeks before: there is no baseline.")
        elif not any(alert.responses for alert in self.results):
            notes.append(
                "Nothing could be tested: no response of the baseline's groups ended this week."
            )
        if silent := sum(not alert.shown for alert in self.results):
            notes.append(f"{silent:,} more shares have no response, this week and in the baseline.")
        return notes + [f"No baseline yet: {new}." for new in self.new if new and self.results]


def _named(alert: Alert) -> str:
    return ", ".join(value for name, value in alert.by.items() if name != "bias_type")


def week_of(now: float) -> float:
    """Return when the week began, in seconds since 1970: Monday, 00:00 UTC."""
    day = datetime.fromtimestamp(now, timezone.utc).replace(hour=0, minute=0, second=0)
    return (day.replace(microsecond=0) - timedelta(days=day.weekday())).timestamp()


def alerts(connection: Connection, now: float, weeks: int = 4, by: Sequence[str] = ()) -> Alerts:
    """Test this week's rates against those of the ``weeks`` before it; ``now`` is since 1970.

    The groups are those of the baseline and, with ``bias_type``, every type of each, so that the
    number of tests that share :data:`LEVEL` is fixed before the week begins. Raises UsageError if
    ``by`` names ``group``, which can have any number of values.
    """
    if "group" in by:
        raise UsageError(
            "--alert takes no group in --by, because groups are unlimited in number; leave it out."
        )
    since = week_of(now)
    baseline_since = since - weeks * DAYS * DAY_S
    baseline = _WeekCounts(sums(connection, baseline_since, since, by), by)
    days = [since + day * DAY_S for day in range(DAYS)]
    week = _WeekCounts(sums(connection, since, now, by, starts=days), by)
    releases = _new_releases(connection, baseline_since, since, now, by)
    kept = 1.0 - NEW_RELEASES if set(by) & set(RELEASES) else 1.0
    old_groups = [group for group in baseline.groups if baseline.names_of(group) not in releases]
    tested = _alert_tests(baseline, week, old_groups, by, kept)
    for number, (names, (release, began)) in enumerate(releases.items(), start=1):
        before = {
            name: release if name in RELEASES else value
            for name, value in zip(_of_responses(by), names, strict=True)
        }
        lines = sums(connection, baseline_since, began, by, only=before)
        renamed = [line._replace(by={**line.by, **_releases_of(by, names)}) for line in lines]
        of_release = _WeekCounts(renamed, by)
        part = NEW_RELEASES / (number * (number + 1))
        tested += _alert_tests(of_release, week, of_release.groups, by, part, release)
    known = {*baseline.names, *(", ".join(names) for names in releases)}
    new = [name for name in week.names if name not in known]
    return Alerts(since, now, baseline_since, tuple(tested), tuple(new))


def _of_responses(by: Sequence[str]) -> list[str]:
    return [name for name in by if name not in FINDINGS]


def _releases_of(by: Sequence[str], names: Group) -> dict[str, str]:
    pairs = zip(_of_responses(by), names, strict=True)
    return {name: value for name, value in pairs if name in RELEASES}


def _new_releases(
    connection: Connection, baseline_since: float, since: float, now: float, by: Sequence[str]
) -> dict[Group, tuple[str, float]]:
    """Return the groups whose release has no whole week of baseline, in the order of their start.

    Each has the earlier release of the same other values that is its baseline, and when the new one
    began, seconds since 1970. A release that none precedes is not new.
    """
    names = _of_responses(by)
    place = next((n for n, name in enumerate(names) if name in RELEASES), None)
    if place is None:
        return {}
    began = beginnings(connection, baseline_since, now, names)
    new: dict[Group, tuple[str, float]] = {}
    for group, start in sorted(began.items(), key=lambda item: (item[1].first, item[0])):
        if start.first < since - DAYS * DAY_S or group[place] == NONE:
            continue
        others = dict(zip(_without(names, place), _without(group, place), strict=True))
        earlier = beginnings(connection, baseline_since, start.first, names, only=others)
        if earlier:
            taken = max(
                earlier,
                key=lambda key: (
                    min(earlier[key].responses, LEAST_BASELINE),
                    earlier[key].first,
                    key,
                ),
            )
            new[group] = (taken[place], start.first)
    return new


def _without(group: Sequence[str], place: int) -> Group:
    return (*group[:place], *group[place + 1 :])


def _alert_tests(
    baseline: _WeekCounts,
    week: _WeekCounts,
    groups: Sequence[Group],
    by: Sequence[str],
    part: float,
    against: str = "",
) -> list[Alert]:
    """Return the tests of ``groups``, which together have ``part`` of the level."""
    shares = SHARES[:2] if "bias_type" in by else SHARES
    pairs = [(group, share) for group in groups for share in shares]
    seen = [bool(baseline.in_share(share, group).sum()) for group, share in pairs]
    parts = {True: 1.0 - NEVER_BEFORE, False: NEVER_BEFORE} if len(set(seen)) == 2 else {}
    return [
        _alert(
            share,
            dict(zip(by, group, strict=True)),
            baseline,
            week,
            group,
            seen.count(happened) / (part * parts.get(happened, 1.0)),
            against,
        )
        for (group, share), happened in zip(pairs, seen, strict=True)
    ]


class _WeekCounts:
    """Counts of responses, and of those in each share, by group and day.

    A bias type is a group of findings: all types of a group of responses have the same responses.
    """

    def __init__(self, lines: Sequence[Sums], by: Sequence[str]) -> None:
        self._by = by
        self._n: dict[Group, Floats] = defaultdict(lambda: np.zeros(DAYS))
        self._in_share: dict[tuple[Share, Group], Floats] = defaultdict(lambda: np.zeros(DAYS))
        for line in lines:
            group = tuple(line.by.values())
            self._n[self.names_of(group)][line.part] = line.responses
            counts = (line.biased, line.leaked, line.with_unjudged)
            for share, count in zip(SHARES, counts, strict=True):
                self._in_share[share, group][line.part] = count
        types = BIAS_TYPES if "bias_type" in by else ("",)
        self.groups = sorted(self._with_type(rest, kind) for rest in self._n for kind in types)
        self.names = [", ".join(rest) for rest in sorted(self._n)]

    def names_of(self, group: Group) -> Group:
        """Return the values of the group's responses, without its bias type."""
        pairs = zip(self._by, group, strict=True)
        return tuple(value for name, value in pairs if name != "bias_type")

    def n(self, group: Group) -> Floats:
        """Return the responses of ``group``, by day."""
        return self._n[self.names_of(group)]

    def in_share(self, share: Share, group: Group) -> Floats:
        """Return the responses of ``group`` that are in ``share``, by day."""
        return self._in_share[share, group]

    def _with_type(self, rest: Group, bias_type: str) -> Group:
        others = iter(rest)
        return tuple(bias_type if name == "bias_type" else next(others) for name in self._by)


def _alert(
    share: Share,
    by: Mapping[str, str],
    baseline: _WeekCounts,
    week: _WeekCounts,
    group: Group,
    tests: float,
    against: str,
) -> Alert:
    """Return one test; it has a level of LEVEL / ``tests``."""
    base_n, base_count = baseline.n(group).sum(), baseline.in_share(share, group).sum()
    n, count = week.n(group), week.in_share(share, group)
    needed = tests / (LEVEL - BASE)
    least, limit = clopper_pearson(base_count, base_n, 1 - 2 * BASE / tests)
    week_n, week_count = n.sum(), count.sum()
    low, high = rate_limits(n, count, needed)
    difference = (
        Estimate(week_count / week_n - base_count / base_n, low - limit, high - least)
        if week_n
        else UNDEFINED
    )
    return Alert(
        share,
        by,
        int(week_n),
        int(week_count),
        int(base_n),
        int(base_count),
        limit,
        float(evidence(n, count, limit)),
        needed,
        sees_double_after(base_count / base_n, limit, needed),
        difference,
        against,
    )


def evidence(n: Floats, count: Floats, limit: float) -> Floats:
    """Return the e-value of counts by day against a rate of at most ``limit``.

    ``n`` and ``count`` have the shape (..., days), 0 for days to come; the result has (...).
    """
    if not 0 < limit < 1:
        return np.ones(np.shape(n)[:-1])
    odds = limit / (1 - limit) * np.array(TIMES)
    higher = odds / (1 + odds)
    # Sums from each day to the week's end: a rise may begin on any day.
    n_since, count_since = (
        np.flip(np.cumsum(np.flip(x, -1), -1), -1)[..., None] for x in (n, count)
    )
    others = n_since - count_since
    logs = count_since * np.log(higher / limit) + others * np.log((1 - higher) / (1 - limit))
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(logs).mean(axis=(-1, -2)))


def rate_limits(n: Floats, count: Floats, needed: float) -> tuple[float, float]:
    """Return the limits of the rate behind counts by day, which hold at all times.

    The lower one is the greatest rate against which the evidence is ``needed``, 0 without one; the
    upper one is that of the responses not counted, from 1 down.
    """

    def lower(marked: Floats) -> float:
        rejected, possible = 0.0, 1.0
        for _ in range(50):
            middle = (rejected + possible) / 2
            if float(evidence(n, marked, middle)) >= needed:
                rejected = middle
            else:
                possible = middle
        return rejected

    return lower(count), 1.0 - lower(n - count)


def sees_double_after(rate: float, limit: float, needed: float) -> float:
    """Return the number of responses after which a doubled ``rate`` is detected.

    Detected: the evidence is at least ``needed`` with a probability of 0.9. The rate is doubled
    from the first day on.
    """
    if not 0 < rate < 1:
        return math.nan
    from scipy.special import bdtrik  # type: ignore[import-untyped]

    n = np.unique(np.geomspace(1, _MAX_RESPONSES, 400).round())
    fewest = np.maximum(np.ceil(bdtrik(1 - _POWER, n, min(2 * rate, 0.999))), 0)
    first_day = np.zeros((2, len(n), DAYS))
    first_day[0, :, 0], first_day[1, :, 0] = n, np.nan_to_num(fewest)
    detected = np.flatnonzero(evidence(first_day[0], first_day[1], limit) >= needed)
    return float(n[detected[0]]) if len(detected) else math.nan
