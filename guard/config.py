"""Settings: ``guard.toml`` or ``[tool.guard]``, then ``BIASGUARD_*`` variables, then arguments.

An unknown name or a value out of range raises ConfigError: one sentence that names its source.
Why: docs/decisions/settings-read-by-hand.md.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from guard import judge_settings, served_settings
from guard.errors import ConfigError
from guard.places import read_toml, unreadable_settings
from guard.policy import Policy

# Settings that do not belong to the policy.
SWITCHES = ("metrics", "traces")
_EVENTS = ("events", "keep_text", "keep_days", "review_share")
OWN_KEYS = ("detector", "index", "weights", "device", "judge", "served", *_EVENTS, *SWITCHES)
DEVICES = ("cpu", "cuda")
KEEP_TEXT = ("never", "hash", "redacted", "full")
_MOST_DAYS = 36_500
_MOST_SHOWN = 200  # characters of a value that a message quotes
_PREFIX = "BIASGUARD_"
# Accepted for one release; other software uses variables with this prefix, too.
_OLD_PREFIX = "GUARD_"
_log = logging.getLogger("guard")
_warned: set[str] = set()
# Settings with several values: how a variable spells them.
_PAIRS = {
    "thresholds": "gender=0.4,age=0.6",
    "actions": "appearance=flag,reasoning=redact",
    "labels": "tenant=a,release=7",
    "judge": "timeout_s=10,params.seed=1",
    "served": "timeout_s=3,token=SECRET",
}
_MAY_BE_NONE = (
    *("threshold", "timeout_ms", "queue_ms", "breaker_failures", "events", "keep_days"),
    *("second_look_threshold", "second_look_ms"),
)
_T = TypeVar("_T")
_SQLITE = "sqlite:///"


def known_keys() -> list[str]:
    """Return all setting names."""
    return [*OWN_KEYS, *Policy.model_fields]


def policy_from(
    values: Mapping[str, Any], *, base: Policy | None = None, where: str = "guard"
) -> Policy:
    """Return ``base`` (default: the default policy) with ``values`` overriding its own.

    Raises ConfigError, in one sentence, naming ``where``, the key and what it takes.
    """
    known = Policy.model_fields
    for key in values:
        if key not in known:
            raise ConfigError(f"{where}: unknown setting {key!r}; known are {', '.join(known)}.")
    # Without the base's defaults: no source has set them.
    own = base.model_dump(exclude_unset=True) if base is not None else {}
    try:
        return Policy.model_validate(merge_settings(own, values))
    except ValidationError as error:
        raise ConfigError(f"{where}: {_error_sentence(error)}") from None


def values_of(value: object, where: str, also: str = "") -> Mapping[str, Any]:
    """Return the settings in a mapping, or those of the name of an operating point.

    Raises ConfigError, naming ``where``, on anything else; ``also`` names further types that are
    accepted there.
    """
    if isinstance(value, str):
        return {"operating_point": value}
    if isinstance(value, Mapping):
        return value
    raise ConfigError(
        f"{where}: takes {also}a mapping of settings or the name of an operating point, got "
        f"{value!r}."
    )


def merge_settings(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merged settings of two sources; the later one overrides the earlier.

    Earlier settings that would take precedence over a later one are dropped: ``threshold`` and
    ``thresholds`` for a later ``operating_point``, ``thresholds`` for a later ``threshold``,
    ``actions`` for a later ``action``, ``weights`` for a later ``detector``. ``labels``, ``judge``
    and ``served`` are merged by name.
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
    labels = [source.get("labels") for source in (earlier, later)]
    if isinstance(labels[0], Mapping) and isinstance(labels[1], Mapping):
        merged["labels"] = {**labels[0], **labels[1]}
    if "judge" in earlier and "judge" in later:
        merged["judge"] = judge_settings.merged_settings(earlier["judge"], later["judge"])
    if "served" in earlier and "served" in later:
        merged["served"] = {**earlier["served"], **later["served"]}
    return merged


def read_settings(folder: Path | None = None) -> dict[str, Any]:
    """Return the settings of the nearest file and of the environment, checked.

    The file is ``guard.toml`` or the ``[tool.guard]`` table of ``pyproject.toml`` in ``folder``
    (by default the working directory) or the nearest folder above that has either.
    """
    try:
        here = (folder or Path.cwd()).absolute()
    except FileNotFoundError:
        raise ConfigError("The working directory is gone; change to one that is there.") from None
    values, where, place = _from_file(here)
    values = _checked_values(values, where)
    for key in ("index", "weights"):
        if key in values:  # relative to the file's own folder
            values[key] = str(place / values[key])
    for key in {"record", "replay"} & values.get("judge", {}).keys():
        values["judge"][key] = str(place / values["judge"][key])
    if (events := values.get("events") or "").startswith(_SQLITE):
        values["events"] = f"{_SQLITE}{place / events.removeprefix(_SQLITE)}"
    return merge_settings(values, _checked_values(_from_environment(), "environment"))


def parse_setting(key: str, text: str, where: str) -> str | dict[str, str] | None:
    """Parse ``text``, the value of a variable or a command line option, for the setting ``key``.

    Returns a dict for a setting with several values, None for "none" if the setting is optional,
    else the text. Raises ConfigError, naming ``where``, on malformed pairs.
    """
    if key not in _PAIRS:
        return _or_none(key, text)
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    if any(not equals for _, equals, _ in pairs):
        got = "" if key == "served" else f", got {text!r}"  # which may have the token
        raise ConfigError(f"{where} must look like {_PAIRS[key]!r}{got}.")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _or_none(key: str, value: _T) -> _T | None:
    """Return ``value``, or None for "none": TOML and variables have no null."""
    return None if key in _MAY_BE_NONE and value == "none" else value


def _checked_values(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return ``values`` with "none" replaced by None; raises ConfigError on invalid ones."""
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
    """Return the value of a setting that is not the policy's; "none" is None where allowed.

    Raises ConfigError, naming ``where``, on an invalid value.
    """
    value = _or_none(key, value)
    if key == "judge":
        return judge_settings.checked_settings(value, where)
    if key == "served":
        return served_settings.checked_settings(value, where)
    if key == "keep_days":
        digits = str(value) if not isinstance(value, bool) else ""
        if value is not None and not (digits.isdecimal() and 1 <= int(digits) <= _MOST_DAYS):
            raise ConfigError(
                f"{where}: keep_days takes a whole number of days from 1 to {_MOST_DAYS}, or "
                f"'none', got {_shortened_value(value)}."
            )
        return None if value is None else int(digits)
    if key == "review_share":
        try:
            share = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            share = math.nan
        if not 0 <= share <= 1:
            raise ConfigError(
                f"{where}: review_share takes a share from 0 to 1, such as 0.01, got "
                f"{_shortened_value(value)}."
            )
        return share
    if key == "keep_text" and value not in KEEP_TEXT:
        raise ConfigError(
            f"{where}: keep_text is one of {', '.join(KEEP_TEXT)}, got {_shortened_value(value)}."
        )
    if key == "device" and value not in DEVICES:
        raise ConfigError(
            f"{where}: device is one of {', '.join(DEVICES)}, got {_shortened_value(value)}."
        )
    if key in SWITCHES:
        flag = {"true": True, "false": False}.get(str(value).casefold())
        if flag is None:
            raise ConfigError(f"{where}: {key} takes true or false, got {_shortened_value(value)}.")
        return flag
    if value is not None and (not isinstance(value, str) or "\0" in value):
        raise ConfigError(f"{where}: {key} must be a string, got {_shortened_value(value)}.")
    return value


