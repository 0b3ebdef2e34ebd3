"""What is sent with a suite's requests: settings, the deployed system prompt, endpoint, headers.

Suites use the settings of their publications. Models do not accept all of them, and a deployment
has its own prompt and endpoint. Both are applied here and recorded in the comparability key.
LiteLLM's model map says what a model refuses before any call is made.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args
from urllib.parse import urlsplit, urlunsplit

from guard.audit.calls import placeholder
from guard.audit.settings import KEY_VARIABLE, LIMITS, SECRET
from guard.errors import UsageError
from guard.model_calls import reason_refused
from guard.suites import (
    AdaptsRequests,
    Answer,
    Capability,
    Chat,
    GroupTexts,
    Item,
    Judge,
    Request,
    Role,
    Suite,
)
from guard.suites.optional import part_of

PATTERNS = "patterns"
"""The analyst without a model, for trying a suite out; its figures mean nothing."""

_LOGPROBS = "logprobs"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LEAST_KEY = 6  # characters; shorter values are words such as "none"
# A key has them without what may be secret, so they are never sent again.
_ONLY_RECORDED = ("system", "api_base", "headers")


@dataclass(frozen=True, slots=True)
class Sending:
    """The user's settings for requests, and those left out for a model.

    ``given`` settings override the suite's, ``dropped`` are the suite's settings to leave out,
    ``left_out`` those that the model does not accept, with the reason. ``system`` goes before the
    suite's own system message. The values of ``headers`` are stored only as SHA-256.
    ``key_variable`` is the environment variable with the key, empty for the one that LiteLLM reads.
    ``recorded`` is what a replay, which sends nothing, takes over from the recorded key.
    """

    given: Mapping[str, Any] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    system: str = ""
    api_base: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    key_variable: str = ""
    recorded: Mapping[str, Any] = field(default_factory=dict)

    @property
    def api_key(self) -> str | None:
        """The value of ``key_variable``, None without one; UsageError where it is not set."""
        if not self.key_variable:
            return None
        if value := os.environ.get(self.key_variable):
            return value
        raise UsageError(
            f"The environment variable {self.key_variable} is not set; --set {KEY_VARIABLE} takes "
            "the name of the variable with the key."
        )

    def secrets(self) -> list[str]:
        """Return the values that no message may show: of headers, and of variables with keys."""
        named = (value for name, value in os.environ.items() if SECRET.search(name))
        keys = [value for value in named if len(value) >= _LEAST_KEY]
        return [*filter(None, self.headers.values()), *keys]

    def key(self) -> dict[str, Any]:
        """Return its part of a comparability key; empty where nothing differs from the suite.

        Prompts and the values of headers are hashed; an address has no user, password or query.
        """
        settings = {
            "set": dict(self.given),
            "drop": sorted(self.dropped),
            "left_out": sorted(self.left_out),
            "system": _text_digest(self.system) if self.system else "",
            "api_base": shown_address(self.api_base) if self.api_base else "",
            "headers": {n.lower(): _text_digest(v) for n, v in sorted(self.headers.items())},
        }
        return {name: value for name, value in settings.items() if value} | dict(self.recorded)

    @classmethod
    def from_key(cls, key: Mapping[str, Any]) -> Sending:
        """Return the parts of a recorded ``key`` that decide requests, with the rest as it is."""
        return cls(
            key.get("set", {}),
            tuple(key.get("drop", ())),
            dict.fromkeys(key.get("left_out", ()), ""),
            recorded={name: key[name] for name in _ONLY_RECORDED if name in key},
        )

    def request(self, request: Request) -> Request:
        """Return ``request`` with the settings that are sent."""
        if not isinstance(request, Chat):
            return request  # it has no settings
        out = {*self.dropped, *self.left_out}
        if any(name in self.given for name in LIMITS):
            out |= {*LIMITS}  # two names of one limit
        settings = {k: v for k, v in request.settings.items() if k not in out} | dict(self.given)
        logprobs = 0 if _LOGPROBS in self.dropped else request.logprobs
        return replace(request, settings=settings, logprobs=logprobs)

    def messages(self, request: Chat) -> list[dict[str, str]]:
        """Return the messages that are sent, with the deployed prompt before the suite's."""
        messages = [dict(m) for m in request.messages]
        if not self.system:
            return messages
        if messages and messages[0]["role"] == "system":
            messages[0]["content"] = f"{self.system}\n\n{messages[0]['content']}"
            return messages
        return [{"role": "system", "content": self.system}, *messages]

    def bound(self, suite: Suite, others: Mapping[Role, Other] | None = None) -> Suite:
        """Return ``suite`` with its requests as they are sent to the model and to ``others``."""
        bound = _unbound_suite(suite)
        own = bound.request

        def request(item: Item, sample: int, answers: Sequence[Answer]) -> Request | None:
            asked = own(item, sample, answers)
            if asked is None or asked.by == "model":
                return None if asked is None else self.request(asked)
            other = (others or {}).get(asked.by)
            return asked if other is None else other.request(asked)

        bound.request = request  # type: ignore[method-assign]
        return bound

    def for_model(self, model: str, suite: Suite, role: Role = "model") -> Sending:
        """Return what is sent to ``model``: without the suite's settings that it does not accept.

        Raises UsageError where it refuses a setting that the user gave, or runs in this process and
        an address or a header was given.
        """
        if model.startswith("local:") and (self.api_base or self.headers):
            raise UsageError(f"{model} runs in this process; leave --api-base and --header out.")
        asked = _first_chat(suite, role)
        if asked is None:
            if self.key() and role == "model":
                raise UsageError(
                    f"{suite.name} reads log-probabilities of given texts, not chats; leave --set, "
                    "--drop, --system, --api-base and --header out."
                )
            return self
        # One of several suites may not send a dropped setting that another sends.
        dropped = tuple(n for n in self.dropped if n == _LOGPROBS or n in asked.settings)
        sending = replace(self, left_out={}, dropped=dropped)
        if self.given and (why := reason_refused(model, self.given)):
            reasons_ = {n: reason_refused(model, {n: value}) for n, value in self.given.items()}
            name, why = next(((n, reason) for n, reason in reasons_.items() if reason), ("", why))
            name = name if role == "model" or not name else f"{role}.{name}"
            raise UsageError(f"--set {name}: {why}." if name else f"--set: {why}.")
        left: dict[str, str] = {}
        own_settings = dict(self.given)
        settings = sending.request(asked).settings  # type: ignore[union-attr]
        for name in (n for n in settings if n not in own_settings):
            if why := reason_refused(model, own_settings | {name: settings[name]}):
                left[name] = why
        if model_reasons(model, own_settings):
            for name in LIMITS:
                if name in settings and name not in own_settings:
                    left[name] = f"{model} reasons, and the limit would include its reasoning"
        left |= _refused_by_claude(model, settings, own_settings, left) | _refused_by_openai(
            model, settings, own_settings, self.api_base
        )
        return replace(sending, left_out=left)

    def notes(self, model: str) -> list[str]:
        """Return sentences on how requests differ from the suite's."""
        notes = []
        for name, why in self.left_out.items():
            notes.append(f"{name} is left out: {why}." if why else f"{name} is left out.")
        notes += [f"{name} is left out, as --drop says." for name in self.dropped]
        if self.given:
            pairs = ", ".join(f"{k}={json.dumps(v)}" for k, v in self.given.items())
            notes.append(f"{model} is asked with {pairs}.")
        return notes


