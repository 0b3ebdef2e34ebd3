"""A cascade of any two detectors: the second judges what is doubtful to the first.

The second has a time limit of its own, inside the policy's. What it does not judge is unjudged: the
first detector's score never stands in for it.
Why: docs/decisions/band-on-the-firsts-scale.md.
"""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from guard.detect.band_files import DEFAULT_BAND, Band, doubt_scale
from guard.detect.cascade import Judged
from guard.detect.deferral import STRICT_TO_QUIET, Scale
from guard.detect.protocol import Detector, DetectorSession
from guard.detect.workers import ResponseQueue, ScoreRequest, Workers, batch_size, thread_count
from guard.errors import ConfigError
from guard.forks import Lock
from guard.places import CASCADE
from guard.verdict import BIAS_TYPES, BiasType, Scores, Window

_log = logging.getLogger("guard")
_FAILED = Scores(unjudged="failure")
T = TypeVar("T")


class Escalations(NamedTuple):
    """How many windows a cascade judged, gave to the second detector, and got no scores for."""

    windows: int
    escalated: int
    failed: int

    @property
    def share(self) -> float:
        """The share escalated; nan without a window."""
        return self.escalated / self.windows if self.windows else math.nan

    def since(self, before: Escalations) -> Escalations:
        """Return the numbers without those of ``before``."""
        return Escalations(*(now - then for now, then in zip(self, before, strict=True)))


def escalations_in_words(escalations: Escalations) -> str:
    """Return the numbers in words."""
    failed = f", {escalations.failed} of which it did not judge" if escalations.failed else ""
    return (
        f"Escalated: {escalations.escalated} of {escalations.windows} segments "
        f"({escalations.share:.1%}) went to the second detector{failed}."
    )


