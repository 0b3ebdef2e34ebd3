"""The first detector of a cascade: an encoder that keeps what led to its scores."""

from __future__ import annotations

import threading
from typing import NamedTuple

from guard.detect.deferral import Floats, Scale, features_of
from guard.detect.encoder import Encoder, Seen
from guard.detect.tokens import MAX_TOKENS
from guard.retrieve.index import BiasIndex
from guard.verdict import Scores, Window


class FirstScores(NamedTuple):
    """The first detector's scores of a window, and the features (f,) of the head.

    Without ``features`` only the last detector can judge: the first left the window unjudged, read
    it in several parts, or gave no number.
    """

    scores: Scores
    features: Floats | None


class FirstEncoder(Encoder):
    """An encoder that says what its passes gave. Thread-safe."""

    _thread = threading.local()

    def saw(self, seen: Seen) -> None:
        """Keep it for the window that this thread judges."""
        self._thread.seen.append(seen)

    def judge_with_features(
        self, window: Window, index: BiasIndex | None, scale: Scale
    ) -> FirstScores:
        """Score a window; also return the features of its score."""
        seen: list[Seen] = []
        self._thread.seen = seen
        scores = self.judge(window, index)
        # The score of a window is the highest of its inputs.
        best = next((s for s in seen if s.scores.score == scores.score), None)
        if scores.unjudged is not None or best is None or any(map(_is_part, seen)):
            return FirstScores(scores, None)
        return FirstScores(scores, features_of(best, scale, len(seen)))


def _is_part(seen: Seen) -> bool:
    return len(seen.encoded.offsets) >= MAX_TOKENS - 2
