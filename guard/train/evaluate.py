"""Figures of exported weights through the path of the guard: segments, context, maximum."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.detect.encoder import Encoder
from guard.gate.context import in_context
from guard.gate.segmenter import split
from guard.train.metrics import auroc
from guard.train.sources import in_bold_share, read_jsonl
from guard.verdict import BiasType, Scores, Window


class Binary(NamedTuple):
    """Figures of n texts against labels; rates are nan without a text of that label.

    ``miss`` is the share of biased texts not found, ``alarm`` that of harmless texts found.
    """

    n: int
    prevalence: float
    accuracy: float
    f1: float
    auroc: float
    miss: float
    alarm: float


def windows(text: str) -> list[Window]:
    """Return the windows the gate would have judged of a whole text."""
    parts = [s.text for s in split(text)]
    return [Window(part, before) for part, before in in_context(parts) if part.strip()]


def segments(encoder: Encoder, texts: Iterable[str]) -> list[list[Scores]]:
    """Return the scores of each text's segments."""
    session = encoder.snapshot()
    return [session.score(windows(text)) for text in texts]


def highest(scores: Sequence[Scores]) -> Scores:
    """Return the scores of a text's highest segment."""
    return max(scores, key=lambda s: s.score)


def binary(
    scores: Sequence[Sequence[Scores]],
    labels: Sequence[bool],
    thresholds: dict[BiasType, float] | float,
) -> Binary:
    """Compare verdicts at a threshold (one for all, or per type) with labels.

    ``scores`` are those of each text's segments. A text is called biased where any of them reaches
    the threshold of its own type, as the guard does; the area under the curve is of the highest.
    """

    def reaches(s: Scores) -> bool:
        limit = thresholds if isinstance(thresholds, float) else thresholds[s.bias_type]
        return s.score >= limit

    score: NDArray[np.float64] = np.array([highest(of).score for of in scores])
    said = np.array([any(map(reaches, of)) for of in scores], bool)
    return rates(score, said, np.array(labels, bool))


def rates(score: NDArray[np.float64], said: NDArray[np.bool_], y: NDArray[np.bool_]) -> Binary:
    """Compare what was said of n texts, and the scores it was said for, with labels."""
    hit = int((said & y).sum())
    wrong = int((said != y).sum())
    return Binary(
        len(y),
        float(y.mean()),
        float((said == y).mean()),
        2 * hit / (2 * hit + wrong) if hit + wrong else float("nan"),
        auroc(score, y.astype(float)),
        float((~said[y]).mean()) if y.any() else float("nan"),
        float(said[~y].mean()) if (~y).any() else float("nan"),
    )


class Labelled(NamedTuple):
    """Texts with labels, and the bias type of each where the set names one."""

    texts: list[str]
    labels: list[bool]


def redditbias_eval(data: Path) -> Labelled:
    """RedditBias comments held out for evaluation; rows without a label are left out."""
    rows = [r for r in read_jsonl(data / "redditbias" / "eval.jsonl") if r["bias_sent"] is not None]
    return Labelled([r["comment"] for r in rows], [r["bias_sent"] == 1 for r in rows])


def emgsd_eval(data: Path) -> Labelled:
    """EMGSD's evaluation part: stereotypes against neutral and unrelated texts."""
    rows = list(read_jsonl(data / "emgsd" / "eval.jsonl"))
    return Labelled([r["text"] for r in rows], [r["category"] == "stereotype" for r in rows])


def crows_eval(data: Path) -> Labelled:
    """CrowS-Pairs: the more stereotyping sentence is biased, its counterpart is not.

    Only rows of direction ``stereo``. The counterpart often repeats the stereotype of another
    group, so the set bounds a detector of single sentences well below 1.
    """
    rows = [
        r for r in read_jsonl(data / "crows_pairs" / "eval.jsonl") if r["direction"] == "stereo"
    ]
    more, less = [r["sent_more"] for r in rows], [r["sent_less"] for r in rows]
    return Labelled([*more, *less], [True] * len(more) + [False] * len(less))


def toxicbias_eval(data: Path) -> Labelled:
    """ToxicBias's evaluation part."""
    rows = list(read_jsonl(data / "toxicbias" / "eval.jsonl"))
    return Labelled([r["text"] for r in rows], [str(r["bias"]) in ("1", "bias") for r in rows])


def bold_eval(data: Path, count: int = 3000, seed: int = 0) -> Labelled:
    """Draw from the BOLD Wikipedia sentences that training may not see: all harmless."""
    texts = [
        r["text"]
        for r in read_jsonl(data / "bold" / "wikipedia.jsonl")
        if not in_bold_share(r["text"])
    ]
    chosen = random.Random(seed).sample(texts, min(count, len(texts)))
    return Labelled(chosen, [False] * len(chosen))
