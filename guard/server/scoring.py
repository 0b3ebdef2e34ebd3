"""Scores windows for requests: within a bounded queue, by the version asked for, until a deadline.

The detector runs in the threads that judge for streams (:mod:`guard.detect.workers`); a request is
one of their queues. A window whose deadline passes before its turn is dropped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from guard.detect import loop_bridge
from guard.detect.description import DetectorDescription
from guard.detect.protocol import Detector, DetectorSession, Window
from guard.detect.scoring import Timed
from guard.detect.wire import plain_scores
from guard.detect.workers import ResponseQueue, ScoreRequest, Workers, thread_count
from guard.server.metrics import ServerMetrics
from guard.server.settings import MOST_BYTES, MOST_VERSIONS, ServerLimits

_TRIAL = Window("A trial.")
_MOST_FAILURES = 3  # in a row, after which a trial tells whether the detector works
_TRIAL_PAUSE = 2.0  # seconds between trials
_SNAPSHOT_PAUSE = 0.1  # seconds, in which sessions of the newest index are shared
_LOOK = 1.0  # seconds, after which a window that waits has hung threads replaced


class Refused(Exception):
    """A request that is not served: its status, a word for it, a sentence, and headers."""

    def __init__(self, status: int, word: str, sentence: str, **more: Any) -> None:
        super().__init__(sentence)
        self.status = status
        self.answer = {"error": word, "message": sentence, **more}
        self.headers = {"retry-after": "1"} if status == 503 else {}


class ScoreBatch(NamedTuple):
    """What a request asks for; ``until`` is its deadline, of ``time.monotonic()``."""

    request: str
    windows: Sequence[Window]
    index_version: str | None
    newest: bool  # whichever version that is
    every_language: bool
    until: float


class _SessionKeeper:
    """The sessions of the last versions of a detector's index; a running stream keeps its own."""

    def __init__(self, detector: Detector) -> None:
        self.detector = detector
        self._kept: dict[str | None, DetectorSession] = {}
        self._again = 0.0
        self.newest()

    def newest(self) -> DetectorSession:
        """Return a session of the newest version."""
        now = time.monotonic()
        if now >= self._again:
            session = self.detector.snapshot()
            self._again = now + _SNAPSHOT_PAUSE
            self._kept.pop(session.index_version, None)
            self._kept[session.index_version] = session
            while len(self._kept) > MOST_VERSIONS:
                del self._kept[next(iter(self._kept))]
        return next(reversed(self._kept.values()))

    def session_of(self, version: str | None) -> DetectorSession | None:
        """Return a session of a version; None if it is not kept."""
        self.newest()
        return self._kept.get(version)

    @property
    def versions(self) -> list[str | None]:
        """The versions that are kept, the newest last."""
        self.newest()
        return list(self._kept)


