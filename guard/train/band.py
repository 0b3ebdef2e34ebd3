"""Chooses the band of a cascade of two detectors on validation texts, for a stated budget.

Neither detector has learned from the validation side of the split (:mod:`guard.train.rows`). The
band is chosen on a half of it and measured on the other. Every source has the same weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.detect.band_files import EMPTY, LIMIT_MS, Band, doubt_scale, write_band
from guard.detect.deferral import STRICT_TO_QUIET, Scale
from guard.detect.encoder import Encoder
from guard.detect.named import detector_named
from guard.detect.protocol import Detector
from guard.errors import UsageError
from guard.places import ENCODERS
from guard.policy import Points
from guard.results.intervals import percentile
from guard.retrieve.index import BiasIndex
from guard.train.cascade import CascadeCase, Report, cascade_cases, without_validation
from guard.train.checkpoint import replacing_file
from guard.train.config import BAND_WINDOWS
from guard.train.kept import KeepingDetector
from guard.verdict import Scores

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
#: The share of windows that is escalated where no other budget is stated.
ESCALATED = 0.2
#: Ends of bands.
GRID: Floats = np.round(np.arange(0, 1.0001, 0.005), 3)
#: The budgets of the curve.
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
_DRAWS = 1000
_LOT = 50  # windows between two reports


class BandBudget(NamedTuple):
    """What a band may cost.

    ``escalated``: the largest share of windows in doubt. ``differ``: the largest share decided
    otherwise than by the second detector alone, at any operating point; of bands within it the one
    with the fewest windows is taken.
    """

    kind: Literal["escalated", "differ"]
    share: float


class PairTable(NamedTuple):
    """What both detectors find in n windows, at ``STRICT_TO_QUIET``.

    ``score`` (n,) are the first detector's on the scale of bands; ``forced`` (n,) marks windows
    that it could not judge, which are escalated whatever the band. ``first`` and ``later`` (n, 3):
    whether each finds bias. ``unjudged`` (n,) marks what the second could not judge, which is never
    right. ``biased`` (n,) is the label, ``weight`` (n,) sums to 1, ``ms`` (n, 2) are the times of
    both. ``source`` (n,) is that of the row, and ``chooses`` (n,) marks the half that chooses the
    band.
    """

    score: Floats
    forced: Bools
    first: Bools
    later: Bools
    unjudged: Bools
    biased: Bools
    weight: Floats
    ms: Floats
    source: NDArray[np.str_]
    chooses: Bools

    def where(self, chosen: Bools) -> PairTable:
        """Return the rows of a mask; every source that is left has the same weight."""
        table = PairTable(**{name: column[chosen] for name, column in self._asdict().items()})
        return table._replace(weight=equal_weights(table.source))

    def inside(self, band: Band) -> Bools:
        """Return which windows are escalated: (n,)."""
        return self.forced | ~((self.score < band.low) | (self.score > band.high))

    def right(self, escalated: Bools) -> Bools:
        """Return which windows are decided as labelled: (n, 3)."""
        decided = np.where(escalated[:, None], self.later, self.first)
        known = ~(escalated & self.unjudged)
        right: Bools = (decided == self.biased[:, None]) & known[:, None]
        return right


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a band does on the windows that did not choose it.

    ``accuracy`` is at `balanced`, ``gained`` what it has more than the first detector alone, with a
    95 % interval; ``first`` and ``later`` are the accuracies of the two alone. ``differ`` is the
    share decided otherwise than by the second alone, at any operating point. ``p50_ms`` and
    ``p99_ms`` are times of a verdict on this machine, ``unjudged`` the number of escalated windows
    that the second could not judge.
    """

    low: float
    high: float
    n: int
    escalated: float
    accuracy: float
    gained: float
    gained_low: float
    gained_high: float
    first: float
    later: float
    differ: float
    unjudged: int
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class BandChoice:
    """A band, the windows that chose it, what it does on the others, and the curve over budgets.

    ``sources`` has the number of the other windows and the share escalated. ``usd`` is what 1,000
    windows cost with this band by what the second detector, a judge, was paid in this call; nan if
    it was not asked or has no price, None for one that costs nothing.
    """

    band: Band
    budget: BandBudget
    chosen_on: int
    measured: Measurement
    curve: tuple[tuple[float, Measurement], ...]
    sources: dict[str, tuple[int, float]]
    usd: float | None = None


