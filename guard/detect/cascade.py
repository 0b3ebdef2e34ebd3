"""The cascade: a small detector reads each window, a large one only those that are in doubt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from guard.detect.cascade_files import read_head
from guard.detect.deferral import Scale
from guard.detect.encoder import MANY, Encoder
from guard.detect.first import FirstEncoder
from guard.detect.mirror import Mirror
from guard.detect.runtime import CPU
from guard.detect.weights import shipped_weights
from guard.errors import WeightsError
from guard.forks import native
from guard.places import CASCADE, ENCODERS
from guard.retrieve.index import BiasIndex
from guard.verdict import BiasType, Scores, Window

_LAST, _FIRST = ENCODERS


class Judged(NamedTuple):
    """The scores of a window, and whether the last detector gave them."""

    scores: Scores
    deferred: bool


class Cascade:
    """``encoder-small`` judges each window, and ``encoder`` those that its head defers.

    The head (:mod:`guard.detect.deferral`) estimates how likely ``encoder`` is to decide otherwise.
    Scores, references, spans and types are those of the detector that judged; the scores of
    ``encoder-small`` are mapped to the thresholds of ``encoder``, which are the cascade's.

    ``folder`` holds the head, ``first`` and ``last`` the weights of the two (default: the shipped
    ones). ``index``, ``use_references`` and ``device`` are as for :class:`Encoder`; an index has
    the vectors of ``encoder``. For an index that is not shipped, those of ``encoder-small`` are
    computed beside the guard's work; until they are there, ``encoder`` judges every window. So it
    does for an index of more than :data:`guard.detect.mirror.MOST` statements.

    Thread-safe, as both encoders are.

    Raises:
        WeightsError: weights or head are missing or damaged, or the head is for other weights.
        BiasIndexError: as for an encoder.

    """

    @native
    def __init__(
        self,
        folder: Path | None = None,
        index: BiasIndex | Path | None = None,
        use_references: bool = True,
        first: Path | None = None,
        last: Path | None = None,
        device: str = CPU,
    ) -> None:
        place = shipped_weights(CASCADE) if folder is None else Path(folder)
        head = read_head(place)
        small, large = first or shipped_weights(_FIRST), last or shipped_weights(_LAST)
        self._first = FirstEncoder(small, use_references=False, device=device)
        self._last = Encoder(large, index, use_references, device)
        head.first.check(self._first.name, self._first.folder, place)
        head.last.check(self._last.name, self._last.folder, place)
        self._name = head.name
        self._deferral = head.deferral
        self._scale = Scale(self._first.operating_points, self._last.operating_points)
        self._mirror: Mirror | None = None
        if use_references:
            known = BiasIndex.load(self._first.shipped_index, self._first.name)
            self._mirror = Mirror(self._first, known)
        self._check_head(place)

    def _check_head(self, place: Path) -> None:
        """Raise WeightsError if the head does not fit the first detector's features."""
        try:
            trial = self._first.judge_with_features(Window("A trial."), None, self._scale)
            assert trial.features is not None
            self._deferral.probability(trial.features)
        except Exception as error:
            raise WeightsError(
                f"The head of the cascade in {place} does not read what {self._first.name} gives "
                f"({type(error).__name__}): train it again (guard train cascade)."
            ) from error
        self.snapshot()  # begins to mirror the index

    @property
    def name(self) -> str:
        """Name, version and hash of the head, which records the hashes of both weights."""
        return self._name

    @property
    def embedder(self) -> Encoder:
        """The last detector: an index for the cascade is built with its vectors."""
        return self._last

    @property
    def shipped_index(self) -> Path:
        """The folder of the shipped index with the vectors of :attr:`embedder`."""
        return self._last.shipped_index

    @property
    def operating_points(self) -> Mapping[str, Mapping[BiasType, float]]:
        """Threshold per bias type for ``strict``, ``balanced`` and ``quiet``; those of the last."""
        return self._last.operating_points

    @property
    def thresholds(self) -> tuple[float, float]:
        """The lowest and the highest threshold that the head knows of; 0 is allowed, too."""
        return min(self.operating_points["strict"].values()), max(
            self.operating_points["quiet"].values()
        )

    @property
    def own_thresholds(self) -> Mapping[str, float]:
        """As :attr:`Encoder.own_thresholds`."""
        return self._last.own_thresholds

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO 639-1 codes of the languages the weights were trained on."""
        return self._last.languages

    @property
    def index(self) -> BiasIndex | None:
        """The bias index that new snapshots use."""
        return self._last.index

    def use_index(self, index: BiasIndex | Path) -> None:
        """Use another index from the next snapshot on; see :meth:`Encoder.use_index`."""
        self._last.use_index(index)
        self.snapshot()  # begins to mirror it

    def snapshot(self) -> CascadeSession:
        """Return a session that keeps the present index."""
        index = self.index
        mirror = None if index is None or self._mirror is None else self._mirror.of(index)
        return CascadeSession(self, index, mirror)

    def ready(self, seconds: float) -> bool:
        """Whether the first detector can search the present index; wait at most so long."""
        index = self.index
        if index is None or self._mirror is None:
            return True
        return self._mirror.wait(index, seconds) is not None

    def judge(self, window: Window, index: BiasIndex | None, mirror: BiasIndex | None) -> Judged:
        """Judge one window; ``mirror`` has the first detector's vectors of ``index``.

        Without it, an index is searched by the last detector alone.
        """
        if index is None or mirror is not None:
            first = self._first.judge_with_features(window, mirror, self._scale)
            if first.features is not None and not self._deferral.defers(first.features):
                scores = first.scores
                assert scores.score is not None
                assert scores.bias_type is not None
                mapped = self._scale.mapped(scores.score, scores.bias_type)
                return Judged(replace(scores, score=mapped), False)
        return Judged(self._last.judge(window, index), True)


class CascadeSession:
    """The cascade bound to one index version."""

    def __init__(self, cascade: Cascade, index: BiasIndex | None, mirror: BiasIndex | None) -> None:
        self._cascade = cascade
        self._index = index
        self._mirror = mirror

    @property
    def index_version(self) -> str | None:
        """Content hash of the bias index in use; None if there is none."""
        return None if self._index is None else self._index.version

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        """Return one :class:`Scores` for each window, in order."""
        map_over = map if len(windows) < MANY else self._cascade.embedder.threads().map
        return [judged.scores for judged in map_over(self.judged, windows)]

    def judged(self, window: Window) -> Judged:
        """Return the scores of a window, and whether it was deferred."""
        return self._cascade.judge(window, self._index, self._mirror)
