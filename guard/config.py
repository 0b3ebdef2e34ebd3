"""Settings: ``guard.toml`` or ``[tool.guard]``, then ``BIASGUARD_*`` variables, then arguments.

A name nobody knows and a value out of range each end in one sentence that says where it stood.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from guard.errors import ConfigError
from guard.places import check_regular
from guard.policy import Policy

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Settings that are not the policy's.
OWN_KEYS = ("detector", "index", "weights", "events", "keep_text", "keep_days")
KEEP_TEXT = ("never", "hash", "redacted", "full")
_MOST_DAYS = 36_500
_MOST_SHOWN = 200  # characters of a value that a message quotes
_PREFIX = "BIASGUARD_"
# Understood for one release; other software has variables of this prefix too.
_OLD_PREFIX = "GUARD_"
_log = logging.getLogger("guard")
_warned: set[str] = set()
# Settings that hold several, as a variable says them.
_PAIRS = {
    "thresholds": "gender=0.4,age=0.6",
    "actions": "appearance=flag,reasoning=redact",
    "labels": "tenant=a,release=7",
}
_MAY_BE_NONE = ("threshold", "timeout_ms", "queue_ms", "breaker_failures", "events", "keep_days")
_T = TypeVar("_T")
_SQLITE = "sqlite:///"


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


def values_of(given: object, where: str, also: str = "") -> Mapping[str, Any]:
    """Return the settings that a mapping or the name of an operating point stands for.

    Raises ConfigError, naming ``where``, on anything else; ``also`` is what else is taken there.
    """
    if isinstance(given, str):
        return {"operating_point": given}
    if isinstance(given, Mapping):
        return given
    raise ConfigError(
        f"{where}: takes {also}a mapping of settings or the name of an operating point, got "
        f"{given!r}."
    )


def merge(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of two sources, of which the later wins.

    A later ``operating_point`` also takes the place of an earlier ``threshold`` and ``thresholds``,
    a later ``threshold`` that of earlier ``thresholds``, a later ``action`` that of earlier
    ``actions``, a later ``detector`` that of earlier ``weights``: they would else overrule it.
    Later ``labels`` stand beside earlier ones of another name.
    """
    overruled = set()
    if "operating_point" in later:
        overruled = {"threshold", "thresholds"}
    elif "threshold" in later:
        overruled = {"thresholds"}
    if "action" in later:
        overruled.add("actions")
    if "detector" in later:
        overruled.add("weights")
    merged = {**{k: v for k, v in earlier.items() if k not in overruled}, **later}
    labels = [given for source in (earlier, later) if (given := source.get("labels")) is not None]
    if len(labels) > 1 and all(isinstance(given, Mapping) for given in labels):
        merged["labels"] = {**labels[0], **labels[1]}
    return merged


def settings(folder: Path | None = None) -> dict[str, Any]:
    """Return the settings of the nearest file and of the environment, checked.

    The file is ``guard.toml`` or the ``[tool.guard]`` table of ``pyproject.toml`` in ``folder``
    (by default the working directory) or the nearest folder above that has either.
    """
    try:
        here = (folder or Path.cwd()).absolute()
    except FileNotFoundError:
        raise ConfigError("The working directory is gone; change to one that is there.") from None
    values, where, place = _from_file(here)
    values = _checked(values, where)
    for key in ("index", "weights"):
        if key in values:  # a file means folders beside itself, from wherever it was found
            values[key] = str(place / values[key])
    if (events := values.get("events") or "").startswith(_SQLITE):
        values["events"] = f"{_SQLITE}{place / events.removeprefix(_SQLITE)}"
    return merge(values, _checked(_from_environment(), "environment"))


def spelled(key: str, text: str, where: str) -> str | dict[str, str] | None:
    """Return what a variable, or an option, says of the setting ``key`` by ``text``.

    Pairs for a setting that holds several, None for "none" where that can be said, else the text.
    Raises ConfigError, naming ``where``, for pairs that are none.
    """
    if key not in _PAIRS:
        return _or_none(key, text)
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    if any(not equals for _, equals, _ in pairs):
        raise ConfigError(f"{where} must look like {_PAIRS[key]!r}, got {text!r}.")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _or_none(key: str, value: _T) -> _T | None:
    """Return ``value``, or None for "none": TOML has no word for nothing, nor has a variable."""
    return None if key in _MAY_BE_NONE and value == "none" else value


