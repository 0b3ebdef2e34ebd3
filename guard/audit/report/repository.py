"""The file of a repository that a finding of an audit is about, for code hosts.

A code host shows a finding beside a file of the repository. A journal is none: it is written by the
run and ignored or removed. So a finding points at the line of a run file that names its suite, else
at the suite's own pack or module, else at the baseline.
"""

from __future__ import annotations

import inspect
import re
import subprocess
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from guard.suites import Suite
from guard.suites.packs import PackedSuite

RUN_FILE = Path("audit.toml")
_INSTALLED = {"site-packages", "dist-packages"}
_GIT_S = 10.0
_PATTERNS = ("tolerance", "floor", "better")
"""Tables whose keys are suites, or axes that begin with one."""
_STRING = re.compile(r'"([^"]*)"|\'([^\']*)\'')
_BEFORE_COMMENT = re.compile(r'(?:[^#"\']|"[^"]*"|\'[^\']*\')*')
_KEY_PART = re.compile(r'"[^"]*"|\'[^\']*\'|[\w-]+')
_KEY = r'(?:"[^"]*"|\'[^\']*\'|[\w-])(?:"[^"]*"|\'[^\']*\'|[\w\s.-])*'
_TABLE = re.compile(rf"\[\s*({_KEY})\]")
_SETTING = re.compile(rf"({_KEY})=\s*(.*)")


class RepositoryPlace(NamedTuple):
    """A file, relative to the root of its repository with slashes, and a line of it."""

    path: str
    line: int = 1


def root_of(folder: Path) -> Path:
    """Return the root of the repository around ``folder``; the folder itself outside of one."""
    folder = folder.resolve()
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)


class RepositoryFiles:
    """Finds places in the repository at ``root``; ``named_files`` are a run file and a baseline."""

    def __init__(self, root: Path, named_files: Sequence[Path] = ()) -> None:
        self._root = root.resolve()
        self._given = [*named_files, RUN_FILE]
        self._known: dict[Path, bool] = {}

    def place(self, suite: Suite | None) -> RepositoryPlace | None:
        """Return the place of a suite's findings, or of those about all; None where there is none.

        A file counts if it is in the repository, not ignored by git and not of an installed
        package.
        """
        names = () if suite is None else (suite.name, _own_name(suite))
        there = [path for path in self._given if self._is_shown(path)]
        for path in there:
            if path.suffix == ".toml" and names and (line := _line_with(path, names)):
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


def _line_with(path: Path, names: Collection[str]) -> int:
    """Return the number of the first line of a TOML file whose entry is of a suite; 0 for none.

    Entries are the suites of a run, the tables with their options, and patterns of their axes. TOML
    readers give no line numbers, so lines are read by the forms that a run file has.
    """
    try:
        lines = path.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        return 0
    table: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    for number, line in enumerate(lines, 1):
        code = _BEFORE_COMMENT.match(line)
        line = code[0].strip() if code else ""
        if header := _TABLE.fullmatch(line):
            table, key, line = _key_parts(header[1]), (), ""
            entries = [table[-1]] if table[:-1] == ("run", "options") else []
        elif setting := _SETTING.fullmatch(line):
            key, line = (*table, *_key_parts(setting[1])), setting[2]
            entries = [key[-1].partition("/")[0]] if key[0] in _PATTERNS else []
            entries += [key[2]] if key[:2] == ("run", "options") else []
        else:  # a list may go on over several lines
            entries = []
        if key == ("run", "suite"):
            texts = (double or single for double, single in _STRING.findall(line))
            entries += [name.strip() for text in texts for name in text.split(",")]
        if any(entry in names for entry in entries):
            return number
    return 0


def _key_parts(key: str) -> tuple[str, ...]:
    """Return the parts of a dotted key without their quotes."""
    return tuple(part.strip().strip("\"'") for part in _KEY_PART.findall(key))


def _own_name(suite: Suite) -> str:
    """Return how a run file names a suite that guard does not ship."""
    return f"{type(suite).__module__}:{type(suite).__qualname__}"


def _files_of(suite: Suite) -> Iterator[Path]:
    if isinstance(suite, PackedSuite):
        yield suite.pack_folder / "pack.toml"
    if source := inspect.getsourcefile(type(suite)):
        yield Path(source)
