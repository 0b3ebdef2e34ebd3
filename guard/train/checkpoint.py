"""Files of a run that are either whole or absent."""

from __future__ import annotations

import os
import pickle
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from guard.errors import UsageError

NAME = "checkpoint.pt"
# What a finished run's file holds; a checkpoint has no rows.
_FINAL = {"nets", "settings", "rows"}
# What torch raises at files that are none of its own.
_UNREADABLE = (pickle.UnpicklingError, RuntimeError, EOFError, zipfile.BadZipFile, LookupError,
               ValueError, struct.error)  # fmt: skip


def save(path: Path, content: dict[str, Any]) -> None:
    """Write ``content`` beside ``path`` and move it into place, so that a crash leaves the old."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    torch.save(content, unfinished)
    os.replace(unfinished, path)


def final(path: Path) -> dict[str, Any]:
    """Return what a finished run left; raise UsageError where ``path`` is nothing of the kind."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except _UNREADABLE:
        content = None
    if not isinstance(content, dict) or not content.keys() >= _FINAL:
        raise UsageError(
            f"{path} holds no finished run; name the final.pt that `guard train encoder` wrote."
        )
    return content


def load(path: Path, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the content of a run's file, None where there is none.

    Raises :class:`UsageError` if it was written under other settings: going on would mix two runs.
    """
    if not path.exists():
        return None
    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    changed = sorted(k for k in settings if settings[k] != content["settings"].get(k))
    if changed:
        raise UsageError(
            f"{path} belongs to a run with other settings ({', '.join(changed)}): "
            "choose another work folder or delete it"
        )
    return content