def _shortened_value(value: object) -> str:
    """Return how a message shows what was given; a megabyte would hide what the message says."""
    shown = repr(value)
    return (
        shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}… ({len(shown)} characters)"
    )


def _from_file(folder: Path) -> tuple[dict[str, Any], str, Path]:
    """Return the nearest file's settings, its name for messages, and its folder."""
    for place in (folder, *folder.parents):
        own = place / "guard.toml"
        if _path_exists(own):
            return read_toml(own), str(own), place
        project = place / "pyproject.toml"
        if _path_exists(project):
            tools = read_toml(project).get("tool", {})
            table = tools.get("guard") if isinstance(tools, dict) else None
            if table is None:
                continue
            if not isinstance(table, dict):
                raise ConfigError(f"{project}: [tool.guard] must be a table, got {table!r}.")
            return table, f"{project} [tool.guard]", place
    return {}, "guard", folder


def _path_exists(path: Path) -> bool:
    """Whether a path exists; raises ConfigError if that cannot be determined."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise unreadable_settings(path, error) from None
    return True


def _from_environment() -> dict[str, Any]:
    """Return the settings in environment variables; warn of unknown ones and ignore them."""
    names = known_keys()
    values: dict[str, Any] = {}
    for name, text in sorted(os.environ.items()):  # sorts the new prefix before the old one
        prefix = _PREFIX if name.startswith(_PREFIX) else _OLD_PREFIX
        key = name.removeprefix(prefix).lower()
        if not name.startswith(prefix) or (key not in names and prefix == _OLD_PREFIX):
            continue
        if key not in names:
            closest = get_close_matches(key, names, n=1)
            meant = f"; did you mean {_PREFIX}{closest[0].upper()}?" if closest else "."
            _warn_once(f"{name} is not a setting of guard and is ignored{meant}")
            continue
        if prefix == _OLD_PREFIX:
            _warn_once(
                f"{name} was renamed to {_PREFIX}{key.upper()}; the next release ignores it."
            )
        values.setdefault(key, parse_setting(key, text, f"environment: {name}"))
    return values


def _warn_once(sentence: str) -> None:
    # Once per process: every Guard reads the settings again.
    if sentence not in _warned:
        _warned.add(sentence)
        _log.warning(sentence)


def _error_sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"] if part != "[key]")
    problem = first["msg"].removeprefix("Value error, ")
    problem = problem[:1].lower() + problem[1:]
    got = "" if isinstance(first["input"], dict) else f", got {_shortened_value(first['input'])}"
    return f"{key + ': ' if key else ''}{problem}{got}."
