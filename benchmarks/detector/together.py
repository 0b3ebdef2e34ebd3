"""Measure two detectors together: ``python together.py --data DATA --work RUN``.

It prints two tables of the published sets, at ``balanced`` and through ``Guard`` as in production:

- the cascade of the two (``--first`` and ``--later``), for several shares escalated: the bands are
  chosen on validation texts, as by ``guard train band``, and the share is that of the set's own
  segments;
- the mean of their logits, with operating points chosen on the same validation texts.

Scores are kept in the work folder, so that an interrupted run resumes, and each window is judged
once by each detector. ``--limit`` judges a random sample of each set.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from guard import Guard
from guard.detect.band import BandCascade
from guard.detect.deferral import logit_of
from guard.detect.encoder import sigmoid
from guard.detect.named import detector_named
from guard.detect.protocol import Detector, DetectorSession
from guard.evaluate.baselines import terms_for
from guard.evaluate.run import evaluate
from guard.evaluate.sources import Dataset, load
from guard.places import shipped_index
from guard.policy import Policy
from guard.results.estimate import Estimate
from guard.train import calibrate
from guard.train.band import SHARES, BandBudget, choose_band, pairs_of, without_statements
from guard.train.cascade import CascadeCase, cascade_cases
from guard.train.config import BAND_WINDOWS
from guard.train.kept import KeepingDetector
from guard.verdict import BiasType, Scores, Window

SETS = ("redditbias", "emgsd")
MEASURES = ("accuracy", "f1", "auroc", "false_positive_rate")
# Where other programs share the cores, a window may wait long.
PATIENT = Policy(timeout_ms=None, queue_ms=None)
LIMIT_MS = 600_000.0
# A judge without probabilities is sure of everything: its logit must not outweigh any other.
LEAST, MOST = 1e-3, 1 - 1e-3


class MeanOfLogits:
    """The mean of two detectors' logits; the type is that of the higher score."""

    def __init__(
        self,
        first: Detector,
        later: Detector,
        points: Mapping[str, Mapping[BiasType, float]],
    ) -> None:
        self._pair = first, later
        self.name = f"mean:{first.name},{later.name}"
        self.operating_points = points

    def snapshot(self) -> MeanSession:
        """Return a session bound to both detectors' sessions."""
        return MeanSession([one.snapshot() for one in self._pair])


class MeanSession:
    """The sessions of both detectors."""

    def __init__(self, sessions: Sequence[DetectorSession]) -> None:
        self._sessions = sessions
        self.index_version = sessions[1].index_version

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        """Return one :class:`Scores` for each window, in order."""
        found = (session.score(windows) for session in self._sessions)
        return [mean_of(*pair) for pair in zip(*found, strict=True)]


def mean_of(one: Scores, other: Scores) -> Scores:
    """Return the scores with the mean of two logits; unjudged where one of the two is."""
    if one.score is None or other.score is None:
        return one if one.score is None else other
    logits = [logit_of(min(max(s.score or 0.0, LEAST), MOST)) for s in (one, other)]
    kind = max((one, other), key=lambda s: s.score or 0.0).bias_type
    return Scores(sigmoid(sum(logits) / 2), kind)


class Row(NamedTuple):
    """A line of the table: what judged, the share escalated and the figures of a set."""

    name: str
    escalated: str
    figures: Mapping[str, Estimate]


def points_of(
    first: KeepingDetector, later: KeepingDetector, of: Sequence[CascadeCase]
) -> dict[str, dict[BiasType, float]]:
    """Return the operating points of the mean, chosen on validation windows."""
    rows = []
    for case in of:
        pair = [one.judged([case.window])[0].scores for one in (first, later)]
        scores = mean_of(*pair)
        if scores.score is not None:
            rows.append((case.source, case.biased, scores.bias_type, logit_of(scores.score)))
    pool, biased, kind, logit = map(np.array, zip(*rows, strict=True))
    texts = calibrate.JudgedTexts(pool, biased, kind, logit)
    scores = np.array([sigmoid(x) for x in logit])
    return calibrate.operating_points(texts, scores)


