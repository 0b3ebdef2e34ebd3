"""Asks a detector, and takes nothing for an answer that is no score."""

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
    """Scores, and the milliseconds they took; None where there are none, for a ``reason``."""

    scores: Scores | None
    elapsed_ms: float
    reason: Unjudged = "failure"


def timed(session: DetectorSession, window: Window) -> Timed:
    """Have one window scored; raises as :func:`timed_many` does."""
    return timed_many(session, [window])[0]


def timed_many(session: DetectorSession, windows: Sequence[Window]) -> list[Timed]:
    """Have windows scored in one call.

    Raises only what is no Exception and no cancellation, as KeyboardInterrupt.
    Where the call fails, each is asked for by itself: what one window brings about is no fault of
    those beside it.
    """
    begin = time.perf_counter()
    given: list[Scores] = []
    try:
        given = list(session.score(windows))
        if len(given) != len(windows):
            raise ValueError
    except (Exception, asyncio.CancelledError) as error:
        if len(windows) > 1:
            return [timed(session, window) for window in windows]
        # The error's own text may quote the passage: only its type is logged.
        _log.error("detector failed with %s", type(error).__name__)
        return [Timed(None, (time.perf_counter() - begin) * 1000)]
    elapsed = (time.perf_counter() - begin) * 1000
    return [Timed(_checked(scores), elapsed) for scores in given]


def _checked(given: Scores) -> Scores | None:
    if _is_score(given):
        return given
    _log.error("detector gave %s, which is no score", type(given).__name__)
    return None


def _is_score(given: object) -> bool:
    """Whether a detector's answer can be judged by: nan would pass for harmless."""
    if not isinstance(given, Scores) or given.score is None:
        return isinstance(given, Scores) and given.unjudged is not None
    return 0 <= given.score <= 1 and given.bias_type in BIAS_TYPES
