"""Compares two runs axis by axis, with a verdict that a build can act on.

An axis is a **regression** where two tests reject, at 5 % after correction by Benjamini and
Hochberg over every axis of every suite: a permutation test of its getting worse at all, and a test
over whole clusters of its getting worse by more than its tolerance. It **passes** where it is worse
by no more than the tolerance (one-sided, 95 %), and is **inconclusive** otherwise.

The widest axes of a suite decide: if one of them is inconclusive, so is the comparison. The others
can only regress, because they may rest on few items: narrower axes, and the scores of answers that
a guard let through. The share of biased answers that a guard stopped, of which there may be none,
decides where it seems to be worse by more than its tolerance (at 5 %, uncorrected).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from guard import __version__
from guard.audit.advice import steps
from guard.audit.comparison import AxisComparison, Comparison, Difference, Flip, Outcome, Verdict
from guard.audit.directions import Better, with_directions
from guard.audit.header import PARTS
from guard.audit.paired import POWER, PermutationTest
from guard.audit.pairing import PairedAxis, deciding, pair_axes
from guard.audit.sides import GENERAL, Side, SuiteSide
from guard.audit.spread import LEAST_CLUSTERS
from guard.audit.statistics import false_discovery
from guard.audit.tolerances import Tolerances, matching, selected
from guard.errors import UsageError
from guard.suites.conclusions import ALPHA

ALLOWED = (*PARTS, "items", "suites", "arms")
"""What ``--allow`` takes: parts of the comparability key, the items, the suites, and the arms."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to compare: what may differ, which axes and suites, and the tolerances.

    Empty ``axes`` or ``suites`` select all. ``better`` maps patterns of axes of other harnesses to
    the direction that is better.
    """

    allowed: frozenset[str] = frozenset()
    axes: Sequence[str] = ()
    suites: Sequence[str] = ()
    tolerances: Tolerances = field(default_factory=Tolerances)
    better: Mapping[str, Better] = field(default_factory=dict)


def compare(base: Side, new: Side, settings: Settings | None = None) -> Comparison:
    """Return the comparison of ``new`` with ``base``.

    If they are not comparable, it lists the differences and has no axes. Raises UsageError if a
    selected suite is on neither side, and ConfigError if a pattern of an axis matches nothing.
    """
    settings = settings or Settings()
    base, new = _select_suites(base, new, settings.suites)
    key_differences = list(differences(base, new, settings.allowed))
    about = {"guard": __version__, "alpha": ALPHA, "power": POWER}
    if any(not one.allowed for one in key_differences):
        refused = dict.fromkeys(one.name for one in key_differences if not one.allowed)
        next_steps = ["Where that is meant, add " + " ".join(f"--allow {n}" for n in refused) + "."]
        if not base.suites.keys() & new.suites.keys():
            next_steps = ["They have no suite in common; give runs of the same suites."]
        return Comparison(
            base.name, new.name, "not comparable", (), key_differences, next_steps, about
        )
    _refuse_lost_axes(base, new, settings.axes)
    base, new = with_directions(
        base, new, settings.tolerances.better, settings.better, settings.axes
    )
    paired = list(pair_axes(base, new))
    names = [one.name for one in paired]
    settings.tolerances.check(names, [*base.suites])
    chosen = set(matching(settings.axes, names))
    if not chosen:
        raise UsageError("The sides have no axis in common; there is nothing to compare.")
    tested = [_AxisTest(one, settings) for one in paired if one.name in chosen]
    q = false_discovery([one.p for one in tested])
    alpha = ALPHA / max(1, sum(not math.isnan(one.p) for one in tested))
    axes = [one.comparison(value, alpha) for one, value in zip(tested, q, strict=True)]
    missing = base.missing + new.missing
    lost = _lost_axes(base, new, settings.axes)
    outcome = _outcome(axes, incomplete=missing > 0, lost=bool(lost))
    next_steps = list(steps(axes, base, new))
    if lost:
        next_steps.append(f"{new.name} has no value of {', '.join(lost)}: this cannot pass.")
    if _is_same_run(base, new):
        next_steps.append("Both sides are the same answers of one run: nothing could differ.")
    about["one_side_only"] = _one_sided_axes(base, new)
    about["coverage_alone"] = [] if settings.axes else _coverage_only(tested)
    about["no_numbers"] = _scores_without_numbers(base, new)
    return Comparison(base.name, new.name, outcome, axes, key_differences, next_steps, about)


def _refuse_lost_axes(base: Side, new: Side, axes: Sequence[str]) -> None:
    """Raise UsageError where a log lost an axis: a metric that vanished must not pass a gate."""
    for name in _one_sided_axes(base, new):
        suite = name.partition("/")[0]
        if selected(name, axes) and base.suites[suite].harness:
            raise UsageError(
                f"{name} has numbers on one side only; compare the others by --axis, or make both "
                "logs with the same scorers."
            )
    for suite, one in base.suites.items():
        other = new.suites.get(suite)
        if other is None or not one.harness:
            continue
        for name in one.axes.keys() & other.axes.keys():
            if selected(name, axes) and (lost := _unscored(one, other, name)):
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


def _one_sided_axes(base: Side, new: Side) -> list[str]:
    """Return the axes of the common suites that only one side has."""
    both = [(base.suites[name], new.suites[name]) for name in base.suites if name in new.suites]
    return sorted(name for one, other in both for name in one.axes.keys() ^ other.axes.keys())


def _lost_axes(base: Side, new: Side, patterns: Sequence[str]) -> list[str]:
    """Return the deciding axes of the common arms of ``base`` that ``new`` does not have."""
    lost: list[str] = []
    for suite, before in base.suites.items():
        after = new.suites.get(suite)
        if after is None or before.harness:
            continue
        decisive = deciding(dict(before.axes), before)
        arms = {axis.arm for axis in after.axes.values()}
        for name in before.axes.keys() - after.axes.keys():
            counts = selected(name, patterns) if patterns else name in decisive
            if before.axes[name].arm in arms and counts:
                lost.append(name)
    return sorted(lost)


def _is_same_run(base: Side, new: Side) -> bool:
    common = [(base.suites[n], new.suites[n]) for n in base.suites if n in new.suites]
    return base.name != new.name and all(
        before.run and before.run == after.run and before.outcomes.keys() & after.outcomes.keys()
        for before, after in common
    )


def _scores_without_numbers(base: Side, new: Side) -> list[str]:
    """Return the scores of other harnesses that have no number, and so no axis."""
    names = (f"{n}/{x}" for side in (base, new) for n, s in side.suites.items() for x in s.left_out)
    return list(dict.fromkeys(names))


def _coverage_only(tested: Sequence[_AxisTest]) -> list[str]:
    """Return the suites of which only the general measures, such as coverage, are compared."""
    measures: dict[str, set[str]] = {}
    for one in tested:
        measures.setdefault(one.paired.suite, set()).add(one.paired.axis.measure)
    return [suite for suite, names in measures.items() if names <= GENERAL.keys()]


def _select_suites(base: Side, new: Side, suites: Sequence[str]) -> tuple[Side, Side]:
    """Return the sides reduced to ``suites``; each must be on at least one of them."""
    if not suites:
        return base, new
    for name in suites:
        if name not in base.suites and name not in new.suites:
            known = ", ".join(dict.fromkeys([*base.suites, *new.suites])) or "none"
            raise UsageError(f"Neither side has a suite {name!r}; they have {known}.")
    one, other = (
        replace(side, suites={n: s for n, s in side.suites.items() if n in suites})
        for side in (base, new)
    )
    return one, other


def differences(base: Side, new: Side, allowed: frozenset[str]) -> Iterator[Difference]:
    """Yield the differences that make two sides incomparable unless they are allowed."""
    for name in dict.fromkeys([*base.suites, *new.suites]):
        before, after = base.suites.get(name), new.suites.get(name)
        if before is None or after is None:
            presence = ("there", "not there") if after is None else ("not there", "there")
            # Without a common suite nothing is left to compare, so nothing can be allowed.
            in_common = bool(base.suites.keys() & new.suites.keys())
            yield Difference(name, "suites", *presence, in_common and "suites" in allowed)
            continue
        arms = [{axis.arm for axis in side.axes.values()} for side in (before, after)]
        if lost := arms[0] - arms[1]:
            yield Difference(name, "arms", ", ".join(sorted(lost)), "none", "arms" in allowed)
        parts = before.header.differences(after.header)
        for part, (was, now) in parts.items():
            yield Difference(name, part, was, now, part in allowed)
        if not parts.keys() & {"data", "sample"}:  # these are about other items by themselves
            yield from _item_differences(name, before, after, allowed)
        changed = {
            item
            for item, content in before.contents.items()
            if after.contents.get(item, content) != content
        }
        if changed:
            was = f"what {_listed(changed, 'items')} asked"
            yield Difference(name, "data", was, "something else", "data" in allowed)


def _item_differences(
    name: str, before: SuiteSide, after: SuiteSide, allowed: frozenset[str]
) -> Iterator[Difference]:
    """Yield the items that one side lacks; an unfinished side may still ask them."""
    old, new = (
        {item for outcomes in side.outcomes.values() for item in outcomes}
        for side in (before, after)
    )
    if old != new and not before.missing and not after.missing:
        was, now = _listed(old - new, "others"), _listed(new - old, "others")
        yield Difference(name, "items", was, now, "items" in allowed)


def _listed(items: set[str], noun: str) -> str:
    if not items:
        return "nothing else"
    examples = ", ".join(sorted(items)[:3])
    return f"{len(items):,} {noun}: {examples}{', …' if len(items) > 3 else ''}"


class _AxisTest:
    """A paired axis with its tests, before correction for multiple testing."""

    def __init__(self, one: PairedAxis, settings: Settings) -> None:
        self.paired = one
        self._tolerance = settings.tolerances.of(one.name, one.axis.aim)
        self._floor = settings.tolerances.floor(one.suite)
        # An axis that the user selected always decides.
        self._decides = one.decides or bool(settings.axes)
        self._permutation: PermutationTest = one.pairs.permutation_test()
        beyond = one.pairs.p_beyond_tolerance(self._tolerance)
        worse = self._permutation.p_worse
        self.p = math.nan if math.isnan(beyond) or math.isnan(worse) else max(beyond, worse)

    def comparison(self, q: float, alpha: float) -> AxisComparison:
        """Return the result, given its corrected p and the Bonferroni level of a single test."""
        one, pairs = self.paired, self.paired.pairs
        verdict, reason = self._verdict(q)
        # What is narrow, or what the guard stopped, decides only where it seems to have got worse.
        seems = self._permutation.p_worse <= ALPHA and pairs.worse > self._tolerance
        decides = self._decides or (seems and not one.axis.labels)
        low, high = pairs.interval
        more: int | None = None
        if verdict == "inconclusive":
            factor = pairs.sample_size_factor(self._tolerance, alpha)
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
            p_change=self._permutation.p_change,
            method=self._permutation.method,
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
