"""One side of a comparison: what a run says of each axis, pair by pair.

An axis is a measure that has an ideal, of one arm. Besides the suite's own every suite has its
``coverage`` and, where a guard read the answers, the shares of them that it stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from guard.audit import journal as journals
from guard.audit.audit import Audit, spent
from guard.audit.command import damage
from guard.audit.header import Header
from guard.audit.journal import Contents
from guard.audit.outcomes import Records, judges_both
from guard.audit.outcomes import coverage as coverage_of
from guard.audit.paired import Aim
from guard.audit.score import SuiteResult
from guard.audit.silence import KINDS
from guard.audit.tables import as_recorded
from guard.errors import UsageError
from guard.suites import Measure, Record, Suite, registry
from guard.suites.contract import Floats
from guard.suites.reading import share

Unit = Literal["item", "cluster"]
Function = Callable[[Floats], Floats]
EFFECT = "effect"
"""The arm of a comparison of the guarded arm with the plain one."""
SHARE = Aim(0.0, (0.0, 1.0))
GENERAL: Mapping[str, Aim] = {
    "coverage": replace(SHARE, ideal=1.0),
    "stopped_biased": replace(SHARE, ideal=1.0),
    "stopped_others": SHARE,
}
"""What every suite has: the share of readable answers, and of those that the guard stopped."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A measure's rows (pairs, k), each the mean of a pair's samples, with its id and cluster.

    ``value`` and ``over`` are the measure's functions; None of a baseline, which has no functions.
    ``better`` is what another harness' log says is better, "higher" or "lower".
    """

    arm: str
    measure: str
    labels: Mapping[str, str]
    aim: Aim
    unit: Unit
    ids: Sequence[str]
    clusters: Sequence[str]
    rows: Floats
    value: Function | None = None
    over: Function | None = None
    better: str = ""

    def name(self, suite: str) -> str:
        """Return the axis' name in a comparison, which no other has."""
        labels = (f"{label}={value}" for label, value in self.labels.items())
        return "/".join((suite, self.arm, self.measure, *labels))


@dataclass(frozen=True, slots=True)
class SuiteSide:
    """What a side has of one suite: its key, axes by name, and outcomes by arm and item.

    ``items`` were to be asked, of ``available`` in the suite; ``lacking`` samples have no outcome.
    ``coverage`` is the plain arm's; ``spent`` is what the calls took; ``run`` is the hash of what
    was asked and answered, empty where there is no journal. Of another harness' log outcomes are
    by axis too, ``contents`` has a hash of what each item asks, and ``left_out`` the scores that
    are no numbers.
    """

    header: Header
    axes: Mapping[str, Axis]
    outcomes: Mapping[str, Mapping[str, str]]
    items: int
    available: int
    lacking: int
    coverage: float
    spent: Mapping[str, Any] = field(default_factory=dict)
    suite: Suite | None = None
    run: str = ""
    contents: Mapping[str, str] = field(default_factory=dict)
    left_out: Sequence[str] = ()

    @property
    def harness(self) -> str:
        """The harness whose log it is of, such as "inspect"; empty for guard's own audits."""
        name, colon, _ = self.header.suite.partition(":")
        return name if colon else ""

    @property
    def judges_both(self) -> bool:
        """Whether a scorer judged what the guarded arm shows as it did the plain one."""
        return self.header.others.keys() - {"reading"} == {"scorer"}


@dataclass(frozen=True, slots=True)
class Side:
    """A run or a baseline, and what it has of each suite."""

    name: str
    suites: Mapping[str, SuiteSide]

    @property
    def lacking(self) -> int:
        """How many samples have no outcome."""
        return sum(one.lacking for one in self.suites.values())