def pairs_of(
    first: KeepingDetector, later: KeepingDetector, cases: Sequence[CascadeCase], report: Report
) -> PairTable:
    """Judge all cases by both detectors, one lot after the other.

    Raises UsageError if no window is left: those outside the languages of the first are left out.
    """
    # As the cascade decides: at the thresholds of the first.
    points = first.operating_points
    scale, doubt = Scale(later.operating_points, points), doubt_scale(first)
    rows: list[tuple[Any, ...]] = []
    size = max(first.batch, later.batch)
    step = size * max(1, _LOT // size)
    for begin in range(0, len(cases), step):
        lot = cases[begin : begin + step]
        windows = [case.window for case in lot]
        judged = [
            [one for i in range(0, len(lot), d.batch) for one in d.judged(windows[i : i + d.batch])]
            for d in (first, later)
        ]
        for case, first_scores, later_scores in zip(lot, *judged, strict=True):
            if first_scores.scores.unjudged == "language":
                continue
            rows.append(
                (
                    _score_on(doubt, first_scores.scores),
                    first_scores.scores.unjudged is not None,
                    _decisions_at(first_scores.scores, points),
                    _decisions_at(later_scores.scores, points, scale),
                    later_scores.scores.unjudged is not None,
                    case.biased,
                    0.0,
                    (first_scores.ms, later_scores.ms),
                    case.source,
                    case.part == "choose",
                )
            )
        report(min(begin + step, len(cases)), len(cases))
    if not rows:
        raise UsageError("There is no validation text to choose the band by; use more --data.")
    columns = zip(*rows, strict=True)
    types = (float, bool, bool, bool, bool, bool, float, float, str, bool)
    table = PairTable(*(np.array(c, t) for c, t in zip(columns, types, strict=True)))
    return table.where(np.ones(len(rows), bool))


def equal_weights(source: NDArray[np.str_]) -> Floats:
    """Return weights that sum to 1, the same sum for each source: (n,)."""
    _, place, counts = np.unique(source, return_inverse=True, return_counts=True)
    weights: Floats = 1 / (counts[place] * len(counts))
    return weights


def _score_on(scale: Scale, scores: Scores) -> float:
    if scores.unjudged is not None or scores.score is None or scores.bias_type is None:
        return 0.0
    return scale.mapped(scores.score, scores.bias_type)


def _decisions_at(scores: Scores, points: Points, scale: Scale | None = None) -> list[bool]:
    """Return whether scores, mapped by a scale if there is one, are biased at the three points."""
    if scores.unjudged is not None or scores.score is None or scores.bias_type is None:
        return [False] * len(STRICT_TO_QUIET)
    score, kind = scores.score, scores.bias_type
    score = score if scale is None else scale.mapped(score, kind)
    return [score >= points[point][kind] for point in STRICT_TO_QUIET]


def choose_band(table: PairTable, budget: BandBudget) -> Band:
    """Return the band with the most gain within a budget.

    The gain is in accuracy, the mean of the three operating points. Of bands with the same gain the
    one with the fewest windows is taken. Windows that the first detector could not judge are
    escalated by every band, and count.
    """
    order = np.argsort(table.score, kind="stable")
    score, weight = table.score[order], np.where(table.forced, 0.0, table.weight)[order]
    nothing = np.zeros(len(score), bool)
    gain = table.right(~nothing).mean(axis=1) - table.right(nothing).mean(axis=1)
    apart = (table.first != table.later).any(axis=1)[order]

    def sums(value: Floats) -> Floats:
        """Return the sum over the windows from each end of the grid to each other: (g, g)."""
        total = np.concatenate([[0.0], np.cumsum(value)])
        lower, upper = (np.searchsorted(score, GRID, side) for side in ("left", "right"))
        sums_between: Floats = total[upper][None, :] - total[lower][:, None]
        return sums_between

    mass, gained, settled = sums(weight), sums(weight * gain[order]), sums(weight * apart)
    allowed = GRID[:, None] <= GRID[None, :]
    if budget.kind == "escalated":
        forced = float(table.weight[table.forced].sum())
        allowed &= mass + forced <= budget.share + 1e-9
        rank = -np.round(gained, 9), mass
        if not allowed.any() or gained[allowed].max() <= 0:
            return EMPTY
    else:
        left = float((weight * apart).sum()) - settled
        allowed &= left <= budget.share + 1e-9
        rank = mass, -np.round(gained, 9)
        if float((weight * apart).sum()) <= budget.share:
            return EMPTY
    places = np.argwhere(allowed)
    keys = [r[allowed] for r in reversed(rank)]
    low, high = places[np.lexsort(keys)[0]]
    return Band(float(GRID[low]), float(GRID[high]))


def measure_band(table: PairTable, band: Band, seed: int = 0) -> Measurement:
    """Return what a band does on windows; the interval is of windows drawn again."""
    escalated = table.inside(band)
    at = STRICT_TO_QUIET.index("balanced")
    none, every = np.zeros_like(escalated), np.ones_like(escalated)
    first, mine, last = (table.right(e)[:, at] for e in (none, escalated, every))
    better = (mine.astype(float) - first) * table.weight
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(better), (_DRAWS, len(better)))
    gains = better[drawn].sum(axis=1) / table.weight[drawn].sum(axis=1)
    gained = float(better.sum())
    low, high = percentile(gains)
    apart = (table.first != table.later).any(axis=1) & ~escalated
    ms = table.ms[:, 0] + np.where(escalated, table.ms[:, 1], 0.0)
    return Measurement(
        low=band.low,
        high=band.high,
        n=len(better),
        escalated=float(table.weight @ escalated),
        accuracy=float(table.weight @ mine),
        gained=gained,
        gained_low=low,
        gained_high=high,
        first=float(table.weight @ first),
        later=float(table.weight @ last),
        differ=float(table.weight @ apart),
        unjudged=int((escalated & table.unjudged).sum()),
        p50_ms=float(np.percentile(ms, 50)),
        p99_ms=float(np.percentile(ms, 99)),
    )