class BandCascade:
    """``first`` judges each window, and ``later`` again those whose score is in ``band``.

    Scores, references, spans and types are those of the detector that judged. A score of ``later``
    is mapped to the thresholds of ``first``, which are the cascade's (:class:`Scale`): it reaches
    one exactly if it reaches that of ``later`` at the same operating point. So a judge with one
    threshold, whose answer is yes or no, decides the same at all of them. Where two thresholds of
    ``first`` are one, the lower one of ``later`` counts.

    ``later`` also judges what ``first`` could not, except text outside the languages of ``first``:
    that stays unjudged here, and is judged by ``later`` in :attr:`every_language`.

    ``later`` is called in threads of the cascade's own, and has ``band.limit_ms`` for a window. If
    it fails or is late, the window is unjudged for the reason ``failure``.

    Thread-safe, as both detectors are. A score depends on no other window.

    Raises:
        ConfigError: a detector lacks a threshold, or has an invalid ``batch``.

    """

    def __init__(self, first: Detector, later: Detector, band: Band = DEFAULT_BAND) -> None:
        self._first, self._later, self._band = first, later, band
        for detector in (first, later):
            _check_points(detector)
        self._doubt = doubt_scale(first)
        self._scale = Scale(later.operating_points, first.operating_points)
        self._sizes = batch_size(first), batch_size(later)
        self._workers = Workers()
        self._counts = _EscalationCounts()
        self._reads_all = False
        self._every_language: BandCascade | None = None
        if hasattr(first, "languages") and not hasattr(later, "languages"):
            other = copy.copy(self)
            other._reads_all = True
            self._every_language = other

    @property
    def name(self) -> str:
        """``cascade:FIRST,NEXT@LOW-HIGH``, with the names and versions of both and the band."""
        ends = f"{self._band.low:g}-{self._band.high:g}"
        return f"{CASCADE}:{self._first.name},{self._later.name}@{ends}"

    @property
    def first(self) -> Detector:
        """The detector that judges every window."""
        return self._first

    @property
    def later(self) -> Detector:
        """The detector that judges what is in doubt."""
        return self._later

    @property
    def band(self) -> Band:
        """The scores of ``first`` that are in doubt, on the scale of bands."""
        return self._band

    @property
    def operating_points(self) -> Mapping[str, Mapping[BiasType, float]]:
        """Threshold per bias type for each operating point; those of ``first``."""
        return self._first.operating_points

    @property
    def batch(self) -> int:
        """The most windows of one call: the larger of the two detectors'."""
        return max(self._sizes)

    @property
    def thresholds(self) -> tuple[float, float]:
        """The lowest and the highest threshold: all, unless one of the two does not take all."""
        low, high = getattr(self._first, "thresholds", (0.0, 1.0))
        if hasattr(self._later, "thresholds"):
            # Its scores hold only between those that are mapped to these.
            points = self.operating_points
            low = max(low, min(points[STRICT_TO_QUIET[0]].values()))
            high = min(high, max(points[STRICT_TO_QUIET[-1]].values()))
        return low, high

    @property
    def concurrency(self) -> int:
        """The most calls at a time: as many as the detector takes that takes more."""
        return max(map(thread_count, (self._first, self._later)))

    @property
    def spent(self) -> Any:
        """What ``later`` or ``first`` tells of its cost, as a judge does.

        Raises AttributeError if neither does.
        """
        spender: Any = self._later if hasattr(self._later, "spent") else self._first
        return spender.spent

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO 639-1 codes of the languages of ``first``.

        Raises AttributeError if it has no such list, as a detector that reads any language.
        """
        codes: tuple[str, ...] = self._first.languages  # type: ignore[attr-defined]
        return codes

    @property
    def every_language(self) -> Detector:
        """The same cascade that gives ``later`` the text outside the languages of ``first``.

        Raises AttributeError if ``first`` reads any language, or ``later`` only some.
        """
        if self._every_language is None:
            raise AttributeError("every_language")
        return self._every_language

    @property
    def asks(self) -> str:
        """What ``later`` or ``first`` tells of whom it asks, as a judge does; empty if neither."""
        told = (getattr(one, "asks", "") for one in (self._later, self._first))
        return next((text for text in told if text), "")

    def escalations(self) -> Escalations:
        """Return what was judged, and by which of the two, since the cascade was made."""
        return self._counts.sums

    def ready(self, seconds: float) -> bool:
        """Whether both detectors have what they make beside their work; wait at most so long."""
        until = time.monotonic() + seconds
        waits = [wait for d in (self._first, self._later) if (wait := getattr(d, "ready", None))]
        return all(wait(max(0.0, until - time.monotonic())) for wait in waits)

    def snapshot(self) -> BandSession:
        """Return a session bound to the present versions of both detectors' indexes."""
        return BandSession(self, self._first.snapshot(), self._later.snapshot())

    def judge(
        self, windows: Sequence[Window], first: DetectorSession, queue: ResponseQueue
    ) -> list[Judged]:
        """Judge windows by a session of ``first``, and by the queue of one of ``later``."""
        scored = [
            s for lot in _in_lots(windows, self._sizes[0]) for s in _checked_scores(first, lot)
        ]
        judged = [Judged(scores, self._in_doubt(scores)) for scores in scored]
        doubtful = [i for i, one in enumerate(judged) if one.deferred]
        # No more at a time than the threads judge at once: so none waits for another one's limit.
        for lot in _in_lots(doubtful, queue.threads * self._sizes[1]):
            answers = self._escalated_scores([windows[i] for i in lot], queue)
            for i, scores in zip(lot, answers, strict=True):
                judged[i] = Judged(self._mapped_scores(scores), True)
        failed = sum(one.deferred and one.scores.unjudged is not None for one in judged)
        self._counts.add(Escalations(len(judged), len(doubtful), failed))
        return judged

    def _in_doubt(self, scores: Scores) -> bool:
        """Whether ``later`` must judge."""
        if scores.unjudged == "language":
            return self._reads_all
        if scores.unjudged is not None or scores.score is None or scores.bias_type is None:
            return True
        if not 0 <= scores.score <= 1 or scores.bias_type not in BIAS_TYPES:
            return True
        return self._doubt.mapped(scores.score, scores.bias_type) in self._band

    def _mapped_scores(self, scores: Scores) -> Scores:
        """Return scores of ``later`` at the thresholds of ``first``; a worker has checked them."""
        if scores.unjudged is not None or scores.score is None or scores.bias_type is None:
            return scores
        return replace(scores, score=self._scale.mapped(scores.score, scores.bias_type))

    def _escalated_scores(self, windows: Sequence[Window], queue: ResponseQueue) -> list[Scores]:
        """Return the scores of ``later``; ``failure`` where it has none in time."""
        requests = [self._workers.submit(queue, window) for window in windows]
        until = time.monotonic() + self._band.limit_ms / 1000
        try:
            return [self._awaited_answer(request, until) for request in requests]
        finally:
            for request in requests:
                self._workers.cancel(request)

    def _awaited_answer(self, request: ScoreRequest, until: float) -> Scores:
        try:
            answer = request.future.result(max(0.0, until - time.monotonic()))
        except FutureTimeoutError:
            self._workers.replace_hung()
            _log.error(
                "detector %s gave no verdict on a doubtful segment within limit_ms (%g ms)",
                self._later.name,
                self._band.limit_ms,
            )
            return _FAILED
        # Not what `first` gave: the window was in doubt, and nobody has decided it.
        return _FAILED if answer.scores is None else answer.scores

    def queue(self, later: DetectorSession) -> ResponseQueue:
        """Return a queue of windows for a session of ``later``."""
        return ResponseQueue(self._later, later, self._band.limit_ms / 1000)


