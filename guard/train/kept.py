"""A detector whose scores are kept in a file, so that an interrupted command resumes.

A line has the hash of a window and what the detector gave; no text is kept.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from guard.detect.band_files import PairMember
from guard.detect.protocol import Detector, DetectorSession
from guard.detect.scoring import timed_many
from guard.detect.workers import batch_size
from guard.errors import UsageError
from guard.verdict import BIAS_TYPES, BiasType, Scores, Window


class KeptScores(NamedTuple):
    """What a detector gave for a window, without spans and references, and its time in ms."""

    scores: Scores
    ms: float


class KeepingDetector:
    """``detector``, which is asked for each window once: its scores are kept in ``folder``.

    A window that it fails on is not kept, and is asked for again by the next command. Its present
    index belongs to the key, so scores with another index are others. Thread-safe.

    Raises UsageError if the file cannot be read or written.
    """

    def __init__(self, detector: Detector, folder: Path) -> None:
        self._detector = detector
        self._session = detector.snapshot()
        self._lock = threading.Lock()
        key = repr((*PairMember.of(detector), self._session.index_version))
        self._path = folder / f"scores-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsonl"
        self._kept: dict[str, KeptScores] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            data = self._path.read_bytes() if self._path.exists() else b""
        except OSError as error:
            raise UsageError(f"{self._path} cannot be opened ({error.strerror}).") from None
        # The last line may have been cut short.
        self._end = b"" if data.endswith(b"\n") or not data else b"\n"
        for line in data.split(b"\n"):
            with suppress(ValueError, LookupError, TypeError):
                raw = json.loads(line)
                self._kept[raw["window"]] = _parsed_scores(raw)

    @property
    def name(self) -> str:
        """The detector's."""
        return self._detector.name

    @property
    def operating_points(self) -> Mapping[str, Mapping[BiasType, float]]:
        """The detector's."""
        return self._detector.operating_points

    @property
    def batch(self) -> int:
        """The detector's, or 1."""
        return batch_size(self._detector)

    def snapshot(self) -> DetectorSession:
        """Return the detector's session of the beginning, with the kept scores."""
        return _KeepingSession(self)

    @property
    def index_version(self) -> str | None:
        """That of the detector's session."""
        return self._session.index_version

    def judged(self, windows: Sequence[Window]) -> list[KeptScores]:
        """Return what the detector gives for windows; ``failure`` for those that it fails on."""
        keys = [_window_key(window) for window in windows]
        missing = {k: w for k, w in zip(keys, windows, strict=True) if k not in self._kept}
        failed = {}
        if missing:
            for key, judged in zip(
                missing, timed_many(self._session, [*missing.values()]), strict=True
            ):
                ms = judged.elapsed_ms / len(missing)
                if judged.scores is None:
                    failed[key] = KeptScores(Scores(unjudged="failure"), ms)
                else:
                    self._keep_scores(key, KeptScores(judged.scores, ms))
        return [failed.get(key) or self._kept[key] for key in keys]

    def _keep_scores(self, key: str, judged: KeptScores) -> None:
        scores = judged.scores
        small = Scores(scores.score, scores.bias_type, unjudged=scores.unjudged)
        line = {
            "window": key,
            "score": small.score,
            "bias_type": small.bias_type,
            "unjudged": small.unjudged,
            "ms": round(judged.ms, 3),
        }
        with self._lock:
            self._kept[key] = KeptScores(small, judged.ms)
            try:
                with self._path.open("ab") as file:
                    file.write(self._end + json.dumps(line).encode() + b"\n")
                self._end = b""
            except OSError as error:
                raise UsageError(f"{self._path} cannot be written ({error.strerror}).") from None


class _KeepingSession:
    def __init__(self, detector: KeepingDetector) -> None:
        self._detector = detector

    @property
    def index_version(self) -> str | None:
        return self._detector.index_version

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        return [found.scores for found in self._detector.judged(windows)]


def _window_key(window: Window) -> str:
    data = repr((window.text, window.context, window.user)).encode(errors="surrogatepass")
    return hashlib.sha256(data).hexdigest()[:32]


def _parsed_scores(raw: dict[str, Any]) -> KeptScores:
    """Return what a line says; raises ValueError for what is no score."""
    if raw["bias_type"] not in (None, *BIAS_TYPES):
        raise ValueError
    scores = Scores(raw["score"], raw["bias_type"], unjudged=raw["unjudged"])
    return KeptScores(scores, float(raw["ms"]))
