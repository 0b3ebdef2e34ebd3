"""Writing files atomically: no reader, full disk or power cut leaves a partial file."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from guard.errors import BiasIndexError
from guard.retrieve.folder import ROLES, sha256_of_file

# Prefix of temporary files; a killed writer leaves them behind.
BEGUN = ".writing-"


def replace_all(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write all of ``contents`` beside their names in ``folder``, then rename them in order."""
    folder.mkdir(parents=True, exist_ok=True)
    waiting = {folder / name: begin_file(folder) for name in contents}
    try:
        for beside, data in zip(waiting.values(), contents.values(), strict=True):
            with beside.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        for path, beside in waiting.items():
            os.replace(beside, path)
    finally:
        for beside in waiting.values():
            beside.unlink(missing_ok=True)
    sync_folder(folder)


def unwritable_folder(folder: Path, error: OSError) -> BiasIndexError:
    """Return the error for a folder that cannot be written."""
    return BiasIndexError(
        f"The bias index at {folder} cannot be written: {error.strerror or error}."
    )


@contextmanager
def index_errors(folder: Path) -> Iterator[None]:
    """Convert OSError to BiasIndexError for the bias index in ``folder``."""
    try:
        yield
    except OSError as error:
        raise unwritable_folder(folder, error) from error


def begin_file(folder: Path) -> Path:
    """Return the path of a new temporary file."""
    return folder / f"{BEGUN}{uuid4().hex}"


def sync_folder(folder: Path) -> None:
    """Sync the directory, so that its file names survive a power cut."""
    if os.name == "nt":  # directories cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Written(NamedTuple):
    """A file of an index, named by its content."""

    name: str
    sha256: str


def write_part(folder: Path, role: str, chunks: Iterable[Any]) -> Written:
    """Write a file that no manifest names yet; its name contains the hash of its content."""
    digest = hashlib.sha256()
    beside = begin_file(folder)
    try:
        with beside.open("xb") as file:
            for chunk in chunks:
                file.write(chunk)
                digest.update(chunk)
            file.flush()
            os.fsync(file.fileno())
        return _placed_file(beside, role, digest.hexdigest())
    finally:
        beside.unlink(missing_ok=True)


def write_part_by(folder: Path, role: str, write: Callable[[Path], None]) -> Written:
    """Do the same as :func:`write_part` for a file that ``write`` writes to a path."""
    beside = begin_file(folder)
    try:
        write(beside)
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        return _placed_file(beside, role, sha256_of_file(beside))
    finally:
        beside.unlink(missing_ok=True)


def _placed_file(beside: Path, role: str, digest: str) -> Written:
    written = Written(f"{role}-{digest[:_NAME_DIGITS]}{ROLES[role]}", digest)
    path = beside.with_name(written.name)
    # An equal file may be open in a reader, and Windows cannot replace an open file.
    if not path.is_file() or sha256_of_file(path) != digest:
        os.replace(beside, path)
    return written


def sweep_folder(folder: Path, keep: Iterable[str]) -> None:
    """Remove the files that killed and earlier writers left in ``folder``, except ``keep``.

    Only files with names that writers make are removed. A reader that has one open keeps it.
    """
    keep = set(keep)
    for path in folder.iterdir():
        part = _PART.fullmatch(path.name) and path.name not in keep
        if part or path.name.startswith(BEGUN):
            # Windows cannot remove an open file; the next writer will.
            with suppress(OSError):
                path.unlink()


_NAME_DIGITS = 16
_PART = re.compile(rf"(?:{'|'.join(ROLES)})-[0-9a-f]{{{_NAME_DIGITS}}}\.[a-z]+")
