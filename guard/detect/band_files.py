"""The bands of cascades on disk: which scores are in doubt, and for which two detectors.

A band is a small JSON file. It is found by the names of the pair as a user writes them: first in
the user's cache folder, then among the shipped ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from guard.detect.deferral import Scale
from guard.detect.protocol import Detector
from guard.detect.weights import read_file, shipped_weights
from guard.errors import WeightsError
from guard.local.download import cache_folder
from guard.places import CASCADE, json_object
from guard.policy import DEFAULT_POINTS

FORMAT = 1
#: Milliseconds that the second detector has for a window, where no band says otherwise.
LIMIT_MS = 4000.0
_BANDS = "bands"
_LONGEST = 150  # characters of a file's name that are written out
_REMEDY = "choose it again: guard train band"


@dataclass(frozen=True, slots=True)
class Band:
    """The scores that are in doubt: from ``low`` to ``high``, both included.

    The scores are those of the first detector, on the scale on which .3, .5 and .7 are its
    thresholds of ``strict``, ``balanced`` and ``quiet`` (:func:`doubt_scale`): so one band serves
    types with different thresholds. The band (1, 0) is empty, (0, 1) has every score.
    ``limit_ms`` is the time that the second detector has. Raises ValueError for other numbers.
    """

    low: float
    high: float
    limit_ms: float = LIMIT_MS

    def __post_init__(self) -> None:
        ends = self.low, self.high
        if not (0 <= self.low <= self.high <= 1 or ends == (1, 0)):
            raise ValueError(f"a band goes from a score to a higher one, or is (1, 0), not {ends}")
        if not 0 < self.limit_ms < math.inf:
            raise ValueError(f"limit_ms must be above 0, got {self.limit_ms}")

    def __contains__(self, score: float) -> bool:
        """Whether a score is in doubt; what is no number is."""
        return not (score < self.low or score > self.high)


#: For a pair without a band of its own: what the operating points of the first decide differently.
DEFAULT_BAND = Band(0.3, 0.7)
EMPTY = Band(1, 0)


def doubt_scale(first: Detector) -> Scale:
    """Return the scale of bands for a first detector."""
    return Scale(first.operating_points, DEFAULT_POINTS)


class PairMember(NamedTuple):
    """A detector that a band is for: its name, and the SHA-256 of its thresholds."""

    name: str
    thresholds: str

    @classmethod
    def of(cls, detector: Detector) -> PairMember:
        """Return what is recorded of a detector."""
        points = {point: dict(of) for point, of in detector.operating_points.items()}
        data = json.dumps(points, sort_keys=True).encode()
        return cls(detector.name, hashlib.sha256(data).hexdigest())


def file_name(first: str, later: str) -> str:
    """Return the name of the file of a pair's band."""
    name = ",".join(quote(one, safe="") for one in (first, later))
    if len(name) > _LONGEST:
        name = f"{name[:_LONGEST]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return f"{name}.json"


def own_place(first: str, later: str) -> Path:
    """Return where the user's own band of a pair is, if there is one."""
    return cache_folder() / _BANDS / file_name(first, later)


def shipped_place(first: str, later: str) -> Path:
    """Return where the shipped band of a pair is, if there is one."""
    return shipped_weights(CASCADE).parent / _BANDS / file_name(first, later)


def band_place(first: str, later: str) -> Path | None:
    """Return the file of the band of a pair, the user's own before the shipped; None without."""
    places = [shipped_place(first, later)]
    with contextlib.suppress(RuntimeError):  # a user without a home folder has no bands
        places.insert(0, own_place(first, later))
    return next((place for place in places if os.path.exists(place)), None)


def stored_bytes(place: Path) -> bytes:
    """Return the content of a band's file; raises WeightsError if it cannot be read."""
    return read_file(place, _REMEDY)


def read_band(path: Path, first: Detector, later: Detector) -> Band:
    """Read the band of two detectors.

    Raises:
        WeightsError: the file cannot be read, is no band, or is for other detectors.

    """
    raw = json_object(stored_bytes(path), path, _REMEDY)
    try:
        if raw["format"] != FORMAT:
            raise ValueError
        recorded = [
            PairMember(str(raw[k]["name"]), str(raw[k]["thresholds"])) for k in ("first", "later")
        ]
        band = Band(*(_json_number(raw[k]) for k in ("low", "high", "limit_ms")))
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise WeightsError(
            f"{path} holds no band of a cascade ({type(error).__name__}): {_REMEDY}."
        ) from error
    for member, detector in zip(recorded, (first, later), strict=True):
        present = PairMember.of(detector)
        if present != member:
            other = " with other thresholds" if present.name == member.name else ""
            raise WeightsError(
                f"The band in {path} was chosen for {member.name}, not for {present.name}{other}; "
                "choose it again (guard train band), or remove the file for the default band."
            )
    return band


def write_band(path: Path, band: Band, first: Detector, later: Detector, **more: Any) -> None:
    """Write the band of two detectors; ``more`` is kept beside it, such as its figures."""
    members = {"first": PairMember.of(first), "later": PairMember.of(later)}
    content = {
        "format": FORMAT,
        **{key: member._asdict() for key, member in members.items()},
        "low": band.low,
        "high": band.high,
        "limit_ms": band.limit_ms,
        **more,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _json_number(value: Any) -> float:
    """Return a number of JSON; raises TypeError for anything else, True included."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError
    return float(value)