def _checked(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return ``values`` with "none" understood; raises ConfigError on what cannot be used."""
    names = known_keys()
    plain = {k: _or_none(k, v) for k, v in values.items()}
    for key, value in plain.items():
        if key not in names:
            raise ConfigError(f"{where}: unknown setting {key!r}; known are {', '.join(names)}.")
        if key in OWN_KEYS and value is not None:
            plain[key] = own_value(key, value, where)
    policy_from({k: v for k, v in plain.items() if k not in OWN_KEYS}, where=where)
    return plain


def own_value(key: str, value: Any, where: str) -> Any:
    """Return what a setting that is not the policy's is to be; "none" is None where it may be said.

    Raises ConfigError, naming ``where``, on a value it does not take.
    """
    value = _or_none(key, value)
    if key == "keep_days":
        digits = str(value) if not isinstance(value, bool) else ""
        if value is not None and not (digits.isdecimal() and 1 <= int(digits) <= _MOST_DAYS):
            raise ConfigError(
                f"{where}: keep_days takes a whole number of days from 1 to {_MOST_DAYS}, or "
                f"'none', got {_shortened(value)}."
            )
        return None if value is None else int(digits)
    if key == "keep_text" and value not in KEEP_TEXT:
        raise ConfigError(
            f"{where}: keep_text is one of {', '.join(KEEP_TEXT)}, got {_shortened(value)}."
        )
    if value is not None and (not isinstance(value, str) or "\0" in value):
        raise ConfigError(f"{where}: {key} takes a text, got {_shortened(value)}.")
    return value


def _shortened(value: object) -> str:
    """Return how a message shows what was given; a megabyte would hide what the message says."""
    shown = repr(value)
    return (
        shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}… ({len(shown)} characters)"
    )


def _from_file(folder: Path) -> tuple[dict[str, Any], str, Path]:
    """Return the nearest file's settings, its name for messages, and its folder."""
    for place in (folder, *folder.parents):
        own = place / "guard.toml"
        if _there(own):
            return _table(own), str(own), place
        project = place / "pyproject.toml"
        if _there(project):
            tools = _table(project).get("tool", {})
            table = tools.get("guard") if isinstance(tools, dict) else None
            if table is None:
                continue
            if not isinstance(table, dict):
                raise ConfigError(f"{project}: [tool.guard] must be a table, got {table!r}.")
            return table, f"{project} [tool.guard]", place
    return {}, "guard", folder


def _there(path: Path) -> bool:
    """Whether anything bears the name: settings that cannot be read are not none."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unreadable(path, error) from None
    return True


def _table(path: Path) -> dict[str, Any]:
    try:
        check_regular(path)
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not readable as TOML ({error}); mend or remove it.") from None
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path}: cannot be read ({error.strerror}); mend or remove it.")


def _from_environment() -> dict[str, Any]:
    """Return the settings of variables; one that is none is warned of and left alone."""
    names = known_keys()
    values: dict[str, Any] = {}
    for name, text in sorted(os.environ.items()):  # new names stand before old ones
        prefix = _PREFIX if name.startswith(_PREFIX) else _OLD_PREFIX
        key = name.removeprefix(prefix).lower()
        if not name.startswith(prefix) or (key not in names and prefix == _OLD_PREFIX):
            continue
        if key not in names:
            closest = get_close_matches(key, names, n=1)
            meant = f"; was {_PREFIX}{closest[0].upper()} meant?" if closest else "."
            _warn(f"{name} is no setting of guard and is ignored{meant}")
            continue
        if prefix == _OLD_PREFIX:
            _warn(f"{name} is now called {_PREFIX}{key.upper()}; the next release ignores it.")
        values.setdefault(key, spelled(key, text, f"environment: {name}"))
    return values


def _warn(sentence: str) -> None:
    # Every Guard reads the settings anew.
    if sentence not in _warned:
        _warned.add(sentence)
        _log.warning(sentence)


def _sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"] if part != "[key]")
    problem = first["msg"].removeprefix("Value error, ")
    problem = problem[:1].lower() + problem[1:]
    got = "" if isinstance(first["input"], dict) else f", got {_shortened(first['input'])}"
    return f"{key + ': ' if key else ''}{problem}{got}."
