"""Logs of other harnesses, inspect_ai and lm-eval, as sides of a comparison.

The format of a log is recognised by its content, not by its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from guard.audit.files import GZIP, JOURNAL, RUN_FILE, SQLITE
from guard.audit.harnesses import inspect_log, lm_eval_log
from guard.audit.harnesses.task import Task, side_of
from guard.audit.sides import Side
from guard.errors import UsageError

_ZIP = b"PK\x03\x04"
_ENDINGS = (".eval", ".json")
_INCOMPLETE = (
    LookupError,
    TypeError,
    AttributeError,
    ValueError,
    OverflowError,
    RecursionError,
)
"""What reading a log raises where one of its parts is missing or of another type."""
SUITES = (inspect_log.PREFIX, lm_eval_log.PREFIX)
"""The prefixes of the suites of logs."""


def read(place: Path) -> Side | None:
    """Return the side of the log or the folder of logs at ``place``; None if it has no log.

    Raises UsageError where a log cannot be read, or a folder has two of one task.
    """
    if place.is_file():
        tasks = list(_tasks_in(place))
        return _side_of(place, [(place, task) for task in tasks]) if tasks else None
    if not place.is_dir() or (place / RUN_FILE).exists() or any(place.glob(f"*{JOURNAL}")):
        return None
    # lm-eval has a folder for each model.
    candidates = [*place.glob("*"), *place.glob("*/*")]
    paths = sorted(path for path in candidates if path.suffix in _ENDINGS and path.is_file())
    for path in paths:
        if path.suffix == ".json" and _read_json(path) is None:
            raise UsageError(f"{path} is truncated or not JSON; restore it, or move it elsewhere.")
    logged = [(path, task) for path in paths for task in _tasks_in(path)]
    return _side_of(place, logged) if logged else None


def _tasks_in(path: Path) -> Iterator[Task]:
    """Yield the tasks in the file at ``path``; none if it is not a log."""
    with path.open("rb") as file:
        start = file.read(len(_ZIP))
    if not start:
        raise UsageError(f"{path} is empty; give a run, a baseline or a log.")
    try:
        if start == _ZIP:
            if inspect_log.is_zipped_log(path):
                yield inspect_log.read_task(path, "eval")
        elif not start.startswith((GZIP, SQLITE[: len(start)])):
            content = _read_json(path)
            if inspect_log.is_log(content):
                yield inspect_log.read_task(path, "json")
            elif lm_eval_log.is_log(content):
                yield from lm_eval_log.read_tasks(path, content)
            elif content is None and lm_eval_log.is_samples(path):
                raise UsageError(
                    f"{path} has samples of lm-eval; give the results_*.json beside it."
                )
    except UsageError:
        raise
    except _INCOMPLETE as error:
        problem = "one of its parts has an unexpected type"
        if isinstance(error, RecursionError):
            problem = "one of its parts is nested too deeply"
        if isinstance(error, KeyError):
            problem = f"{error.args[0]!r} is missing"
        raise UsageError(
            f"{path} is an incomplete log: {problem}. Run the evaluation again."
        ) from None


def _read_json(path: Path) -> Any:
    """Return the JSON at ``path``; None where the file is not JSON."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _side_of(place: Path, tasks: list[tuple[Path, Task]]) -> Side:
    suites = {}
    path_of_task: dict[str, Path] = {}
    for path, task in tasks:
        name = task.header.suite
        if name in suites:
            raise UsageError(
                f"{place} has two logs of {name}, {path_of_task[name].name} and {path.name}; give "
                "one of them."
            )
        suites[name], path_of_task[name] = side_of(task), path
    return Side(str(place), suites)
