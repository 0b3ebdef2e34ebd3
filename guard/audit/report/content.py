"""The content of a report: the results of a run's suites, their items, and a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from guard.audit.asked import AskedSuite, read_asked, with_model
from guard.audit.compare import ComparisonSettings, compare
from guard.audit.comparison import Comparison
from guard.audit.files import RUN_FILE, run_file_of
from guard.audit.header import Header
from guard.audit.outcomes import Records
from guard.audit.report import tables
from guard.audit.report.items import ItemRows
from guard.audit.run_file import RecordedSuite, RunFile
from guard.audit.score import SuiteResult, result_of
from guard.audit.sides import Side, SuiteSide, from_records
from guard.audit.tables import recorded_audit
from guard.errors import UsageError
from guard.results.figures import SuiteFigures
from guard.suites import Suite, registry

if TYPE_CHECKING:
    from guard.audit.gating import ConditionResults


@dataclass(frozen=True, slots=True)
class SuiteContent:
    """A suite of a run. ``unfinished`` says that its end is missing."""

    suite: Suite
    header: Header
    result: SuiteResult
    records: Records
    rows: ItemRows
    journal: str
    unfinished: bool = False

    @property
    def name(self) -> str:
        """The name beside other suites and models."""
        return with_model(self.result.suite, self.result.model)

    @property
    def flipped(self) -> int:
        """The number of items whose outcome the guard changed, or that differ from the baseline."""
        return self.rows.flipped

    def figures(self) -> SuiteFigures:
        """Return what the suite draws its charts from."""
        result = self.result
        return SuiteFigures(
            result.lines, dict(self.records.arms()), result.stops, result.headline, result.legend
        )

    def state(self) -> list[str]:
        """Return why the suite is incomplete, in sentences; empty if it is complete."""
        sentences = []
        if self.unfinished:
            sentences.append(
                f"The end of {self.journal} is missing: the run has not finished, or was killed. "
                f"{len(self.rows):,} samples have an outcome so far."
            )
        return sentences + tables.incomplete_reasons(self.result)


@dataclass(frozen=True, slots=True)
class Content:
    """A whole report. ``comparison`` is None without a baseline.

    ``unasked`` are the suites without any answer; ``skipped`` are the suites that the run left
    out, because they need what its model does not have.
    """

    run: str
    suites: Sequence[SuiteContent]
    comparison: Comparison | None = None
    unasked: Sequence[AskedSuite] = ()
    conditions: ConditionResults | None = None
    """Those of --fail-on; None without it, and where the run is incomplete."""
    skipped: Sequence[AskedSuite] = ()

    def state(self) -> list[str]:
        """Return why the run is incomplete, in sentences; empty if it is complete."""
        sentences = [f"{one.name}: {sentence}" for one in self.suites for sentence in one.state()]
        return sentences + [unasked.no_answer_sentence for unasked in self.unasked]


def load_content(
    run: Path,
    data: Path | None = None,
    own_suites: Sequence[str] = (),
    base: Side | None = None,
    settings: ComparisonSettings | None = None,
    others: Sequence[Path] = (),
) -> Content:
    """Return the content of the run at ``run``: a file, or those in that folder and its folders.

    ``others`` are runs of other models or suites, reported side by side. ``data`` is the official
    data of a run of one suite, ``own_suites`` names unregistered suites as ``module:Class``. With
    ``base`` it is compared by ``settings``. Raises UsageError where there is no run, or one is
    damaged, has other data than its suite has now, or cannot be compared.
    """
    suites: list[SuiteContent] = []
    unasked: list[AskedSuite] = []
    asked: dict[tuple[str, str], Path] = {}
    classes = {registry.find(name).name: name for name in own_suites}
    paths = [path for place in dict.fromkeys((run, *others)) for path in _run_files(place)]
    runs = map(RunFile, paths)
    recorded_suites = [run_file.suite(name) for run_file in runs for name in run_file.headers]
    if data is not None and len(recorded_suites) > 1:
        raise UsageError("--data belongs to one suite; give a run of that suite alone.")
    for recorded in recorded_suites:
        if recorded.calls:
            _refuse_twice(recorded, asked)
            suites.append(_suite_content_of(recorded, classes, data))
        else:
            unasked.append(AskedSuite(recorded.header.suite, recorded.header.model))
    unreached, skipped = _not_recorded((run, *others), recorded_suites)
    if not suites:
        raise UsageError(f"{run} has no answer to report yet; run the audit first.")
    name = ", ".join(place.name or str(place) for place in (run, *others))
    content = Content(name, suites, None, [*unasked, *unreached], skipped=skipped)
    return content if base is None else compared_content(content, base, settings)


def _refuse_twice(recorded: RecordedSuite, asked: dict[tuple[str, str], Path]) -> None:
    """Note a suite in ``asked``; raise UsageError where it and its model are there already."""
    header, path = recorded.header, recorded.path
    before = asked.setdefault((header.suite, header.model), path)
    if before != path:
        raise UsageError(
            f"{before} and {path} both have {header.suite} of {header.model}; give one of them, "
            "or compare them with guard audit compare."
        )


def compared_content(
    content: Content, base: Side, settings: ComparisonSettings | None = None
) -> Content:
    """Return the report compared with a baseline; flipped items come first."""
    new: dict[str, SuiteSide] = {}
    for suite_content in content.suites:
        if suite_content.result.suite in new:
            raise UsageError(
                f"{content.run} has runs of several models; give the folder of one of them with "
                "--baseline."
            )
        side = from_records(suite_content.suite, suite_content.header, suite_content.records)
        new[suite_content.result.suite] = replace(side, usage=suite_content.result.about["calls"])
    comparison = compare(base, Side(content.run, new), settings)
    flips: dict[str, dict[str, str]] = {}
    for axis in comparison.axes:
        of_suite = flips.setdefault(axis.suite, {})
        for flip in axis.flips:
            of_suite.setdefault(flip.item, f"{flip.base} → {flip.new} ({axis.arm})")
    suites = [
        replace(one, rows=one.rows.with_flips(flips.get(one.result.suite, {})))
        for one in content.suites
    ]
    return replace(content, suites=suites, comparison=comparison)


def _run_files(run: Path) -> list[Path]:
    # With several models each has its own folder.
    paths = sorted([*run.glob(RUN_FILE), *run.glob(f"*/{RUN_FILE}")])
    return paths or [run_file_of(run)]


def _not_recorded(
    places: Sequence[Path], recorded: Sequence[RecordedSuite]
) -> tuple[list[AskedSuite], list[AskedSuite]]:
    """Return the suites without a record: those that were not reached, and those skipped."""
    begun = {(suite.path.parent, suite.header.suite) for suite in recorded}
    unreached: list[AskedSuite] = []
    skipped: list[AskedSuite] = []
    # With several models each has its own folder, which may have no file yet.
    folders = [inner for place in places for inner in (place, *sorted(place.glob("*/")))]
    for folder in dict.fromkeys(folders):
        for asked in read_asked(folder):
            if (folder, asked.suite) in begun:
                continue
            if asked.skipped:
                skipped.append(asked)
            else:
                unreached.append(asked)
    return unreached, skipped


def _suite_content_of(
    recorded: RecordedSuite, classes: Mapping[str, str], data: Path | None
) -> SuiteContent:
    header = recorded.header
    audit = recorded_audit(recorded, data, classes)
    records = audit.records(recorded)
    about = audit.about(recorded)
    rows = ItemRows(audit.suite, records, recorded)
    result = result_of(audit.suite, records, model=header.model, about=about)
    name, unfinished = recorded.path.name, recorded.unfinished
    return SuiteContent(audit.suite, header, result, records, rows, name, unfinished)
