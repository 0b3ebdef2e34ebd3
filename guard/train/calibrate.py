"""Temperature, operating points and calibration error, on validation texts only.

Pure functions of judged texts; :mod:`guard.train.pools` selects the texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.intervals import exact, percentile
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
    "own": ("statements", "implicit", "negatives", "pairs"),
    "BOLD": ("bold",),
}
# The pools for accuracy and recall, with equal weights, and those for false positives.
COMMENTS = ("redditbias", "emgsd")
HARMLESS = ("negatives", "bold")
# Explicitly biased statements, which every operating point must find.
PLAIN = "statements"

#: The highest false positive rate on harmless texts, by operating point.
MAX_FALSE_POSITIVE_RATE = {"strict": 0.08, "balanced": 0.02, "quiet": 0.0025}
#: The recall of `strict` on biased comments, if its false positive rate allows it.
RECALL = 0.9
#: `quiet` has at most this share of `balanced`'s false positives.
QUIET_SHARE = 0.5
#: The recall of `quiet` on each type's plain statements, if its false positive rate allows it.
QUIET_FINDS = 0.75
#: A type with fewer plain statements uses those of all types.
FEW = 10
#: A type's rates are shrunk towards those of all types, with the weight of this many texts.
PRIOR = 300
#: A type with fewer texts keeps the common threshold.
LEAST = 50
#: Single texts make accuracy jump: it is averaged over the thresholds so near.
WIDTH = 0.1

GRID: Floats = np.round(np.arange(0.02, 0.991, 0.005), 3)


class Judged(NamedTuple):
    """n judged texts: ``pool`` and predicted ``kind`` by name, ``biased`` by label, ``logit``."""

    pool: NDArray[np.str_]
    biased: Bools
    kind: NDArray[np.str_]
    logit: Floats

    def of(self, pools: Sequence[str]) -> Judged:
        """Return the texts of some pools."""
        return self.where(np.isin(self.pool, pools))

    def where(self, chosen: NDArray[Any]) -> Judged:
        """Return the texts of a mask or of places."""
        return Judged(*(column[chosen] for column in self))


def sigmoid(x: Floats) -> Floats:
    """Return 1 / (1 + e^-x)."""
    y: Floats = 1 / (1 + np.exp(-x))
    return y


def equal_weights(texts: Judged) -> Floats:
    """Return weights that sum to 1, the same sum for each of ``SOURCES`` that has a text.

    Without a text of any, all weigh the same.
    """
    weight = np.zeros(len(texts.pool))
    for pools in SOURCES.values():
        inside = np.isin(texts.pool, pools)
        weight[inside] = 1 / max(1, int(inside.sum()))
    if not weight.any():
        weight[:] = 1
    found: Floats = weight / weight.sum()
    return found


def log_loss(logits: Floats, biased: Bools, weights: Floats) -> float:
    """Return the weighted mean of -log p(label), in nats."""
    return float(weights @ np.logaddexp(0, np.where(biased, -logits, logits)))


def fit_temperature(logits: Floats, biased: Bools, weights: Floats | None = None) -> float:
    """Return the temperature with the least log loss, searched on a grid from 0.5 to 5."""
    if weights is None:
        weights = np.full(len(logits), 1 / len(logits))
    grid = np.geomspace(0.5, 5, 240)
    return float(grid[int(np.argmin([log_loss(logits / t, biased, weights) for t in grid]))])


class Share(NamedTuple):
    """``hits`` of ``n``, with the exact one-sided 95 % upper bound of the rate behind it."""

    hits: int
    n: int
    bound: float


def upper_bound(count: int, n: int, level: float = 0.95) -> float:
    """Return the Clopper-Pearson upper bound of a rate of which ``count`` in ``n`` was seen.

    The rate at which so few would be seen with probability 1 - ``level`` (Biometrika 26, 1934).
    """
    return exact(count, n, 2 * level - 1)[1]


class Curve(NamedTuple):
    """A rate at every threshold of ``GRID``, and over how many texts."""

    rate: Floats
    n: int

    def blended(self, common: Curve) -> Floats:
        """Return the rate as if ``PRIOR`` more texts had shown the common one."""
        own = self.rate * self.n if self.n else np.zeros_like(self.rate)
        found: Floats = (own + PRIOR * common.rate) / (self.n + PRIOR)
        return found


class Curves(NamedTuple):
    """The rates that thresholds are chosen by; a rate without a text is 0.

    ``harmless`` is the false positive rate on ``HARMLESS``, the others are of ``COMMENTS``.
    """

    accuracy: Curve
    recall: Curve
    false_positive_rate: Curve
    harmless: Curve


def curves(texts: Judged, scores: Floats, kind: BiasType | None = None) -> Curves:
    """Return the rates of texts predicted to be of ``kind``, by default of all.

    Each pool of ``COMMENTS`` has the same weight, and each text of ``HARMLESS``.
    """
    chosen = np.ones(len(scores), bool) if kind is None else texts.kind == kind

    def curve(
        pools: Sequence[str], label: bool | None, right: bool | None, *, even: bool = True
    ) -> Curve:
        total, weight, count = np.zeros(len(GRID)), 0.0, 0
        for pool in pools:
            inside = texts.pool == pool
            if label is not None:
                inside &= texts.biased == label
            of = inside & chosen
            if not of.any():
                continue
            predicted = scores[of][None, :] >= GRID[:, None]
            hits = predicted == texts.biased[of] if right is None else predicted == right
            share = 1 / int(inside.sum()) if even else 1.0
            total += share * hits.sum(axis=1)
            weight += share * int(of.sum())
            count += int(of.sum())
        return Curve(total / weight if weight else total, count)

    return Curves(
        curve(COMMENTS, None, None),
        curve(COMMENTS, True, True),
        curve(COMMENTS, False, True),
        curve(HARMLESS, False, True, even=False),
    )


class Rates(NamedTuple):
    """The rates that a choice is made on, each of shape ``GRID``."""

    accuracy: Floats
    recall: Floats
    false_positive_rate: Floats
    harmless: Floats


def _places(rates: Rates) -> dict[str, int]:
    """Return the place on ``GRID`` of every operating point, in order."""
    balanced = _most_accurate(rates, MAX_FALSE_POSITIVE_RATE["balanced"])
    calm = _first(rates.false_positive_rate <= QUIET_SHARE * rates.false_positive_rate[balanced])
    quiet = max(balanced, _first(rates.harmless <= MAX_FALSE_POSITIVE_RATE["quiet"]), calm)
    lowest = _first(rates.harmless <= MAX_FALSE_POSITIVE_RATE["strict"])
    sharp = np.flatnonzero(rates.recall >= RECALL)
    strict = min(balanced, max(lowest, int(sharp[-1]) if len(sharp) else 0))
    return {"strict": strict, "balanced": balanced, "quiet": quiet}


def _first(allowed: Bools) -> int:
    return int(np.argmax(allowed)) if allowed.any() else len(GRID) - 1


def _most_accurate(rates: Rates, most: float) -> int:
    """Return the index of the best accuracy whose false positive rate is at most ``most``."""
    lowest = _first(rates.harmless <= most)
    return lowest + int(np.argmax(_smooth(rates.accuracy)[lowest:]))


def _smooth(rate: Floats) -> Floats:
    """Return the mean of the rate over the thresholds within ``WIDTH``."""
    near = (np.abs(GRID[:, None] - GRID[None, :]) <= WIDTH + 1e-9).astype(float)
    found: Floats = np.round(near @ rate / near.sum(axis=1), 9)
    return found


def operating_points(texts: Judged, scores: Floats) -> dict[str, Thresholds]:
    """Choose a threshold per point and predicted type, on calibrated scores.

    The false positive rate of every point on harmless texts is at most that of
    ``MAX_FALSE_POSITIVE_RATE``. Within that bound, ``balanced`` has the best accuracy on comments
    (a mean over ``WIDTH``); ``quiet`` is the lowest above it with half of its false positives on
    comments; ``strict`` is the highest below it with the recall ``RECALL``. For ``strict`` and
    ``balanced`` the choice is made for each type, with rates shrunk towards those of all texts. The
    false positives of ``quiet`` are too few to estimate by type, so its types share a threshold. If
    the thresholds together exceed a point's bound, all of them are raised by the same amount.
    Finally ``quiet`` is lowered for types whose plain statements it would miss (:func:`_finding`).
    """
    common = curves(texts, scores)
    everywhere = _places(Rates(*(c.rate for c in common)))
    places = {}
    for kind in BIAS_TYPES:
        own = curves(texts, scores, kind)
        places[kind] = everywhere
        if own.accuracy.n + own.harmless.n >= LEAST:
            blended = (o.blended(c) for o, c in zip(own, common, strict=True))
            places[kind] = _places(Rates(*blended)) | {"quiet": everywhere["quiet"]}
    found: dict[str, Thresholds] = {}
    floor: Thresholds = dict.fromkeys(BIAS_TYPES, 0.0)
    comments = float("inf")
    for point, most in MAX_FALSE_POSITIVE_RATE.items():
        if point == "quiet":
            comments = QUIET_SHARE * measured(texts, scores, floor).false_positive_rate
        rise = 0
        while True:
            at = {kind: min(of[point] + rise, len(GRID) - 1) for kind, of in places.items()}
            limits = {kind: max(float(GRID[i]), floor[kind]) for kind, i in at.items()}
            fits = _fits(texts, scores, limits, most, comments)
            if fits or min(at.values()) == len(GRID) - 1:
                break
            rise += 1
        found[point] = floor = limits
    return found | {"quiet": _finding(texts, scores, found["quiet"], found["balanced"])}


def _fits(
    texts: Judged, scores: Floats, limits: Thresholds, harmless: float, comments: float
) -> bool:
    """Whether the false positive rates of thresholds are at most these."""
    of = measured(texts, scores, limits)
    return of.harmless.hits <= harmless * of.harmless.n and not of.false_positive_rate > comments


def _finding(texts: Judged, scores: Floats, quiet: Thresholds, balanced: Thresholds) -> Thresholds:
    """Lower ``quiet`` by type until ``QUIET_FINDS`` of the type's plain statements are found.

    The false positives of all types together must stay within ``QUIET_SHARE`` of balanced's, or
    within the bound of ``quiet`` on harmless texts. If that does not allow ``QUIET_FINDS``, the
    target of all types is the largest share that it allows. The target of a type is at most the
    share that ``balanced`` finds.
    """
    most = measured(texts, scores, balanced)
    harmless = max(
        MAX_FALSE_POSITIVE_RATE["quiet"], QUIET_SHARE * most.harmless.hits / max(most.harmless.n, 1)
    )
    plain = texts.pool == PLAIN
    stated = {kind: scores[plain & (texts.kind == kind)] for kind in BIAS_TYPES}
    stated = {kind: s if len(s) >= FEW else scores[plain] for kind, s in stated.items()}
    for share in np.arange(QUIET_FINDS, 0, -0.01):
        limits = {
            kind: min(quiet[kind], _reached(of, min(share, _share(of, balanced[kind]))))
            for kind, of in stated.items()
        }
        if _fits(texts, scores, limits, harmless, QUIET_SHARE * most.false_positive_rate):
            return limits
    return quiet


def _reached(scores: Floats, share: float) -> float:
    """Return the highest threshold on ``GRID`` that this share of the scores reaches."""
    return max((float(at) for at in GRID if _share(scores, at) >= share), default=float(GRID[0]))


def _share(scores: Floats, threshold: float) -> float:
    """Return the share of the scores that reaches a threshold; 0 without a score."""
    return float((scores >= threshold).mean()) if len(scores) else 0.0


def own_thresholds(texts: Judged, scores: Floats) -> dict[str, float]:
    """Return the threshold most accurate on the texts of each of ``COMMENTS``, for all types.

    A detector trained for that source only would choose it. Accuracy is averaged over ``WIDTH``;
    of thresholds as accurate the highest is taken, which gives the fewest false positives.
    """
    found = {}
    for pool in COMMENTS:
        inside = texts.pool == pool
        if inside.any():
            rate = _smooth(curves(texts.where(inside), scores[inside]).accuracy.rate)
            found[pool] = float(GRID[np.flatnonzero(rate == rate.max())[-1]])
    return found


class Found(NamedTuple):
    """``found`` of ``n`` texts that are biased."""

    found: int
    n: int


class Measured(NamedTuple):
    """The rates of one set of thresholds on comments, and the false positives on harmless texts.

    ``plain`` holds for each predicted type how many plain statements are found.
    """

    accuracy: float
    recall: float
    false_positive_rate: float
    harmless: Share
    pools: dict[str, Share]
    plain: dict[BiasType, Found]


def measured(texts: Judged, scores: Floats, thresholds: Thresholds) -> Measured:
    """Return the rates of one set of thresholds; ``pools`` has the false positives of each pool."""
    limit = np.array([thresholds[k] for k in texts.kind])
    predicted = scores >= limit

    def mean(hits: Bools, label: bool | None) -> float:
        rates = []
        for pool in COMMENTS:
            of = texts.pool == pool
            if label is not None:
                of &= texts.biased == label
            if of.any():
                rates.append(float(hits[of].mean()))
        return float(np.mean(rates)) if rates else float("nan")

    def false_positives(of: Bools) -> Share:
        of = of & ~texts.biased
        count, n = int(predicted[of].sum()), int(of.sum())
        return Share(count, n, upper_bound(count, n))

    def plain(kind: BiasType) -> Found:
        of = (texts.pool == PLAIN) & (texts.kind == kind)
        return Found(int(predicted[of].sum()), int(of.sum()))

    pools = {str(p): false_positives(texts.pool == p) for p in np.unique(texts.pool)}
    return Measured(
        mean(predicted == texts.biased, None),
        mean(predicted, True),
        mean(predicted, False),
        false_positives(np.isin(texts.pool, HARMLESS)),
        {name: share for name, share in pools.items() if share.n},
        {kind: plain(kind) for kind in BIAS_TYPES},
    )


def as_plain(of: Measured) -> dict[str, Any]:
    """Return the rates as plain values, for the figures of a release."""
    return {
        **of._asdict(),
        "harmless": of.harmless._asdict(),
        "pools": {name: share._asdict() for name, share in of.pools.items()},
        "plain": {kind: found._asdict() for kind, found in of.plain.items()},
    }


class Bin(NamedTuple):
    """Texts of like score: their weight, mean score and share of biased ones."""

    weight: float
    score: float
    biased: float


def reliability(scores: Floats, biased: Bools, weights: Floats, bins: int = 10) -> list[Bin]:
    """Return the reliability diagram in bins of equal weight, lowest scores first.

    Equal scores share a bin. Texts of no weight alone make none.
    """
    _, place = np.unique(scores, return_inverse=True)
    mass = np.bincount(place, weights)
    middle = (np.cumsum(mass) - mass / 2) / mass.sum()
    bin_of = np.minimum((middle * bins).astype(int), bins - 1)[place]
    found = []
    for b in np.unique(bin_of[weights > 0]):
        w = weights * (bin_of == b)
        total = float(w.sum())
        found.append(Bin(total, float(w @ scores) / total, float(w @ biased) / total))
    return found


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return the expected calibration error (Guo et al. 2017, equation 5)."""
    return sum(b.weight * abs(b.biased - b.score) for b in bins) / sum(b.weight for b in bins)


def calibration_interval(
    texts: Judged, scores: Floats, draws: int = 500, seed: int = 0
) -> tuple[float, float]:
    """Return the 95 % interval of the error by redrawing texts within each pool."""
    rng = np.random.default_rng(seed)
    pools = [np.flatnonzero(texts.pool == p) for p in np.unique(texts.pool)]
    found = []
    for _ in range(draws):
        ids = np.concatenate([rng.choice(p, len(p)) for p in pools])
        drawn = texts.where(ids)
        bins = reliability(scores[ids], drawn.biased, equal_weights(drawn))
        found.append(calibration_error(bins))
    return percentile(np.array(found))
