"""One side of a comparison: the axes of a run, pair by pair.

An axis is a measure with an ideal, in one arm. Every suite also has its ``coverage`` and, where a
guard judged the answers, the shares of answers that the guard stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from guard.audit.audit import Audit, usage_of
from guard.audit.files import RUN_FILE, run_file_of
from guard.audit.header import Header
from guard.audit.outcomes import Records, scores_both_arms
from guard.audit.outcomes import readable_share as coverage_of
from guard.audit.run_file import RecordedSuite, RunFile
from guard.audit.score import SuiteResult
from guard.audit.silence import KINDS
from guard.audit.tables import as_recorded, recorded_audit
from guard.errors import UsageError
from guard.results.jackknife import ClopperPearson
from guard.results.measure import Interval, Measure, Value, share
from guard.results.paired import Aim
from guard.results.samples import Samples
from guard.suites import AsksOtherModels, Record, Suite, registry
from guard.suites.optional import part_of

Unit = Literal["item", "cluster"]
EFFECT = "effect"
"""The arm of both sides when the guarded arm is compared with the plain one."""
SHARE = Aim(0.0, (0.0, 1.0))
GENERAL: Mapping[str, Aim] = {
    "coverage": replace(SHARE, ideal=1.0),
    "stopped_biased": replace(SHARE, ideal=1.0),
    "stopped_others": SHARE,
    "stopped_without_side": SHARE,
}
"""The measures of every suite: coverage, and the shares of answers that guard stopped."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A measure over samples of which each row is one pair: an item, or a cluster (``unit``).

    An item's row is the mean of its repeats, a cluster's the sum of its rows. ``value`` and
    ``over`` map totals (..., k) to the measure and to its n; None in a baseline, which stores no
    functions. ``better`` is the direction that another harness' log states, "higher" or "lower";
    empty for none.
    """

    arm: str
    measure: str
    labels: Mapping[str, str]
    aim: Aim
    unit: Unit
    samples: Samples
    value: Value | None = None
    over: Value | None = None
    better: str = ""

    @property
    def ids(self) -> Sequence[str]:
        """The pairs' ids: of items, or of clusters."""
        assert self.samples.items is not None
        return self.samples.items

    def name(self, suite: str) -> str:
        """Return the axis' unique name in a comparison."""
        labels = (f"{label}={value}" for label, value in self.labels.items())
        return "/".join((suite, self.arm, self.measure, *labels))


@dataclass(frozen=True, slots=True)
class SuiteSide:
    """One suite on one side: its comparability key, axes by name, outcomes by arm and item.

    The run samples ``items`` of the suite's ``available`` items; ``missing`` samples have no
    outcome. ``coverage`` is that of the plain arm. ``usage`` has the tokens and cost of the calls.
    ``run`` is the hash of what was recorded, if anything was. For a log of another harness outcomes
    are also by axis, ``contents`` has a hash of what each item asks, and ``left_out`` names the
    scores that are not numbers.
    """

    header: Header
    axes: Mapping[str, Axis]
    outcomes: Mapping[str, Mapping[str, str]]
    items: int
    available: int
    missing: int
    coverage: float
    usage: Mapping[str, Any] = field(default_factory=dict)
    suite: Suite | None = None
    run: str = ""
    contents: Mapping[str, str] = field(default_factory=dict)
    left_out: Sequence[str] = ()

    @property
    def harness(self) -> str:
        """The harness that wrote the log, such as "inspect"; empty for guard's own audits."""
        name, colon, _ = self.header.suite.partition(":")
        return name if colon else ""

    @property
    def scores_both_arms(self) -> bool:
        """Whether a scorer judged the answers of both arms."""
        return self.header.others.keys() - {"reading"} == {"scorer"}


@dataclass(frozen=True, slots=True)
class Side:
    """A run, a baseline or a log, with its suites by name.

    ``unknown`` names the recorded suites that were skipped because guard does not know them.
    """

    name: str
    suites: Mapping[str, SuiteSide]
    unknown: Sequence[str] = ()

    @property
    def missing(self) -> int:
        """How many samples have no outcome."""
        return sum(one.missing for one in self.suites.values())


def read_side(
    place: Path, own_suites: Iterable[str] = (), data: Path | None = None, *, known: bool = False
) -> Side:
    """Return the side of the run at ``place``, its folder or file.

    ``own_suites`` names unregistered suites as ``module:Class``; ``data`` is the official data of
    the run's one suite. ``known`` skips suites that guard does not know. Raises UsageError where
    there is no run, or one that cannot be read.
    """
    classes = {registry.find(name).name: name for name in own_suites if ":" in name}
    suites: dict[str, SuiteSide] = {}
    unknown: list[str] = []
    run = RunFile(_run_file(place))
    if data is not None and len(run.headers) > 1:
        raise UsageError("--data belongs to one suite; compare baselines, or runs of one suite.")
    for name in run.headers:
        if known and name not in {*registry.names(), *classes}:
            unknown.append(name)
            continue
        recorded = run.suite(name)
        suites[name] = from_recorded(recorded_audit(recorded, data, classes), recorded)
    return Side(str(place), suites, unknown)


