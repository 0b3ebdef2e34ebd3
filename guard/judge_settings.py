"""The setting ``judge``: how a model behind LiteLLM is asked for verdicts."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guard.errors import ConfigError

# What guard itself decides of every call; most have a setting of their own.
_OWN_PARAMS: Mapping[str, str] = {
    "model": "the detector's name has the model: judge:MODEL",
    "messages": "the instruction and the judged text are the messages",
    "stream": "answers are not streamed",
    "n": "one answer is asked for",
    "timeout": "use timeout_s",
    "logprobs": "guard asks for them where the model gives them",
    "top_logprobs": "guard asks for them where the model gives them",
    "guard": "a judge's calls are not guarded",
    "num_retries": "a failed call is not repeated",
    "max_retries": "a failed call is not repeated",
    "fallbacks": "another model would be another judge",
    "context_window_fallback_dict": "another model would be another judge",
    "mock_response": "an answer that no model gave is no verdict",
    "no-log": "guard keeps the judged text from callbacks",
    "cache": "guard keeps the judged text from LiteLLM's cache",
}
#: Parameters that say where and as whom a request is sent, not what is asked.
TRANSPORT = frozenset(
    "api_key api_base base_url api_version organization headers extra_headers timeout "
    "azure_ad_token".split()
)
#: Parameters that limit an answer's tokens.
TOKEN_LIMITS = ("max_completion_tokens", "max_tokens")
_OVER_BUDGET = {*TOKEN_LIMITS, "n", "model", "messages"}
_SECRET = TRANSPORT - {"api_base", "base_url", "timeout"}
_MOST_AT_ONCE = 1000
_LONGEST_S = 86_400


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """Limits of a judge, what LiteLLM is given, and the file of a recording.

    ``timeout_s`` is in seconds, for one call; ``budget`` in US dollars, for the process (None: no
    limit); ``concurrency`` the most calls at once. ``params_json`` is a JSON object of further
    arguments of ``litellm.completion``. ``record`` is a file to add answers to, ``replay`` one to
    take them from.
    """

    timeout_s: float = 5.0
    budget: float | None = None
    concurrency: int = 8
    params_json: str = "{}"
    record: Path | None = None
    replay: Path | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any], where: str = "Guard") -> JudgeSettings:
        """Return the settings in ``values``; raises ConfigError as :func:`checked_settings`."""
        checked = checked_settings(values, where)
        params = json.dumps(checked.pop("params", {}), sort_keys=True)
        for key in {"record", "replay"} & checked.keys():
            checked[key] = Path(checked[key]).absolute()  # the working directory may change later
        return cls(**checked, params_json=params)

    @property
    def params(self) -> dict[str, Any]:
        """Further arguments of ``litellm.completion``."""
        params = json.loads(self.params_json)
        assert isinstance(params, dict)
        return params


def checked_settings(values: object, where: str) -> dict[str, Any]:
    """Return the values of the setting ``judge`` in their own types.

    Values may be texts, as in a variable, and a key ``params.NAME`` is NAME of ``params``, whose
    text is read as JSON if it is JSON.

    Raises:
        ConfigError: naming ``where`` and the key, if one is unknown or out of range.

    """
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"{where}: judge takes a table of settings ({', '.join(_READ)}), got "
            f"{type(values).__name__}."
        )
    checked: dict[str, Any] = {}
    params: dict[str, Any] = {}
    for key, value in values.items():
        head, dot, name = str(key).partition(".")
        if dot and head == "params":
            params[name] = _parsed_json(value)
        elif key == "params":
            params |= _checked_table(value, where)
        elif key in _READ:
            checked[key] = _READ[key](value, f"{where}: judge.{key}")
        else:
            raise ConfigError(f"{where}: unknown key judge.{key}; known are {', '.join(_READ)}.")
    for name in params:
        if name in _OWN_PARAMS:
            raise ConfigError(f"{where}: judge.params takes no {name}: {_OWN_PARAMS[name]}.")
    body = params.get("extra_body")
    if isinstance(body, Mapping) and (over := sorted(body.keys() & _OVER_BUDGET)):
        raise ConfigError(
            f"{where}: judge.params.extra_body takes no {over[0]}, which a budget counts on; set "
            "it in judge.params, or leave it out."
        )
    for name in params.keys() & set(TOKEN_LIMITS):
        if type(params[name]) is not int or params[name] < 1:
            raise ConfigError(
                f"{where}: judge.params.{name} takes a whole number of tokens from 1 on, got "
                f"{params[name]!r}."
            )
    try:
        json.dumps(params, allow_nan=False)
    except (TypeError, ValueError):
        raise ConfigError(
            f"{where}: judge.params takes texts, numbers, true, false, lists and tables."
        ) from None
    if "record" in checked and "replay" in checked:
        raise ConfigError(
            f"{where}: judge.record asks the model and judge.replay does not; leave one out."
        )
    return checked | ({"params": params} if params else {})


def merged_settings(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of two sources; the later one overrides by key, in ``params``, too.

    A later ``replay`` overrides an earlier ``record``, and the other way round.
    """
    files = {"record", "replay"}
    overruled = files if files & later.keys() else set()
    merged = {**{k: v for k, v in earlier.items() if k not in overruled}, **later}
    if "params" in earlier and "params" in later:
        merged["params"] = {**earlier["params"], **later["params"]}
    return merged


def printable_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``values`` as they may be printed: without keys and headers."""
    params = values.get("params", {})
    plain = {name: "set" if name in _SECRET else value for name, value in params.items()}
    return {**values, **({"params": plain} if params else {})}


def _parsed_json(value: Any) -> Any:
    """Return what a text says in JSON; the text itself if it is none."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _checked_table(value: Any, where: str) -> dict[str, Any]:
    table = _parsed_json(value)
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: judge.params takes a table, such as {{ temperature = 0 }}.")
    return {str(name): inner for name, inner in table.items()}


def _checked_number(value: Any) -> float:
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return math.nan


def checked_seconds(value: Any, where: str) -> float:
    """Return a time limit; raises ConfigError, which begins with ``where``, if it is none."""
    seconds = _checked_number(value)
    if not 0 < seconds <= _LONGEST_S:
        raise ConfigError(
            f"{where} takes seconds above 0 and at most {_LONGEST_S:,}, got {value!r}."
        )
    return seconds


def _checked_budget(value: Any, where: str) -> float | None:
    if value is None or value == "none":
        return None
    budget = _checked_number(value)
    if not 0 <= budget < math.inf:
        raise ConfigError(f"{where} takes US dollars from 0 on, or 'none', got {value!r}.")
    return budget


def checked_count(value: Any, where: str) -> int:
    """Return the most calls at once; raises ConfigError as :func:`checked_seconds`."""
    count = _checked_number(value)
    if not (1 <= count <= _MOST_AT_ONCE and count == int(count)):
        raise ConfigError(
            f"{where} takes a whole number of calls from 1 to {_MOST_AT_ONCE}, got {value!r}."
        )
    return int(count)


def _checked_file(value: Any, where: str) -> str:
    if isinstance(value, str | Path) and str(value).strip() and "\0" not in str(value):
        with contextlib.suppress(UnicodeEncodeError):  # a lone surrogate
            os.fsencode(value)
            return str(value)
    raise ConfigError(f"{where} takes a file's name, got {value!r}.")


_READ: Mapping[str, Any] = {
    "timeout_s": checked_seconds,
    "budget": _checked_budget,
    "concurrency": checked_count,
    "params": None,  # read above
    "record": _checked_file,
    "replay": _checked_file,
}