@dataclass(frozen=True, slots=True)
class Other:
    """An analyst, scorer or embedder with its settings.

    ``key`` is its part of a comparability key and of its calls' keys, so that other settings ask
    again.
    """

    name: str
    key: Mapping[str, Any]
    sending: Sending = field(default_factory=Sending)

    @classmethod
    def of(cls, name: str, sending: Sending) -> Other:
        """Return the one called ``name``, with the settings of ``sending``."""
        return cls(name, {"model": name, **sending.key()}, sending)

    @classmethod
    def from_key(cls, key: Mapping[str, Any]) -> Other:
        """Return the one with this recorded ``key``."""
        return cls(key["model"], key, Sending.from_key(key))

    def request(self, request: Request) -> Request:
        """Return ``request`` as it is sent to this one."""
        sent, whom = self.sending.request(request), json.dumps(self.key, sort_keys=True)
        assert isinstance(sent, Chat | Judge | GroupTexts)
        return replace(sent, whom=whom)


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def check_dropped(dropped: Sequence[str], suites: Sequence[Suite]) -> None:
    """Raise UsageError where ``dropped`` names a setting that none of ``suites`` sends."""
    every = frozenset(get_args(Capability))
    adapted = [s for s in suites if not isinstance(s, AdaptsRequests)]
    for suite in suites:
        if isinstance(suite, AdaptsRequests):
            adapted += (suite.for_capabilities(has) for has in (frozenset(), every))
    asked = map(_first_chat, adapted)
    sent = {name for request in asked if request is not None for name in request.settings}
    if any("logprobs" in suite.needs | part_of(suite, AdaptsRequests).uses for suite in suites):
        sent.add(_LOGPROBS)
    for name in dropped:
        if name not in sent:
            names = ", ".join(suite.name for suite in suites)
            what = f"it sends {', '.join(sorted(sent))}" if sent else "it sends no settings"
            what = what.replace("it sends", "they send") if len(suites) > 1 else what
            raise UsageError(f"--drop {name} is not a setting of {names}; {what}.")


