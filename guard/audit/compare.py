"""Compares two sides axis by axis, and says what a build may conclude.

An axis is a **regression** where two tests agree, at 5 % after correction by Benjamini and Hochberg
over every axis of every suite: that it changed for the worse at all, which is exact, and that it is
worse by more than its tolerance, over whole clusters. It **passes** where it is worse by no more
than the tolerance (one-sided, 95 %), and is **inconclusive** otherwise.

The widest axes of a suite decide: one that is inconclusive leaves the whole so. The others can only
regress, as few items may be theirs: the narrower ones, and the scores of answers that a guard let
through. How much of the bias a guard stopped, of which there may be none, decides where it seems to
be worse by more than its tolerance (at 5 %, uncorrected).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import numpy as np

from guard import __version__
from guard.audit.advice import steps
from guard.audit.comparison import AxisComparison, Comparison, Difference, Flip, Outcome, Verdict
from guard.audit.directions import Better, directed
from guard.audit.header import PARTS
from guard.audit.paired import POWER, Exchanged, Pairs
from guard.audit.sides import GENERAL, Axis, Function, Side, SuiteSide
from guard.audit.spread import LEAST_CLUSTERS
from guard.audit.statistics import false_discovery
from guard.audit.tolerances import Tolerances, matching
from guard.errors import UsageError
from guard.suites import registry
from guard.suites.conclusions import ALPHA
from guard.suites.reading import share

ALLOWED = (*PARTS, "items", "suites", "arms")
"""What may be allowed to differ, by name: parts of the key, items, suites, and arms."""
_ALL = "all"


@dataclass(frozen=True, slots=True)
class Settings:
    """How to compare: what may differ, which axes (all where empty), and by how much.

    ``suites`` are those compared, all where it is empty. ``better`` says by pattern which way is
    better on axes of other harnesses.
    """

    allowed: frozenset[str] = frozenset()
    axes: Sequence[str] = ()
    suites: Sequence[str] = ()
    tolerances: Tolerances = field(default_factory=Tolerances)
    better: Mapping[str, Better] = field(default_factory=dict)


def compare(base: Side, new: Side, settings: Settings | None = None) -> Comparison:
    """Return the comparison of ``new`` with ``base``.

    Where they are not comparable it has the differences and no axes. Raises UsageError where a
    selector matches nothing, ConfigError where a tolerance does.
    """
    settings = settings or Settings()
    base, new = _picked(base, new, settings.suites)
    found = list(differences(base, new, settings.allowed))
    about = {"guard": __version__, "alpha": ALPHA, "power": POWER}
    if any(not one.allowed for one in found):
        refused = dict.fromkeys(one.name for one in found if not one.allowed)
        told = ["Where that is meant, add " + " ".join(f"--allow {n}" for n in refused) + "."]
        if not base.suites.keys() & new.suites.keys():
            told = ["They have no suite in common; give runs of the same suites."]
        return Comparison(base.name, new.name, "not comparable", (), found, told, about)
    _check_both(base, new, settings.axes)
    base, new = directed(base, new, settings.tolerances.better, settings.better, settings.axes)
    paired = list(_paired(base, new))
    names = [one.name for one in paired]
    settings.tolerances.check(names, [*base.suites])
    chosen = set(matching(settings.axes, names))
    if not chosen:
        raise UsageError("The sides have no axis in common; there is nothing to compare.")
    tested = [_Tested(one, settings) for one in paired if one.name in chosen]
    q = false_discovery([one.p for one in tested])
    alpha = ALPHA / max(1, sum(not math.isnan(one.p) for one in tested))
    axes = [one.judged(value, alpha) for one, value in zip(tested, q, strict=True)]
    lacking = base.lacking + new.lacking
    lost = _lost(base, new, settings.axes)
    outcome = _outcome(axes, incomplete=lacking > 0, lost=bool(lost))
    told = list(steps(axes, base, new))
    if lost:
        told.append(f"{new.name} has no value of {', '.join(lost)}: this cannot pass.")
    if _same_run(base, new):
        told.append("Both sides are the same answers of one run: nothing could differ.")
    about["one_side_only"] = _alone(base, new)
    about["coverage_alone"] = [] if settings.axes else _coverage_alone(tested)
    about["no_numbers"] = _left_out(base, new)
    return Comparison(base.name, new.name, outcome, axes, found, told, about)


def _check_both(base: Side, new: Side, axes: Sequence[str]) -> None:
    """Raise UsageError where a log of another harness has lost an axis, which must not pass."""
    for name in _alone(base, new):
        suite = name.partition("/")[0]
        asked = not axes or any(fnmatchcase(name, pattern) for pattern in axes)
        if asked and base.suites[suite].harness:
            raise UsageError(
                f"{name} has numbers on one side only; compare the others by --axis, or make both "
                "logs with the same scorers."
            )
    for suite, one in base.suites.items():
        other = new.suites.get(suite)
        if other is None or not one.harness:
            continue
        for name in one.axes.keys() & other.axes.keys():
            asked = not axes or any(fnmatchcase(name, pattern) for pattern in axes)
            if asked and (lost := _unscored(one, other, name)):
                raise UsageError(
                    f"{name} has no number of {len(lost):,} items on one side, as of "
                    f"{min(lost)}; compare the other axes by --axis, or score both logs alike."
                )


def _unscored(one: SuiteSide, other: SuiteSide, name: str) -> set[str]:
    """Return the items that both sides have read, and one alone has on this axis."""
    read: set[str] = set.intersection(
        *({item for item, text in side.outcomes["plain"].items() if text == "scored"}
          for side in (one, other))
    )  # fmt: skip
    return read & (set(one.axes[name].ids) ^ set(other.axes[name].ids))


def _alone(base: Side, new: Side) -> list[str]:
    """Return the axes of the common suites that one side alone has."""
    both = [(base.suites[name], new.suites[name]) for name in base.suites if name in new.suites]
    return sorted(name for one, other in both for name in one.axes.keys() ^ other.axes.keys())


def _lost(base: Side, new: Side, patterns: Sequence[str]) -> list[str]:
    """Return the deciding axes of the common arms of ``base`` that ``new`` does not have."""
    lost: list[str] = []
    for suite, one in base.suites.items():
        other = new.suites.get(suite)
        if other is None or one.harness:
            continue
        decide = _deciding(dict(one.axes), one)
        for name in one.axes.keys() - other.axes.keys():
            asked = any(fnmatchcase(name, pattern) for pattern in patterns)
            common = one.axes[name].arm in {axis.arm for axis in other.axes.values()}
            if common and (asked if patterns else name in decide):
                lost.append(name)
    return sorted(lost)


def _same_run(base: Side, new: Side) -> bool:
    common = [(base.suites[n], new.suites[n]) for n in base.suites if n in new.suites]
    return base.name != new.name and all(
        one.run and one.run == other.run and one.outcomes.keys() & other.outcomes.keys()
        for one, other in common
    )


def _left_out(base: Side, new: Side) -> list[str]:
    """Return the scores of other harnesses that are no numbers, and so are no axes."""
    told = (f"{n}/{x}" for side in (base, new) for n, s in side.suites.items() for x in s.left_out)
    return list(dict.fromkeys(told))


def _coverage_alone(tested: Sequence[_Tested]) -> list[str]:
    """Return the suites of which nothing is compared but what every suite has."""
    measures: dict[str, set[str]] = {}
    for one in tested:
        measures.setdefault(one.paired.suite, set()).add(one.paired.axis.measure)
    return [suite for suite, names in measures.items() if names <= GENERAL.keys()]


def _picked(base: Side, new: Side, suites: Sequence[str]) -> tuple[Side, Side]:
    """Return the sides with the ``suites`` that were asked for, of which each has to be on one."""
    if not suites:
        return base, new
    for name in suites:
        if name not in base.suites and name not in new.suites:
            there = ", ".join(dict.fromkeys([*base.suites, *new.suites])) or "none"
            raise UsageError(f"Neither side has a suite {name!r}; they have {there}.")
    one, other = (
        replace(side, suites={n: s for n, s in side.suites.items() if n in suites})
        for side in (base, new)
    )
    return one, other


def differences(base: Side, new: Side, allowed: frozenset[str]) -> Iterator[Difference]:
    """Yield what of two sides differs, and so keeps them from being compared unless allowed."""
    for name in dict.fromkeys([*base.suites, *new.suites]):
        one, other = base.suites.get(name), new.suites.get(name)
        if one is None or other is None:
            told = ("there", "not there") if other is None else ("not there", "there")
            # With no suite in common there is nothing that could be allowed.
            some = bool(base.suites.keys() & new.suites.keys())
            yield Difference(name, "suites", *told, some and "suites" in allowed)
            continue
        if lost := {axis.arm for axis in one.axes.values()} - {a.arm for a in other.axes.values()}:
            yield Difference(name, "arms", ", ".join(sorted(lost)), "none", "arms" in allowed)
        parts = one.header.differences(other.header)
        for part, (was, now) in parts.items():
            yield Difference(name, part, was, now, part in allowed)
        if not parts.keys() & {"data", "sample"}:  # these are about other items by themselves
            items = [{i for told in s.outcomes.values() for i in told} for s in (one, other)]
            if items[0] != items[1] and not one.lacking and not other.lacking:
                told = (_listed(items[0] - items[1]), _listed(items[1] - items[0]))
                yield Difference(name, "items", *told, "items" in allowed)
        asked = one.contents, other.contents
        if other_ := {i for i in asked[0] if i in asked[1] and asked[0][i] != asked[1][i]}:
            was = f"what {_listed(other_).replace('others', 'items')} asked"
            yield Difference(name, "data", was, "something else", "data" in allowed)


def _listed(items: set[str]) -> str:
    if not items:
        return "nothing else"
    few = ", ".join(sorted(items)[:3])
    return f"{len(items):,} others: {few}{', …' if len(items) > 3 else ''}"


@dataclass(frozen=True, slots=True)
class _Paired:
    """An axis of both sides over the pairs that both have, in one order."""

    name: str
    suite: str
    axis: Axis
    pairs: Pairs
    ids: Sequence[str]
    outcomes: tuple[Mapping[str, str], Mapping[str, str]]
    coverage: float
    decides: bool
    items: int


def _paired(base: Side, new: Side) -> Iterator[_Paired]:
    for suite, one in base.suites.items():
        other = new.suites.get(suite)
        if other is None:
            continue
        common = [name for name in one.axes if name in other.axes]
        wide = _deciding({name: other.axes[name] for name in common}, other)
        functions = Functions(one, other)
        for name in common:
            before, after = one.axes[name], other.axes[name]
            there = {pair: place for place, pair in enumerate(after.ids)}
            left = [place for place, pair in enumerate(before.ids) if pair in there]
            ids = [before.ids[place] for place in left]
            value, over = functions.of(after.measure)
            pairs = Pairs(
                before.rows[left],
                after.rows[[there[pair] for pair in ids]],
                [before.clusters[place] for place in left],
                value,
                after.aim,
                over if after.unit == "cluster" else None,
            )
            outcomes = _outcomes_of(one, before, name), _outcomes_of(other, after, name)
            read = min(one.coverage, other.coverage)
            yield _Paired(name, suite, after, pairs, ids, outcomes, read, name in wide, other.items)


def _outcomes_of(side: SuiteSide, axis: Axis, name: str) -> Mapping[str, str]:
    return side.outcomes.get(name, side.outcomes.get(axis.arm, {}))


def _deciding(axes: Mapping[str, Axis], side: SuiteSide) -> set[str]:
    """Return the axes that decide: of each measure those with the fewest labels.

    Where one of these is of all, as the first category of HBB is, that one alone.
    """
    found: set[str] = set()
    deciding = {name: axis for name, axis in axes.items() if _may_decide(axis, side)}
    for key in {(axis.arm, axis.measure) for axis in deciding.values()}:
        mine = {name: a.labels for name, a in deciding.items() if (a.arm, a.measure) == key}
        least = min(map(len, mine.values()))
        few = {name for name, labels in mine.items() if len(labels) == least}
        found |= {name for name in few if _ALL in mine[name].values()} or few
    return found


def _may_decide(axis: Axis, side: SuiteSide) -> bool:
    if axis.arm == "plain" or axis.measure == "coverage":
        return True
    stops_bias = axis.aim.ideal >= axis.aim.bounds[1]
    return not stops_bias and (side.judges_both or axis.measure in GENERAL)


class Functions:
    """The functions of the measures of a suite, by name: a baseline's axes have none."""

    def __init__(self, *sides: SuiteSide) -> None:
        self._sides = sides
        self._known: dict[str, tuple[Function, Function | None]] = dict.fromkeys(
            GENERAL, (share, None)
        )
        for side in sides:
            for axis in side.axes.values():
                if axis.value is not None:
                    self._known[axis.measure] = axis.value, axis.over

    def of(self, measure: str) -> tuple[Function, Function | None]:
        """Return the value of a measure by its totals, and what it is over."""
        if measure not in self._known:
            header = self._sides[-1].header
            suites = [side.suite for side in self._sides if side.suite is not None]
            suite = suites[0] if suites else registry.make(header.suite, header.options)
            for found in (*suite.measures(()), *suite.mitigation((), ())):
                self._known.setdefault(found.name, (found.value, found.n))
        return self._known[measure]


