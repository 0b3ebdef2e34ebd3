"""The files that a folder or a glob of the command line means."""

from __future__ import annotations

from glob import glob
from pathlib import Path


def files_within(folder: Path) -> list[Path]:
    """Return the files in a folder and its subfolders, without hidden ones."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]


def matching_paths(pattern: str) -> list[Path]:
    """Return what matches a glob."""
    if "\0" in pattern:
        return []
    return [Path(name) for name in sorted(glob(pattern, recursive=True))]