def _first_chat(suite: Suite, role: Role = "model") -> Chat | None:
    """Return the suite's own first chat with ``role``."""
    own = _unbound_suite(suite)
    item = next(iter(own.items()), None)
    answers: list[Answer] = []
    while item is not None and (request := own.request(item, 0, answers)) is not None:
        if request.by == role:
            return request if isinstance(request, Chat) else None
        answers.append(placeholder(request))
    return None


def _unbound_suite(suite: Suite) -> Suite:
    """Return a copy of ``suite`` with its own requests."""
    unbound = copy.copy(suite)
    vars(unbound).pop("request", None)
    return unbound


def model_reasons(model: str, own_settings: Mapping[str, Any]) -> bool:
    """Return whether ``model`` writes reasoning that counts towards its answer's length."""
    import litellm

    if model.startswith("local:"):
        return False
    effort = own_settings.get("reasoning_effort")
    if effort is not None:
        return effort not in ("none", "disable")
    litellm.suppress_debug_info = True
    try:
        if not litellm.supports_reasoning(model):
            return False
        facts = litellm.model_cost.get(litellm.get_model_info(model)["key"], {})
    except Exception:  # a model that is not in LiteLLM's map
        return False
    if "claude" in model.lower():  # reasons only with a setting
        return bool(facts.get("thinking_always_on")) or "thinking" in own_settings
    return bool(facts.get("default_reasoning_effort") != "none")


def _refused_by_claude(
    model: str,
    settings: Mapping[str, Any],
    own_settings: Mapping[str, Any],
    left: Mapping[str, str],
) -> dict[str, str]:
    """Return what Claude refuses without LiteLLM's map saying so.

    It accepts temperature or top_p, not both, and neither of them while it reasons.
    """
    both = ("temperature", "top_p")
    if "claude" not in model.lower():
        return {}
    free = [n for n in both if n in settings and n not in left and n not in own_settings]
    if model_reasons(model, own_settings):
        return dict.fromkeys(free, f"{model} does not accept it while it reasons")
    if not free or any(n not in settings or n in left for n in both):
        return {}
    return {free[-1]: f"{model} accepts temperature or top_p, not both"}


def _refused_by_openai(
    model: str, settings: Mapping[str, Any], own_settings: Mapping[str, Any], base: str | None
) -> dict[str, str]:
    """Return what OpenAI refuses; LiteLLM passes it on for compatible servers."""
    if not model.startswith(("openai/", "azure/", "gpt-")) or base is not None:
        return {}
    return {
        n: "OpenAI does not accept it"
        for n in ("top_k",)
        if n in settings and n not in own_settings
    }


def check_address(address: str | None, option: str) -> None:
    """Raise UsageError where the ``address`` of ``option`` is not an HTTP address."""
    if address is not None and not address.startswith(("http://", "https://")):
        raise UsageError(f"{option} takes an address that begins with http:// or https://.")


def check_key_variable(name: str, option: str) -> None:
    """Raise UsageError where ``name`` cannot be that of an environment variable."""
    if name and not _VARIABLE.fullmatch(name):
        # It may be the key itself, so it is not shown.
        raise UsageError(f"{option} takes the name of an environment variable, not a key.")


def shown_address(address: str) -> str:
    """Return an address without its user, password and query, which may be secret."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))
