"""Files of text that are written whole or not at all, and are harmless to open."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping
from pathlib import Path

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # how a cell begins that spreadsheets execute


def cell(text: str) -> str:
    """Return ``text`` as a cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` in UTF-8 to ``path``, replacing what is there; on an error nothing changes.

    Raises OSError.
    """
    write_all({path: text})


def write_all(texts: Mapping[Path, str]) -> None:
    """Write each text under its name; where one of them cannot be written none is.

    Raises OSError, whose ``filename`` is the place that cannot be written.
    """
    beside = {path: path.with_name(f".{path.name}.new") for path in texts}
    path = Path()
    try:
        for path, text in texts.items():
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            # A model may answer half a surrogate pair, which no file can hold.
            beside[path].write_bytes(text.encode("utf-8", "replace"))
        for path in texts:
            beside[path].replace(path)
    except OSError as error:
        for one in beside.values():
            with contextlib.suppress(OSError):
                one.unlink(missing_ok=True)
        error.filename = str(path)
        raise