class _EscalationCounts:
    """Sums; thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.sums = Escalations(0, 0, 0)

    def add(self, escalations: Escalations) -> None:
        with self._lock:
            self.sums = Escalations(*(a + b for a, b in zip(self.sums, escalations, strict=True)))


class LaterFailed(Exception):
    """The second detector failed, or gave no scores in time."""


class BandSession:
    """The cascade bound to one version of each detector's index."""

    def __init__(self, cascade: BandCascade, first: DetectorSession, later: DetectorSession):
        self._cascade = cascade
        self._first = first
        self._queue = cascade.queue(later)
        self._index_version = later.index_version or first.index_version

    @property
    def index_version(self) -> str | None:
        """Content hash of the bias index of ``later``, else of ``first``; None without any."""
        return self._index_version

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        """Return one :class:`Scores` for each window, in order.

        Raises LaterFailed if the call has one window and ``later`` failed on it, so that the
        policy's breaker counts it. Of several windows each has its own outcome.
        """
        scores = [one.scores for one in self._cascade.judge(windows, self._first, self._queue)]
        if len(scores) == 1 and scores[0] is _FAILED:
            raise LaterFailed
        return scores

    def judged(self, window: Window) -> Judged:
        """Return the scores of a window, and whether ``later`` was asked for them."""
        return self._cascade.judge([window], self._first, self._queue)[0]


def _in_lots(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[i : i + size] for i in range(0, len(items), size)]


def _checked_scores(session: DetectorSession, windows: Sequence[Window]) -> list[Scores]:
    """Return the scores of a call; raises ValueError if it has not as many as windows."""
    scores = list(session.score(windows))
    if len(scores) != len(windows):
        raise ValueError(f"{len(windows)} windows got {len(scores)} scores")
    return scores


def _check_points(detector: Detector) -> None:
    points = detector.operating_points
    for point in STRICT_TO_QUIET:
        for kind in BIAS_TYPES:
            if kind not in points.get(point, {}):
                raise ConfigError(
                    f"Detector {detector.name} has no threshold of {kind} at the operating point "
                    f"{point!r}; a cascade needs those of {', '.join(STRICT_TO_QUIET)}."
                )