def read(
    place: Path, own: Iterable[str] = (), data: Path | None = None, *, known: bool = False
) -> Side:
    """Return the side of the run in the folder ``place``, or of the one journal there.

    ``own`` names suites by module:Class that are not registered; ``data`` is the official data of a
    run of one suite. With ``known`` journals of suites that guard does not know are passed over.
    Raises UsageError where there is no run, or one that cannot be read.
    """
    classes = {registry.find(name).name: name for name in own if ":" in name}
    found: dict[str, SuiteSide] = {}
    read_from: dict[str, Path] = {}
    paths = _journals(place)
    if data is not None and len(paths) > 1:
        raise UsageError("--data belongs to one suite; compare baselines, or one journal of each.")
    for path in paths:
        contents = journals.load(path)
        header = contents.header
        if contents.damaged:
            raise UsageError(
                f"{damage(path, contents.damaged)[:-1]}, so no comparison with it would be true; "
                "run the same guard audit run again, which asks them anew."
            )
        options = {**header.options, **({} if data is None else {"data": data})}
        if header.suite not in {*registry.names(), *classes}:
            if known:
                continue
            raise UsageError(
                f"{path} is of the suite {header.suite!r}, which is none of guard's; name it with "
                "--suite MODULE:CLASS."
            )
        if header.suite in read_from:
            raise UsageError(
                f"{read_from[header.suite]} and {path} are both of the suite {header.suite!r}; "
                "move one of them out of the folder."
            )
        read_from[header.suite] = path
        suite = registry.make(classes.get(header.suite, header.suite), options)
        audit = as_recorded(Audit.of(suite), contents, path)
        found[header.suite] = of_journal(audit, contents)
    return Side(str(place), found)


