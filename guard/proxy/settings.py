"""The guardrail's settings in config.yaml, keys and requests, and which of them are refused."""

from __future__ import annotations

import atexit
import importlib
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from litellm.types.guardrails import LitellmParams

from guard.config import OWN_KEYS, known_keys, own_value, policy_from, values_of
from guard.core import Guard
from guard.errors import ConfigError, GuardError
from guard.policy import Policy


class NotStarted(GuardError):
    """A setting in config.yaml cannot be used.

    It is not a ValueError, as ConfigError is: LiteLLM skips a guardrail that raises ValueError and
    starts without it.
    """


def made_guard(settings: Any, where: str) -> Guard:
    """Return the guard with the ``settings`` of config.yaml. Raises ConfigError."""
    values = dict(values_of({} if settings is None else settings, f"{where}: guard"))
    for key in values:
        if key not in known_keys():
            raise ConfigError(
                f"{where}: unknown setting {key!r} under guard; known are "
                f"{', '.join(known_keys())}."
            )
    own = {key: values.pop(key) for key in OWN_KEYS if key in values}
    for key, value in own.items():
        if value is None:
            raise ConfigError(f"{where}: {key} must be a string, got None.")
        own_value(key, value, where)
    policy_from(values, where=where)
    if ":" not in (named := own.get("detector", "")) and "." in named:
        own["detector"] = _detector(own["detector"], where)
    guard = Guard(values, **own)
    check_possible(guard.policy, where)  # settings may also come from guard.toml
    return guard


def check_possible(policy: Policy, where: str) -> None:
    """Raise ConfigError if a policy has a setting that the proxy does not support."""
    if policy.rewrites:
        raise ConfigError(
            f"{where}: the proxy's guardrail cannot ask the model again, as the action 'rewrite' "
            "does; choose 'terminate' or 'redact'."
        )
    if policy.litellm_records != "raw":
        raise ConfigError(
            f"{where}: litellm_records='guarded' has no effect on the proxy, which makes and "
            "reports its own calls; leave it 'raw'."
        )


def _detector(path: str, where: str) -> Any:
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{where}: detector {path!r} cannot be imported ({error}).") from None


def check_others(others: Mapping[str, Any], where: str) -> None:
    """Raise ConfigError for unknown settings, except defaults that LiteLLM itself adds."""
    usual = LitellmParams(guardrail="guard.proxy.Guardrail", mode="post_call").model_dump()
    for key, value in others.items():
        if key not in usual or usual[key] != value:
            hint = "; it goes under guard" if key in known_keys() else ""
            raise ConfigError(f"{where}: unknown setting {key!r}{hint}.")


def refuse(sentence: str) -> NoReturn:
    """End the start of the proxy; repeat the sentence after the server's own output."""
    atexit.register(lambda: print(f"\n{sentence}", file=sys.stderr))
    raise NotStarted(sentence) from None
