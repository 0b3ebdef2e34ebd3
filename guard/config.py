"""Settings: from ``guard.toml`` or ``[tool.guard]``, then ``GUARD_*`` variables, then arguments.

A name nobody knows and a value out of range each end in one sentence that says where it stood.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from guard.errors import ConfigError
from guard.policy import Policy

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Settings that are not the policy's.
OWN_KEYS = ("detector", "index", "weights")
_PREFIX = "GUARD_"


def known_keys() -> list[str]:
    """Return every key a settings source may hold."""
    return [*OWN_KEYS, *Policy.model_fields]


def policy_from(
    values: Mapping[str, Any], *, base: Policy | None = None, where: str = "guard"
) -> Policy:
    """Return ``base`` (by default the default policy) with ``values`` in place of its own.

    Raises ConfigError, in one sentence, naming ``where``, the key and what it takes.
    """
    known = Policy.model_fields
    for key in values:
        if key not in known:
            raise ConfigError(f"{where}: unknown setting {key!r}; known are {', '.join(known)}.")
    # What the base was not given is a default, which no source has asked for.
    given = base.model_dump(exclude_unset=True) if base is not None else {}
    try:
        return Policy.model_validate(merge(given, values))
    except ValidationError as error:
        raise ConfigError(f"{where}: {_sentence(error)}") from None


def merge(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of two sources, of which the later wins.

    A later ``operating_point`` also takes the place of an earlier ``threshold`` and ``thresholds``,
    a later ``threshold`` that of earlier ``thresholds``: they would else overrule it.
    """
    overruled = set()
    if "operating_point" in later:
        overruled = {"threshold", "thresholds"}
    elif "threshold" in later:
        overruled = {"thresholds"}
    return {**{k: v for k, v in earlier.items() if k not in overruled}, **later}


def settings(folder: Path | None = None) -> dict[str, Any]:
    """Return the settings of the nearest file and of the environment, checked.

    The file is ``guard.toml`` or the ``[tool.guard]`` table of ``pyproject.toml`` in ``folder``
    (by default the working directory) or the nearest folder above that has either.
    """
    merged, where = _from_file(folder or Path.cwd())
    _check(merged, where)
    variables = _from_environment()
    _check(variables, "environment")
    return merge(merged, variables)


def _check(values: Mapping[str, Any], where: str) -> None:
    names = known_keys()
    for key in values:
        if key not in names:
            shown = f"{_PREFIX}{key.upper()}" if where == "environment" else key
            raise ConfigError(f"{where}: unknown setting {shown!r}; known are {', '.join(names)}.")
    policy_from({k: v for k, v in values.items() if k not in OWN_KEYS}, where=where)


def _from_file(folder: Path) -> tuple[dict[str, Any], str]:
    for place in (folder, *folder.parents):
        own = place / "guard.toml"
        if own.is_file():
            return _table(own), str(own)
        project = place / "pyproject.toml"
        if project.is_file():
            table: dict[str, Any] | None = _table(project).get("tool", {}).get("guard")
            if table is not None:
                return table, f"{project} [tool.guard]"
    return {}, "guard"


def _table(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not readable as TOML ({error}); mend or remove it.") from None


def _from_environment() -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, text in os.environ.items():
        if name.startswith(_PREFIX):
            key = name.removeprefix(_PREFIX).lower()
            values[key] = _mapping(name, text) if key == "thresholds" else text
            if key in ("threshold", "timeout_ms") and text.lower() in ("", "none"):
                values[key] = None
    return values


def _mapping(name: str, text: str) -> dict[str, str]:
    """Read ``gender=0.4,age=0.6``."""
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    if any(not equals for _, equals, _ in pairs):
        raise ConfigError(f"environment: {name} must look like 'gender=0.4,age=0.6', got {text!r}.")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"] if part != "[key]")
    problem = first["msg"].removeprefix("Value error, ")
    problem = problem[:1].lower() + problem[1:]
    got = "" if isinstance(first["input"], dict) else f", got {first['input']!r}"
    return f"{key + ': ' if key else ''}{problem}{got}."
