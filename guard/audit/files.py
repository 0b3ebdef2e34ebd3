"""The files of an audit: their names, and text files that are written atomically."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from guard.errors import UsageError

RUN_FILE = "run.db"
"""The name of a run's file in its folder."""
ASKED_FILE = "asked.json"
"""The name of the file beside it that says what the last command was to ask."""
SQLITE = b"SQLite format 3\0"
"""The first bytes of a run's file, or another database."""
GZIP = b"\x1f\x8b"
"""The first bytes of a journal, which earlier versions wrote."""
JOURNAL = ".jsonl.gz"
"""The file names of journals end with this."""
BASELINE = "guard audit baseline"
"""The kind of a baseline, in its first line."""
_CONTROLS = {c: "\ufffd" for c in (*range(32), *range(127, 160)) if chr(c) not in "\t\r\n"}


def last_written(run: Path) -> float:
    """Return when a run's file or newest file was written, in seconds since 1970; 0 without one."""
    paths = [run] if run.is_file() else run.rglob(f"{RUN_FILE}*")
    return max((path.stat().st_mtime for path in paths if path.suffix != ".lock"), default=0.0)


def run_file_of(place: Path) -> Path:
    """Return the run's file at ``place``, which may be its folder.

    Raises UsageError where there is none, or journals of an earlier version.
    """
    if not place.is_dir():
        return place
    path = place / RUN_FILE
    if not path.is_file():
        for journal in sorted(place.glob(f"*{JOURNAL}")):
            refuse_journal(journal)
        raise UsageError(f"{place} has no {RUN_FILE}; give the --out folder of a run.")
    return path


def refuse_journal(path: Path) -> None:
    """Raise UsageError where ``path`` is a journal, which earlier versions wrote."""
    if path.is_file():
        with contextlib.suppress(OSError), path.open("rb") as file:
            if file.read(len(GZIP)) == GZIP:
                raise UsageError(
                    f"{path} is a journal of an earlier version; make a {RUN_FILE} of it: guard "
                    f"audit convert {path.parent}"
                )


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` in UTF-8 to ``path`` atomically; raises OSError."""
    write_all({path: text})


def write_all(texts: Mapping[Path, str]) -> None:
    """Write each text to its path; if one cannot be written, none is. Creates missing folders.

    Devices and pipes are written to, not replaced. Raises OSError, whose ``filename`` is the path
    that cannot be written.
    """
    texts = {path.resolve() if path.is_symlink() else path: text for path, text in texts.items()}
    devices = [path for path in texts if path.exists() and not (path.is_file() or path.is_dir())]
    # A temporary name for each writer.
    temporary = {
        path: path.with_name(f".{path.name}.{uuid4().hex[:8]}.new")
        for path in texts
        if path not in devices
    }
    path = Path()
    try:
        for path in temporary:
            check_folders(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            temporary[path].write_bytes(encoded(texts[path]))
        for path in devices:
            path.write_bytes(encoded(texts[path]))
        for path in temporary:
            temporary[path].replace(path)
    except OSError as error:
        for temporary_file in temporary.values():
            with contextlib.suppress(OSError):
                temporary_file.unlink(missing_ok=True)
        error.filename = str(path)
        raise


def check_folders(path: Path) -> None:
    """Raise NotADirectoryError where a file is in the place of a folder above ``path``."""
    if not next(folder for folder in path.absolute().parents if folder.exists()).is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))


def check_writable(path: Path) -> None:
    """Raise UsageError where no file can be written at ``path``; creates its folders."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(b"\0" * 4096)
            file.flush()
    except OSError as error:
        raise unwritable_file(path, error) from None


def check_place(path: Path) -> None:
    """Raise UsageError where a file is in the place of a folder above ``path``; writes nothing."""
    try:
        check_folders(path)
    except OSError as error:
        raise unwritable_file(path.parent, error) from None


def unwritable_file(path: Path, error: Exception) -> UsageError:
    """Return the sentence on a file that cannot be written."""
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    if isinstance(error, FileExistsError | NotADirectoryError) and not place.is_dir():
        return UsageError(f"{place} is a file where a folder is needed; give another.")
    reason = getattr(error, "strerror", None) or error
    return UsageError(f"{path} cannot be written: {reason}; give another folder, or make room.")


def refuse_precious(path: Path) -> None:
    """Raise UsageError where ``path`` is a run's file, a journal, a baseline or a store."""
    if path.name == ASKED_FILE and path.with_name(RUN_FILE).is_file():
        raise UsageError(f"{path} is part of the run beside it; name another file.")
    if path.name.startswith(RUN_FILE) or path.name.endswith((JOURNAL, f"{JOURNAL}.lock")):
        raise UsageError(f"{path} has the name of a run's file or of a journal; name another file.")
    if not path.is_file():
        return
    with contextlib.suppress(OSError), path.open("rb") as file:
        start = file.read(200)
        if start.startswith(GZIP):
            raise UsageError(f"{path} is the journal of an audit; name another file.")
        if start.startswith(SQLITE):
            raise UsageError(f"{path} is a database; name another file.")
        if BASELINE.encode() in start:
            raise UsageError(f"{path} is a baseline; name another file.")


def encoded(text: str) -> bytes:
    """Return the bytes of a table or page: UTF-8 without control characters but tabs and line ends.

    A model may answer those, which make a file binary or act on a terminal, and half a surrogate
    pair, which has no UTF-8.
    """
    return text.translate(_CONTROLS).encode("utf-8", "replace")
