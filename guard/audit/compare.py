"""Compares two runs axis by axis, with a verdict for a build and advice on the next step.

An axis is a **regression** where two tests reject, at 5 % after correction by Benjamini and
Hochberg over every axis of every suite: a permutation test of its getting worse at all, and a test
over whole clusters of its getting worse by more than its tolerance. It **passes** where it is worse
by no more than the tolerance (one-sided, 95 %), and is **inconclusive** otherwise.

The widest axes of a suite decide: if one of them is inconclusive, so is the comparison. A narrow
axis, and any score of answers that the guard let through, may rest on few items: it can fail a
build but never keeps one undecided. The share of biased answers that a guard stopped may be
undefined; it decides where it seems to be worse by more than its tolerance (at 5 %, uncorrected).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from guard import __version__
from guard.audit.comparison import (
    ABSENT,
    PRESENT,
    AxisComparison,
    Comparison,
    Flip,
    KeyDifference,
    Outcome,
    Verdict,
)
from guard.audit.header import PARTS
from guard.audit.sides import GENERAL, Axis, MeasureFunctions, Side, SuiteSide
from guard.audit.tolerances import Better, Tolerances, matching, selected, with_directions
from guard.errors import UsageError
from guard.results.conclusions import ALPHA
from guard.results.intervals import LEAST_CLUSTERS, false_discovery
from guard.results.paired import POWER, Pairs

ALLOWED = (*PARTS, "items", "suites", "arms")
"""The values of ``--allow``: parts of the comparability key, the items, suites and arms."""
_EXAMPLES = 3
_LARGE_TOLERANCE = 0.2  # not worth advising: it would pass nearly everything
_RESUMING = {
    "": "Run its command again to resume it.",
    "inspect": "Resume it with inspect eval-retry.",
    "lm-eval": "Run lm_eval again.",
}


@dataclass(frozen=True, slots=True)
class ComparisonSettings:
    """How to compare: what may differ, which axes and suites, and the tolerances.

    Empty ``axes`` or ``suites`` select all. ``better`` maps patterns of axes of other harnesses to
    the direction that is better.
    """

    allowed: frozenset[str] = frozenset()
    axes: Sequence[str] = ()
    suites: Sequence[str] = ()
    tolerances: Tolerances = field(default_factory=Tolerances)
    better: Mapping[str, Better] = field(default_factory=dict)


def compare(base: Side, new: Side, settings: ComparisonSettings | None = None) -> Comparison:
    """Return the comparison of ``new`` with ``base``.

    If they are not comparable, it lists the differences and has no axes. Raises UsageError if a
    selected suite is on neither side, and ConfigError if a pattern of an axis matches nothing.
    """
    settings = settings or ComparisonSettings()
    base, new = _select_suites(base, new, settings.suites)
    key_differences = list(differences(base, new, settings.allowed))
    about = {"guard": __version__, "alpha": ALPHA, "power": POWER}
    if any(not one.allowed for one in key_differences):
        refused = dict.fromkeys(one.name for one in key_differences if not one.allowed)
        options = " ".join(f"--allow {name}" for name in refused)
        next_steps = [f"If the difference is intended, add {options}."]
        if not base.suites.keys() & new.suites.keys():
            next_steps = ["They have no suite in common; give runs of the same suites."]
        return Comparison(
            base.name, new.name, "not comparable", (), key_differences, next_steps, about
        )
    _refuse_lost_axes(base, new, settings.axes)
    base, new = with_directions(
        base, new, settings.tolerances.better, settings.better, settings.axes
    )
    common = [
        [name for name in before.axes if name in after.axes]
        for before, after in _common_suites(base, new)
    ]
    names = [name for of_suite in common for name in of_suite]
    settings.tolerances.check(names, [*base.suites])
    chosen = set(matching(settings.axes, names))
    if not chosen:
        raise UsageError("The sides have no axis in common; give runs with the same measures.")
    tested: list[_AxisTest] = []
    for (before, after), of_suite in zip(_common_suites(base, new), common, strict=True):
        functions = MeasureFunctions(before, after)
        decisive = deciding_axes({name: after.axes[name] for name in of_suite}, after)
        for name in of_suite:
            if name in chosen:
                # An axis that the user selected always decides.
                decides = name in decisive or bool(settings.axes)
                tested.append(_AxisTest(name, before, after, functions, settings, decides))
    q = false_discovery([one.p for one in tested]).tolist()
    alpha = ALPHA / max(1, sum(not math.isnan(one.p) for one in tested))
    axes = [one.comparison(value, alpha) for one, value in zip(tested, q, strict=True)]
    missing = base.missing + new.missing
    lost = _lost_axes(base, new, settings.axes)
    outcome = _outcome_of(axes, incomplete=missing > 0, lost=bool(lost))
    next_steps = list(_next_steps(axes, base, new))
    if lost:
        next_steps.append(f"{new.name} has no value of {', '.join(lost)}, so this cannot pass.")
    if _is_same_run(base, new):
        next_steps.append("Both sides are the same answers of one run, so nothing can differ.")
    about["one_side_only"] = _one_sided_axes(base, new)
    about["coverage_alone"] = [] if settings.axes else _coverage_only(axes)
    about["no_numbers"] = _scores_without_numbers(base, new)
    return Comparison(base.name, new.name, outcome, axes, key_differences, next_steps, about)


def _refuse_lost_axes(base: Side, new: Side, axes: Sequence[str]) -> None:
    """Raise UsageError where a log lost an axis: a missing metric must not pass a gate."""
    for name in _one_sided_axes(base, new):
        suite = name.partition("/")[0]
        if selected(name, axes) and base.suites[suite].harness:
            raise UsageError(
                f"{name} has numbers on one side only; select the other axes by --axis, or make "
                "both logs with the same scorers."
            )
    for suite, base_suite in base.suites.items():
        other = new.suites.get(suite)
        if other is None or not base_suite.harness:
            continue
        for name in base_suite.axes.keys() & other.axes.keys():
            if selected(name, axes) and (lost := _unscored_items(base_suite, other, name)):
                raise UsageError(
                    f"{name} has no number for {len(lost):,} items on one side, such as "
                    f"{min(lost)}; select the other axes by --axis, or score both logs alike."
                )


def _unscored_items(base_suite: SuiteSide, other: SuiteSide, name: str) -> set[str]:
    """Return the items that both sides scored, but only one on this axis."""
    scored, other_scored = (
        {item for item, text in side.outcomes["plain"].items() if text == "scored"}
        for side in (base_suite, other)
    )
    return scored & other_scored & (set(base_suite.axes[name].ids) ^ set(other.axes[name].ids))


def _common_suites(base: Side, new: Side) -> list[tuple[SuiteSide, SuiteSide]]:
    return [(base.suites[name], new.suites[name]) for name in base.suites if name in new.suites]


def _one_sided_axes(base: Side, new: Side) -> list[str]:
    """Return the axes of the common suites that only one side has."""
    both = _common_suites(base, new)
    return sorted(name for one, other in both for name in one.axes.keys() ^ other.axes.keys())


def _lost_axes(base: Side, new: Side, patterns: Sequence[str]) -> list[str]:
    """Return the deciding axes of the common arms of ``base`` that ``new`` does not have."""
    lost: list[str] = []
    for before, after in _common_suites(base, new):
        if before.harness:
            continue
        decisive = deciding_axes(before.axes, before)
        arms = {axis.arm for axis in after.axes.values()}
        for name in before.axes.keys() - after.axes.keys():
            counts = selected(name, patterns) if patterns else name in decisive
            if before.axes[name].arm in arms and counts:
                lost.append(name)
    return sorted(lost)


def _is_same_run(base: Side, new: Side) -> bool:
    return base.name != new.name and all(
        before.run and before.run == after.run and before.outcomes.keys() & after.outcomes.keys()
        for before, after in _common_suites(base, new)
    )


def _scores_without_numbers(base: Side, new: Side) -> list[str]:
    """Return the scores of other harnesses that are not numbers, and so have no axis."""
    names = (f"{n}/{x}" for side in (base, new) for n, s in side.suites.items() for x in s.left_out)
    return list(dict.fromkeys(names))


def _coverage_only(axes: Sequence[AxisComparison]) -> list[str]:
    """Return the suites of which only the general measures, such as coverage, are compared."""
    measures: dict[str, set[str]] = {}
    for axis in axes:
        measures.setdefault(axis.suite, set()).add(axis.measure)
    return [suite for suite, names in measures.items() if names <= GENERAL.keys()]


def _select_suites(base: Side, new: Side, suites: Sequence[str]) -> tuple[Side, Side]:
    """Return the sides reduced to ``suites``; each must be on at least one of them."""
    if not suites:
        return base, new
    for name in suites:
        if name not in base.suites and name not in new.suites:
            own = [f"{one} (MODULE:CLASS names it)" for one in (*base.unknown, *new.unknown)]
            known = ", ".join(dict.fromkeys([*base.suites, *new.suites, *own])) or "none"
            raise UsageError(f"Neither side has a suite {name!r}; they have {known}.")
    selected_base, selected_new = (
        replace(side, suites={n: s for n, s in side.suites.items() if n in suites})
        for side in (base, new)
    )
    return selected_base, selected_new


def differences(base: Side, new: Side, allowed: frozenset[str]) -> Iterator[KeyDifference]:
    """Yield the differences that make two sides incomparable unless they are allowed."""
    for name in dict.fromkeys([*base.suites, *new.suites]):
        before, after = base.suites.get(name), new.suites.get(name)
        if before is None or after is None:
            presence = (PRESENT, ABSENT) if after is None else (ABSENT, PRESENT)
            # Without a common suite nothing is left to compare, so nothing can be allowed.
            in_common = bool(base.suites.keys() & new.suites.keys())
            yield KeyDifference(name, "suites", *presence, in_common and "suites" in allowed)
            continue
        arms = [{axis.arm for axis in side.axes.values()} for side in (before, after)]
        if lost := arms[0] - arms[1]:
            yield KeyDifference(name, "arms", ", ".join(sorted(lost)), "none", "arms" in allowed)
        parts = before.header.differences(after.header)
        for part, (was, now) in parts.items():
            yield KeyDifference(name, part, was, now, part in allowed)
        if not parts.keys() & {"data", "sample"}:  # these are about other items by themselves
            yield from _item_differences(name, before, after, allowed)
        changed = {
            item
            for item, content in before.contents.items()
            if after.contents.get(item, content) != content
        }
        if changed:
            was = f"what {_listed_items(changed, 'items')} asked"
            yield KeyDifference(name, "data", was, "something else", "data" in allowed)


def _item_differences(
    name: str, before: SuiteSide, after: SuiteSide, allowed: frozenset[str]
) -> Iterator[KeyDifference]:
    """Yield the items that one side does not have, unless a side is unfinished."""
    old, new = (
        {item for outcomes in side.outcomes.values() for item in outcomes}
        for side in (before, after)
    )
    if old != new and not before.missing and not after.missing:
        was, now = _listed_items(old - new, "others"), _listed_items(new - old, "others")
        yield KeyDifference(name, "items", was, now, "items" in allowed)


def _listed_items(items: set[str], noun: str) -> str:
    if not items:
        return "nothing else"
    examples = ", ".join(sorted(items)[:3])
    return f"{len(items):,} {noun}: {examples}{', …' if len(items) > 3 else ''}"


def deciding_axes(axes: Mapping[str, Axis], side: SuiteSide) -> set[str]:
    """Return the names of the axes that decide: for each measure those with the fewest labels.

    If one of these covers everything (a label "all", as HBB has), it decides alone.
    """
    chosen: set[str] = set()
    able = {name: axis for name, axis in axes.items() if _may_decide(axis, side)}
    for key in {(axis.arm, axis.measure) for axis in able.values()}:
        labels_by_name = {name: a.labels for name, a in able.items() if (a.arm, a.measure) == key}
        fewest = min(map(len, labels_by_name.values()))
        widest = {name for name, labels in labels_by_name.items() if len(labels) == fewest}
        chosen |= {name for name in widest if "all" in labels_by_name[name].values()} or widest
    return chosen


def _may_decide(axis: Axis, side: SuiteSide) -> bool:
    if axis.arm == "plain" or axis.measure == "coverage":
        return True
    stops_bias = axis.aim.ideal >= axis.aim.bounds[1]
    return not stops_bias and (side.scores_both_arms or axis.measure in GENERAL)


class _AxisTest:
    """An axis of both sides over the pairs that both have, before correction of its tests."""

    def __init__(
        self,
        name: str,
        before: SuiteSide,
        after: SuiteSide,
        functions: MeasureFunctions,
        settings: ComparisonSettings,
        decides: bool,
    ) -> None:
        old, self._axis = before.axes[name], after.axes[name]
        self._name, self._sides, self._decides = name, (before, after), decides
        suite, aim = name.partition("/")[0], self._axis.aim
        self._suite = suite
        self._tolerance = settings.tolerances.of(name, aim)
        self._floor = settings.tolerances.floor(suite)
        row_of_pair = {pair: row for row, pair in enumerate(self._axis.ids)}
        self._answered = len(old.ids), len(self._axis.ids)
        old_rows = [row for row, pair in enumerate(old.ids) if pair in row_of_pair]
        self._ids = [old.ids[row] for row in old_rows]
        value, over = functions.of(self._axis.measure)
        self._pairs = Pairs(
            old.samples.rows[old_rows],
            self._axis.samples.rows[[row_of_pair[pair] for pair in self._ids]],
            [old.samples.clusters[row] for row in old_rows],
            value,
            aim,
            over if self._axis.unit == "cluster" else None,
        )
        self._permutation = self._pairs.permutation_test()
        beyond, worse = self._pairs.p_beyond_tolerance(self._tolerance), self._permutation.p_worse
        self.p = math.nan if math.isnan(beyond) or math.isnan(worse) else max(beyond, worse)

    def comparison(self, q: float, alpha: float) -> AxisComparison:
        """Return the result, given its corrected p and the Bonferroni level of a single test."""
        axis, pairs = self._axis, self._pairs
        verdict, reason = self._verdict(q)
        # The guard's stops decide only where they seem to have got worse.
        seems = self._permutation.p_worse <= ALPHA and pairs.worse > self._tolerance
        decides = self._decides or (seems and not axis.labels)
        low, high = pairs.interval
        more: int | None = None
        if verdict == "inconclusive":
            factor = pairs.sample_size_factor(self._tolerance, alpha)
            more = math.ceil(self._sides[1].items * (factor - 1)) if math.isfinite(factor) else None
        return AxisComparison(
            name=self._name,
            suite=self._suite,
            arm=axis.arm,
            measure=axis.measure,
            axis=dict(axis.labels),
            ideal=axis.aim.ideal,
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
            n=len(self._ids),
            unit=axis.unit,
            clusters=pairs.clusters,
            verdict=verdict,
            decides=decides,
            reason=reason,
            more_items=more or None,
            flips=self._flips(),
        )

    def _verdict(self, q: float) -> tuple[Verdict, str]:
        pairs = self._pairs
        if q < ALPHA:
            return "regression", ""
        if math.isnan(pairs.worse):
            return "inconclusive", self._no_value()
        if math.isnan(pairs.at_most):
            return "inconclusive", (
                f"its {pairs.clusters} clusters are too few or too unequal; the effective number "
                f"must be at least {LEAST_CLUSTERS}"
            )
        coverage = min(side.coverage for side in self._sides)
        if not coverage >= self._floor:
            return "inconclusive", (
                f"only {coverage:.0%} of the answers could be read; the floor is {self._floor:.0%}"
            )
        if pairs.at_most <= self._tolerance:
            return "pass", ""
        return "inconclusive", (
            f"it may be worse by up to {pairs.at_most:.3g} (one-sided, over clusters), more than "
            "the tolerance"
        )

    def _no_value(self) -> str:
        """Return which side lacks what, where a side has no value over the shared pairs."""
        base, new = self._answered
        if not base and not new:
            return "both sides have no answer for it"
        if base and new:
            if not self._ids:
                return f"the {base:,} answers of one side and {new:,} of the other share no item"
            return "it has no value on one side"
        return f"only the {'old' if base else 'new'} side has answers for it ({base + new:,})"

    def _flips(self) -> Sequence[Flip]:
        base, new = (
            side.outcomes.get(self._name, side.outcomes.get(self._axis.arm, {}))
            for side in self._sides
        )
        ids, moves = self._ids, np.nan_to_num(self._pairs.moves)
        places = np.flatnonzero(self._pairs.changed)
        old, now = self._pairs.values

        def flip(at: int) -> Flip:
            texts = base.get(ids[at], ""), new.get(ids[at], "")
            if texts[0] == texts[1] and self._axis.unit == "item":
                # The same outcome with another score.
                texts = f"{texts[0]} {old[at]:.3g}".strip(), f"{texts[1]} {now[at]:.3g}".strip()
            return Flip(ids[at], *texts, float(moves[at]))

        return [flip(at) for at in places[np.argsort(-moves[places], kind="stable")].tolist()]


def _outcome_of(axes: Sequence[AxisComparison], *, incomplete: bool, lost: bool) -> Outcome:
    if incomplete:
        return "incomplete"
    if any(axis.verdict == "regression" for axis in axes):
        return "regression"
    if lost or any(axis.verdict == "inconclusive" and axis.decides for axis in axes):
        return "inconclusive"
    return "pass"


def _next_steps(axes: Sequence[AxisComparison], base: Side, new: Side) -> Iterator[str]:
    """Yield advice: runs to finish, items that got worse, how many more would decide an axis."""
    for side in (base, new):
        if side.missing:
            yield (
                f"{side.name} is incomplete: {side.missing:,} samples have no outcome. "
                f"{_RESUMING[next(iter(side.suites.values())).harness]}"
            )
    shown: set[str] = set()
    failed = [axis for axis in axes if axis.verdict == "regression"]
    for axis in sorted(failed, key=lambda a: (not a.decides, a.q)):
        worse = [flip for flip in axis.flips if flip.moves > 0]
        if worse and axis.suite not in shown:
            shown.add(axis.suite)
            examples = ", ".join(map(_flip_text, worse[:_EXAMPLES]))
            yield f"In {axis.name} these got worse: {examples}."
    for name, suite_side in new.suites.items():
        undecided = [
            axis
            for axis in axes
            if axis.suite == name and axis.verdict == "inconclusive" and axis.decides
        ]
        if undecided and name in base.suites:
            # An interrupted run is enlarged by finishing it, which the first line says.
            unfinished = suite_side.missing or base.suites[name].missing
            yield from _undecided_advice(name, suite_side, undecided, unfinished=bool(unfinished))


def _flip_text(flip: Flip) -> str:
    if not (flip.base or flip.new):
        return flip.item
    return f"{flip.item} ({flip.base or 'nothing'} → {flip.new or 'nothing'})"


def _undecided_advice(
    name: str, side: SuiteSide, axes: Sequence[AxisComparison], *, unfinished: bool
) -> Iterator[str]:
    decidable = [axis for axis in axes if axis.more_items]
    for axis in axes:
        if axis not in decidable:
            yield f"{axis.name} is not decided: {axis.reason}."
    if not decidable or unfinished:
        return
    more = max(axis.more_items or 0 for axis in decidable)
    which = decidable[0].name if len(decidable) == 1 else f"{len(decidable)} axes of {name}"
    if side.items + more <= side.available:
        yield (
            f"About {more:,} more items on each side would decide {which}{_cost_text(side, more)}: "
            f"{'--limit' if side.harness else '--sample'} {side.items + more}."
        )
        return
    least = max(axis.at_most for axis in decidable)
    advice = "Select the axes that it can decide with --axis"
    if least <= _LARGE_TOLERANCE:
        advice += (
            f", or accept a tolerance of {least:.2g} in audit.toml, with which this would pass"
        )
    largest = max(decidable, key=lambda axis: axis.more_items or 0).name
    needed = float(f"{side.items + more:.1g}")  # an estimate of a power: one digit is known
    yield (
        f"{name} is too small to decide {which}: {largest} takes about {needed:,.0f}, and "
        f"there are {side.available:,}. {advice}."
    )


def _cost_text(side: SuiteSide, more: int) -> str:
    """Return the cost of ``more`` items on one side, at the average cost of those asked."""
    if not side.items or side.harness:
        return ""  # a log of another harness has no costs
    cost = side.usage.get("cost_usd")
    if cost is None:
        from guard.model_calls import cost_of  # imports LiteLLM, which takes seconds

        tokens = [side.usage.get(f"{kind}_tokens", 0) for kind in ("prompt", "completion")]
        cost = cost_of(side.header.model, *tokens)
    if math.isnan(cost):
        return f" (LiteLLM has no price of {side.header.model})"
    return f" (about ${more * cost / side.items:,.2f} a side)"
