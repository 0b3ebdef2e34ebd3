"""``guard audit merge``: one run of all shards of an audit, as one process would have written it.

Nothing is asked and nothing is scored. What cannot be one audit is refused by name before anything
is written. The run is written into a folder beside its own, which is renamed once it is whole.

Equal requests share a key, so two shards may both have asked one. As in one process the answer is
kept that the first item got. If the other item got a different one, its later requests may have no
answer, which the run, given again without a shard, asks.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from guard.audit.asked import read_asked, write_asked
from guard.audit.audit import Audit
from guard.audit.calls import Call, Reply, Usage
from guard.audit.files import RUN_FILE, last_written, run_file_of, unwritable_file
from guard.audit.header import SHARED_BY_SHARDS, Header
from guard.audit.outcomes import sentence_key, unanswered_items
from guard.audit.run_file import RecordedSuite, RunFile, RunWriter
from guard.audit.run_rows import Row
from guard.audit.shards import Shard
from guard.audit.tables import recorded_audit
from guard.errors import GuardError, UsageError
from guard.suites import Item, registry
from guard.suites.optional import has_follow_ups

_HINT = "the shards of one audit share it, so leave that folder out, or run it as the others."
_FEW = 5
"""The most shards that a sentence names."""
_Value = TypeVar("_Value")


class UnfinishedShard(GuardError):
    """Requests of a shard have no answer yet, so nothing was written."""


@dataclass(frozen=True, slots=True)
class MergedSuite:
    """A suite of the merged run.

    ``shared`` counts the requests that several shards asked, ``differing`` those of them that got
    different answers, ``unanswered`` the items of which a request has no answer. ``follow_ups``
    says that further requests follow from all answers together.
    """

    suite: str
    model: str
    run_file: Path
    shards: int
    calls: int
    shared: int
    differing: int
    unanswered: int
    follow_ups: bool


class _Part(NamedTuple):
    """A suite of one shard; ``place`` is the folder that the user named."""

    place: Path
    shard: Shard
    recorded: RecordedSuite


class _Division(NamedTuple):
    """All shards of a suite, in the order of their numbers; ``inner`` is the file in each folder.

    ``audit`` is that of the whole run.
    """

    inner: Path
    audit: Audit
    parts: Sequence[_Part]

    @property
    def header(self) -> Header:
        return replace(self.parts[0].recorded.header, shard="")

    def unanswered(self, recorded: RecordedSuite, items: Iterable[Item]) -> Iterator[str]:
        both = self.audit.has_guarded_arm(recorded.header)
        readings = recorded.readings if both else None
        return unanswered_items(self.audit.suite, items, recorded.calls, readings)


def merge_shards(
    places: Sequence[Path],
    out: Path,
    own_suites: Iterable[str] = (),
    data: Path | None = None,
    *,
    incomplete: bool = False,
) -> list[MergedSuite]:
    """Write the run of the shards in the folders ``places`` into the new folder ``out``.

    ``own_suites`` and ``data`` are as in :func:`guard.audit.sides.read_side`. With ``incomplete``
    shards of which requests have no answer are merged, too. Raises UsageError where the shards are
    not all those of one audit, or ``out`` exists or cannot be written, UnfinishedShard where one is
    incomplete.
    """
    if out.exists() or out.is_symlink():
        raise UsageError(f"{out} exists already; give a new folder as --out.")
    classes = {registry.find(name).name: name for name in own_suites if ":" in name}
    files = _files_by_place(places)
    divisions: list[_Division] = []
    for inner in next(iter(files.values())):
        runs = {place: RunFile(paths[inner]) for place, paths in files.items()}
        divisions += _divisions_of(runs, inner, classes, data)
    asked = {
        division.inner.parent: _shared_value(
            {place: read_asked(place / division.inner.parent) for place in files},
            "was to ask other suites",
        )
        for division in divisions
    }
    for division in divisions:
        for part in division.parts:
            _check_answers(division, part, incomplete=incomplete)
    newest = max(last_written(place) for place in places)
    with _new_folder(out) as folder:
        merged = [_write_suite(one, folder / one.inner, out / one.inner) for one in divisions]
        for inner_folder, suites in asked.items():
            write_asked(folder / inner_folder, suites)
            run_file = folder / inner_folder / RUN_FILE
            os.utime(run_file, (newest, newest))  # when it was asked, for a history
    return merged


def _files_by_place(places: Sequence[Path]) -> dict[Path, dict[Path, Path]]:
    """Return the run's files in each folder, by their path in it.

    Raises UsageError where there is none, a folder is given twice, or one has other models.
    """
    files: dict[Path, dict[Path, Path]] = {}
    seen: dict[Path, Path] = {}
    for place in places:
        if place.resolve() in seen:
            raise UsageError(f"{seen[place.resolve()]} and {place} are one folder; give it once.")
        seen[place.resolve()] = place
        if not place.is_dir():
            what = "is a file" if place.exists() else "does not exist"
            raise UsageError(f"{place} {what}; give the --out folder of each shard.")
        # With several models each has its own folder.
        paths = sorted([*place.glob(RUN_FILE), *place.glob(f"*/{RUN_FILE}")])
        files[place] = {path.relative_to(place): path for path in paths or [run_file_of(place)]}
    _shared_value({place: [*paths] for place, paths in files.items()}, "has runs of other models")
    return files


def _shared_value(values: Mapping[Path, _Value], difference: str) -> _Value:
    """Return the value that all folders share; raises UsageError with the first ``difference``."""
    (first, shared), *rest = values.items()
    for place, value in rest:
        if value != shared:
            raise UsageError(f"{place} {difference} than {first}; {_HINT}")
    return shared


def _divisions_of(
    runs: Mapping[Path, RunFile], inner: Path, classes: Mapping[str, str], data: Path | None
) -> Iterator[_Division]:
    """Yield the shards of each suite of one model."""
    names = {place: [*run.headers] for place, run in runs.items()}
    suites = _shared_value(names, "has other suites")
    if not suites:
        raise UsageError(f"{next(iter(runs.values())).path} has no suite; run the shard first.")
    if data is not None and len(suites) > 1:
        raise UsageError("--data belongs to one suite; merge shards of that suite alone.")
    for name in suites:
        parts = _checked_parts({place: run.suite(name) for place, run in runs.items()})
        first = recorded_audit(parts[0].recorded, data, classes, shards=True)
        quick = "preset" in first.sampling
        audit = Audit.of(
            first.suite, first.size, sending=first.sending, others=first.others, quick=quick
        )
        yield _Division(inner, audit, parts)


def _checked_parts(recorded_suites: Mapping[Path, RecordedSuite]) -> list[_Part]:
    """Return the shards in their order; raises UsageError unless they are all of one audit."""
    by_number: dict[int, _Part] = {}
    first: _Part | None = None
    for place, recorded in recorded_suites.items():
        header = recorded.header
        if not header.shard:
            raise UsageError(
                f"{place} is a whole run of {header.suite}, not a shard; leave it out."
            )
        part = _Part(place, Shard.of_text(header.shard), recorded)
        first = first or part
        if part.shard.total != first.shard.total:
            raise UsageError(
                f"{place} is {part.shard.words}, and {first.place} is {first.shard.words}; give "
                "the shards of one division."
            )
        before = by_number.setdefault(part.shard.number, part)
        if before is not part:
            raise UsageError(
                f"{before.place} and {place} are both {part.shard.words} of {header.suite}; give "
                "one of them."
            )
        hint = f"and so is not of the audit of {place}: {_HINT}"
        first.recorded.header.check(header, first.recorded.path, SHARED_BY_SHARDS, hint)
    assert first is not None
    count = first.shard.total
    lacking = [str(number) for number in range(1, count + 1) if number not in by_number]
    if lacking:
        more = f" and {len(lacking) - _FEW:,} more" if len(lacking) > _FEW else ""
        raise UsageError(
            f"{first.recorded.header.suite} lacks {'shards' if len(lacking) > 1 else 'shard'} "
            f"{', '.join(lacking[:_FEW])}{more} of {count}; give the folders of all of them."
        )
    return [by_number[number] for number in sorted(by_number)]


def _check_answers(division: _Division, part: _Part, *, incomplete: bool) -> None:
    """Raise where a shard has answers of another's items, or unless ``incomplete`` lacks some."""
    place, shard, recorded = part
    suite = recorded.header.suite
    for call in recorded.calls.values():
        if not shard.has_item(item := call.slot.item):
            owner = shard._replace(number=shard.number_of(item))
            raise UsageError(
                f"{place} is {shard.words} of {suite} and has an answer to {item}, which is in "
                f"{owner.words}; run the shard again in a new folder."
            )
    if incomplete:
        return
    items = (item for item in division.audit.items if shard.has_item(item.id))
    if lacking := list(division.unanswered(recorded, items)):
        raise UnfinishedShard(
            f"{place} is not finished, so nothing was merged: {len(lacking):,} items of {suite} "
            f"have no answer or reading yet, such as {lacking[0]}. Run its command again, or merge "
            "what there is with --incomplete."
        )


