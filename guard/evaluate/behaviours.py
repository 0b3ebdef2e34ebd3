"""Named behaviours of a judge, each with cases of its own, and the share of them it passes.

A checklist in the sense of Ribeiro et al. (ACL 2020): not how often the guard is right on texts as
they come, but whether it can be relied on where a text negates, quotes, asks, is misspelt, and so
on. A behaviour is a file ``<behaviour>.jsonl`` of a folder, one case a line::

    {"text": "...", "expect": "biased", "context": ["..."], "user": "...", "bias_type": "age"}

``expect`` is ``biased``, ``harmless`` or ``unjudged``; all but ``text`` and ``expect`` may be left
out. A case passes if its verdict is the one expected. Cases of one behaviour go both ways where it
allows that, so that a detector which always says the same passes about half.
"""

from __future__ import annotations

import copy
import hashlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from guard.core import Guard, highest
from guard.datasets.rows import Row, made, objects
from guard.errors import GuardError, UsageError
from guard.evaluate.adapters import CaseLine
from guard.evaluate.bootstrap import Figure
from guard.evaluate.example import Case, Expect
from guard.evaluate.metrics import NAN
from guard.evaluate.result import ErrorText
from guard.evaluate.run import batches
from guard.intervals import exact, percentile
from guard.places import shipped
from guard.verdict import GuardTrail, Verdict

SHIPPED = "detector/behaviours"
#: What every behaviour, and their mean, should reach; what stays below the first is a weak one.
LEAST, MEAN = 0.75, 0.90

Outcome = Literal["passed", "miss", "false alarm", "misread"]
"""``miss``: biased and not found. ``false alarm``: found and not biased. ``misread``: left unjudged
though harmless, or judged though it should not be; neither is an alarm."""


class Cases(NamedTuple):
    """The cases of a folder as read; ``total`` counts them before a random draw of some.

    ``skipped`` holds the reasons of the lines left out with their file and line.
    """

    folder: Path
    cases: list[Case]
    total: int
    skipped: list[str]
    sha256: str


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How many of a behaviour's n cases came out how; ``biased`` of them should be found."""

    name: str
    n: int
    biased: int
    misses: int
    alarms: int
    misread: int

    @property
    def passed(self) -> int:
        """The number of cases with the verdict expected."""
        return self.n - self.misses - self.alarms - self.misread

    @property
    def figure(self) -> Figure:
        """The share passed with its exact 95 % interval."""
        return Figure(self.passed / self.n, *exact(self.passed, self.n), self.n)

    @property
    def weak(self) -> bool:
        """Whether less is passed than every behaviour should."""
        return self.passed / self.n < LEAST


@dataclass(frozen=True, slots=True)
class Behaviours:
    """Everything measured on a folder of behaviours, and what it was measured with.

    ``mean`` is over behaviours, whatever their number of cases; its interval is that of redrawing
    the cases within each behaviour.
    """

    source: Cases
    rows: list[Behaviour]
    mean: Figure
    detector: str
    index_version: str | None
    operating_point: str
    own_thresholds: bool
    draws: int
    seed: int
    limit: int | None
    seconds: float
    errors: list[ErrorText]

    @property
    def weak(self) -> list[Behaviour]:
        """The behaviours below what each should pass, the weakest first."""
        return sorted((r for r in self.rows if r.weak), key=lambda r: (r.passed / r.n, r.name))

    def as_json(self) -> dict[str, Any]:
        """Return plain values; nan is null. Texts are in it only where errors were asked for."""
        found: dict[str, Any] = {
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
            "own_thresholds": self.own_thresholds,
            "seconds": round(self.seconds, 3),
            "mean": _plain(self.mean),
            "least": {"behaviour": LEAST, "mean": MEAN},
            "weak": [r.name for r in self.weak],
            "behaviours": [
                {
                    "name": r.name,
                    **_plain(r.figure),
                    "biased": r.biased,
                    "passed": r.passed,
                    "misses": r.misses,
                    "false_alarms": r.alarms,
                    "misread": r.misread,
                }
                for r in self.rows
            ],
        }
        if self.errors:
            found["errors"] = [e._asdict() for e in self.errors]
        return found