def _run_file(place: Path) -> Path:
    if not place.exists():
        raise UsageError(f"There is no run and no baseline at {place}.")
    inner = sorted(path.parent.name for path in place.glob(f"*/{RUN_FILE}"))
    if inner:
        if (place / RUN_FILE).exists():
            raise UsageError(
                f"{place} has a run, and folders of others: {', '.join(inner)}. Give one of the "
                f"folders or {RUN_FILE}, or move them elsewhere."
            )
        raise UsageError(f"{place} has runs of several models; give one of {', '.join(inner)}.")
    return run_file_of(place)


def from_results(audits: Mapping[str, Audit], results: Iterable[SuiteResult]) -> Side:
    """Return the side of a run that has just ended; ``audits`` has the audit of each suite."""
    suites: dict[str, SuiteSide] = {}
    for result in results:
        path = Path(result.about["journal"])
        recorded = RunFile(path).suite(result.suite)
        # The file may hold a larger sample than this run's.
        recorded.header = Header.of(result.about["key"], path)
        audit = as_recorded(audits[result.suite], recorded)
        suites[result.suite] = from_recorded(audit, recorded)
    return Side("this run", suites)


def from_recorded(audit: Audit, recorded: RecordedSuite) -> SuiteSide:
    """Return the side of a recorded suite, restricted to the items of ``audit``."""
    side = from_records(audit.suite, recorded.header, audit.records(recorded))
    usage = usage_of(recorded.calls.values())
    return replace(side, usage=usage, run=recorded.digest())


def from_records(suite: Suite, header: Header, records: Records) -> SuiteSide:
    """Return the axes and outcomes of ``records``."""
    axes = [axis for arm, found in records.arms() for axis in _of_arm(suite, arm, found, records)]
    if records.guarded:
        axes += _of_guard(suite, records)
    missing = records.missing
    for _, arm_records in records.arms():
        missing += sum(record.outcome.name == "failed" for record in arm_records)
    return SuiteSide(
        header,
        {axis.name(suite.name): axis for axis in axes},
        {
            arm: texts_by_item((record.item.id, record.outcome.name) for record in found)
            for arm, found in records.arms()
        },
        len({record.item.id for record in records.plain}),
        sum(1 for _ in suite.items()),
        missing,
        coverage_of(suite, records.plain),
        suite=suite,
    )


def split_arms(side: Side) -> tuple[Side, Side]:
    """Return the plain and the guarded arm of a run as two sides.

    The shares that the guard stopped are compared with 0. Coverage falls with every stop, right or
    wrong, so it is compared only for suites that do not separate right stops from wrong ones.
    Raises UsageError where a suite has only one arm.
    """
    parts: list[dict[str, SuiteSide]] = [{}, {}]
    for name, suite_side in side.suites.items():
        if "guarded" not in suite_side.outcomes:
            raise UsageError(
                f"{side.name} has no guarded arm of {name}; give a second run to compare with."
            )
        plain, guarded = (
            {(a.measure, *a.labels.items()): a for a in suite_side.axes.values() if a.arm == arm}
            for arm in ("plain", "guarded")
        )
        stops = {
            key: _none_stopped(a)
            for key, a in guarded.items()
            if key not in plain and a.aim.bounds == SHARE.bounds and a.samples.rows.shape[1] == 2
        }
        for part, axes, arm in zip(
            parts, (plain | stops, guarded), ("plain", "guarded"), strict=True
        ):
            compared = [
                replace(axis, arm=EFFECT)
                for key, axis in axes.items()
                if (key in stops or (key in plain and key in guarded))
                and not (stops and axis.measure == "coverage")
            ]
            named = {axis.name(name): axis for axis in compared}
            part[name] = replace(
                suite_side, axes=named, outcomes={EFFECT: suite_side.outcomes[arm]}, run=""
            )
    return Side(f"{side.name} (plain)", parts[0]), Side(f"{side.name} (guarded)", parts[1])


def _none_stopped(axis: Axis) -> Axis:
    """Return a share of stopped answers as it is without a guard: 0."""
    rows = axis.samples.rows.copy()
    rows[:, 0] = 0.0
    return replace(axis, samples=axis.samples.with_rows(rows))


