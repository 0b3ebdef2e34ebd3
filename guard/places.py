"""The location of guard's shipped data, and how its users' files are read."""

from __future__ import annotations

import errno
import json
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from guard.errors import ConfigError, GuardError, WeightsError
from guard.served_settings import SCHEMES, read_addresses

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Room = Literal["index", "benchmarks"]
#: The embedded detectors of one network; their folders of weights have these names.
ENCODERS = ("encoder", "encoder-small")
#: `encoder-small` and then, where it is in doubt, `encoder`.
CASCADE = "cascade"
#: All embedded detectors.
DETECTORS = (*ENCODERS, CASCADE)
#: The detector where no setting names one.
DEFAULT = "encoder"
#: What begins the name of a detector with a model of the user's, before a colon.
GENERATIVE, JUDGE = "generative", "judge"
#: The kind of a detector that another process serves; its name is an address, or several.
SERVED = "served"
_DEEPEST = 20  # cascades within a cascade


class DetectorName(NamedTuple):
    """A detector's name in its parts: ``kind``, or ``kind:argument``.

    The argument is a folder, a file or a hub id for ``generative``, LiteLLM's name of a model for
    ``judge``; for ``cascade`` two names of detectors with a comma between, and none for the shipped
    cascade. The name of a detector that is ``served`` is its argument: ``http://HOST:PORT``, or
    several such addresses with commas between.
    """

    kind: str
    argument: str = ""

    @classmethod
    def read(cls, name: str) -> DetectorName:
        """Return the parts of ``name``.

        Raises:
            ConfigError: no detector has such a name.

        """
        if name.startswith(SCHEMES):
            read_addresses(name)
            return cls(SERVED, name)
        kind, colon, argument = name.partition(":")
        if not colon and kind in DETECTORS:
            return cls(kind)
        if kind in (GENERATIVE, JUDGE, CASCADE) and argument.strip():
            return cls(kind, argument.strip())
        raise ConfigError(
            f"unknown detector {name!r}; known are {', '.join(DETECTORS)}, {GENERATIVE}:FOLDER, "
            f"{JUDGE}:MODEL, {CASCADE}:FIRST,NEXT and http://HOST:PORT, and Guard takes an object "
            "with name, operating_points and snapshot()."
        )

    def members(self) -> tuple[str, str]:
        """Return the names of a cascade's two detectors.

        Raises:
            ConfigError: there are not two.

        """
        if self.argument.count(f"{CASCADE}:") > _DEEPEST:
            raise ConfigError(f"A cascade holds at most {_DEEPEST} others.")
        first, comma, later = (part.strip() for part in self.argument.partition(","))
        if not (first and comma and later):
            raise ConfigError(
                f"A cascade of your own names two detectors, {CASCADE}:FIRST,NEXT, not "
                f"{CASCADE}:{self.argument}."
            )
        return first, later


def embedder_of(detector: str) -> str:
    """Return the encoder whose vectors the index of a detector has.

    Raises:
        ConfigError: no detector has such a name.

    """
    return detector if encoders_in(detector) == {detector} else ENCODERS[0]


def encoders_in(detector: str) -> set[str]:
    """Return the encoders that judge for a detector, by the name that users give it.

    Raises:
        ConfigError: no detector has such a name.

    """
    name = DetectorName.read(detector)
    if name.kind != CASCADE:
        return {name.kind} & set(ENCODERS)
    if not name.argument:
        return set(ENCODERS)
    return set().union(*map(encoders_in, name.members()))


def detector_of(name: str) -> str:
    """Return the detector of the weights ``DETECTOR-VERSION+HASH``."""
    return name.rpartition("-")[0]


def shipped_in(name: str) -> set[str]:
    """Return the embedded detectors that judged, by the recorded name of a detector.

    In that of a cascade of two, ``cascade:FIRST,NEXT@LOW-HIGH``, they are those of its parts.
    """
    kind, _, members = name.partition(":")
    parts = members.split(",") if kind == CASCADE else [name]
    names = [part.removeprefix(f"{CASCADE}:").partition("@")[0] for part in parts]
    return {detector_of(one) for one in names} & set(DETECTORS)


_PACKAGE = Path(__file__).resolve().parent


def shipped(room: Room) -> Path:
    """Return the folder of shipped data called ``room``.

    An install carries it inside the package, at ``guard/_data/<room>``; a checkout (and an
    editable install, which points at one) beside the package.

    Raises:
        GuardError: the folder is in neither place.

    """
    installed = _PACKAGE / "_data" / room
    if installed.is_dir():
        return installed
    # Only a checkout has pyproject.toml beside the package; site-packages has other packages.
    checkout = _PACKAGE.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / room).is_dir():
        return checkout / room
    raise GuardError(
        f"The shipped folder '{room}' was not found at {installed}; reinstall the package."
    )


def shipped_index(encoder: str) -> Path:
    """Return the folder of the shipped index with the vectors of the detector ``encoder``.

    There are none for other weights: they get the default's folder, and loading it fails because
    its manifest names another embedder.

    Raises:
        GuardError: as :func:`shipped`.

    """
    folder = shipped("index")
    return folder / encoder if encoder in ENCODERS[1:] else folder


def regular_bytes(path: Path) -> bytes:
    """Return the bytes of a file.

    Raises:
        OSError: it cannot be read, or is not a regular file.

    """
    check_regular(path)
    return path.read_bytes()


def json_object(data: bytes, path: Path, remedy: str) -> dict[str, Any]:
    """Return the JSON object in the bytes of ``path``; raises WeightsError with ``remedy``."""
    try:
        content: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{path} cannot be read ({error}): {remedy}.") from error
    if not isinstance(content, dict):
        raise WeightsError(f"{path} is not a JSON object: {remedy}.")
    return content


def check_regular(path: Path) -> None:
    """Raise OSError if ``path`` is a pipe or a device: reading it might never end."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "Not a regular file", str(path))


def read_toml(path: Path) -> dict[str, Any]:
    """Return the values of the TOML file at ``path``, which may have a byte order mark.

    Raises ConfigError where it cannot be read, or has a whole number of more than 64 bits.
    """
    try:
        check_regular(path)
        text = path.read_text(encoding="utf-8-sig")
        values = tomllib.loads(text)
        _check_integers(values)
    # tomllib reads numbers with int(), whose ValueError advises to change the interpreter.
    except (ValueError, RecursionError) as error:
        reason = str(error).partition(";")[0]
        raise ConfigError(f"{path}: not valid TOML ({reason}); fix or remove it.") from None
    except OSError as error:
        raise unreadable_settings(path, error) from None
    return values


def _check_integers(value: Any) -> None:
    """Raise ValueError at an integer that TOML does not have: nothing need print or convert it."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            _check_integers(inner)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("a whole number has more than 64 bits")


def unreadable_settings(path: Path, error: OSError) -> ConfigError:
    """Return the error of a file of settings that cannot be opened."""
    return ConfigError(f"{path}: cannot be read ({error.strerror}); fix or remove it.")
