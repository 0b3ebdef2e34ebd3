"""Files of a run that are either whole or absent."""

from __future__ import annotations

import os
import pickle
import struct
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from guard.errors import UsageError

# The file of an unfinished run, and the keys of a finished run's.
NAME = "checkpoint.pt"
FINAL = {"nets", "settings"}
# What torch raises at files that it did not write.
_UNREADABLE = (pickle.UnpicklingError, RuntimeError, EOFError, zipfile.BadZipFile, LookupError,
               ValueError, struct.error)  # fmt: skip


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Yield a file to write beside ``path``, which replaces ``path`` at the end.

    After an error the new file is deleted and ``path`` is unchanged. Raises UsageError if the file
    cannot be written, for example on a full disk.
    """
    unfinished = path.with_name(f"{path.stem}.part{os.getpid()}{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield unfinished
        os.replace(unfinished, path)
    except (OSError, RuntimeError) as error:  # torch's own writer raises RuntimeError
        reason = getattr(error, "strerror", None) or "is the disk full?"
        raise UsageError(f"{path} cannot be written ({reason}).") from error
    finally:
        with suppress(OSError):
            unfinished.unlink()


@contextmanager
def alone_at(path: Path) -> Iterator[None]:
    """Keep other processes from what this one writes at ``path``.

    Raises UsageError if another one has it, or the folder cannot be written.
    """
    lock = FileLock(f"{path}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        raise UsageError(
            f"{path} is being written by another run; wait for it, or choose another folder."
        ) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}).") from error
    try:
        yield
    finally:
        # While it is held: who waits for a file that is gone asks again.
        with suppress(OSError):
            Path(lock.lock_file).unlink()
        lock.release()


def save_content(path: Path, content: dict[str, Any]) -> None:
    """Write ``content`` to ``path``; see :func:`replacing_file`."""
    with replacing_file(path) as unfinished:
        torch.save(content, unfinished)


def final_content(path: Path) -> dict[str, Any]:
    """Return the content of a finished run's file; raise UsageError if ``path`` is none."""
    content = read_content(path, FINAL)
    if content is None or not isinstance(content.get("before", []), list):
        raise not_finished(path)
    return content


def not_finished(path: Path) -> UsageError:
    """Return the error for a file that is no finished run."""
    return UsageError(
        f"{path} holds no finished run; name the final.pt that `guard train encoder` wrote."
    )


def load_run(
    path: Path, settings: Mapping[str, Any], keys: Collection[str]
) -> dict[str, Any] | None:
    """Return the content of a run's file, which has ``keys``; None if there is no file.

    Raises UsageError if the file is damaged, or was written with other settings: resuming would
    mix two runs.
    """
    if not path.exists():
        return None
    content = read_content(path, {"settings", *keys})
    if content is None:
        raise UsageError(f"{path} is damaged; delete it and run the command again.")
    changed = sorted(k for k in settings if settings[k] != content["settings"].get(k))
    if changed:
        raise UsageError(
            f"{path} belongs to a run with other settings ({', '.join(changed)}): "
            "choose another work folder or delete it"
        )
    return content


def read_content(path: Path, keys: Collection[str]) -> dict[str, Any] | None:
    """Return the content of a file of :func:`save_content`; None if damaged or without a key."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except _UNREADABLE:
        return None
    whole = isinstance(content, dict) and content.keys() >= set(keys)
    return content if whole and isinstance(content.get("settings", {}), dict) else None
