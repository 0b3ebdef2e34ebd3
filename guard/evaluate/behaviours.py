"""Behavioural tests of a judge: named behaviours with test cases, and the share of cases passed.

A checklist in the sense of Ribeiro et al. (ACL 2020): not the accuracy on typical texts, but
whether the guard is reliable on negation, quotation, questions, misspellings, and so on. A
behaviour is a file ``<behaviour>.jsonl`` of a folder, with one case per line::

    {"text": "...", "expect": "biased", "context": ["..."], "user": "...", "bias_type": "age"}

``expect`` is ``biased``, ``harmless`` or ``unjudged``; only ``text`` and ``expect`` are required. A
case passes if its verdict is the expected one. Where possible, a behaviour has biased and harmless
cases, so that a constant detector passes about half.
"""

from __future__ import annotations

import copy
import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from guard.core import Guard, highest_verdict
from guard.datasets.rows import FileRow, convert_rows, object_rows
from guard.errors import GuardError, UsageError
from guard.evaluate.adapters import CaseLine
from guard.evaluate.example import Case, Expect
from guard.evaluate.metrics import NAN
from guard.evaluate.result import ErrorText, estimate_values
from guard.evaluate.run import batches
from guard.places import shipped
from guard.results.estimate import Estimate
from guard.results.intervals import clopper_pearson, percentile
from guard.verdict import GuardTrail, Verdict

SHIPPED = "detector/behaviours"
#: The shares that every behaviour, and their mean, should reach; one below ``LEAST`` is weak.
LEAST, MEAN = 0.75, 0.90

Outcome = Literal["passed", "false negative", "false positive", "misread"]
"""``misread``: unjudged although harmless, or judged harmless although it should be unjudged."""


class Cases(NamedTuple):
    """The cases of a folder; ``total`` is their number before sampling.

    ``skipped`` has the reasons why lines were left out, with file and line.
    """

    folder: Path
    cases: list[Case]
    total: int
    skipped: list[str]
    sha256: str


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The outcomes of a behaviour's n cases, of which ``biased`` are expected to be biased."""

    name: str
    n: int
    biased: int
    false_negatives: int
    false_positives: int
    misread: int

    @property
    def passed(self) -> int:
        """The number of cases with the expected verdict."""
        return self.n - self.false_negatives - self.false_positives - self.misread

    @property
    def figure(self) -> Estimate:
        """The share passed with its exact 95 % interval."""
        return Estimate(self.passed / self.n, *clopper_pearson(self.passed, self.n), self.n)

    @property
    def weak(self) -> bool:
        """Whether the share passed is below ``LEAST``."""
        return self.passed / self.n < LEAST


@dataclass(frozen=True, slots=True)
class Behaviours:
    """The results on a folder of behaviours, and the settings of the run.

    ``mean`` is over behaviours, regardless of their numbers of cases; its interval is from a
    bootstrap of the cases within each behaviour.
    """

    source: Cases
    rows: list[Behaviour]
    mean: Estimate
    detector: str
    index_version: str | None
    operating_point: str
    custom_thresholds: bool
    draws: int
    seed: int
    limit: int | None
    seconds: float
    errors: list[ErrorText]

    @property
    def weak(self) -> list[Behaviour]:
        """The behaviours below ``LEAST``, the weakest first."""
        return sorted((r for r in self.rows if r.weak), key=lambda r: (r.passed / r.n, r.name))

    def as_json(self) -> dict[str, Any]:
        """Return plain values; nan becomes null. It has texts only if errors were requested."""
        output: dict[str, Any] = {
            "folder": str(self.source.folder),
            "sha256": self.source.sha256,
            "cases": sum(r.n for r in self.rows),
            "cases_in_folder": self.source.total,
            "limit": self.limit,
            "seed": self.seed,
            "bootstrap": self.draws,
            "skipped_rows": len(self.source.skipped),
            "skipped": self.source.skipped,
            "detector": self.detector,
            "index_version": self.index_version,
            "operating_point": self.operating_point,
            "custom_thresholds": self.custom_thresholds,
            "seconds": round(self.seconds, 3),
            "mean": estimate_values(self.mean),
            "least": {"behaviour": LEAST, "mean": MEAN},
            "weak": [r.name for r in self.weak],
            "behaviours": [
                {
                    "name": r.name,
                    **estimate_values(r.figure),
                    "biased": r.biased,
                    "passed": r.passed,
                    "false_negatives": r.false_negatives,
                    "false_positives": r.false_positives,
                    "misread": r.misread,
                }
                for r in self.rows
            ],
        }
        if self.errors:
            output["errors"] = [e._asdict() for e in self.errors]
        return output


def place(folder: str = "") -> Path:
    """Return the folder of behaviours: ``folder``, else the shipped one.

    Raises UsageError if there is none.
    """
    if folder:
        if not Path(folder).is_dir():
            raise UsageError(f"There is no folder of behaviours at {folder}.")
        return Path(folder)
    try:
        place = shipped("benchmarks") / SHIPPED
        if not place.is_dir():
            raise GuardError(SHIPPED)
        return place
    except GuardError:
        raise UsageError(
            f"Guard's own behaviours (benchmarks/{SHIPPED}) are missing; reinstall guard, or pass "
            "a folder to --behaviours."
        ) from None


