"""Calls a detector and validates its scores.

Why: docs/decisions/one-window-at-a-time.md.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import NamedTuple

from guard.detect.protocol import DetectorSession
from guard.verdict import BIAS_TYPES, Scores, Unjudged, Window

_log = logging.getLogger("guard")


class Timed(NamedTuple):
    """Scores, or None with a ``reason`` if there are none; and the time they took."""

    scores: Scores | None
    elapsed_ms: float
    reason: Unjudged = "failure"


def timed_score(session: DetectorSession, window: Window) -> Timed:
    """Score one window; see :func:`timed_many`."""
    return timed_many(session, [window])[0]


def timed_many(session: DetectorSession, windows: Sequence[Window]) -> list[Timed]:
    """Score windows in one call.

    If the call fails, each window is scored separately, so that a failure on one does not affect
    the others. Raises only BaseExceptions such as KeyboardInterrupt.
    """
    begin = time.perf_counter()
    scored: list[Scores] = []
    try:
        scored = list(session.score(windows))
        if len(scored) != len(windows):
            raise ValueError
    except (Exception, asyncio.CancelledError) as error:
        if len(windows) > 1:
            return [timed_score(session, window) for window in windows]
        # Only the type is logged: the error's message may quote the passage.
        _log.error("detector failed with %s", type(error).__name__)
        return [Timed(None, (time.perf_counter() - begin) * 1000)]
    elapsed = (time.perf_counter() - begin) * 1000
    return [Timed(_single_scores(scores), elapsed) for scores in scored]


def _single_scores(scores: Scores) -> Scores | None:
    if _is_valid(scores):
        return scores
    _log.error("detector returned %s, which is not a score", type(scores).__name__)
    return None


def _is_valid(scores: object) -> bool:
    """Whether a detector's output is valid; nan is not: it would count as harmless."""
    if not isinstance(scores, Scores) or scores.score is None:
        return isinstance(scores, Scores) and scores.unjudged is not None
    return 0 <= scores.score <= 1 and scores.bias_type in BIAS_TYPES
