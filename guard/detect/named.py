"""From a detector's name to the detector: ``encoder``, ``judge:MODEL``, ``http://HOST:PORT``.

Why: docs/decisions/two-encoders.md.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from guard.detect.protocol import Detector
from guard.detect.runtime import CPU
from guard.detect.weights import MANIFEST, read_file, read_manifest, shipped_weights
from guard.errors import ConfigError
from guard.forks import Lock, native
from guard.judge_settings import JudgeSettings
from guard.places import CASCADE, ENCODERS, GENERATIVE, JUDGE, SERVED, DetectorName
from guard.served_settings import ServedSettings

if TYPE_CHECKING:
    from guard.detect.encoder import Encoder

# Threads that need the same detector at the same time load it once.
_loading = Lock(threading.RLock)


@dataclass(frozen=True, slots=True)
class DetectorOptions:
    """How a detector is made: the settings beside its name.

    ``index`` is the folder of a bias index in place of the shipped one. ``judge`` are the settings
    of a judge, ``served`` those of a detector in another process, alone or in a cascade. ``device``
    is what the networks of encoders run on.
    """

    index: Path | None = None
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    served: ServedSettings = field(default_factory=ServedSettings)
    device: str = CPU


_USUAL = DetectorOptions()


def detector_named(
    name: str, weights: Path | None = None, options: DetectorOptions | None = None
) -> Detector:
    """Return the detector called ``name``, loaded once per process.

    ``weights`` is a folder in place of an encoder's shipped weights. A detector that is served, and
    a cascade that has one, are made anew: another one may be served by now.

    Raises:
        ConfigError: there is no such detector, ``weights`` or an option do not belong to it, a
            judge cannot be asked as ``judge`` says, or no served detector answers.
        WeightsError: its weights are missing, damaged, or for another base.
        BiasIndexError: as for an encoder.

    """
    options = options or _USUAL
    kind, argument = DetectorName.read(name)
    if kind != SERVED:
        return _loaded_detector(kind, argument, weights, options)
    if not (options.index is None and weights is None and options.device == CPU):
        raise ConfigError(
            "Guard: index, weights and device are the server's where detector is an address; give "
            "them to guard serve, or name those that it must have in served."
        )
    from guard.detect.served import ServedDetector

    return ServedDetector(argument, options.served)


@native
def _loaded_detector(
    kind: str, argument: str, weights: Path | None, options: DetectorOptions
) -> Detector:
    """Return a detector that judges in this process, or a cascade that does."""
    if kind not in ENCODERS and weights is not None:
        name = f"{kind}:{argument}" if argument else kind
        raise ConfigError(
            f"Guard: weights names the folder of an encoder's weights, which {name!r} does not "
            f"have; leave weights out, or use detector={ENCODERS[0]!r}."
        )
    with _loading:
        if kind == GENERATIVE:
            stored = Path(argument).expanduser() / MANIFEST  # of an adapter
            version = read_file(stored) if stored.is_file() else None
            return _named_generative(argument, _retrieving_encoder(options), version)
        if kind == JUDGE:
            return _named_judge(argument, _retrieving_encoder(options), options.judge)
        if kind == CASCADE and argument:
            return _of_two(*DetectorName(kind, argument).members(), options)
        if kind == CASCADE:
            folders = (shipped_weights(CASCADE), *map(shipped_weights, ENCODERS))
            manifests = tuple(map(read_manifest, folders))
            return _named_cascade(options.index, options.device, manifests)
        return _encoder_at(weights or shipped_weights(kind), options)


# Guards that differ only in their policy share a detector. Other weights in the same folder have
# another manifest.


@cache
def _named_encoder(weights: Path, index: Path | None, device: str, _manifest: bytes) -> Encoder:
    from guard.detect.encoder import Encoder

    return Encoder(weights, index, device=device)


def _encoder_at(weights: Path, options: DetectorOptions) -> Encoder:
    return _named_encoder(weights, options.index, options.device, read_manifest(weights))


@cache
def _named_cascade(index: Path | None, device: str, _manifests: tuple[bytes, ...]) -> Detector:
    from guard.detect.cascade import Cascade

    return Cascade(index=index, device=device)


def _retrieving_encoder(options: DetectorOptions) -> Encoder:
    """Return `encoder`, whose vectors find the references that other detectors show their model."""
    return _encoder_at(shipped_weights(ENCODERS[0]), options)


@cache
def _named_generative(place: str, retriever: Encoder, _manifest: bytes | None) -> Detector:
    from guard.detect.generative import Generative

    return Generative(place, retriever)


@cache
def _named_judge(model: str, retriever: Encoder, settings: JudgeSettings) -> Detector:
    from guard.detect.judge import ModelJudge

    return ModelJudge(model, retriever, settings)


def _of_two(first: str, later: str, options: DetectorOptions) -> Detector:
    """Return the cascade of two detectors, with the band stored for them or the default one."""
    from guard.detect.band_files import band_place, stored_bytes

    small = ENCODERS[1]
    if options.index is not None and small in (first, later):
        raise ConfigError(
            f"Guard: {options.index} is searched with the vectors of {ENCODERS[0]!r}, which "
            f"{small!r} in a cascade of your own has not; name another detector in place of "
            f"{small!r}, use detector={CASCADE!r}, or leave index out."
        )
    place = band_place(first, later)
    content = None if place is None else stored_bytes(place)
    if has_served(first) or has_served(later):
        return _band_cascade(first, later, options, place)
    return _named_band(first, later, options, place, content)


def has_served(name: str) -> bool:
    """Whether a detector is served by another process, or a cascade has one that is."""
    kind, argument = DetectorName.read(name)
    if kind == CASCADE and argument:
        return any(map(has_served, DetectorName(kind, argument).members()))
    return kind == SERVED


# A band that is chosen again is another cascade.
@cache
def _named_band(
    first: str, later: str, options: DetectorOptions, place: Path | None, _content: bytes | None
) -> Detector:
    return _band_cascade(first, later, options, place)


def _band_cascade(first: str, later: str, options: DetectorOptions, place: Path | None) -> Detector:
    from guard.detect.band import BandCascade
    from guard.detect.band_files import DEFAULT_BAND, read_band

    first_detector, other = (_member_named(name, options) for name in (first, later))
    band = DEFAULT_BAND if place is None else read_band(place, first_detector, other)
    return BandCascade(first_detector, other, band)


def _member_named(name: str, options: DetectorOptions) -> Detector:
    """Return a member of a cascade; an index and a device are for those in this process."""
    if DetectorName.read(name).kind == SERVED:
        options = replace(options, index=None, device=CPU)
    return detector_named(name, None, options)
