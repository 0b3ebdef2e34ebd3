"""What a served detector tells of itself: policies are checked as with it in the process."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from guard.detect.protocol import Detector
from guard.detect.wire import MalformedMessage
from guard.verdict import BIAS_TYPES, BiasType


@dataclass(frozen=True, slots=True)
class DetectorDescription:
    """A served detector. ``weights`` is a SHA-256 (:func:`weights_hash`).

    ``index_version`` is the newest, ``index_versions`` all whose sessions the server keeps;
    ``most_windows`` of one request. ``thresholds`` and ``languages`` are None where the detector
    has none, ``every_language`` says whether it has a reader of every language.
    """

    detector: str
    weights: str
    operating_points: Mapping[str, Mapping[BiasType, float]]
    thresholds: tuple[float, float] | None
    languages: tuple[str, ...] | None
    every_language: bool
    own_thresholds: Mapping[str, float]
    index_version: str | None
    index_versions: tuple[str | None, ...]
    most_windows: int

    @classmethod
    def of(
        cls, detector: Detector, versions: Sequence[str | None], most_windows: int
    ) -> DetectorDescription:
        """Return what is told of a detector; the newest of ``versions`` comes last."""
        points = {name: dict(row) for name, row in detector.operating_points.items()}
        limits = getattr(detector, "thresholds", None)
        languages = getattr(detector, "languages", None)
        return cls(
            detector=detector.name,
            weights=weights_hash(detector),
            operating_points=points,
            thresholds=None if limits is None else (float(limits[0]), float(limits[1])),
            languages=None if languages is None else tuple(languages),
            every_language=getattr(detector, "every_language", None) is not None,
            own_thresholds=dict(getattr(detector, "own_thresholds", {})),
            index_version=versions[-1],
            index_versions=tuple(versions),
            most_windows=most_windows,
        )

    def to_plain(self) -> dict[str, Any]:
        """Return the fields as values of JSON."""
        return {
            "detector": self.detector,
            "weights": self.weights,
            "operating_points": {k: dict(row) for k, row in self.operating_points.items()},
            "thresholds": None if self.thresholds is None else list(self.thresholds),
            "languages": None if self.languages is None else list(self.languages),
            "every_language": self.every_language,
            "own_thresholds": dict(self.own_thresholds),
            "index_version": self.index_version,
            "index_versions": list(self.index_versions),
            "limits": {"windows": self.most_windows},
        }

    @classmethod
    def read(cls, value: Any) -> DetectorDescription:
        """Return the description in a value of JSON; further fields are ignored.

        Raises:
            MalformedMessage: a field is missing or of another type.

        """
        try:
            return cls(
                detector=_checked(value["detector"], str),
                weights=_checked(value["weights"], str),
                operating_points={
                    name: {kind: _share(row[kind]) for kind in BIAS_TYPES if kind in row}
                    for name, row in _checked(value["operating_points"], dict).items()
                },
                thresholds=_read_limits(value["thresholds"]),
                languages=_read_texts(value["languages"]),
                every_language=_checked(value["every_language"], bool),
                own_thresholds={
                    name: _share(limit)
                    for name, limit in _checked(value["own_thresholds"], dict).items()
                },
                index_version=_read_version(value["index_version"]),
                index_versions=tuple(map(_read_version, _checked(value["index_versions"], list))),
                most_windows=_read_count(value["limits"]["windows"]),
            )
        except (TypeError, LookupError, AttributeError):
            raise MalformedMessage("it describes no served detector") from None

    def same_detector(self, other: DetectorDescription) -> bool:
        """Whether both judge alike: all but the index and the server's limits is equal."""
        return all(
            getattr(self, name) == getattr(other, name)
            for name in (
                *("detector", "weights", "operating_points", "thresholds", "languages"),
                *("every_language", "own_thresholds"),
            )
        )


def weights_hash(detector: Detector) -> str:
    """Return a SHA-256 of what a detector judges by, in hexadecimal.

    That is the manifest of its weights, and of those of its members; of a detector without files,
    its name.
    """
    digest = hashlib.sha256(detector.name.encode())
    for part in ("first", "later", "embedder"):
        member = getattr(detector, part, None)
        if isinstance(member, Detector):
            digest.update(weights_hash(member).encode())
    digest.update(str(getattr(detector, "weights_digest", "")).encode())
    return digest.hexdigest()


def _checked(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError
    return value


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise TypeError
    return float(value)


def _read_limits(value: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    if len(_checked(value, list)) != 2:
        raise TypeError
    low, high = map(_share, value)
    if low > high:
        raise TypeError
    return low, high


def _read_texts(value: Any) -> tuple[str, ...] | None:
    return None if value is None else tuple(_checked(text, str) for text in _checked(value, list))


def _read_version(value: Any) -> str | None:
    return None if value is None else str(_checked(value, str))


def _read_count(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise TypeError
    return value
