"""Scores recorded answers of a run or a plain table, and writes them as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from guard.audit import outcomes
from guard.audit.audit import Audit
from guard.audit.files import SQLITE, refuse_journal, write_whole
from guard.audit.header import ANSWERS
from guard.audit.others import Embedder
from guard.audit.outcomes import Records
from guard.audit.run_file import RecordedSuite, RunFile
from guard.audit.score import SuiteResult, result_of
from guard.audit.shards import Shard
from guard.datasets.rows import convert_rows, read_rows, whole_values
from guard.errors import UsageError
from guard.results.table import csv_text
from guard.suites import AsksOtherModels, GroupTexts, Record, Suite, registry
from guard.suites.optional import part_of
from guard.suites.tables import recorded_answers

_STRATA = 6
"""The most strata that a warning names."""
_HINT = "give the suite's options that the answers were asked with."


def score_table(audit: Audit, answers: Path, embedder: str = "mpnet") -> SuiteResult:
    """Return the result of the answers in a run's file, a CSV or JSON lines; asks no model.

    A table has only the plain arm, and further items only where ``embedder`` answers them. Where it
    has not all items of the suite, the result's ``about`` has a warning. Raises
    UsageError where the file cannot be read, is damaged, or has other data, prompts or
    options.
    """
    if not answers.is_file():
        raise UsageError(f"There is no file {answers}; give a run.db or a table of answers.")
    refuse_journal(answers)
    with answers.open("rb") as file:
        is_database = file.read(len(SQLITE)) == SQLITE
    if is_database:
        recorded = RunFile(answers).suite(audit.suite.name)
        return as_recorded(audit, recorded).score(recorded)
    suite, read = audit.suite, Records()
    rows_of = convert_rows(answers, read_rows(answers), whole_values, None, "Correct the row.")
    # A table may have its own items; the suite itself refuses an unknown one.
    for item, sample, answers_ in recorded_answers(suite, rows_of):
        read.plain.append(Record(item, sample, outcomes.outcome_of(suite, item, sample, answers_)))
    if not read.plain:
        raise UsageError(f"{answers} has no answers to score; give another file.")
    read.further += _unified_records(suite, read.plain, embedder)
    return result_of(suite, read, about=_suite_extent(suite, read.plain))


def _suite_extent(suite: Suite, plain: Sequence[Record]) -> dict[str, Any]:
    """Return how many items the suite has, with a warning where the table has only some of them.

    Empty where the table's items are its own.
    """
    stratum_of = {item.id: item.stratum for item in suite.items()}
    there = {record.item.id for record in plain} & stratum_of.keys()
    if not there:
        return {}
    if len(there) == len(stratum_of):
        return {"suite_items": len(stratum_of)}
    text = f"This table has {len(there):,} of the suite's {len(stratum_of):,} items"
    reached = {stratum_of[name] for name in there}
    absent = [one for one in dict.fromkeys(stratum_of.values()) if one not in reached]
    if absent:
        more = len(absent) - _STRATA
        listed = ", ".join(absent[:_STRATA]) + (f" and {more:,} more strata" if more > 0 else "")
        text += f"; none of {listed}"
    return {"suite_items": len(stratum_of), "warning": f"{text}."}


def recorded_audit(
    recorded: RecordedSuite,
    data: Path | None = None,
    classes: Mapping[str, str] | None = None,
    *,
    shards: bool = False,
) -> Audit:
    """Return the audit of a recorded suite.

    ``classes`` has unregistered suites as ``module:Class``. Raises UsageError where the suite is
    not known, or has other ``data`` than the run, and for a shard unless ``shards`` is set.
    """
    header = recorded.header
    name = (classes or {}).get(header.suite, header.suite)
    if ":" not in name and name not in registry.names():
        raise UsageError(
            f"{recorded.path} is of the suite {name!r}, which guard does not know; name it with "
            "--suite MODULE:CLASS."
        )
    options = header.options if data is None else {**header.options, "data": data}
    return as_recorded(Audit.of(registry.make(name, options)), recorded, shards=shards)


def as_recorded(audit: Audit, recorded: RecordedSuite, *, shards: bool = False) -> Audit:
    """Return ``audit`` with the items and requests of a recorded suite.

    Raises UsageError where it has other data, prompts or options, or no answer, and for a shard
    unless ``shards`` is set.
    """
    header, path = recorded.header, recorded.path
    shard = Shard.of_text(header.shard) if header.shard else None
    if shard is not None and not shards:
        raise UsageError(
            f"{path} is {shard.words} of {header.suite}, not a whole run; put all {shard.total} "
            "together first: guard audit merge SHARD... --out RUN"
        )
    audit = audit.as_sent(header).adapted_like(header.options)
    header.check(audit.header(header.model, None), path, ANSWERS, _HINT)
    sampling = header.sampling
    if sampling or shard is not None:
        audit = Audit.of(
            audit.suite,
            sampling.get("size"),
            sampling.get("allocate", "even"),
            audit.sending,
            audit.others,
            quick="preset" in sampling,
            shard=shard,
        )
    if not recorded.calls and (audit.items or shard is None):
        raise UsageError(f"{path} has no answers to score; run the audit again.")
    return audit


def _unified_records(suite: Suite, plain: Sequence[Record], name: str) -> Iterator[Record]:
    """Yield the records of further items that only need the embedder."""
    embedder = None
    for item in part_of(suite, AsksOtherModels).follow_up_items(plain):
        request = suite.request(item, 0, ())
        if isinstance(request, GroupTexts):
            embedder = embedder or Embedder(name)
            answer = embedder.unified(request).answer
            yield Record(item, 0, suite.outcome(item, 0, (answer,)))


def write_items(audit: Audit, path: Path, table: Path) -> None:
    """Write the answers in the run's file at ``path`` as a CSV that :func:`score` can read."""
    text = items_text(audit, path)
    try:
        write_whole(table, text)
    except OSError as error:
        raise UsageError(f"{table} cannot be written: {error.strerror}.") from None


def items_text(audit: Audit, path: Path) -> str:
    """Return the answers in the run's file at ``path`` as a CSV."""
    return csv_text(_COLUMNS, _answer_rows(audit, path), lineterminator="\r\n", exact=True)


_COLUMNS = (
    *("id", "sample", "turn", "by", "stratum", "cluster"),
    *("response", "finish_reason", "plain", "guarded"),
)


def _answer_rows(audit: Audit, path: Path) -> Iterator[tuple[object, ...]]:
    """Yield a row for each answer, without the scorer's verdicts, which the outcomes include."""
    recorded = RunFile(path).suite(audit.suite.name)
    calls, readings, header = recorded.calls, recorded.readings, recorded.header
    audit = audit.as_sent(header).adapted_like(header.options)
    both = audit.has_guarded_arm(header)
    for item, sample in outcomes.item_samples(audit.allocated(calls).items):
        asked, answers, failed = outcomes.walk_requests(audit.suite, item, sample, calls)
        if failed is None and len(asked) > len(answers):
            continue
        plain = "failed" if failed else outcomes.outcome_of(audit.suite, item, sample, answers).name
        changed = outcomes.guarded_outcome(asked[: len(answers)], readings) if both else ""
        for asked_request, answer in zip(asked, answers, strict=False):
            if asked_request.request.by == "scorer":
                continue
            shown = (changed or plain) if both else ""
            about = (
                item.id,
                sample,
                asked_request.slot.turn,
                asked_request.request.by,
                item.stratum,
                item.cluster,
            )
            yield (*about, answer.text, answer.finish_reason, plain, shown)
