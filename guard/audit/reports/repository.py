"""The file of a repository that a finding of an audit is about, for code hosts.

A code host shows a finding beside a file of the repository. A journal is none: it is written by the
run and ignored or removed. So a finding points at the line of a run file that names its suite, else
at the suite's own pack or module, else at the baseline.
"""

from __future__ import annotations

import inspect
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from guard.suites import Suite
from guard.suites.packs import PackedSuite

RUN_FILE = Path("audit.toml")
_INSTALLED = {"site-packages", "dist-packages"}
_GIT_S = 10.0


class RepositoryPlace(NamedTuple):
    """A file, relative to the root of its repository with slashes, and a line of it."""

    path: str
    line: int = 1


def root_of(folder: Path) -> Path:
    """Return the root of the repository around ``folder``; the folder itself outside of one."""
    folder = folder.resolve()
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder)


class RepositoryFiles:
    """Finds places in the repository at ``root``; ``given`` are a run file and a baseline."""

    def __init__(self, root: Path, given: Sequence[Path] = ()) -> None:
        self._root = root.resolve()
        self._given = [*given, RUN_FILE]
        self._known: dict[Path, bool] = {}

    def place(self, suite: Suite | None) -> RepositoryPlace | None:
        """Return the place of a suite's findings, or of those about all; None where there is none.

        A file counts if it is in the repository, not ignored by git and not of an installed
        package.
        """
        name = "" if suite is None else suite.name
        there = [path for path in self._given if self._is_shown(path)]
        for path in there:
            if path.suffix == ".toml" and name and (line := _line_with(path, name)):
                return self._place(path, line)
        for path in [*(() if suite is None else _files_of(suite)), *there]:
            if self._is_shown(path):
                return self._place(path, 1)
        return None

    def _place(self, path: Path, line: int) -> RepositoryPlace:
        return RepositoryPlace(path.resolve().relative_to(self._root).as_posix(), line)

    def _is_shown(self, path: Path) -> bool:
        path = path.resolve()
        if path not in self._known:
            inside = path.is_file() and path.is_relative_to(self._root)
            self._known[path] = inside and not (
                _INSTALLED & set(path.parts) or self._is_ignored(path)
            )
        return self._known[path]

    def _is_ignored(self, path: Path) -> bool:
        try:
            done = subprocess.run(
                ["git", "-C", str(self._root), "check-ignore", "-q", str(path)],
                capture_output=True,
                check=False,
                timeout=_GIT_S,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False  # without git nothing is known to be ignored
        return done.returncode == 0


def _line_with(path: Path, name: str) -> int:
    """Return the number of the first line that names a suite; 0 for none."""
    try:
        lines = path.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        return 0
    return next((number for number, line in enumerate(lines, 1) if name in line), 0)


def _files_of(suite: Suite) -> Iterator[Path]:
    if isinstance(suite, PackedSuite):
        yield suite.pack_folder / "pack.toml"
    if source := inspect.getsourcefile(type(suite)):
        yield Path(source)