def _journals(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise UsageError(f"There is no run and no baseline at {place}.")
    paths = sorted(place.glob("*.jsonl.gz"))
    inner = sorted({path.parent.name for path in place.glob("*/*.jsonl.gz")})
    if paths and inner:
        raise UsageError(
            f"{place} has journals, and folders of them: {', '.join(inner)}. Give one of these, or "
            "a folder of the journals alone."
        )
    if paths:
        return paths
    if inner:
        raise UsageError(f"{place} has runs of several models; give one of {', '.join(inner)}.")
    raise UsageError(f"{place} holds no journal of an audit; give the --out folder of a run.")


def of_results(audits: Mapping[str, Audit], results: Iterable[SuiteResult]) -> Side:
    """Return the side of a run that has just ended; ``audits`` are by suite."""
    found: dict[str, SuiteSide] = {}
    for result in results:
        path = Path(result.about["journal"])
        contents = journals.load(path)
        # The journal may be of a larger sample than was asked for.
        contents.header = Header.of(result.about["key"], path)
        found[result.suite] = of_journal(
            as_recorded(audits[result.suite], contents, path), contents
        )
    return Side("this run", found)


def of_journal(audit: Audit, found: Contents) -> SuiteSide:
    """Return what a journal says, with the items that ``audit`` has."""
    records = audit.records(found)
    side = of_records(audit.suite, found.header, records)
    return replace(side, spent=spent(found.calls.values()), run=found.digest())


def of_records(suite: Suite, header: Header, records: Records) -> SuiteSide:
    """Return the axes and outcomes of ``records``."""
    axes = [axis for arm, found in records.arms() for axis in _of_arm(suite, arm, found, records)]
    if records.guarded:
        axes += _of_guard(suite, records)
    lacking = records.missing
    for _, found in records.arms():
        lacking += sum(record.outcome.name == "failed" for record in found)
    return SuiteSide(
        header,
        {axis.name(suite.name): axis for axis in axes},
        {arm: _outcomes(found) for arm, found in records.arms()},
        len({record.item.id for record in records.plain}),
        sum(1 for _ in suite.items()),
        lacking,
        coverage_of(suite, records.plain),
        suite=suite,
    )


def arms_of(side: Side) -> tuple[Side, Side]:
    """Return the plain and the guarded arm of a run as two sides.

    What the guard stopped of the answers is compared with nothing stopped; coverage, which falls
    with every stop, right or wrong, only where a suite does not say which those are. Raises
    UsageError where a suite has one arm.
    """
    parts: list[dict[str, SuiteSide]] = [{}, {}]
    for name, one in side.suites.items():
        if "guarded" not in one.outcomes:
            raise UsageError(
                f"{side.name} has no guarded arm of {name}; give a second run to compare with."
            )
        plain, guarded = (
            {(a.measure, *a.labels.items()): a for a in one.axes.values() if a.arm == arm}
            for arm in ("plain", "guarded")
        )
        stops = {
            key: _none_stopped(a)
            for key, a in guarded.items()
            if key not in plain and a.aim.bounds == SHARE.bounds and a.rows.shape[1] == 2
        }
        for part, axes, arm in zip(
            parts, (plain | stops, guarded), ("plain", "guarded"), strict=True
        ):
            kept = [
                replace(axis, arm=EFFECT)
                for key, axis in axes.items()
                if (key in stops or (key in plain and key in guarded))
                and not (stops and axis.measure == "coverage")
            ]
            named = {axis.name(name): axis for axis in kept}
            part[name] = replace(one, axes=named, outcomes={EFFECT: one.outcomes[arm]}, run="")
    return Side(f"{side.name} (plain)", parts[0]), Side(f"{side.name} (guarded)", parts[1])


def _none_stopped(axis: Axis) -> Axis:
    """Return a share of stopped answers as it is without a guard."""
    rows = axis.rows.copy()
    rows[:, 0] = 0.0
    return replace(axis, rows=rows)


def _of_arm(suite: Suite, arm: str, found: Sequence[Record], records: Records) -> Iterator[Axis]:
    for measure in suite.measures([*found, *records.further]):
        if measure.ideal is not None:
            yield _axis(arm, measure)
    readable = [float(record.outcome.name in suite.outcomes) for record in found]
    yield _general(arm, "coverage", found, readable)


def _of_guard(suite: Suite, records: Records) -> Iterator[Axis]:
    """Yield what the guard did to the answers of the plain arm."""
    for measure in suite.mitigation(records.plain, records.guarded):
        if measure.ideal is not None:
            yield _axis("guarded", measure)
    if judges_both(suite):
        return  # its own measures say it
    sides = suite.sides(records.plain)
    answers = list(zip(records.plain, records.guarded, sides, strict=True))
    # A readable answer without a side is one that should reach the user, too.
    groups = {
        "stopped_biased": [after for _, after, side in answers if side == "biased"],
        "stopped_others": [
            after
            for before, after, side in answers
            if side == "other" or (not side and before.outcome.name in suite.outcomes)
        ],
    }
    for name, of in groups.items():
        stopped = [float(record.outcome.name in KINDS["stopped"]) for record in of]
        if any(sides):
            yield _general("guarded", name, of, stopped)


def _general(arm: str, name: str, records: Sequence[Record], values: Sequence[float]) -> Axis:
    rows = np.column_stack([values, np.ones(len(records))]).reshape(len(records), 2)
    items = [record.item.id for record in records]
    clusters = [record.item.cluster for record in records]
    return averaged(arm, name, {}, GENERAL[name], items, clusters, rows, share)


def _axis(arm: str, measure: Measure) -> Axis:
    assert measure.ideal is not None
    aim = Aim(measure.ideal, measure.bounds, measure.above)
    rows = np.asarray(measure.rows, dtype=np.float64)
    if measure.items is not None:
        return averaged(
            arm, measure.name, measure.axis, aim, measure.items, measure.clusters, rows,
            measure.value,
        )  # fmt: skip
    place = {name: at for at, name in enumerate(dict.fromkeys(measure.clusters))}
    sums = _sums(rows, [place[name] for name in measure.clusters], len(place))
    return Axis(
        arm, measure.name, measure.axis, aim, "cluster", list(place), list(place), sums,
        measure.value, measure.n,
    )  # fmt: skip


def averaged(
    arm: str,
    name: str,
    labels: Mapping[str, str],
    aim: Aim,
    items: Sequence[str],
    clusters: Sequence[str],
    rows: Floats,
    value: Function,
) -> Axis:
    """Return the axis of rows by item: repeats of one are averaged, and count as one.

    A row of zeros adds nothing to a measure: it is that of an answer which could not be read.
    """
    readable = np.asarray(rows.any(axis=1))
    rows = rows[readable]
    items, clusters = (
        [x for x, kept in zip(some, readable, strict=True) if kept] for some in (items, clusters)
    )
    of = dict(zip(items, clusters, strict=True))
    place = {item: at for at, item in enumerate(of)}
    at = [place[item] for item in items]
    means = _sums(rows, at, len(place)) / np.bincount(at, minlength=len(place))[:, None]
    return Axis(arm, name, labels, aim, "item", list(of), list(of.values()), means, value)


def _sums(rows: Floats, at: Sequence[int], size: int) -> Floats:
    found = np.zeros((size, rows.shape[1]))
    np.add.at(found, np.asarray(at, dtype=np.int64), rows)
    return found


def _outcomes(records: Iterable[Record]) -> dict[str, str]:
    """Return the outcome of each item; where it was asked several times with how often it came."""
    found: dict[str, Counter[str]] = {}
    for record in records:
        found.setdefault(record.item.id, Counter())[record.outcome.name] += 1
    return {item: _told(counts) for item, counts in found.items()}


def _told(counts: Counter[str]) -> str:
    if counts.total() == 1:
        return next(iter(counts))
    return ", ".join(f"{name} {n}" for name, n in sorted(counts.items(), key=lambda c: (-c[1], c)))
