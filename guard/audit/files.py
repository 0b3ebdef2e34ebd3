"""Files of text that are written whole or not at all, and are harmless to open."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from guard.errors import UsageError

GZIP = b"\x1f\x8b"
"""The first bytes of a journal."""
JOURNAL = ".jsonl.gz"
"""How the names of journals end."""
BASELINE = "guard audit baseline"
"""What a baseline says of itself in its first line."""
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

    A device or a pipe is written to, not replaced. Raises OSError, whose ``filename`` is the place
    that cannot be written.
    """
    texts = {path.resolve() if path.is_symlink() else path: text for path, text in texts.items()}
    devices = [path for path in texts if path.exists() and not (path.is_file() or path.is_dir())]
    # A name of its own for each writer.
    beside = {
        path: path.with_name(f".{path.name}.{uuid4().hex[:8]}.new")
        for path in texts
        if path not in devices
    }
    path = Path()
    try:
        for path in beside:
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            beside[path].write_bytes(_encoded(texts[path]))
        for path in devices:
            path.write_bytes(_encoded(texts[path]))
        for path in beside:
            beside[path].replace(path)
    except OSError as error:
        for one in beside.values():
            with contextlib.suppress(OSError):
                one.unlink(missing_ok=True)
        error.filename = str(path)
        raise


def refuse_precious(path: Path) -> None:
    """Raise UsageError where ``path`` is a journal, a baseline or a store: keep those."""
    if path.name.endswith(JOURNAL):
        raise UsageError(f"{path} is named like the journal of an audit; name another file.")
    if not path.is_file():
        return
    with contextlib.suppress(OSError), path.open("rb") as file:
        start = file.read(200)
        if start.startswith(GZIP):
            raise UsageError(f"{path} is the journal of an audit; name another file.")
        if start.startswith(b"SQLite format 3\0"):
            raise UsageError(f"{path} is a database; name another file.")
        if BASELINE.encode() in start:
            raise UsageError(f"{path} is a baseline; name another file.")


def _encoded(text: str) -> bytes:
    # A model may answer half a surrogate pair, which no file can hold.
    return text.encode("utf-8", "replace")
