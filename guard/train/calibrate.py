"""Temperature and operating points, chosen on validation texts alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.detect.encoder import Encoder
from guard.train.corpus import VALIDATION_SHARE
from guard.train.evaluate import Labelled, highest
from guard.train.own import HERE
from guard.train.rows import fold, share
from guard.train.sources import in_bold_share, read_jsonl

Array = NDArray[np.float64]


def _held_out(family: str) -> bool:
    return share(family, "validation") < VALIDATION_SHARE


def redditbias_validation(data: Path) -> Labelled:
    """Whole comments of RedditBias's training file whose family validates."""
    rows = [
        r
        for r in read_jsonl(data / "redditbias" / "train.jsonl")
        if r["bias_sent"] is not None and _held_out(f"redditbias:{fold(r['comment'])}")
    ]
    return Labelled([r["comment"] for r in rows], [r["bias_sent"] == 1 for r in rows])


def own_validation(statements: Path, folder: Path = HERE) -> Labelled:
    """Own negatives and both halves of own pairs that validate."""
    negatives = [r["text"] for r in read_jsonl(folder / "negatives.jsonl")]
    negatives = [t for t in negatives if _held_out(f"own:{fold(t)}")]
    pairs = [
        r for r in read_jsonl(folder / "pairs.jsonl") if _held_out(f"pair:{fold(r['biased'])}")
    ]
    biased = [r["biased"] for r in pairs]
    harmless = [*negatives, *(r["harmless"] for r in pairs)]
    return Labelled([*biased, *harmless], [True] * len(biased) + [False] * len(harmless))


def bold_validation(data: Path) -> Labelled:
    """BOLD sentences of the training share that validate: all harmless."""
    texts = [
        r["text"]
        for r in read_jsonl(data / "bold" / "wikipedia.jsonl")
        if in_bold_share(r["text"]) and _held_out(f"bold:{fold(r['text'])}")
    ]
    return Labelled(texts, [False] * len(texts))


def logits(encoder: Encoder, texts: Sequence[str], temperature: float) -> Array:
    """Return the logit of each text's highest segment, undoing ``temperature``."""
    p = np.clip([s.score for s in highest(encoder, texts)], 1e-9, 1 - 1e-9)
    found: Array = np.log(p / (1 - p)) * temperature
    return found


def fit_temperature(values: Array, labels: Array) -> float:
    """Return the temperature with the least log loss, searched on a grid from 0.5 to 5."""
    grid = np.geomspace(0.5, 5, 120)
    signed = np.where(labels > 0, values, -values)
    loss = [np.log1p(np.exp(-np.clip(signed / t, -500, 500))).mean() for t in grid]
    return float(grid[int(np.argmin(loss))])


class Point(NamedTuple):
    """A threshold with what it gives on validation."""

    threshold: float
    accuracy: float
    recall: float
    alarms: float


def operating_points(scores: Array, labels: Array, harmless: Array) -> dict[str, Point]:
    """Choose thresholds on calibrated scores in [0, 1].

    ``scores`` and ``labels`` are those of RedditBias validation, ``harmless`` the scores of own
    and encyclopaedic harmless texts. ``balanced`` is the most accurate threshold with at most
    1 % alarms on ``harmless``; ``quiet`` has at most 0.4 % there and at most half of balanced's
    alarms on RedditBias; ``strict`` finds at least 90 % of the biased comments.
    """
    y = labels > 0
    grid = np.round(np.arange(0.02, 0.995, 0.005), 3)

    def at(t: float) -> Point:
        said = scores >= t
        return Point(
            float(t),
            float((said == y).mean()),
            float(said[y].mean()),
            float((harmless >= t).mean()),
        )

    points = [at(t) for t in grid]
    allowed = [p for p in points if p.alarms <= 0.01] or points[-1:]
    # Near-equal accuracies are noise: of those within 0.3 points the middle threshold is taken.
    top = max(p.accuracy for p in allowed)
    near = [p for p in allowed if p.accuracy >= top - 0.003]
    balanced = near[len(near) // 2]
    false = float((scores[~y] >= balanced.threshold).mean())
    quiet = next(
        (
            p
            for p in points
            if p.threshold > balanced.threshold
            and p.alarms <= 0.004
            and float((scores[~y] >= p.threshold).mean()) <= false / 2
        ),
        points[-1],
    )
    sharp = [p for p in points if p.recall >= 0.9 and p.threshold < balanced.threshold]
    strict = sharp[-1] if sharp else at(round(balanced.threshold / 2, 3))
    return {"strict": strict, "balanced": balanced, "quiet": quiet}
