"""Pairs the axes of two sides, and says which of them decide a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from guard.audit.paired import Pairs
from guard.audit.sides import GENERAL, Axis, Function, Side, SuiteSide
from guard.suites import registry
from guard.suites.reading import share

_ALL = "all"


@dataclass(frozen=True, slots=True)
class PairedAxis:
    """An axis of both sides, reduced to the pairs that both have, in the same order."""

    name: str
    suite: str
    axis: Axis
    pairs: Pairs
    ids: Sequence[str]
    outcomes: tuple[Mapping[str, str], Mapping[str, str]]
    coverage: float
    decides: bool
    items: int


def pair_axes(base: Side, new: Side) -> Iterator[PairedAxis]:
    """Yield the axes that both sides have of their common suites."""
    for suite, before in base.suites.items():
        after = new.suites.get(suite)
        if after is None:
            continue
        common = [name for name in before.axes if name in after.axes]
        decisive = deciding({name: after.axes[name] for name in common}, after)
        functions = MeasureFunctions(before, after)
        for name in common:
            old_axis, new_axis = before.axes[name], after.axes[name]
            row_of_pair = {pair: row for row, pair in enumerate(new_axis.ids)}
            old_rows = [row for row, pair in enumerate(old_axis.ids) if pair in row_of_pair]
            ids = [old_axis.ids[row] for row in old_rows]
            value, over = functions.of(new_axis.measure)
            yield PairedAxis(
                name=name,
                suite=suite,
                axis=new_axis,
                pairs=Pairs(
                    old_axis.rows[old_rows],
                    new_axis.rows[[row_of_pair[pair] for pair in ids]],
                    [old_axis.clusters[row] for row in old_rows],
                    value,
                    new_axis.aim,
                    over if new_axis.unit == "cluster" else None,
                ),
                ids=ids,
                outcomes=(
                    _outcomes_of(before, old_axis, name),
                    _outcomes_of(after, new_axis, name),
                ),
                coverage=min(before.coverage, after.coverage),
                decides=name in decisive,
                items=after.items,
            )


def _outcomes_of(side: SuiteSide, axis: Axis, name: str) -> Mapping[str, str]:
    return side.outcomes.get(name, side.outcomes.get(axis.arm, {}))


def deciding(axes: Mapping[str, Axis], side: SuiteSide) -> set[str]:
    """Return the names of the axes that decide: for each measure those with the fewest labels.

    If one of these covers everything (a label "all", as HBB has), it decides alone.
    """
    chosen: set[str] = set()
    able = {name: axis for name, axis in axes.items() if _may_decide(axis, side)}
    for key in {(axis.arm, axis.measure) for axis in able.values()}:
        labels_by_name = {name: a.labels for name, a in able.items() if (a.arm, a.measure) == key}
        fewest = min(map(len, labels_by_name.values()))
        widest = {name for name, labels in labels_by_name.items() if len(labels) == fewest}
        chosen |= {name for name in widest if _ALL in labels_by_name[name].values()} or widest
    return chosen


def _may_decide(axis: Axis, side: SuiteSide) -> bool:
    if axis.arm == "plain" or axis.measure == "coverage":
        return True
    stops_bias = axis.aim.ideal >= axis.aim.bounds[1]
    return not stops_bias and (side.scores_both_arms or axis.measure in GENERAL)


class MeasureFunctions:
    """The functions of a suite's measures, by name; a baseline does not store them."""

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
        """Return a measure's value as a function of its totals, and that of its n (or None)."""
        if measure not in self._known:
            header = self._sides[-1].header
            suites = [side.suite for side in self._sides if side.suite is not None]
            suite = suites[0] if suites else registry.make(header.suite, header.options)
            for measure_ in (*suite.measures(()), *suite.mitigation((), ())):
                self._known.setdefault(measure_.name, (measure_.value, measure_.n))
        return self._known[measure]