@contextlib.contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes ``out`` at the end, and is removed after an error."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise unwritable_file(out, error) from None
    try:
        folder = beside / out.name  # mkdtemp's own is for its owner alone
        folder.mkdir()
        yield folder
        try:
            folder.rename(out)
        except OSError as error:
            raise unwritable_file(out, error) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _write_suite(division: _Division, path: Path, final: Path) -> MergedSuite:
    header = division.header
    with RunWriter(path) as run:
        merging = _Merging(RecordedSuite(run, header, unfinished=False), division)
        run.write_suite(header, merging.statements())
        recorded = merging.suite
        unanswered = 0
        if merging.differing:
            unanswered = sum(1 for _ in division.unanswered(recorded, division.audit.items))
        return MergedSuite(
            header.suite,
            header.model,
            final,
            len(division.parts),
            len(recorded.calls),
            merging.shared,
            merging.differing,
            unanswered,
            has_follow_ups(division.audit.suite),
        )


@dataclass(slots=True)
class _Merging:
    """Takes the records of shard after shard into ``suite``."""

    suite: RecordedSuite
    division: _Division
    shared: int = 0
    differing: int = 0
    _places: dict[str, int] = field(default_factory=dict)
    _kept: dict[str, int] = field(default_factory=dict)
    """The number of the shard whose answer was kept, by key, where another got a different one."""

    def statements(self) -> Iterator[tuple[str, Row]]:
        """Yield the statements that write the records of all shards."""
        self._places = {item.id: n for n, item in enumerate(self.division.audit.items)}
        for part in self.division.parts:
            for call in part.recorded.calls.values():
                yield from self._call_statements(call, part.shard)
        for part in self.division.parts:
            for reading in part.recorded.readings.values():
                # A reading is of the answer that was kept, not of another.
                key = reading.key.removesuffix(sentence_key(""))
                if self._kept.get(key, part.shard.number) == part.shard.number:
                    yield from self.suite.statements(reading)

    def _call_statements(self, call: Call, shard: Shard) -> Iterator[tuple[str, Row]]:
        before = self.suite.calls.get(call.key) if shard.number > 1 else None
        if before is None:
            yield from self.suite.statements(call)
            return
        self.shared += 1
        first = min(before, call, key=self._rank)
        if _said_in(call.reply) != _said_in(before.reply):
            self.differing += call.reply is not None and before.reply is not None
            self._kept[call.key] = shard.number_of(first.slot.item)
        if first is call:
            yield from self.suite.removal(call.key)
            yield from self.suite.statements(call)

    def _rank(self, call: Call) -> tuple[bool, int, int, int]:
        """Return when one process would have asked; an answer comes before any failure."""
        item, sample, turn = call.slot
        return call.reply is None, self._places.get(item, 0), sample, turn


def _said_in(reply: Reply | None) -> Reply | None:
    """Return an answer without what it cost."""
    return None if reply is None else replace(reply, usage=Usage(cost=0.0))