def place(folder: str = "") -> Path:
    """Return the folder of behaviours: the one named, else the shipped one.

    Raises UsageError where there is none.
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
            f"Guard's own behaviours (benchmarks/{SHIPPED}) are missing; reinstall guard, or give "
            "--behaviours a folder of yours."
        ) from None


def read(folder: Path, *, limit: int | None = None, seed: int = 0, skip_bad: bool = False) -> Cases:
    """Read every ``<behaviour>.jsonl`` of ``folder``, in the order of their names.

    With ``limit`` a random part of so many cases is kept, drawn by ``seed``.

    Raises UsageError for a folder without cases and, unless ``skip_bad``, for the first line that
    cannot be read, with its file and line.
    """
    cases: list[Case] = []
    skipped: list[str] = []
    content = hashlib.sha256()
    for path in sorted(folder.glob("*.jsonl")):

        def case(row: Row, path: Path = path) -> Case:
            return CaseLine.of(row.values).case(path.stem, f"{path.name}:{row.line}")

        cases += made(path, objects(path), case, skipped.append if skip_bad else None)
        content.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    if not cases:
        raise UsageError(f"{folder} holds no case; it needs files named <behaviour>.jsonl.")
    total = len(cases)
    if limit is not None and limit < total:
        kept = sorted(random.Random(seed).sample(range(total), limit))
        cases = [cases[i] for i in kept]
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
    """Judge every case by ``guard`` and return what each behaviour passes.

    ``draws`` and ``seed`` are those of the mean's interval; ``limit`` is only recorded.
    ``show_errors`` keeps that many misses and false alarms of each behaviour, with their texts, and
    as many misread. ``progress`` is called with the number of cases done.
    """
    begin = time.perf_counter()
    verdicts: list[Verdict] = []
    for batch in _judged(source.cases, guard):
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
        own_thresholds=guard.policy.threshold is not None or bool(guard.policy.thresholds),
        draws=draws,
        seed=seed,
        limit=limit,
        seconds=time.perf_counter() - begin,
        errors=_errors(source.cases, verdicts, outcomes, show_errors),
    )


def outcome(expect: Expect, verdict: Verdict) -> Outcome:
    """Return how a verdict meets what was expected; a failed detector never does."""
    if verdict.biased:
        return "passed" if expect == "biased" else "false alarm"
    if expect == "biased":
        return "miss"
    found = {None: "harmless", "language": "unjudged"}.get(verdict.unjudged)
    return "passed" if found == expect else "misread"


def judge(case: Case, guard: Guard) -> Verdict:
    """Return the verdict on the case's text as it stands in an answer.

    The context goes before it as sentences of the same answer and is cut into segments with it;
    only segments that reach into the text count, and of these the finding of
    :func:`guard.core.highest`. The message is shown as ``user_context`` shows it.
    """
    before = "".join(f"{sentence} " for sentence in case.context)
    trail = guard.trail(before + case.text, user=case.user)
    return highest(GuardTrail([d for d in trail if d.span.end > len(before)]), guard.policy)


def _judged(cases: Sequence[Case], guard: Guard) -> Iterator[list[Verdict]]:
    shown = copy.copy(guard)
    shown.policy = guard.policy.model_copy(update={"user_context": True})
    shown.sinks, shown.recorder = (), None
    return batches(cases, partial(judge, guard=shown))


def _row(name: str, cases: Sequence[tuple[Case, Outcome]]) -> Behaviour:
    found = [o for _, o in cases]
    return Behaviour(
        name=name,
        n=len(cases),
        biased=sum(c.expect == "biased" for c, _ in cases),
        misses=found.count("miss"),
        alarms=found.count("false alarm"),
        misread=found.count("misread"),
    )


def _mean(rows: Sequence[Behaviour], draws: int, seed: int) -> Figure:
    n = np.array([r.n for r in rows])
    share = np.array([r.passed for r in rows]) / n
    # The passed cases of n redrawn with replacement are binomial.
    redrawn = np.random.default_rng(seed).binomial(n, share, (draws, len(rows))) / n
    low, high = percentile(redrawn.mean(axis=1)) if draws else (NAN, NAN)
    return Figure(float(share.mean()), low, high, len(rows))


def _errors(
    cases: Sequence[Case], verdicts: Sequence[Verdict], outcomes: Sequence[Outcome], most: int
) -> list[ErrorText]:
    found: list[ErrorText] = []
    kept: dict[tuple[str, Outcome], int] = {}
    for case, verdict, kind in zip(cases, verdicts, outcomes, strict=True):
        seen = kept.get((case.behaviour, kind), 0)
        if kind == "passed" or seen >= most:
            continue
        kept[case.behaviour, kind] = seen + 1
        found.append(ErrorText(kind, case.id, verdict.score or 0.0, verdict.bias_type, case.text))
    return found


def _plain(figure: Figure) -> dict[str, float | int | None]:
    return {k: None if v != v else v for k, v in figure._asdict().items()}
