"""Whom a model withholds answers from: what audits of the docs' sizes find, by simulation.

``python -m tests.suites.withheld`` takes each suite at the sizes of ``--quick`` and ``--sample
300``. It withholds every answer about one identity, for each identity in turn, and asks whether the
audit says so. And it withholds answers at random, from models that decide for each answer, for each
item, alike in a unit, or alike in a template, or that have a rate for every word which stands for a
group (the first or the last word of an item), and counts the audits that say anything. The table
goes to ``benchmarks/withheld.md``. No model is called: outcomes are drawn.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from guard.audit import silence
from guard.audit.audit import Audit
from guard.audit.outcomes import item_samples
from guard.results.conclusions import ALPHA
from guard.results.intervals import false_discovery
from guard.results.jackknife import estimate
from guard.results.samples import positions
from guard.suites import Item
from tests.suites.calibration import has_test, kept_lines, made

WHERE = Path(__file__).parents[2] / "benchmarks" / "withheld.md"
SUITES = ("sai_asa", "mist", "hbb", "hbb_sg", "badf", "open_text")
SIZES = ("--quick", "--sample 300")
RATES = (0.03, 0.2)
KINDS = ("answer", "item", "unit", "template")
WORDS = {"first word": 0, "last word": -1}
"""Further kinds, of items with words: each word has a rate of its own."""
RUNS = 400
Place = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Asked:
    """The samples of an audit: their items, comparisons, and the number of the suite's tests."""

    items: Sequence[Item]
    numbers: Sequence[int]
    comparisons: Sequence[silence.ComparedIdentities]
    about: Sequence[frozenset[Place]]
    other_tests: int

    def q(self, withheld: NDArray[np.bool_], other_tests: int) -> dict[Place, float]:
        """Return the corrected p of each identity; the suite's own tests find nothing."""
        measures = [m for one in self.comparisons for m in one.measures({"refused": withheld})]
        p_values = {tuple(line.measure.axis.items()): line.plain.p for line in estimate(measures)}
        tested = {axis: p for axis, p in p_values.items() if not math.isnan(p)}
        q = false_discovery([*tested.values(), *[1.0] * other_tests])
        return dict(zip(tested, q.tolist(), strict=False))

    def planted(self, place: Place) -> bool:
        """Return whether an audit finds that every answer about an identity is withheld."""
        withheld = np.array([place in about for about in self.about])
        return self.q(withheld, self.other_tests).get(place, 1.0) < ALPHA

    def fair(self, kind: str, rate: float, runs: int) -> float:
        """Return the share of audits that say anything of answers withheld at random."""
        if kind in WORDS:
            return self._fair_by_word(WORDS[kind], rate, runs)
        keys = {
            "answer": [f"{i.id} {n}" for i, n in zip(self.items, self.numbers, strict=True)],
            "item": [i.id for i in self.items],
            "unit": [i.unit or i.id for i in self.items],
            "template": [i.cluster for i in self.items],
        }
        names, place = positions(keys[kind])
        said = 0
        for run in range(runs):
            rng = np.random.default_rng([run, KINDS.index(kind)])
            q = self.q((rng.random(len(names)) < rate)[place], 0)
            said += min(q.values(), default=1.0) < ALPHA
        return said / runs

    def _fair_by_word(self, word: int, rate: float, runs: int) -> float:
        names, place = positions([item.words[word] if item.words else "" for item in self.items])
        said = 0
        for run in range(runs):
            rng = np.random.default_rng([run, len(KINDS), word % 2])
            rates = rng.beta(0.3, 0.3 * (1 - rate) / rate, len(names))
            q = self.q(rng.random(len(place)) < rates[place], 0)
            said += min(q.values(), default=1.0) < ALPHA
        return said / runs


@cache
def asked(name: str, size: str) -> Asked:
    """Return the samples of a suite's audit of a size."""
    suite, quick = made(name), size == "--quick"
    audit = Audit.of(suite, None if quick else int(size.split()[1]), quick=quick)
    items, numbers = zip(*item_samples(audit.items), strict=True)
    about = [
        frozenset((*one.axis.items(), ("identity", one.identity)) for one in item.comparison_groups)
        for item in items
    ]
    tests = sum(has_test(m) for m in suite.measures([]))
    compared = silence.compared_identities(items)
    return Asked(items, numbers, compared, about, tests)


def row(name: str, size: str, runs: int) -> str:
    """Return a row of the table."""
    of = asked(name, size)
    places = sorted(set().union(*of.about))
    missed = [place for place in places if not of.planted(place)]
    # A model that withholds all about one group of open text at random is no fair one.
    kinds = KINDS[:3] if name == "open_text" else KINDS
    kinds += tuple(WORDS) if all(item.words for item in of.items) else ()
    rates = [of.fair(kind, rate, runs) for kind in kinds for rate in RATES]
    listed = "; ".join(" ".join(value for _, value in place) for place in missed[:_LISTED])
    more = f"; {len(missed) - _LISTED} more" if len(missed) > _LISTED else ""
    return (
        f"| {name} | `{size}` | {len(of.items):,} | {len(places) - len(missed)} of {len(places)} | "
        f"{listed or 'none'}{more} | {min(rates):.1%} to {max(rates):.1%} |"
    )


_LISTED = 4
_INTRO = """# Whom a model withholds answers from

Made by `python -m tests.suites.withheld --runs {runs}`. *Found*: of the identities that a suite
compares, those of which an audit says that answers are withheld when the model declines every
answer about one of them and no other. Those that are not found have too few words, names, questions
or prompts in a sample of that size. *Fair*: of {runs} audits of models that decline 3 % or 20 % at
random, by answer, item, unit, template or word of a group, the share that says anything: the least
and the most of these rows.

| suite | size | answers | found | not found | fair |
| --- | --- | --- | --- | --- | --- |
"""


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument(
        "--suite", default=",".join(SUITES), help="the others' rows stay as they are"
    )
    given = parser.parse_args()
    runs, chosen = given.runs, given.suite.split(",")
    kept = {tuple(cells[:2]): cells for cells in kept_lines(WHERE, chosen)}
    rows = []
    for name in SUITES:
        for size in SIZES:
            known = kept.get((name, f"`{size}`"))
            rows.append(row(name, size, runs) if known is None else f"| {' | '.join(known)} |")
            print(rows[-1], flush=True)
    WHERE.write_text(_INTRO.format(runs=runs) + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
