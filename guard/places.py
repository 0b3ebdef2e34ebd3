"""The location of guard's shipped data, in a checkout and in an installation."""

from __future__ import annotations

import errno
import stat
from pathlib import Path
from typing import Literal

from guard.errors import GuardError

Room = Literal["index", "benchmarks"]
#: The embedded detectors, the default first; their folders of weights have these names.
ENCODERS = ("encoder", "encoder-small")


def detector_of(name: str) -> str:
    """Return the detector of the weights ``DETECTOR-VERSION+HASH``."""
    return name.rpartition("-")[0]


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


def check_regular(path: Path) -> None:
    """Raise OSError if ``path`` is a pipe or a device: reading it might never end."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