def _of_arm(
    suite: Suite, arm: str, arm_records: Sequence[Record], records: Records
) -> Iterator[Axis]:
    for measure in suite.measures([*arm_records, *records.further]):
        if measure.ideal is not None:
            yield _axis_of(arm, measure)
    readable = [float(record.outcome.name in suite.outcomes) for record in arm_records]
    yield _general_axis(arm, "coverage", arm_records, readable)


def _of_guard(suite: Suite, records: Records) -> Iterator[Axis]:
    """Yield the axes of what the guard stopped."""
    for measure in part_of(suite, AsksOtherModels).mitigation(records.plain, records.guarded):
        if measure.ideal is not None:
            yield _axis_of("guarded", measure)
    if scores_both_arms(suite):
        return  # the suite's own mitigation measures include the stops
    sides = suite.sides(records.plain)
    answers = list(zip(records.plain, records.guarded, sides, strict=True))
    # Both of the answers with a side, as in the report (guard.audit.mitigation).
    groups = {
        "stopped_biased": [after for _, after, side in answers if side == "biased"],
        "stopped_others": [after for _, after, side in answers if side == "other"],
    }
    # A readable answer without a side should reach the user, too.
    without = [
        after
        for before, after, side in answers
        if not side and before.outcome.name in suite.outcomes
    ]
    if without:
        groups["stopped_without_side"] = without
    for name, group in groups.items():
        stopped = [float(record.outcome.name in KINDS["stopped"]) for record in group]
        if any(sides):
            yield _general_axis("guarded", name, group, stopped)


def _general_axis(arm: str, name: str, records: Sequence[Record], values: Sequence[float]) -> Axis:
    items = [record.item for record in records]
    rows = np.column_stack([np.asarray(values, dtype=np.float64), np.ones(len(items))])
    samples = Samples(rows, [item.cluster for item in items], [item.id for item in items])
    return Axis(arm, name, {}, GENERAL[name], "item", samples.by_item(), share)


def _axis_of(arm: str, measure: Measure) -> Axis:
    assert measure.ideal is not None
    aim = Aim(measure.ideal, measure.bounds, measure.above)
    name, labels, samples = measure.name, measure.axis, measure.samples
    if samples.items is not None:
        return Axis(arm, name, labels, aim, "item", samples.by_item(), measure.value)
    sums = samples.by_cluster()
    return Axis(arm, name, labels, aim, "cluster", sums, measure.value, measure.n)


def texts_by_item(pairs: Iterable[tuple[str, str]], *, count_equal: bool = True) -> dict[str, str]:
    """Return the text of each item; of several the count of each text, as in "first 2, second 1".

    Without ``count_equal`` several equal texts are returned without their count.
    """
    counts_by_item: dict[str, Counter[str]] = {}
    for item, text in pairs:
        counts_by_item.setdefault(item, Counter())[text] += 1

    def joined(counts: Counter[str]) -> str:
        if counts.total() == 1 or (len(counts) == 1 and not count_equal):
            return next(iter(counts))
        ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair))
        return ", ".join(f"{text} {n}" for text, n in ranked)

    return {item: joined(counts) for item, counts in counts_by_item.items()}


class MeasureFunctions:
    """The functions of a suite's measures, by name; a baseline does not store them."""

    def __init__(self, *sides: SuiteSide) -> None:
        self._sides = sides
        self._known: dict[str, tuple[Value, Value | None]] = dict.fromkeys(GENERAL, (share, None))
        for side in sides:
            for axis in side.axes.values():
                if axis.value is not None:
                    self._known[axis.measure] = axis.value, axis.over

    def of(self, measure: str) -> tuple[Value, Value | None]:
        """Return a measure's value as a function of its totals, and that of its n (or None)."""
        if measure not in self._known:
            for name, measure_ in self._measures.items():
                self._known.setdefault(name, (measure_.value, measure_.n))
        return self._known[measure]

    def interval_of(self, measure: str) -> Interval | None:
        """Return Clopper and Pearson's interval of a measure that the suite gives it; else None."""
        if self._sides[-1].harness or measure not in self._measures:
            return None
        interval = self._measures[measure].interval
        return interval if isinstance(interval, ClopperPearson) else None

    @cached_property
    def _measures(self) -> Mapping[str, Measure]:
        header = self._sides[-1].header
        suites = [side.suite for side in self._sides if side.suite is not None]
        suite = suites[0] if suites else registry.make(header.suite, header.options)
        of_both_arms = part_of(suite, AsksOtherModels).mitigation((), ())
        return {m.name: m for m in (*suite.measures(()), *of_both_arms)}
