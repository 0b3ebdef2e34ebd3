"""What a report tells: the results of a run's suites, their items, and how they compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from guard.audit import journal
from guard.audit.audit import Audit
from guard.audit.command import damage
from guard.audit.journal import Contents
from guard.audit.outcomes import Records
from guard.audit.reports import items
from guard.audit.reports.items import Row
from guard.audit.score import SuiteResult, result_of
from guard.audit.tables import as_recorded
from guard.errors import UsageError
from guard.suites import Suite, registry


@dataclass(frozen=True, slots=True)
class SuiteContent:
    """A suite of a run. ``going_on`` says that its journal has no end yet."""

    suite: Suite
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
        told = []
        if self.going_on:
            told.append(
                f"{self.journal} has no end: the run is still going on, or was killed. "
                f"{len(self.rows):,} samples have an outcome so far."
            )
        if self.result.missing:
            told.append(f"Incomplete: {self.result.missing:,} requests have no outcome.")
        if failed := self.result.arms["plain"].outcomes.get("failed", 0):
            told.append(f"Incomplete: {failed:,} samples failed.")
        return told


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
        told = [f"{one.name}: {sentence}" for one in self.suites for sentence in one.state()]
        return told + [f"{name} has no answer yet." for name in self.unasked]


def load(
    run: Path,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    own: Sequence[str] = (),
    comparison: Mapping[str, Any] | None = None,
) -> Content:
    """Return what the journal at ``run`` says, or those in that folder and in its folders.

    ``options`` are by suite what a journal does not record, such as where official data lies;
    ``own`` names suites of one's own as ``module:Class``. Raises UsageError where there is no
    journal, one is damaged, or is of other data than its suite has now.
    """
    options, suites, unasked = options or {}, [], []
    names = {registry.find(name).name: name for name in own}
    flips = flipped(comparison)
    paths = _journals(run)
    for path in paths:
        found = journal.load(path)
        if found.damaged:
            raise UsageError(
                f"{damage(path, found.damaged)[:-1]}, so no report of it would be true; run the "
                "same guard audit run again, which asks them anew."
            )
        if not found.calls:
            unasked.append(path.name)
            continue
        suites.append(_suite(path, found, names, options, flips))
    for name in options:
        if name not in {one.result.suite for one in suites}:
            raise UsageError(f"{run} has no answers to the suite {name!r}, which an option names.")
    if not suites:
        raise UsageError(f"{run} has no answer yet; there is nothing to report.")
    return Content(run.name or str(run), suites, comparison, unasked)


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
    path: Path,
    found: Contents,
    names: Mapping[str, str],
    options: Mapping[str, Mapping[str, Any]],
    flips: Mapping[str, Mapping[str, str]],
) -> SuiteContent:
    header = found.header
    name = names.get(header.suite, header.suite)
    if name not in registry.SUITES and ":" not in name:
        raise UsageError(
            f"{path} is of the suite {name!r}, which guard has not; give --suite module:Class."
        )
    audit = Audit.of(registry.make(name, {**header.options, **options.get(header.suite, {})}))
    audit = as_recorded(audit, found, path)
    records = audit.records(found)
    about = audit.about(found, path)
    told = items.rows(audit.suite, records, found, flips.get(header.suite))
    result = result_of(audit.suite, records, model=header.model, about=about)
    going_on = found.torn
    return SuiteContent(audit.suite, result, records, told, path.name, going_on)


def flipped(comparison: Mapping[str, Any] | None) -> dict[str, dict[str, str]]:
    """Return by suite and item how the plain outcomes differ from those of the baseline."""
    found: dict[str, dict[str, str]] = {}
    for axis in (comparison or {}).get("axes", ()):
        of = found.setdefault(axis["suite"], {})
        for flip in axis["flips"]:
            of.setdefault(flip["item"], f"{flip['base']} → {flip['new']} ({axis['arm']})")
    return found
