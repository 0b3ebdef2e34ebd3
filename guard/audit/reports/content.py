"""What a report tells: the results of a run's suites, their items, and how they compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from guard.audit import journal
from guard.audit.audit import Audit
from guard.audit.command import damage
from guard.audit.compare import Settings, compare
from guard.audit.header import Header
from guard.audit.journal import Contents
from guard.audit.outcomes import Records
from guard.audit.reports import items
from guard.audit.reports.items import Row
from guard.audit.score import SuiteResult, result_of
from guard.audit.sides import Side, SuiteSide, from_records
from guard.audit.tables import as_recorded
from guard.errors import UsageError
from guard.suites import Suite, registry


@dataclass(frozen=True, slots=True)
class SuiteContent:
    """A suite of a run. ``going_on`` says that its journal has no end yet."""

    suite: Suite
    header: Header
    result: SuiteResult
    records: Records
    rows: Sequence[Row]
    journal: str
    going_on: bool = False

    @property
    def name(self) -> str:
        """What it is called where several suites and models stand beside each other."""
        return (
            f"{self.result.suite} · {self.result.model}" if self.result.model else self.suite.name
        )

    def state(self) -> list[str]:
        """Return what keeps the suite from being whole, in sentences; empty for nothing."""
        sentences = []
        if self.going_on:
            sentences.append(
                f"{self.journal} has no end: the run is still going on, or was killed. "
                f"{len(self.rows):,} samples have an outcome so far."
            )
        if self.result.missing:
            sentences.append(f"Incomplete: {self.result.missing:,} requests have no outcome.")
        if failed := self.result.arms["plain"].outcomes.get("failed", 0):
            sentences.append(f"Incomplete: {failed:,} samples failed.")
        return sentences


@dataclass(frozen=True, slots=True)
class Content:
    """A whole report. ``comparison`` is :meth:`Comparison.to_dict`'s; None without a baseline.

    ``unasked`` names journals that have no answer yet.
    """

    run: str
    suites: Sequence[SuiteContent]
    comparison: Mapping[str, Any] | None = None
    unasked: Sequence[str] = field(default_factory=tuple)

    def state(self) -> list[str]:
        """Return what keeps the run from being whole, in sentences; empty for nothing."""
        sentences = [f"{one.name}: {sentence}" for one in self.suites for sentence in one.state()]
        return sentences + [f"{name} has no answer yet." for name in self.unasked]


def load(
    run: Path,
    data: Path | None = None,
    own_suites: Sequence[str] = (),
    base: Side | None = None,
    settings: Settings | None = None,
) -> Content:
    """Return what the journal at ``run`` says, or those in that folder and in its folders.

    ``data`` is the official data of a run of one suite, ``own`` names suites of one's own as
    ``module:Class``. With ``base`` it is compared by ``settings``. Raises UsageError where there is
    no journal, one is damaged, is of other data than its suite has now, or cannot be compared.
    """
    suites: list[SuiteContent] = []
    unasked: list[str] = []
    names = {registry.find(name).name: name for name in own_suites}
    paths = _journals(run)
    if data is not None and len(paths) > 1:
        raise UsageError("--data belongs to one suite; give the journal of that suite as RUN.")
    for path in paths:
        contents = journal.load(path)
        if contents.damaged:
            raise UsageError(
                f"{damage(path, contents.damaged)[:-1]}, so no report of it would be true; run the "
                "same guard audit run again, which asks them anew."
            )
        if not contents.calls:
            unasked.append(path.name)
            continue
        suites.append(_suite(path, contents, names, data))
    if not suites:
        raise UsageError(f"{run} has no answer yet; there is nothing to report.")
    content = Content(run.name or str(run), suites, None, unasked)
    return content if base is None else compared(content, base, settings)


def compared(content: Content, base: Side, settings: Settings | None = None) -> Content:
    """Return a report beside a baseline; what flipped since comes first among its items."""
    new: dict[str, SuiteSide] = {}
    for one in content.suites:
        if one.result.suite in new:
            raise UsageError(
                f"{content.run} has runs of several models; give the folder of one of them beside "
                "a baseline."
            )
        side = from_records(one.suite, one.header, one.records)
        new[one.result.suite] = replace(side, spent=one.result.about["calls"])
    comparison = compare(base, Side(content.run, new), settings).to_dict()
    flips = flipped(comparison)
    suites = [
        replace(one, rows=_ranked(one.rows, flips.get(one.result.suite, {})))
        for one in content.suites
    ]
    return replace(content, suites=suites, comparison=comparison)


def _ranked(rows: Sequence[Row], flips: Mapping[str, str]) -> list[Row]:
    compared_rows = [
        row._replace(base=flips.get(row.id, flips.get(row.cluster, ""))) for row in rows
    ]
    return sorted(compared_rows, key=lambda row: row.rank)


def _journals(run: Path) -> list[Path]:
    if run.is_file():
        return [run]
    # Of several models each has a folder of its own.
    paths = sorted([*run.glob("*.jsonl.gz"), *run.glob("*/*.jsonl.gz")])
    if not paths:
        raise UsageError(
            f"{run} is no run; give a journal (.jsonl.gz), or the folder that guard audit run "
            "wrote with --out."
        )
    return paths


def _suite(
    path: Path, contents: Contents, names: Mapping[str, str], data: Path | None
) -> SuiteContent:
    header = contents.header
    name = names.get(header.suite, header.suite)
    if name not in registry.SUITES and ":" not in name:
        raise UsageError(
            f"{path} is of the suite {name!r}, which guard has not; give --suite module:Class."
        )
    options = {**header.options, **({} if data is None else {"data": data})}
    audit = as_recorded(Audit.of(registry.make(name, options)), contents, path)
    records = audit.records(contents)
    about = audit.about(contents, path)
    rows = items.rows(audit.suite, records, contents)
    result = result_of(audit.suite, records, model=header.model, about=about)
    return SuiteContent(audit.suite, header, result, records, rows, path.name, contents.torn)


def flipped(comparison: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return by suite, and item or cluster, how the outcomes differ from those of the baseline."""
    flips: dict[str, dict[str, str]] = {}
    for axis in comparison["axes"]:
        suite_flips = flips.setdefault(axis["suite"], {})
        for flip in axis["flips"]:
            suite_flips.setdefault(flip["item"], f"{flip['base']} → {flip['new']} ({axis['arm']})")
    return flips
