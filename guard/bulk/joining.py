"""Writes a job's outputs: each input's rows, unchanged, with their verdicts."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from guard.bulk.arrow_rows import write_parquet
from guard.bulk.line_formats import is_blank, line_format, raw_rows
from guard.bulk.planning import BlockPlan
from guard.bulk.sources import InputFile, open_input
from guard.bulk.verdict_store import VerdictStore


class RowCounts:
    """How many rows were biased, not biased, and not judged for which reason."""

    def __init__(self) -> None:
        self.biased = self.not_biased = 0
        self.unjudged: Counter[str] = Counter()

    def count(self, biased: bool | None, reason: str | None) -> None:
        """Count a row."""
        if reason is not None:
            self.unjudged[reason] += 1
        elif biased:
            self.biased += 1
        else:
            self.not_biased += 1

    def as_json(self) -> dict[str, Any]:
        """Return the counts as plain values."""
        return {
            "biased": self.biased,
            "not_biased": self.not_biased,
            "unjudged": dict(self.unjudged),
        }


def write_outputs(
    plan: BlockPlan, store: VerdictStore, column: str, prefix: str, targets: list[Path]
) -> RowCounts:
    """Write each input's rows with their verdicts to its target; return the counts of all."""
    counts = RowCounts()
    verdicts = _counted(store, prefix, counts)
    for file, facts, target in zip(plan.inputs, plan.facts, targets, strict=True):
        own = islice(verdicts, facts.rows)
        if file.format == "parquet":
            write_parquet(file, column, prefix, (fields for _, fields in own), target)
        else:
            _write_lines(file, column, prefix, own, target)
        with open(target, "rb") as written:
            os.fsync(written.fileno())
    return counts


def _counted(
    store: VerdictStore, prefix: str, counts: RowCounts
) -> Iterator[tuple[bytes, dict[str, Any]]]:
    for line, fields in store.fields():
        counts.count(fields[f"{prefix}biased"], fields[f"{prefix}unjudged"])
        yield line, fields


def _write_lines(
    file: InputFile,
    column: str,
    prefix: str,
    verdicts: Iterator[tuple[bytes, dict[str, Any]]],
    target: Path,
) -> None:
    form = line_format(file, column, prefix)
    with open_input(file.path) as source, open(target, "wb") as out:
        form.read_header(source)
        out.write(form.header())
        for raw in raw_rows(source, form, file.name):
            if is_blank(raw, form):
                out.write(raw)
            else:
                out.writelines(form.joined(raw, *next(verdicts)))
