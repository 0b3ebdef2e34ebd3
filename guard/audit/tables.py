"""Recorded answers from a file: a journal, or a plain table of them, scored as a live audit is."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from guard.audit import journal, outcomes
from guard.audit.audit import Audit
from guard.audit.files import write_whole
from guard.audit.header import ANSWERS
from guard.audit.journal import Contents
from guard.audit.others import Embedder
from guard.audit.outcomes import Records
from guard.audit.score import SuiteResult, result_of
from guard.datasets.rows import made, rows, whole
from guard.errors import UsageError
from guard.suites import GroupTexts, Record, Suite

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
    rows_of = made(answers, rows(answers), whole, None, "Mend the row.")
    # A table may bring items of its own: a suite that does not know one says so itself.
    for item, sample, given in suite.answers_from_table(rows_of):
        read.plain.append(Record(item, sample, outcomes.outcome_of(suite, item, sample, given)))
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
        audit = Audit.of(
            audit.suite, sampling["size"], allocate, audit.sending, audit.others,
            quick="preset" in sampling,
        )  # fmt: skip
    if not found.calls:
        raise UsageError(f"{path} holds no answer; there is nothing to score.")
    return audit


def _unified(suite: Suite, plain: Sequence[Record], name: str) -> Iterator[Record]:
    """Yield the records of what follows from ``plain`` and only the embedder is asked for."""
    found = [(item, suite.request(item, 0, ())) for item in suite.further(plain)]
    embedder = None
    for item, request in found:
        if isinstance(request, GroupTexts):
            embedder = embedder or Embedder(name)
            answer = embedder.unified(request).answer
            yield Record(item, 0, suite.outcome(item, 0, (answer,)))


def write_items(audit: Audit, path: Path, table: Path) -> None:
    """Write the answers in the journal at ``path`` as a CSV that :func:`score` can read."""
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, _COLUMNS)
    writer.writeheader()
    writer.writerows(_answers(audit, path))
    try:
        write_whole(table, out.getvalue())
    except OSError as error:
        raise UsageError(f"{table} cannot be written: {error.strerror}.") from None


_COLUMNS = (
    *("id", "sample", "turn", "by", "stratum", "cluster"),
    *("response", "finish_reason", "plain", "guarded"),
)


def _answers(audit: Audit, path: Path) -> Iterator[dict[str, object]]:
    """Yield a row for each answer of a model: item, who answered, answer, outcome in each arm.

    A scorer's verdict is no answer: the outcomes say what it found.
    """
    found = journal.load(path)
    calls, readings = found.calls, found.readings
    audit = audit.recorded(found.header).like(found.header.options)
    for item, sample in outcomes.samples(audit.settled(calls).items):
        asked, answers, failed = outcomes.walk(audit.suite, item, sample, calls)
        if failed is None and len(asked) > len(answers):
            continue
        plain = "failed" if failed else outcomes.outcome_of(audit.suite, item, sample, answers).name
        changed = outcomes.changed(asked[: len(answers)], readings)
        for one, answer in zip(asked, answers, strict=False):
            if one.request.by == "scorer":
                continue
            yield {
                "id": item.id,
                "sample": sample,
                "turn": one.slot.turn,
                "by": one.request.by,
                "stratum": item.stratum,
                "cluster": item.cluster,
                "response": answer.text,
                "finish_reason": answer.finish_reason,
                "plain": plain,
                "guarded": (changed or plain) if found.header.guard else "",
            }