class _Tested:
    """A paired axis with its tests, before they are corrected together."""

    def __init__(self, one: _Paired, settings: Settings) -> None:
        self.paired = one
        self._tolerance = settings.tolerances.of(one.name, one.axis.aim)
        self._floor = settings.tolerances.floor(one.suite)
        # An axis that was asked for by name is what the user wants to know.
        self._decides = one.decides or bool(settings.axes)
        self._exchanged: Exchanged = one.pairs.exchanged()
        beyond = one.pairs.p_beyond(self._tolerance)
        worse = self._exchanged.p_worse
        self.p = math.nan if math.isnan(beyond) or math.isnan(worse) else max(beyond, worse)

    def judged(self, q: float, alpha: float) -> AxisComparison:
        """Return the axis with its verdict; ``alpha`` is a single test's share of the 5 %."""
        one, pairs = self.paired, self.paired.pairs
        verdict, reason = self._verdict(q)
        # What is narrow, or what the guard stopped, decides only where it seems to have got worse.
        seems = self._exchanged.p_worse <= ALPHA and pairs.worse > self._tolerance
        decides = self._decides or (seems and not one.axis.labels)
        low, high = pairs.interval
        more: int | None = None
        if verdict == "inconclusive":
            factor = pairs.factor(self._tolerance, alpha)
            more = math.ceil(one.items * (factor - 1)) if math.isfinite(factor) else None
        return AxisComparison(
            name=one.name,
            suite=one.suite,
            arm=one.axis.arm,
            measure=one.axis.measure,
            axis=dict(one.axis.labels),
            ideal=one.axis.aim.ideal,
            base=pairs.base,
            new=pairs.new,
            difference=pairs.difference,
            low=low,
            high=high,
            worse=pairs.worse,
            at_most=pairs.at_most,
            tolerance=self._tolerance,
            p=self.p,
            q=q,
            p_change=self._exchanged.p_change,
            method=self._exchanged.method,
            detectable=pairs.detectable(self._tolerance, alpha),
            n=len(one.ids),
            unit=one.axis.unit,
            clusters=pairs.clusters,
            verdict=verdict,
            decides=decides,
            reason=reason,
            more_items=more or None,
            flips=self._flips(),
        )

    def _verdict(self, q: float) -> tuple[Verdict, str]:
        pairs = self.paired.pairs
        if q < ALPHA:
            return "regression", ""
        if math.isnan(pairs.worse):
            few = "no answer counts for it on both sides" if not self.paired.ids else ""
            return "inconclusive", few or "it has no value on one side"
        if math.isnan(pairs.at_most):
            return "inconclusive", (
                f"{pairs.clusters} clusters are too few: {LEAST_CLUSTERS} of about equal size are "
                "needed"
            )
        if not self.paired.coverage >= self._floor:
            return "inconclusive", (
                f"only {self.paired.coverage:.0%} of the answers could be read; the floor is "
                f"{self._floor:.0%}"
            )
        if pairs.at_most <= self._tolerance:
            return "pass", ""
        return "inconclusive", (
            f"it may be worse by up to {pairs.at_most:.3g}, more than the tolerance"
        )

    def _flips(self) -> Sequence[Flip]:
        one = self.paired
        base, new = one.outcomes
        moves = np.nan_to_num(one.pairs.moves)
        places = np.flatnonzero(one.pairs.changed)
        return [
            Flip(one.ids[at], base.get(one.ids[at], ""), new.get(one.ids[at], ""), float(moves[at]))
            for at in places[np.argsort(-moves[places], kind="stable")].tolist()
        ]


def _outcome(axes: Sequence[AxisComparison], *, incomplete: bool, lost: bool) -> Outcome:
    if incomplete:
        return "incomplete"
    if any(axis.verdict == "regression" for axis in axes):
        return "regression"
    if lost or any(axis.verdict == "inconclusive" and axis.decides for axis in axes):
        return "inconclusive"
    return "pass"
