"""Where each model of an audit is asked, and which environment variable has its key.

LiteLLM has an address of its own for each provider, so a model without one would be asked there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from guard.audit.addresses import ADDRESS_KEPT
from guard.audit.models import LOCAL
from guard.audit.sending import PATTERNS, Other, Sending, shown_address
from guard.errors import UsageError
from guard.suites import Role

# The variables that LiteLLM reads and its own address, for the providers that it resolves late.
_BASES = {
    "openai": (("OPENAI_BASE_URL", "OPENAI_API_BASE"), "https://api.openai.com/v1"),
    "anthropic": (("ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"), "https://api.anthropic.com"),
}
_KEYS = re.compile(r"KEY|TOKEN|SECRET|CREDENTIAL")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is asked.

    ``address`` has no user, password or query; it is empty where LiteLLM alone knows it, and in
    this process. ``keys`` are the variables with its key, ``missing`` those that are not set.
    """

    provider: str
    address: str = ""
    keys: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it in plain values."""
        return {
            "in_process": not self.provider,
            "address": self.address or None,
            "key_variables": list(self.keys),
            "missing_variables": list(self.missing),
            "headers": list(self.headers),
        }

    def __str__(self) -> str:
        if not self.provider:
            return "in this process"
        text = self.address or f"LiteLLM's address of {self.provider}"
        if self.keys:
            text += f", key in {' or '.join(self.keys)}"
            text += " (NOT SET)" if self.missing else ""
        return text + (f", headers {', '.join(self.headers)}" if self.headers else "")


def endpoint(model: str, sending: Sending) -> Endpoint:
    """Return where ``model`` is asked; makes no call."""
    import litellm

    if model == PATTERNS or model.startswith(LOCAL):
        return Endpoint("")
    _, provider, _, known = litellm.get_llm_provider(model)
    upper = provider.upper()
    names, own = _BASES.get(provider, ((f"{upper}_API_BASE", f"{upper}_BASE_URL"), ""))
    of_environment = next((os.environ[name] for name in names if os.environ.get(name)), "")
    if provider not in ADDRESS_KEPT:
        of_environment = ""  # LiteLLM may not keep it
    base = sending.api_base or known or of_environment or own
    keys: tuple[str, ...] = (sending.key_variable,) if sending.key_variable else ()
    if not keys:
        lacking = litellm.validate_environment(model)["missing_keys"]
        keys = tuple(name for name in lacking if _KEYS.search(name))
        if not keys and os.environ.get(f"{upper}_API_KEY"):
            keys = (f"{upper}_API_KEY",)
    missing = () if any(os.environ.get(name) for name in keys) else keys
    return Endpoint(
        provider, shown_address(base) if base else "", keys, missing, tuple(sending.headers)
    )


def endpoint_of(role: Role, other: Other) -> Endpoint:
    """Return where another model is asked: scorers and embedders run in this process."""
    return endpoint(other.name, other.sending) if role == "analyst" else Endpoint("")


def sending_beside(
    analyst: str, own: Sending, models: Sequence[str], beside_sending: Sending
) -> Sending:
    """Return what is sent to ``analyst``, which has ``own`` settings, beside audited ``models``.

    Without an address of its own it is asked at that of the models (``beside_sending``), with their
    headers and key. Raises UsageError where none of them is of its provider, because another
    provider's key and answers would go there.
    """
    import litellm

    if (
        own.api_base
        or not beside_sending.api_base
        or analyst == PATTERNS
        or analyst.startswith(LOCAL)
    ):
        return own
    providers = {litellm.get_llm_provider(one)[1] for one in models if not one.startswith(LOCAL)}
    provider = litellm.get_llm_provider(analyst)[1]
    if providers and provider not in providers:
        raise UsageError(
            f"--api-base {shown_address(beside_sending.api_base)} is the address of "
            f"{', '.join(models)}, and the analyst {analyst} is of another provider; give its own: "
            "--set analyst.api_base=URL."
        )
    key = own.key_variable or beside_sending.key_variable
    return replace(
        own, api_base=beside_sending.api_base, headers=beside_sending.headers, key_variable=key
    )