def usd_of(detector: Detector) -> float | None:
    """Return what 1,000 windows of a judge cost so far, in US dollars; None for another detector.

    It is nan if the judge was asked nothing or has no price.
    """
    if not hasattr(detector, "spent"):
        return None
    spent = detector.spent()
    return 1000 * float(spent.cost) / spent.windows if spent.windows else math.nan


def band_report(choice: BandChoice) -> str:
    """Return what a choice shows, as text: its figures, the sources and the curve."""
    measured = choice.measured
    ends = (
        f"from {measured.low:g} to {measured.high:g}" if measured.low <= measured.high else "none"
    )
    unjudged = f"; {measured.unjudged} of them it could not judge" if measured.unjudged else ""
    lines = [
        f"Scores in doubt: {ends}, chosen on {choice.chosen_on} validation windows and measured on "
        f"{measured.n} others.",
        f"{measured.escalated:.1%} go to the second detector{unjudged}. Accuracy at balanced "
        f"{measured.accuracy:.4f}, {measured.gained:+.4f} "
        f"[{measured.gained_low:+.4f}, {measured.gained_high:+.4f}] over the first alone "
        f"({measured.first:.4f}); the second alone {measured.later:.4f}.",
        f"{measured.differ:.2%} are decided otherwise than by the second alone. A verdict takes "
        f"{measured.p50_ms:.1f} ms in the median, {measured.p99_ms:.1f} ms at the 99th percentile.",
        *([] if choice.usd is None else [f"1,000 windows cost {choice.usd:.4g} US dollars."]),
        f"{'budget':>7} {'escalated':>9} {'low':>6} {'high':>6} {'accuracy':>9} {'gained':>8}",
    ]
    lines += [
        f"{share:7.0%} {at.escalated:9.1%} {at.low:6.3f} {at.high:6.3f} {at.accuracy:9.4f} "
        f"{at.gained:+8.4f} [{at.gained_low:+.4f}, {at.gained_high:+.4f}]"
        for share, at in choice.curve
    ]
    lines.append(f"{'source':20} {'windows':>7} {'escalated':>9}")
    lines += [f"{name:20} {n:7} {share:9.1%}" for name, (n, share) in choice.sources.items()]
    return "\n".join(lines)


