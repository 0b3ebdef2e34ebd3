"""A detector for tests: it finds what it is told to find, in the text of a window alone."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from guard.policy import DEFAULT_POINTS
from guard.verdict import Attribution, BiasType, Scores, Span, Window


class Scripted:
    """Scores 0.9 where ``pattern`` matches a window's text, 0.1 elsewhere.

    ``before`` is called with each window first: to record it, to sleep or to fail. ``types`` tells
    the bias type of a match by its text; it is gender else.
    """

    name = "scripted-1"
    operating_points: Mapping[str, Mapping[BiasType, float]] = DEFAULT_POINTS

    def __init__(
        self,
        pattern: str = "BIAS",
        before: Callable[[Window], None] | None = None,
        types: Mapping[str, BiasType] | None = None,
    ) -> None:
        self._pattern = re.compile(pattern)
        self._before = before
        self._types = types or {}
        self._lock = threading.Lock()
        self.index_version = "index-1"
        self.calls = 0

    def snapshot(self) -> Bound:
        return Bound(self, self.index_version)

    def score(self, window: Window) -> Scores:
        with self._lock:
            self.calls += 1
        if self._before is not None:
            self._before(window)
        match = self._pattern.search(window.text)
        if match is None:
            return Scores(0.1, "social")
        place = Span(*match.span())
        pair = Attribution(match.group(), match.group(), place, place)
        return Scores(0.9, self._types.get(match.group(), "gender"), (pair,))


class Bound:
    def __init__(self, detector: Scripted, index_version: str) -> None:
        self._detector = detector
        self.index_version = index_version

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        return [self._detector.score(w) for w in windows]


def failing(window: Window) -> None:
    raise RuntimeError(f"secret: {window.text}")


def slow(window: Window) -> None:
    time.sleep(0.3)