def figures_of(
    dataset: Dataset, detector: Detector, data: Path, draws: int, label: str
) -> Mapping[str, Estimate]:
    """Return the figures of one detector on a set, at ``balanced``."""
    guard = Guard(PATIENT, detector=detector)

    def show(done: int) -> None:
        total = len(dataset.examples)
        print(f"\r{dataset.name}, {label}: {done} of {total}", end="", file=sys.stderr, flush=True)

    result = evaluate(dataset, guard, terms=terms_for(data), draws=draws, progress=show)
    print(file=sys.stderr)
    if result.unjudged:
        print(f"  unjudged: {result.unjudged}", file=sys.stderr)
    return result.whole.figures


def rows_of(
    dataset: Dataset,
    pair: tuple[KeepingDetector, KeepingDetector],
    cascades: Mapping[float, BandCascade],
    mean: MeanOfLogits,
    data: Path,
    draws: int,
) -> Iterator[Row]:
    """Yield the rows of a set."""
    for share, cascade in cascades.items():
        before = cascade.escalations()
        found = figures_of(dataset, cascade, data, draws, f"{share:.0%} escalated")
        of = cascade.escalations().since(before)
        band = f"[{cascade.band.low:g}, {cascade.band.high:g}]" if share else "none"
        yield Row(f"budget {share:.0%}, band {band}", f"{of.share:.1%} of {of.windows}", found)
    yield Row("the second alone", "", figures_of(dataset, pair[1], data, draws, "second"))
    yield Row("mean of logits", "", figures_of(dataset, mean, data, draws, "mean"))


def table(rows: Sequence[Row]) -> str:
    """Return rows as Markdown."""
    lines = [
        f"| | escalated | {' | '.join(MEASURES)} |",
        f"| --- | --- |{' --- |' * len(MEASURES)}",
    ]
    for row in rows:
        cells = [
            f"{of.value:.3f} [{of.low:.3f}, {of.high:.3f}]"
            for of in (row.figures[name] for name in MEASURES)
        ]
        lines.append(f"| {row.name} | {row.escalated} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the published sets")
    parser.add_argument("--work", type=Path, required=True, help="folder that keeps the scores")
    parser.add_argument("--first", default="encoder-small", help="the detector that judges all")
    parser.add_argument("--later", default="encoder", help="the one that judges what is in doubt")
    parser.add_argument("--sets", nargs="+", default=SETS, help="names of `guard eval`")
    parser.add_argument("--limit", type=int, help="judge a sample of so many texts of each set")
    parser.add_argument("--windows", type=int, default=BAND_WINDOWS, help="validation windows")
    parser.add_argument("--draws", type=int, default=400, help="bootstrap samples of intervals")
    given = parser.parse_args()
    pair = [detector_named(name, None, None) for name in (given.first, given.later)]
    statements = shipped_index("encoder") / "statements.jsonl"
    of = [c for c in cascade_cases(given.data, statements) if c.part != "train"][: given.windows]
    with without_statements(pair):
        first, later = (KeepingDetector(one, given.work) for one in pair)
        found = pairs_of(first, later, of, _lines)
        points = points_of(first, later, of)
    first, later = (KeepingDetector(one, given.work) for one in pair)
    cascades = {}
    for share in SHARES:
        band = choose_band(found, BandBudget("escalated", share))
        cascades[share] = BandCascade(first, later, replace(band, limit_ms=LIMIT_MS))
    mean = MeanOfLogits(first, later, points)
    print(f"{pair[0].name}, then {pair[1].name}; bands of {len(of)} validation windows\n")
    for name in given.sets:
        dataset = load(name, given.data, limit=given.limit)
        rows = list(rows_of(dataset, (first, later), cascades, mean, given.data, given.draws))
        print(f"**{dataset.title}**, {len(dataset.examples)} texts\n\n{table(rows)}\n", flush=True)


def _lines(done: int, total: int) -> None:
    print(
        f"\rvalidation: {done} of {total}", end="\n" * (done == total), file=sys.stderr, flush=True
    )


if __name__ == "__main__":
    main()
