"""From a detector's name to the detector: ``encoder``, ``judge:MODEL``, ``http://HOST:PORT``.

Why: docs/decisions/two-encoders.md.
"""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from guard.detect.protocol import Detector
from guard.detect.weights import MANIFEST, read_file, read_manifest, shipped_weights
from guard.errors import ConfigError
from guard.forks import Lock, native
from guard.judge_settings import JudgeSettings
from guard.places import CASCADE, ENCODERS, GENERATIVE, JUDGE, SERVED, DetectorName
from guard.served_settings import ServedSettings

if TYPE_CHECKING:
    from guard.detect.encoder import Encoder

_USUAL = JudgeSettings()
_USUALLY_SERVED = ServedSettings()
# Threads that need the same detector at the same time load it once.
_loading = Lock(threading.RLock)


@native
def detector_named(
    name: str,
    index: Path | None,
    weights: Path | None,
    judge: JudgeSettings = _USUAL,
    served: ServedSettings = _USUALLY_SERVED,
) -> Detector:
    """Return the detector called ``name``, loaded once per process.

    ``index`` is the folder of a bias index in place of the shipped one, ``weights`` a folder in
    place of an encoder's shipped weights. ``judge`` are the settings of a judge, ``served`` those
    of a detector in another process, alone or in a cascade. One that is served, and a cascade that
    has one, are made anew: another one may be served by now.

    Raises:
        ConfigError: there is no such detector, ``weights`` or ``index`` do not belong to it, a
            judge cannot be asked as ``judge`` says, or no served detector answers.
        WeightsError: its weights are missing, damaged, or for another base.
        BiasIndexError: as for an encoder.

    """
    kind, argument = DetectorName.read(name)
    if kind == SERVED and not (index is None and weights is None):
        raise ConfigError(
            "Guard: index and weights are the server's where detector is an address; give them to "
            "guard serve, or name those that it must have in served."
        )
    if kind not in ENCODERS and weights is not None:
        raise ConfigError(
            f"Guard: weights names the folder of an encoder's weights, which {name!r} does not "
            f"have; leave weights out, or use detector={ENCODERS[0]!r}."
        )
    if kind == SERVED:
        from guard.detect.served import ServedDetector

        return ServedDetector(argument, served)
    with _loading:
        if kind == GENERATIVE:
            stored = Path(argument).expanduser() / MANIFEST  # of an adapter
            version = read_file(stored) if stored.is_file() else None
            return _named_generative(argument, _retrieving_encoder(index), version)
        if kind == JUDGE:
            return _named_judge(argument, _retrieving_encoder(index), judge)
        if kind == CASCADE and argument:
            return _of_two(*DetectorName(kind, argument).members(), index, judge, served)
        if kind == CASCADE:
            folders = (shipped_weights(CASCADE), *map(shipped_weights, ENCODERS))
            return _named_cascade(index, tuple(map(read_manifest, folders)))
        place = weights or shipped_weights(kind)
        return _named_encoder(place, index, read_manifest(place))


# Guards that differ only in their policy share a detector. Other weights in the same folder have
# another manifest.


@cache
def _named_encoder(weights: Path, index: Path | None, _manifest: bytes) -> Encoder:
    from guard.detect.encoder import Encoder

    return Encoder(weights, index)


@cache
def _named_cascade(index: Path | None, _manifests: tuple[bytes, ...]) -> Detector:
    from guard.detect.cascade import Cascade

    return Cascade(index=index)


def _retrieving_encoder(index: Path | None) -> Encoder:
    """Return `encoder`, whose vectors find the references that other detectors show their model."""
    place = shipped_weights(ENCODERS[0])
    return _named_encoder(place, index, read_manifest(place))


@cache
def _named_generative(place: str, retriever: Encoder, _manifest: bytes | None) -> Detector:
    from guard.detect.generative import Generative

    return Generative(place, retriever)


@cache
def _named_judge(model: str, retriever: Encoder, settings: JudgeSettings) -> Detector:
    from guard.detect.judge import ModelJudge

    return ModelJudge(model, retriever, settings)


def _of_two(
    first: str, later: str, index: Path | None, judge: JudgeSettings, served: ServedSettings
) -> Detector:
    """Return the cascade of two detectors, with the band stored for them or the default one."""
    from guard.detect.band_files import band_place, stored_bytes

    small = ENCODERS[1]
    if index is not None and small in (first, later):
        raise ConfigError(
            f"Guard: {index} is searched with the vectors of {ENCODERS[0]!r}, which {small!r} in a "
            f"cascade of your own has not; name another detector in place of {small!r}, use "
            f"detector={CASCADE!r}, or leave index out."
        )
    place = band_place(first, later)
    content = None if place is None else stored_bytes(place)
    if has_served(first) or has_served(later):
        return _band_cascade(first, later, index, judge, place, served)
    return _named_band(first, later, index, judge, place, content)


def has_served(name: str) -> bool:
    """Whether a detector is served by another process, or a cascade has one that is."""
    kind, argument = DetectorName.read(name)
    if kind == CASCADE and argument:
        return any(map(has_served, DetectorName(kind, argument).members()))
    return kind == SERVED


# A band that is chosen again is another cascade.
@cache
def _named_band(
    first: str,
    later: str,
    index: Path | None,
    judge: JudgeSettings,
    place: Path | None,
    _content: bytes | None,
) -> Detector:
    return _band_cascade(first, later, index, judge, place, _USUALLY_SERVED)


def _band_cascade(
    first: str,
    later: str,
    index: Path | None,
    judge: JudgeSettings,
    place: Path | None,
    served: ServedSettings,
) -> Detector:
    from guard.detect.band import BandCascade
    from guard.detect.band_files import DEFAULT_BAND, read_band

    first_detector, other = (
        detector_named(name, None if has_served(name) else index, None, judge, served)
        for name in (first, later)
    )
    band = DEFAULT_BAND if place is None else read_band(place, first_detector, other)
    return BandCascade(first_detector, other, band)