def read(folder: Path, *, limit: int | None = None, seed: int = 0, skip_bad: bool = False) -> Cases:
    """Read every ``<behaviour>.jsonl`` of ``folder``, in the order of their names.

    ``limit`` is the size of a random sample of the cases, drawn with ``seed``.

    Raises UsageError for a folder without cases and, unless ``skip_bad``, for the first line that
    cannot be read, with its file and line.
    """
    cases: list[Case] = []
    skipped: list[str] = []
    content = hashlib.sha256()
    for path in sorted(folder.glob("*.jsonl")):

        def case(row: FileRow, path: Path = path) -> Case:
            return CaseLine.of(row.values).case(path.stem, f"{path.name}:{row.line}")

        cases += convert_rows(path, object_rows(path), case, skipped.append if skip_bad else None)
        content.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    if not cases:
        raise UsageError(f"{folder} has no case; it needs files named <behaviour>.jsonl.")
    total = len(cases)
    if limit is not None and limit < total:
        cases = [cases[i] for i in sorted(random.Random(seed).sample(range(total), limit))]
    return Cases(folder, cases, total, skipped, content.hexdigest())


def measure(
    source: Cases,
    guard: Guard,
    *,
    draws: int = 1000,
    seed: int = 0,
    limit: int | None = None,
    show_errors: int = 0,
    progress: Callable[[int], None] = lambda done: None,
) -> Behaviours:
    """Judge every case by ``guard`` and return the results of each behaviour.

    ``draws`` and ``seed`` are for the mean's interval; ``limit`` is only recorded. ``show_errors``
    is the number of errors of each kind and behaviour that are returned with their texts.
    ``progress`` is called with the number of cases done.
    """
    begin = time.perf_counter()
    verdicts: list[Verdict] = []
    for batch in _judged_cases(source.cases, guard):
        verdicts += batch
        progress(len(verdicts))
    outcomes = [outcome(c.expect, v) for c, v in zip(source.cases, verdicts, strict=True)]
    rows = [
        _row(
            name,
            [(c, o) for c, o in zip(source.cases, outcomes, strict=True) if c.behaviour == name],
        )
        for name in dict.fromkeys(c.behaviour for c in source.cases)
    ]
    return Behaviours(
        source=source,
        rows=rows,
        mean=_mean(rows, draws, seed),
        detector=guard.detector.name,
        index_version=verdicts[0].index_version,
        operating_point=guard.policy.operating_point,
        custom_thresholds=guard.policy.threshold is not None or bool(guard.policy.thresholds),
        draws=draws,
        seed=seed,
        limit=limit,
        seconds=time.perf_counter() - begin,
        errors=_error_lines(source.cases, verdicts, outcomes, show_errors),
    )


def outcome(expect: Expect, verdict: Verdict) -> Outcome:
    """Compare a verdict with the expected one; a failed detector never passes."""
    if verdict.biased:
        return "passed" if expect == "biased" else "false positive"
    if expect == "biased":
        return "false negative"
    reading = {None: "harmless", "language": "unjudged"}.get(verdict.unjudged)
    return "passed" if reading == expect else "misread"


def judge(case: Case, guard: Guard) -> Verdict:
    """Return the verdict on the case's text as part of an answer.

    The context precedes it as sentences of the same answer and is segmented with it. Only segments
    that reach into the text count; the verdict is :func:`guard.core.highest_verdict` of these. The
    user's message is context as with ``user_context``.
    """
    before = "".join(f"{sentence} " for sentence in case.context)
    trail = guard.trail(before + case.text, user=case.user)
    return highest_verdict(GuardTrail([d for d in trail if d.span.end > len(before)]), guard.policy)


def _judged_cases(cases: Sequence[Case], guard: Guard) -> Iterator[list[Verdict]]:
    shown = copy.copy(guard)
    shown.policy = guard.policy.model_copy(update={"user_context": True})
    shown.sinks, shown.recorder = (), None
    threads = getattr(guard.detector, "concurrency", None)
    return batches(cases, partial(judge, guard=shown), threads)


def _row(name: str, cases: Sequence[tuple[Case, Outcome]]) -> Behaviour:
    outcomes = [o for _, o in cases]
    return Behaviour(
        name=name,
        n=len(cases),
        biased=sum(c.expect == "biased" for c, _ in cases),
        false_negatives=outcomes.count("false negative"),
        false_positives=outcomes.count("false positive"),
        misread=outcomes.count("misread"),
    )


def _mean(rows: Sequence[Behaviour], draws: int, seed: int) -> Estimate:
    n = np.array([r.n for r in rows])
    share = np.array([r.passed for r in rows]) / n
    # The number of passed cases in a bootstrap sample of n is binomial.
    redrawn = np.random.default_rng(seed).binomial(n, share, (draws, len(rows))) / n
    low, high = percentile(redrawn.mean(axis=1)) if draws else (NAN, NAN)
    return Estimate(float(share.mean()), low, high, len(rows))


def _error_lines(
    cases: Sequence[Case], verdicts: Sequence[Verdict], outcomes: Sequence[Outcome], most: int
) -> list[ErrorText]:
    texts: list[ErrorText] = []
    counts: Counter[tuple[str, Outcome]] = Counter()
    for case, verdict, kind in zip(cases, verdicts, outcomes, strict=True):
        if kind == "passed" or counts[case.behaviour, kind] >= most:
            continue
        counts[case.behaviour, kind] += 1
        texts.append(ErrorText(kind, case.id, verdict.score or 0.0, verdict.bias_type, case.text))
    return texts
