"""Scale of the scores, operating points and calibration error, on validation texts only.

Pure functions of judged texts; :mod:`guard.train.pools` selects the texts.
Why: docs/decisions/thresholds.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize  # type: ignore[import-untyped]
from scipy.special import expit  # type: ignore[import-untyped]
from scipy.stats import rankdata  # type: ignore[import-untyped]

from guard.errors import UsageError
from guard.evaluate.metrics import BINS
from guard.results.intervals import clopper_pearson, percentile, union_of_bootstraps
from guard.verdict import BIAS_TYPES, BiasType

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Thresholds = dict[BiasType, float]

# The texts that the temperature is fitted on: every source has the same weight.
SOURCES: dict[str, tuple[str, ...]] = {
    "RedditBias": ("redditbias",),
    "EMGSD": ("emgsd",),
    "StereoSet": ("stereoset",),
    "HEARTS": ("hearts",),
    "implicit hate": ("implied", "implicit_hate"),
    "own": ("statements", "implicit", "negatives", "pairs", "forms"),
    "BOLD": ("bold",),
}
# The pools for accuracy and recall, with equal weights, and those for false positives.
ACCURACY_POOLS = ("redditbias", "emgsd")
HARMLESS = ("negatives", "forms", "bold")
# Explicitly biased statements, which every operating point must find.
PLAIN = "statements"

#: The highest false positive rate on harmless texts, by operating point.
MAX_FALSE_POSITIVE_RATE = {"strict": 0.08, "balanced": 0.02, "quiet": 0.0025}
#: The recall of `strict` on ``ACCURACY_POOLS``, if its false positive rate allows it.
RECALL = 0.9
#: `quiet` has at most this share of `balanced`'s false positives.
QUIET_SHARE = 0.5
#: The recall of `quiet` on each type's plain statements, if its false positive rate allows it.
QUIET_FINDS = 0.75
#: A type with fewer plain statements uses those of all types.
MIN_PLAIN_STATEMENTS = 10
#: A type's rates are shrunk towards those of all types, with the weight of this many texts.
PRIOR = 300
#: A type with fewer texts keeps the common threshold.
MIN_TEXTS_OF_TYPE = 50
#: Single texts make accuracy jump: it is averaged over the thresholds so near.
SMOOTHING_WIDTH = 0.1

GRID: Floats = np.round(np.arange(0.02, 0.991, 0.005), 3)


class JudgedTexts(NamedTuple):
    """n judged texts: ``pool`` and predicted ``kind`` by name, ``biased`` by label, ``logit``."""

    pool: NDArray[np.str_]
    biased: Bools
    kind: NDArray[np.str_]
    logit: Floats

    def where(self, chosen: NDArray[Any]) -> JudgedTexts:
        """Return the texts of a mask or of places."""
        return JudgedTexts(*(column[chosen] for column in self))


def equal_weights(texts: JudgedTexts) -> Floats:
    """Return weights that sum to 1, the same sum for each of ``SOURCES`` that has a text.

    Without a text of any, all weigh the same.
    """
    weight = np.zeros(len(texts.pool))
    for pools in SOURCES.values():
        inside = np.isin(texts.pool, pools)
        weight[inside] = 1 / max(1, int(inside.sum()))
    if not weight.any():
        weight[:] = 1
    weights: Floats = weight / weight.sum()
    return weights


def auroc(scores: Floats, biased: Bools) -> float:
    """Return how often a biased text is above a harmless one, a tie counted half; nan without both.

    It is Mann and Whitney's U over the number of pairs; ``scores`` and ``biased`` are (n,).
    """
    n = int(biased.sum())
    pairs = n * (len(biased) - n)
    if not pairs:
        return float("nan")
    return float((rankdata(scores)[biased].sum() - n * (n + 1) / 2) / pairs)


# Of the temperature and of the offset.
_SCALE_LIMITS = ((0.5, 5.0), (-10.0, 10.0))


class LogitScale(NamedTuple):
    """A score is ``sigmoid((logit - offset) / temperature)`` (Platt 1999, equation 1)."""

    temperature: float
    offset: float

    def scores(self, logits: Floats) -> Floats:
        """Return the scores of logits."""
        scores: Floats = expit((logits - self.offset) / self.temperature)
        return scores


def fit_scale(logits: Floats, biased: Bools, weights: Floats) -> LogitScale:
    """Return the scale with the least weighted log loss.

    Raises UsageError if the texts do not determine it: one label only, a logit that is no number,
    or a scale at its limits, as of logits that do not depend on the label.
    """
    sign = np.where(biased, -1.0, 1.0)

    def loss(at: Floats) -> float:
        return float(weights @ np.logaddexp(0, sign * (logits - at[1]) / at[0]))

    weights = weights / weights.sum()
    fitted = minimize(loss, [1.0, 0.0], method="L-BFGS-B", bounds=_SCALE_LIMITS)
    inside = all(low < x < high for x, (low, high) in zip(fitted.x, _SCALE_LIMITS, strict=True))
    both = biased.any() and not biased.all() and np.ptp(logits) > 0
    if not (both and np.isfinite(logits).all() and fitted.success and inside):
        raise UsageError(
            f"The scores of {len(logits)} validation texts cannot be calibrated: their "
            "labels or logits do not allow it. Use more --data or train longer."
        )
    return LogitScale(*(round(float(x), 4) for x in fitted.x))


class Curve(NamedTuple):
    """A rate at every threshold, and over how many texts; 0 without a text."""

    rate: Floats
    n: int

    def blended(self, common: Curve) -> Curve:
        """Return the rate as if ``PRIOR`` more texts had shown the common one."""
        n = self.n + PRIOR
        return Curve((self.rate * self.n + PRIOR * common.rate) / n, n)


class Curves(NamedTuple):
    """The rates that thresholds are chosen by.

    ``harmless`` is the false positive rate on ``HARMLESS``, the others are of ``ACCURACY_POOLS``.
    """

    accuracy: Curve
    recall: Curve
    false_positive_rate: Curve
    harmless: Curve


def rate_curves(texts: JudgedTexts, predicted: Bools, chosen: Bools | None = None) -> Curves:
    """Return the rates of some texts, by default of all; ``predicted`` is (n, thresholds).

    Each pool of ``ACCURACY_POOLS`` has the same weight, and each text of ``HARMLESS``.
    """
    chosen = np.ones(len(predicted), bool) if chosen is None else chosen

    def curve(pools: Sequence[str], among: Bools, hits: Bools, *, even: bool = True) -> Curve:
        total, weight, count = np.zeros(predicted.shape[1]), 0.0, 0
        for pool in pools:
            inside = (texts.pool == pool) & among
            counted = inside & chosen
            if not counted.any():
                continue
            share = 1 / int(inside.sum()) if even else 1.0
            total += share * hits[counted].sum(axis=0)
            weight += share * int(counted.sum())
            count += int(counted.sum())
        return Curve(total / weight if weight else total, count)

    biased = texts.biased
    return Curves(
        curve(ACCURACY_POOLS, np.ones_like(biased), predicted == biased[:, None]),
        curve(ACCURACY_POOLS, biased, predicted),
        curve(ACCURACY_POOLS, ~biased, predicted),
        curve(HARMLESS, ~biased, predicted, even=False),
    )


def grid_places(rates: Curves) -> dict[str, int]:
    """Return the place on ``GRID`` of every operating point, in order."""
    accuracy, recall, false_positives, harmless = (curve.rate for curve in rates)
    most = MAX_FALSE_POSITIVE_RATE
    lowest = _first_allowed(harmless <= most["balanced"])
    balanced = lowest + int(np.argmax(_smooth_rate(accuracy)[lowest:]))
    halved_false_positives = _first_allowed(
        false_positives <= QUIET_SHARE * false_positives[balanced]
    )
    quiet = max(balanced, _first_allowed(harmless <= most["quiet"]), halved_false_positives)
    recalling = np.flatnonzero(recall >= RECALL)
    lowest = max(
        _first_allowed(harmless <= most["strict"]), int(recalling[-1]) if len(recalling) else 0
    )
    return {"strict": min(balanced, lowest), "balanced": balanced, "quiet": quiet}


def _first_allowed(allowed: Bools) -> int:
    return int(np.argmax(allowed)) if allowed.any() else len(GRID) - 1


def _smooth_rate(rate: Floats) -> Floats:
    """Return the mean of the rate over the thresholds within ``SMOOTHING_WIDTH``."""
    near = (np.abs(GRID[:, None] - GRID) <= SMOOTHING_WIDTH + 1e-9).astype(float)
    smoothed: Floats = np.round(near @ rate / near.sum(axis=1), 9)
    return smoothed


def operating_points(texts: JudgedTexts, scores: Floats) -> dict[str, Thresholds]:
    """Choose a threshold per point and predicted type, on calibrated scores.

    The false positive rate of every point on harmless texts is at most that of
    ``MAX_FALSE_POSITIVE_RATE``, but see ``quiet`` below. Within that bound, ``balanced`` has the
    best accuracy on the texts of ``ACCURACY_POOLS`` (a mean over ``SMOOTHING_WIDTH``); ``quiet`` is
    the lowest above it with half of its false positives on them; ``strict`` is the highest below it
    with the recall ``RECALL``.
    For ``strict`` and ``balanced`` the choice is made for each type, with rates shrunk towards
    those of all texts. The false positives of ``quiet`` are too few to estimate by type, so its
    types share a threshold. If the thresholds together exceed a point's bound, all of them are
    raised by the same amount. Finally ``quiet`` is lowered for types whose plain statements it
    would miss, at most to ``QUIET_SHARE`` of the false positives of ``balanced``
    (:func:`_lowered_to_find`).

    Raises UsageError if there is no harmless text, or no threshold keeps a point's rate.
    """
    if not (np.isin(texts.pool, HARMLESS) & ~texts.biased).any():
        raise UsageError("There is no harmless text to choose thresholds by; use more --data.")
    predicted = scores[:, None] >= GRID
    common = rate_curves(texts, predicted)
    everywhere = grid_places(common)
    of_kind = {}
    for kind in BIAS_TYPES:
        own = rate_curves(texts, predicted, texts.kind == kind)
        of_kind[kind] = everywhere
        if own.accuracy.n + own.harmless.n >= MIN_TEXTS_OF_TYPE:
            blended = Curves(*(o.blended(c) for o, c in zip(own, common, strict=True)))
            of_kind[kind] = grid_places(blended) | {"quiet": everywhere["quiet"]}
    points: dict[str, Thresholds] = {}
    floor: Thresholds = dict.fromkeys(BIAS_TYPES, 0.0)
    most_wrong = float("inf")
    for point, most in MAX_FALSE_POSITIVE_RATE.items():
        if point == "quiet":
            most_wrong = QUIET_SHARE * measured_rates(texts, scores, floor).false_positive_rate
        for rise in range(len(GRID)):
            at = {kind: min(of[point] + rise, len(GRID) - 1) for kind, of in of_kind.items()}
            limits = {kind: max(float(GRID[i]), floor[kind]) for kind, i in at.items()}
            if _fits_limits(texts, scores, limits, most, most_wrong):
                break
        else:
            raise UsageError(
                f"No threshold keeps the false positives of {point!r} on harmless texts at or "
                f"below {most:.2%}: the detector does not tell them from biased ones. Train longer."
            )
        points[point] = floor = limits
    return points | {"quiet": _lowered_to_find(texts, scores, points["quiet"], points["balanced"])}


def _fits_limits(
    texts: JudgedTexts, scores: Floats, limits: Thresholds, harmless: float, most_wrong: float
) -> bool:
    """Whether the rates of false positives are at most these (``most_wrong``: other pools)."""
    rates = measured_rates(texts, scores, limits)
    return (
        rates.harmless.hits <= harmless * rates.harmless.n
        and not rates.false_positive_rate > most_wrong
    )


def _lowered_to_find(
    texts: JudgedTexts, scores: Floats, quiet: Thresholds, balanced: Thresholds
) -> Thresholds:
    """Lower ``quiet`` by type until ``QUIET_FINDS`` of the type's plain statements are found.

    The false positives of all types together must stay within ``QUIET_SHARE`` of balanced's, or
    within the bound of ``quiet`` on harmless texts. If that does not allow ``QUIET_FINDS``, the
    target of all types is the largest share that it allows. The target of a type is at most the
    share that ``balanced`` finds.
    """
    most = measured_rates(texts, scores, balanced)
    harmless = max(
        MAX_FALSE_POSITIVE_RATE["quiet"], QUIET_SHARE * most.harmless.hits / max(most.harmless.n, 1)
    )
    plain = texts.pool == PLAIN
    stated = {kind: scores[plain & (texts.kind == kind)] for kind in BIAS_TYPES}
    stated = {
        kind: s if len(s) >= MIN_PLAIN_STATEMENTS else scores[plain] for kind, s in stated.items()
    }

    def share(scores_of: Floats, threshold: float) -> float:
        return float((scores_of >= threshold).mean()) if len(scores_of) else 0.0

    for target in np.arange(QUIET_FINDS, 0, -0.01):
        limits = {}
        for kind, stated_scores in stated.items():
            least = min(target, share(stated_scores, balanced[kind]))
            # The highest threshold that this share of the statements reaches.
            reached = max(
                (float(t) for t in GRID if share(stated_scores, t) >= least), default=float(GRID[0])
            )
            limits[kind] = min(quiet[kind], reached)
        if _fits_limits(texts, scores, limits, harmless, QUIET_SHARE * most.false_positive_rate):
            return limits
    return quiet


def own_thresholds(texts: JudgedTexts, scores: Floats) -> dict[str, float]:
    """Return the threshold most accurate on the texts of each of ``ACCURACY_POOLS``, for all types.

    A detector trained for that source only would choose it. Accuracy is averaged over
    ``SMOOTHING_WIDTH``; of thresholds as accurate the highest is taken, which gives the fewest
    false positives.
    """
    lowered = {}
    for pool in ACCURACY_POOLS:
        inside = texts.pool == pool
        if inside.any():
            predicted = scores[inside, None] >= GRID
            rate = _smooth_rate(rate_curves(texts.where(inside), predicted).accuracy.rate)
            lowered[pool] = float(GRID[np.flatnonzero(rate == rate.max())[-1]])
    return lowered


class Share(NamedTuple):
    """``hits`` of ``n``, with the exact one-sided 95 % upper bound of the rate behind it."""

    hits: int
    n: int
    bound: float

    @classmethod
    def of(cls, hits: Bools) -> Share:
        """Return the share of true ones."""
        count, n = int(hits.sum()), len(hits)
        return cls(count, n, clopper_pearson(count, n, level=0.9)[1])


class Measured(NamedTuple):
    """The rates of one set of thresholds on ``ACCURACY_POOLS``, and its false positives.

    ``harmless`` has the false positives on ``HARMLESS``, ``pools`` those of each pool that has a
    harmless text.
    """

    accuracy: float
    recall: float
    false_positive_rate: float
    harmless: Share
    pools: dict[str, Share]


def measured_rates(texts: JudgedTexts, scores: Floats, thresholds: Thresholds) -> Measured:
    """Return the rates of one set of thresholds, by predicted type."""
    predicted = scores >= np.array([thresholds[k] for k in texts.kind], float)
    accuracy, recall, false_positive_rate = (
        float(curve.rate[0]) if curve.n else float("nan")
        for curve in rate_curves(texts, predicted[:, None])[:3]
    )
    fair = ~texts.biased
    return Measured(
        accuracy,
        recall,
        false_positive_rate,
        harmless=Share.of(predicted[fair & np.isin(texts.pool, HARMLESS)]),
        pools={
            str(pool): Share.of(predicted[fair & (texts.pool == pool)])
            for pool in np.unique(texts.pool[fair])
        },
    )


class ReliabilityBin(NamedTuple):
    """Texts of like score: their weight, mean score and share of biased ones."""

    weight: float
    score: float
    biased: float


def reliability_bins(scores: Floats, biased: Bools, weights: Floats) -> list[ReliabilityBin]:
    """Return the reliability diagram in at most ``BINS`` bins of equal weight, lowest scores first.

    Equal scores share a bin. A bin of weight 0 is left out.
    """
    _, place = np.unique(scores, return_inverse=True)
    mass = np.bincount(place, weights)
    middle = (np.cumsum(mass) - mass / 2) / mass.sum()
    bin_of = np.minimum((middle * BINS).astype(int), BINS - 1)[place]
    bins = []
    for b in np.unique(bin_of[weights > 0]):
        w = weights * (bin_of == b)
        total = float(w.sum())
        bins.append(ReliabilityBin(total, float(w @ scores) / total, float(w @ biased) / total))
    return bins


def calibration_error(bins: Sequence[ReliabilityBin]) -> float:
    """Return the expected calibration error (Guo et al. 2017, equation 5)."""
    return sum(b.weight * abs(b.biased - b.score) for b in bins) / sum(b.weight for b in bins)


def calibration_interval(
    texts: JudgedTexts, scores: Floats, draws: int = 1000
) -> tuple[float, float]:
    """Return the 95 % interval of the error; texts are redrawn within each pool."""
    value = calibration_error(reliability_bins(scores, texts.biased, equal_weights(texts)))
    rng = np.random.default_rng(0)
    pools = [np.flatnonzero(texts.pool == p) for p in np.unique(texts.pool)]
    errors = []
    for _ in range(draws):
        ids = np.concatenate([rng.choice(p, len(p)) for p in pools])
        drawn = texts.where(ids)
        bins = reliability_bins(scores[ids], drawn.biased, equal_weights(drawn))
        errors.append(calibration_error(bins))
    return union_of_bootstraps(value, *percentile(np.array(errors)))
