"""Recorded answers from a file: a journal, or a plain table of them, scored as a live audit is."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from guard.audit import journal
from guard.audit.audit import Audit
from guard.audit.header import ANSWERS
from guard.audit.journal import Contents
from guard.audit.others import Embedder
from guard.audit.outcomes import Records, outcome_of
from guard.audit.score import SuiteResult, result_of
from guard.errors import UsageError
from guard.suites import Record, Suite, Unify

_HINT = "give the suite's options that the answers were asked with."


def score(audit: Audit, answers: Path, embedder: str = "mpnet") -> SuiteResult:
    """Return the result of the answers in a journal, a CSV or JSON lines; asks no model.

    Of a table only the plain arm is known, and of what follows from it what ``embedder`` unifies.
    Raises UsageError where the file cannot be read, or is
    of other data, prompts or options.
    """
    if not answers.is_file():
        raise UsageError(f"There is no file {answers}; give a journal or a table of answers.")
    if answers.name.endswith(".gz"):
        found = journal.load(answers)
        audit = as_recorded(audit, found, answers)
        return audit.scored(found, answers)
    suite, read = audit.suite, Records()
    # A table may bring items of its own: a suite that does not know one says so itself.
    for item, sample, given in suite.answers_from_table(_rows(answers)):
        read.plain.append(Record(item, sample, outcome_of(suite, item, sample, given)))
    if not read.plain:
        raise UsageError(f"{answers} holds no answer; there is nothing to score.")
    read.further += _unified(suite, read.plain, embedder)
    return result_of(suite, read)


def as_recorded(audit: Audit, found: Contents, path: Path) -> Audit:
    """Return ``audit`` with the items and requests of the journal at ``path``.

    Raises UsageError where that is of other data, prompts or options, or has no answer.
    """
    header = found.header
    audit = audit.recorded(header)
    audit = audit.like(header.options)
    header.check(audit.header(header.model, None), path, ANSWERS, _HINT)
    if header.sampling:
        sampling = header.sampling
        allocate = sampling.get("allocate", "even")
        audit = Audit.of(audit.suite, sampling["size"], allocate, audit.sending, audit.others)
    if not found.calls:
        raise UsageError(f"{path} holds no answer; there is nothing to score.")
    return audit


def _unified(suite: Suite, plain: Sequence[Record], name: str) -> Iterator[Record]:
    """Yield the records of what follows from ``plain`` and only the embedder is asked for."""
    found = [(item, suite.request(item, 0, ())) for item in suite.further(plain)]
    embedder = None
    for item, request in found:
        if isinstance(request, Unify):
            embedder = embedder or Embedder(name)
            answer = embedder.unified(request).answer
            yield Record(item, 0, suite.outcome(item, 0, (answer,)))


def _rows(path: Path) -> Iterator[Mapping[str, str]]:
    try:
        if path.suffix == ".jsonl":
            yield from _lines(path)
            return
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from csv.DictReader(file)
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} is no table in UTF-8 ({error}).") from None


def _lines(path: Path) -> Iterator[Mapping[str, str]]:
    """Yield the rows of a file of JSON lines."""
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line) if line.strip() else {}
            except ValueError:
                row = None
            if not isinstance(row, dict):
                raise UsageError(f"Line {number} of {path} is no JSON object.")
            if row:
                yield row


def write_items(audit: Audit, path: Path, table: Path) -> None:
    """Write the items of the journal at ``path`` as a CSV that :func:`score` can read."""
    rows = list(items_table(audit, path))
    names = list(rows[0]) if rows else ["id", "sample", "turn", "response", "plain", "guarded"]
    try:
        # Half a character, which a model may give, is none that a file could hold.
        with table.open("w", encoding="utf-8", errors="replace", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise UsageError(f"{table} cannot be written: {error.strerror}.") from None


def items_table(audit: Audit, path: Path) -> Iterable[dict[str, object]]:
    """Yield a row for each answer of the journal at ``path``: item, answer, outcome in each arm."""
    from guard.audit import outcomes

    found = journal.load(path)
    calls, readings = found.calls, found.readings
    audit = audit.recorded(found.header).like(found.header.options)
    for item, sample in outcomes.samples(audit.settled(calls).items):
        asked, answers, failed = outcomes.walk(audit.suite, item, sample, calls)
        if failed is None and len(asked) > len(answers):
            continue
        plain = "failed" if failed else outcome_of(audit.suite, item, sample, answers).name
        changed = outcomes.changed(asked[: len(answers)], readings)
        for one, answer in zip(asked, answers, strict=False):
            yield {
                "id": item.id,
                "sample": sample,
                "turn": one.slot.turn,
                "stratum": item.stratum,
                "cluster": item.cluster,
                "response": answer.text,
                "finish_reason": answer.finish_reason,
                "plain": plain,
                "guarded": (changed or plain) if found.header.guard else "",
            }