class ScoringService:
    """Scores for requests, all on one event loop. ``draining``: new requests are refused."""

    def __init__(self, detector: Detector, limits: ServerLimits, metrics: ServerMetrics) -> None:
        self.limits = limits
        self.draining = False
        #: Windows that are accepted and not answered yet.
        self.accepted = 0
        self._metrics = metrics
        self._workers = Workers()
        self._keeper = _SessionKeeper(detector)
        every_language = getattr(detector, "every_language", None)
        self._every_language = None if every_language is None else _SessionKeeper(every_language)
        self._failures = 0  # in a row
        self._trial_at = 0.0
        thread_count(detector)  # raises ConfigError now, if it is invalid
        self._description = DetectorDescription.of(detector, self._keeper.versions, limits.windows)

    def describe(self) -> dict[str, Any]:
        """Return what ``GET /v1/detector`` tells."""
        versions = tuple(self._keeper.versions)
        described = replace(
            self._description, index_version=versions[-1], index_versions=versions
        ).to_plain()
        limits = self.limits
        described["limits"] |= {
            "bytes": MOST_BYTES,
            "queue": limits.queue,
            "timeout_s": limits.timeout_s,
        }
        return described

    def check_room(self, windows: int) -> None:
        """Raise Refused if so many further windows cannot be accepted."""
        if self.draining:
            raise Refused(503, "draining", "This server is about to end; ask another one.")
        if self.accepted + windows > self.limits.queue:
            self._metrics.count_windows("refused", windows)
            raise Refused(503, "overloaded", "Too many windows wait; ask again later.")

    async def answer(self, batch: ScoreBatch) -> dict[str, Any]:
        """Return the answer to a request: an item of scores, or an error, for each window.

        Raises:
            Refused: there is no room, or the version of the index is not kept.

        """
        self.check_room(len(batch.windows))
        keeper = self._keeper_of(batch)
        session = keeper.newest() if batch.newest else keeper.session_of(batch.index_version)
        if session is None:
            raise Refused(
                409,
                "unknown_index_version",
                "No session of this version of the bias index is kept.",
                newest_index_version=keeper.versions[-1],
                index_versions=keeper.versions,
            )
        queue = ResponseQueue(keeper.detector, session, self.limits.timeout_s)
        requests: list[ScoreRequest] = []
        self.accepted += len(batch.windows)
        try:
            requests += [self._workers.submit(queue, window) for window in batch.windows]
            items = [await self._item(request, batch.until) for request in requests]
        finally:
            self.accepted -= len(batch.windows)
            for request in requests:
                self._workers.cancel(request)
        return {
            "request": batch.request,
            "detector": self._description.detector,
            "weights": self._description.weights,
            "index_version": session.index_version,
            "newest_index_version": keeper.newest().index_version,
            "items": items,
        }

    async def can_score(self) -> bool:
        """Whether windows are accepted and the detector works: by its last calls, or by a trial."""
        if self.draining:
            return False
        if self._failures >= _MOST_FAILURES and time.monotonic() >= self._trial_at:
            self._trial_at = time.monotonic() + _TRIAL_PAUSE
            queue = ResponseQueue(
                self._keeper.detector, self._keeper.newest(), self.limits.timeout_s
            )
            request = self._workers.submit(queue, _TRIAL)
            await self._item(request, time.monotonic() + self.limits.timeout_s)
            self._workers.cancel(request)
        return self._failures < _MOST_FAILURES

    def _keeper_of(self, batch: ScoreBatch) -> _SessionKeeper:
        if not batch.every_language:
            return self._keeper
        if self._every_language is None:
            raise Refused(400, "bad_request", "This detector has no reader of every language.")
        return self._every_language

    async def _item(self, request: ScoreRequest, until: float) -> dict[str, Any]:
        """Return the item of a window once it is scored, or the error at its deadline."""
        bridge = loop_bridge.Bridge(request.future)
        while True:
            left = until - time.monotonic()
            if left <= 0 and not request.future.done():
                return self._late_item(request)
            try:
                return self._scored_item(await bridge.result(min(left, _LOOK)))
            except asyncio.TimeoutError:
                self._workers.replace_hung()
                began = request.began
                if began is not None and time.monotonic() > began + self.limits.timeout_s:
                    return self._failed_item()

    def _scored_item(self, answer: Timed) -> dict[str, Any]:
        scores = answer.scores
        if scores is None:
            return self._failed_item()
        self._failures = 0
        self._metrics.count_scored(answer.elapsed_ms / 1000, unjudged=scores.unjudged is not None)
        return {"scores": plain_scores(scores)}

    def _failed_item(self) -> dict[str, Any]:
        self._failures += 1
        self._metrics.count_windows("failed")
        return {"error": "failed"}

    def _late_item(self, request: ScoreRequest) -> dict[str, Any]:
        self._workers.cancel(request)
        if request.began is not None:
            elapsed = time.monotonic() - request.began
            if elapsed >= self.limits.timeout_s:
                self._failures += 1
        self._metrics.count_windows("late")
        return {"error": "late"}
