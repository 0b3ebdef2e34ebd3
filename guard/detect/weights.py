"""The encoder's files on disk, and checks that they belong together.

One pass is tried: a file may be the recorded one and still not belong to the others.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from guard.errors import ConfigError, WeightsError
from guard.places import DETECTORS, ENCODERS, json_object, regular_bytes
from guard.policy import OperatingPoint
from guard.verdict import BiasType

ONNX = "encoder.onnx"
FUSION = "fusion.npz"
TOKENIZER = "tokenizer.json"
CONFIG = "config.json"
MANIFEST = "manifest.json"
#: The n-gram model of `encoder-small` 1.1.
LEXICAL = "lexical.npz"
FILES = (ONNX, FUSION, TOKENIZER, CONFIG)
#: The token embeddings, apart where one file would exceed 100 MiB, the limit of Git hosts.
TABLE = "encoder.tokens"
#: Files that some weights have.
OPTIONAL = (LEXICAL, TABLE)
_MODELS = Path(__file__).resolve().parent.parent / "models"
#: The weights of `encoder`.
SHIPPED = _MODELS / ENCODERS[0]
_NAME = re.compile("[a-z][a-z0-9-]*")
_VERSION = re.compile("[0-9A-Za-z.]+")
_REMEDY = "reinstall the package, or point `weights` at a folder that `guard train release` wrote"


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """The content of ``config.json``.

    ``name`` is the detector's, ``version`` that of these weights. At most ``k`` references are
    used, none with a cosine below ``floor``. A score is
    ``sigmoid((network + references + lexical_weight * n-grams - offset) / temperature)``; weights
    without n-grams have the weight 0, a file without ``offset`` has 0.
    ``operating_points`` has thresholds in [0, 1] by name and bias type; ``own_thresholds`` the most
    accurate threshold on the validation part of each source (none in ``encoder-small`` 1.1).
    ``languages`` are ISO 639-1 codes.
    """

    name: str
    version: str
    dim: int
    k: int
    floor: float
    max_context_tokens: int
    lexical_weight: float
    temperature: float
    offset: float
    operating_points: Mapping[str, Mapping[BiasType, float]]
    languages: tuple[str, ...]
    own_thresholds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Weights:
    """A checked folder: its settings and the unique name of the weights.

    The name is ``DETECTOR-VERSION+HASH``; ``digest`` is the SHA-256 of the manifest.
    """

    folder: Path
    settings: EncoderSettings
    name: str
    digest: str


def shipped_weights(detector: str) -> Path:
    """Return the folder of the weights that guard ships for ``detector``; of a cascade, its head.

    Raises:
        ConfigError: guard ships no detector of this name.

    """
    if detector not in DETECTORS:
        raise ConfigError(
            f"unknown detector {detector!r}; known are {', '.join(DETECTORS)}, and Guard takes an "
            "object with name, operating_points and snapshot()."
        )
    return _MODELS / detector


def read_manifest(folder: Path) -> bytes:
    """Return the manifest of the weights in ``folder``, which has the hash of every file.

    Raises:
        WeightsError: there is none.

    """
    return read_file(folder / MANIFEST)


def open_weights(folder: Path) -> Weights:
    """Check every file of ``folder`` against its manifest and read the settings.

    Raises:
        WeightsError: a file is missing, has not the hash that the manifest records, or is invalid.

    """
    return read_weights(folder)[0]


def read_weights(folder: Path) -> tuple[Weights, dict[str, bytes]]:
    """Check the files of ``folder`` alone; return the weights and the contents of the files.

    Raises:
        WeightsError: as :func:`open_weights`.

    """
    manifest = read_manifest(folder)
    hashes = json_object(manifest, folder / MANIFEST, _REMEDY).get("sha256")
    if not isinstance(hashes, dict):
        raise WeightsError(f"{folder / MANIFEST} is not a manifest of weights: {_REMEDY}.")
    contents = {}
    for name in _recorded_files(hashes):
        contents[name] = read_file(folder / name)
        digest = hashlib.sha256(contents[name]).hexdigest()
        if digest != hashes.get(name):
            raise WeightsError(
                f"The weights file {folder / name} is not the recorded one (sha256 {digest}, "
                f"recorded {hashes.get(name)}): {_REMEDY}."
            )
    settings = _parsed_settings(json_object(contents[CONFIG], folder / CONFIG, _REMEDY), folder)
    if settings.lexical_weight and LEXICAL not in contents:
        raise WeightsError(f"{folder / MANIFEST} does not name {LEXICAL}: {_REMEDY}.")
    # Vectors depend on network and tokenizer only, so an index stays valid with new thresholds.
    parts = [hashes[name] for name in (ONNX, TOKENIZER, TABLE) if name in hashes]
    own = hashlib.sha256("".join(parts).encode()).hexdigest()[:8]
    name = f"{settings.name}-{settings.version}+{own}"
    return Weights(folder, settings, name, hashlib.sha256(manifest).hexdigest()), contents


def _recorded_files(present: Container[str]) -> list[str]:
    return [*FILES, *(name for name in OPTIONAL if name in present)]


def unusable_file(path: Path, error: Exception) -> WeightsError:
    """Return the error for a file that has the recorded hash but is unusable."""
    table = path.with_name(TABLE)
    both = f" with {TABLE}" if path.name == ONNX and table.exists() else ""
    return WeightsError(
        f"{path}{both} holds no weights of the encoder ({type(error).__name__}): {_REMEDY}."
    )


def write_manifest(folder: Path) -> None:
    """Record the hashes of the weights' files in ``folder``."""
    names = _recorded_files({path.name for path in folder.iterdir()})
    content = {"format": 1, "sha256": {name: file_sha256(folder / name) for name in names}}
    (folder / MANIFEST).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_file(path: Path, remedy: str = _REMEDY) -> bytes:
    """Return a file of weights; raises WeightsError, which ends with ``remedy``."""
    try:
        return regular_bytes(path)
    except FileNotFoundError:
        what = f"The weights file {path} is missing"
        if path.name == MANIFEST:
            what = f"There are no weights at {path.parent}"
        raise WeightsError(f"{what}: {remedy}.") from None
    except (OSError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or "it is too large for memory"
        raise WeightsError(f"{path} cannot be read ({reason}): {remedy}.") from error


def _parsed_settings(raw: dict[str, Any], folder: Path) -> EncoderSettings:
    if "mean_with" in raw:  # alone, the network of these would have wrong thresholds
        raise WeightsError(
            f"The weights in {folder} are of guard's encoder 2.0, which judged together with a "
            f"second network: {_REMEDY}."
        )
    try:
        points = {
            str(name): {kind: float(row[kind]) for kind in get_args(BiasType)}
            for name, row in raw["operating_points"].items()
        }
        settings = EncoderSettings(
            name=str(raw["name"]),
            version=str(raw["version"]),
            dim=int(raw["dim"]),
            k=int(raw["k"]),
            floor=float(raw["floor"]),
            max_context_tokens=int(raw["max_context_tokens"]),
            lexical_weight=float(raw.get("lexical_weight", 0)),
            temperature=float(raw["temperature"]),
            offset=float(raw.get("offset", 0)),
            operating_points=points,
            languages=tuple(map(str, raw["languages"])),
            own_thresholds={str(k): float(v) for k, v in raw.get("own_thresholds", {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise WeightsError(f"{folder / CONFIG} is incomplete ({error}): {_REMEDY}.") from error
    if wrong := _out_of_range(settings):
        raise WeightsError(f"{folder / CONFIG} cannot be used with {wrong}: {_REMEDY}.")
    return settings


def _out_of_range(settings: EncoderSettings) -> str:
    """Return the first setting that is out of range with its value; empty if there is none."""
    thresholds = {
        f"threshold of {name} for {kind}": (limit, 0 <= limit <= 1)
        for name, row in settings.operating_points.items()
        for kind, limit in row.items()
    } | {
        f"own threshold of {source}": (limit, 0 <= limit <= 1)
        for source, limit in settings.own_thresholds.items()
    }
    named = settings.operating_points.keys() >= set(get_args(OperatingPoint))
    possible = {
        "name": (settings.name, _NAME.fullmatch(settings.name)),
        "dim": (settings.dim, settings.dim > 0),
        "k": (settings.k, settings.k >= 0),
        "floor": (settings.floor, -1 <= settings.floor <= 1),
        "max_context_tokens": (settings.max_context_tokens, settings.max_context_tokens >= 0),
        "lexical_weight": (settings.lexical_weight, 0 <= settings.lexical_weight <= 10),
        "temperature": (settings.temperature, 0.01 <= settings.temperature <= 100),
        "offset": (settings.offset, -100 <= settings.offset <= 100),
        "version": (settings.version, _VERSION.fullmatch(settings.version)),
        "operating_points": (list(settings.operating_points), named),
        "languages": (settings.languages, settings.languages == ("en",)),
        **thresholds,
    }
    wrong = (f"{name} = {value!r}" for name, (value, well) in possible.items() if not well)
    return next(wrong, "")