@contextmanager
def without_statements(detectors: Sequence[Detector]) -> Iterator[None]:
    """Take the statements of the validation side out of the detectors' indexes for a while.

    A detector with a retriever of its own has that retriever's index.
    """
    indexes: dict[int, tuple[Any, BiasIndex]] = {}
    for detector in detectors:
        for part in parts_of(detector):
            encoder = getattr(part, "embedder", part)
            if not hasattr(part, "use_index"):  # it may have the shipped encoder's references
                encoder = part = detector_named(ENCODERS[0], None, None)
            if isinstance(encoder, Encoder) and encoder.index is not None:
                indexes.setdefault(id(part), (part, encoder.index))
    try:
        for part, _ in indexes.values():
            part.use_index(without_validation(getattr(part, "embedder", part)))
            if wait := getattr(part, "ready", None):
                wait(600.0)
        yield
    finally:
        for part, index in indexes.values():
            part.use_index(index)


def parts_of(detector: Any) -> list[Any]:
    """Return a detector, and the detectors that it is made of."""
    inner = [getattr(detector, name, None) for name in ("first", "later")]
    return [detector, *(p for one in inner if one is not None for p in parts_of(one))]


def train_band(
    data: Path,
    statements: Path,
    work: Path,
    to: Path,
    *,
    first: Detector,
    later: Detector,
    budget: BandBudget,
    limit_ms: float = LIMIT_MS,
    windows: int = BAND_WINDOWS,
    report: Report = lambda done, total: None,
) -> BandChoice:
    """Choose the band of two detectors and write it to ``to``.

    Scores are kept in ``work``, so that an interrupted call resumes. At most ``windows`` validation
    windows are judged by both.

    Raises UsageError if a source cannot be read, or nothing is left to choose by.
    """
    chosen = [case for case in cascade_cases(data, statements) if case.part != "train"][:windows]
    with without_statements((first, later)):
        kept = [KeepingDetector(detector, work) for detector in (first, later)]
        table = pairs_of(kept[0], kept[1], chosen, report)
    choosing = table.where(table.chooses)
    if not len(choosing.score) or table.chooses.all():
        raise UsageError(
            f"Of {len(table.score)} validation windows one half chooses the band and the other "
            "measures it, and one of the two is empty; use more --data or --windows."
        )
    other = table.where(~table.chooses)
    band = replace(choose_band(choosing, budget), limit_ms=limit_ms)
    curve = [
        (s, measure_band(other, choose_band(choosing, BandBudget("escalated", s)))) for s in SHARES
    ]
    escalated = other.inside(band)
    sources = {
        str(name): (int(of.sum()), float(escalated[of].mean()))
        for name in np.unique(other.source)
        for of in (other.source == name,)
    }
    measured, usd = measure_band(other, band), usd_of(later)
    choice = BandChoice(
        band, budget, len(choosing.score), measured, tuple(curve), sources,
        None if usd is None else usd * measured.escalated,
    )  # fmt: skip
    figures = asdict(choice)
    del figures["band"]
    if choice.usd is not None and math.isnan(choice.usd):  # JSON has no nan
        figures["usd"] = None
    with replacing_file(to) as part:
        write_band(part, band, first, later, figures=figures)
    return choice
