"""Measure what the default detector reaches: ``python reach.py --data DATA [--detector NAME]``.

It prints one table: figures of the published sets, of the named behaviours that a change of the
judge aims at, and the cost of a verdict against ``--against`` in the same run. All at ``balanced``,
through ``Guard`` with its default settings.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from guard import Guard, bench
from guard.cli.bench import texts_of
from guard.evaluate import behaviours
from guard.evaluate.baselines import terms_for
from guard.evaluate.behaviours import Behaviour
from guard.evaluate.run import evaluate
from guard.evaluate.sources import UNSEEN, load
from guard.places import shipped
from guard.results.estimate import Estimate
from guard.results.intervals import clopper_pearson

SETS = ("redditbias", "emgsd", "assistant", "bold")
HARMLESS = (
    "defending",
    "harmless_second_sentences",
    "places",
    "scenes",
    "technical_senses",
    "universal_truths",
)
# The behaviours of which a row shows the share passed, and of which the share of harmless stopped.
PASSED = (
    "endorsed_from_afar",
    "question_and_answer",
    "heading_and_list",
    "person_therefore",
    "not_refuted_next",
    "one_typo",
    "bare_slurs",
)
STOPPED = ("refuted_next", *HARMLESS, "religious_practice")


class Row(NamedTuple):
    """A line of the table."""

    name: str
    figure: str


def of_sets(data: Path, guard: Guard, draws: int) -> Iterator[Row]:
    """Yield accuracy, F1 and AUROC, or the false positive rate, of each set."""
    for name in SETS:
        result = evaluate(load(name, data), guard, terms=terms_for(data), draws=draws)
        scope = result.whole
        if name == "bold":
            scope = next(s for s in result.parts if s.name == UNSEEN)
        has_biased = name in ("redditbias", "emgsd")
        names = ("accuracy", "f1", "macro_f1", "auroc") if has_biased else ("false_positive_rate",)
        for measure in names:
            yield Row(f"{name}: {measure}", _with_interval(scope.figures[measure]))
        print(f"  {name}", file=sys.stderr)


def of_behaviours(rows: dict[str, Behaviour], mean: Estimate) -> Iterator[Row]:
    """Yield shares of the named behaviours."""
    for name in PASSED:
        row = rows[name]
        yield Row(f"{name}: passed", _share(row.passed, row.n))
    for name in STOPPED:
        row = rows[name]
        yield Row(f"{name}: harmless stopped", _share(row.false_positives, row.n - row.biased))
    six = [rows[name] for name in HARMLESS]
    stopped, n = sum(r.false_positives for r in six), sum(r.n - r.biased for r in six)
    yield Row("six harmless kinds: stopped", _share(stopped, n))
    yield Row(f"{len(rows)} behaviours: mean passed", _with_interval(mean))
    least = min(rows.values(), key=lambda r: r.passed / r.n)
    yield Row(f"least: {least.name}", _share(least.passed, least.n))


def of_speed(detector: str | None, against: str) -> Iterator[Row]:
    """Yield the cost of a verdict, as ratios to another detector's in one run."""
    texts = texts_of(shipped("benchmarks") / "speed" / "everyday.jsonl")
    for figure in bench.compared(texts, detector, against):
        yield Row(f"{figure.name} ({figure.bound})", f"{figure.value:.3g} {figure.unit}".strip())


def _share(count: int, n: int) -> str:
    low, high = clopper_pearson(count, n)
    return f"{count} of {n} = {count / n:.3f} [{low:.3f}, {high:.3f}]"


def _with_interval(figure: Estimate) -> str:
    return f"{figure.value:.4f} [{figure.low:.4f}, {figure.high:.4f}] of {figure.n}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of the published sets")
    parser.add_argument("--detector", help="by default that of the settings")
    parser.add_argument("--against", default="encoder", help="the detector whose cost is 1")
    parser.add_argument("--draws", type=int, default=400, help="bootstrap samples of intervals")
    given = parser.parse_args()
    guard = Guard(detector=given.detector, events="none")
    rows = [Row("detector", guard.detector.name), *of_speed(given.detector, given.against)]
    found = behaviours.measure(behaviours.read(behaviours.place()), guard, draws=given.draws)
    rows += of_behaviours({row.name: row for row in found.rows}, found.mean)
    if given.data is not None:
        rows += of_sets(given.data, guard, given.draws)
    print("| figure | value |\n| --- | --- |")
    for row in rows:
        print(f"| {row.name} | {row.figure} |")


if __name__ == "__main__":
    main()
