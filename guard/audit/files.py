"""Files of text that are written whole or not at all."""

from __future__ import annotations

import contextlib
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` in UTF-8 to ``path``, replacing what is there; on an error nothing changes.

    Raises OSError.
    """
    beside = path.with_name(f".{path.name}.new")
    try:
        # A model may answer half a surrogate pair, which no file can hold.
        beside.write_bytes(text.encode("utf-8", "replace"))
        beside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
