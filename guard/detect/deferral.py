r"""The head of a cascade: how likely the last detector is to decide otherwise than the first.

It reads what the first detector's pass gives anyway. Features :math:`x`, scaled to mean 0 and
variance 1 and cut at 5:

.. math::
    p = \sigma(w \cdot x + v \cdot relu(W x + b) + c)
Why: docs/decisions/a-head-defers.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from guard.detect.encoder import Seen, sigmoid
from guard.policy import Points
from guard.verdict import BIAS_TYPES, BiasType

Floats = NDArray[np.float32]

# The operating points, the most tolerant last.
STRICT_TO_QUIET = ("strict", "balanced", "quiet")
#: A standardised feature is cut here: a text unlike all that the head has seen gives no huge one.
MOST_DEVIATION = 5.0
# Centres of the bumps that let the head weigh a score by where it lies.
_CENTRES = np.arange(-5.0, 5.5, 1.0, dtype=np.float32)
_LEAST_SCORE = 1e-7


class Scale:
    """Maps the first detector's scores so that its thresholds become those of the last.

    For each bias type: piecewise linear between the logits of ``strict``, ``balanced`` and
    ``quiet``, and shifted beyond them. A mapped score reaches a threshold of the last detector
    exactly if the score itself reaches that of the first.
    """

    def __init__(self, first: Points, last: Points) -> None:
        self._knots = {
            kind: (
                [first[p][kind] for p in STRICT_TO_QUIET],
                [last[p][kind] for p in STRICT_TO_QUIET],
            )
            for kind in BIAS_TYPES
        }

    def mapped(self, score: float, kind: BiasType) -> float:
        """Return the mapped score of a text of type ``kind``, in [0, 1]."""
        mapped = sigmoid(self.logit(score, kind))
        pairs = list(zip(*self._knots[kind], strict=True))
        # Rounding must not carry a score over a threshold; where two of the last detector are one,
        # the score is above.
        for own, others in pairs:
            if score < own:
                mapped = min(mapped, math.nextafter(others, 0))
        for own, others in pairs:
            if score >= own:
                mapped = max(mapped, others)
        return mapped

    def logit(self, score: float, kind: BiasType) -> float:
        """Return the logit of the mapped score."""
        before, after = ([logit_of(t) for t in knots] for knots in self._knots[kind])
        at = logit_of(score)
        if at <= before[0]:
            return at - before[0] + after[0]
        if at >= before[-1]:
            return at - before[-1] + after[-1]
        return float(np.interp(at, before, after))


@dataclass(frozen=True, slots=True)
class Deferral:
    """The head and its ``bound``: a window whose probability reaches it is deferred.

    ``mean`` and ``deviation`` (f,), ``direct`` (f,), ``hidden`` (h, f), ``hidden_bias`` (h,),
    ``out`` (h,).
    """

    bound: float
    mean: Floats
    deviation: Floats
    direct: Floats
    hidden: Floats
    hidden_bias: Floats
    out: Floats
    bias: float

    def probability(self, features: Floats) -> float:
        """Return the probability that the last detector decides otherwise; nan stays nan."""
        x = np.clip((features - self.mean) / self.deviation, -MOST_DEVIATION, MOST_DEVIATION)
        inner = np.maximum(self.hidden @ x + self.hidden_bias, 0)
        return sigmoid(float(self.direct @ x + self.out @ inner) + self.bias)

    def defers(self, features: Floats) -> bool:
        """Whether the last detector must judge; what is no number defers."""
        return not self.probability(features) < self.bound


def features_of(seen: Seen, scale: Scale, inputs: int) -> Floats:
    """Return the features of a window, (f,).

    ``seen`` is the input with the highest score of the ``inputs`` that the window was read as.
    """
    scores, out, encoded = seen.scores, seen.out, seen.encoded
    assert scores.score is not None
    assert scores.bias_type is not None
    at = scale.logit(scores.score, scores.bias_type)
    kinds = np.exp(seen.types - seen.types.max())
    kinds /= kinds.sum()
    own = len(encoded.offsets)
    spans = out.spans[1 : own + 1]
    highest = spans.max(axis=0) if own else np.full(2, -9.0)
    shown = len(encoded.ids) - own - 2
    near = [r.similarity for r in scores.references]
    numbers = [
        at,
        abs(at),
        out.logit,
        seen.lexical,
        out.implied,
        float(kinds.max()),
        *highest.tolist(),
        float(highest.min()),
        len(scores.attributions),
        math.log1p(own),
        math.log1p(shown),
        float(shown > 0),
        len(near),
        max(near, default=0.0),
        inputs,
    ]
    bumps = np.exp(-((at - _CENTRES) ** 2))
    return np.concatenate([np.array(numbers, np.float32), bumps, kinds, out.state]).astype(
        np.float32
    )


def logit_of(score: float) -> float:
    """Return the logit of a score; one of 0 or 1 counts as almost so."""
    p = min(max(score, _LEAST_SCORE), 1 - _LEAST_SCORE)
    return math.log(p / (1 - p))
