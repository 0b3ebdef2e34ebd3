"""What goes out with a suite's requests: settings, the deployed system prompt, endpoint, headers.

A suite says what its publication asks for. Models differ in what they take, and a deployed thing
has a prompt and an address of its own: both are applied here, in one place, and recorded in the
comparability key. LiteLLM's model map tells what a model refuses before anything is asked.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args
from urllib.parse import urlsplit, urlunsplit

from guard.audit.calls import placeholder
from guard.errors import UsageError
from guard.suites import Answer, Capability, Chat, GroupTexts, Item, Judge, Request, Role, Suite

PATTERNS = "patterns"
"""The analyst that is no model: good for trying a suite out, not for its figures."""

_LOGPROBS = "logprobs"
_LIMITS = ("max_tokens", "max_completion_tokens")
_EFFORTS = ("reasoning_effort", "thinking")
# What the audit itself decides, or has an option of its own for.
_OWN = {
    "api_base": "give --api-base",
    "base_url": "give --api-base",
    "extra_headers": "give --header",
    "headers": "give --header",
    "max_retries": "the audit repeats calls itself",
    "messages": "the suite says what is asked",
    "model": "give --model",
    "n": "an audit reads one answer a call",
    "stream": "give --stream",
    "timeout": "give --timeout",
    "logprobs": "the suite says whether it reads them; --drop logprobs does without",
    "top_logprobs": "the suite says how many it reads; --drop logprobs does without",
}
_OWN_OF_ANALYST = _OWN | {
    "model": "give --analyst",
    "api_base": "give --set analyst.api_base",
    "base_url": "give --set analyst.api_base",
    "extra_headers": "the analyst is sent no headers",
    "headers": "the analyst is sent no headers",
    "stream": "the analyst's answers are not streamed",
    "logprobs": "the analyst's log-probabilities are not read",
    "top_logprobs": "the analyst's log-probabilities are not read",
}
_SECRET = re.compile(r"_key$|secret|password|credential|_token$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Sending:
    """What a user gives with the requests, and what is left out for one model.

    ``given`` are settings that win over the suite's, ``dropped`` the suite's settings to leave out,
    ``left_out`` those that the model does not take, with the reason. ``system`` stands before the
    suite's own system message. Of a value of ``headers`` only its SHA-256 is ever stored.
    """

    given: Mapping[str, Any] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    system: str = ""
    api_base: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def key(self) -> dict[str, Any]:
        """Return what a comparability key has of it; empty where the suite's requests go as is.

        Of a prompt and of the value of a header its SHA-256, of an address no user and no query.
        """
        found = {
            "set": dict(self.given),
            "drop": sorted(self.dropped),
            "left_out": sorted(self.left_out),
            "system": _digest(self.system) if self.system else "",
            "api_base": shown(self.api_base) if self.api_base else "",
            "headers": {n.lower(): _digest(v) for n, v in sorted(self.headers.items())},
        }
        return {name: value for name, value in found.items() if value}

    @classmethod
    def recorded(cls, key: Mapping[str, Any]) -> Sending:
        """Return what decides the requests of a journal with this ``key``."""
        return cls(
            key.get("set", {}),
            tuple(key.get("drop", ())),
            dict.fromkeys(key.get("left_out", ()), ""),
        )

    def request(self, request: Request) -> Request:
        """Return ``request`` with the settings that are sent."""
        if not isinstance(request, Chat):
            return request  # no settings go with it
        out = {*self.dropped, *self.left_out, *_alias(self.given)}
        settings = {k: v for k, v in request.settings.items() if k not in out} | dict(self.given)
        logprobs = 0 if _LOGPROBS in self.dropped else request.logprobs
        return replace(request, settings=settings, logprobs=logprobs)

    def messages(self, request: Chat) -> list[dict[str, str]]:
        """Return the messages that are sent: the deployed prompt and the suite's in one."""
        messages = [dict(m) for m in request.messages]
        if not self.system:
            return messages
        if messages and messages[0]["role"] == "system":
            messages[0]["content"] = f"{self.system}\n\n{messages[0]['content']}"
            return messages
        return [{"role": "system", "content": self.system}, *messages]

    def bound(self, suite: Suite, others: Mapping[Role, Other] | None = None) -> Suite:
        """Return ``suite`` with its requests as they are sent: the model's, and the ``others``'."""
        found = _unbound(suite)
        own = found.request

        def request(item: Item, sample: int, answers: Sequence[Answer]) -> Request | None:
            asked = own(item, sample, answers)
            if asked is None or asked.by == "model":
                return None if asked is None else self.request(asked)
            other = (others or {}).get(asked.by)
            return asked if other is None else other.request(asked)

        found.request = request  # type: ignore[method-assign]
        return found

    def fitted(self, model: str, suite: Suite, role: Role = "model") -> Sending:
        """Return what is sent to ``model``: without the suite's settings that it does not take.

        Raises UsageError where it refuses what the user gave.
        """
        asked = _first(suite, role)
        if asked is None:
            if self.key() and role == "model":
                raise UsageError(
                    f"{suite.name} reads log-probabilities of given texts; --set, --drop, "
                    "--system, --api-base and --header belong to chats."
                )
            return self
        # Of several suites one may send what another does not; what a model gives decides the last.
        dropped = tuple(n for n in self.dropped if n == _LOGPROBS or n in asked.settings)
        sending = replace(self, left_out={}, dropped=dropped)
        if self.given and (why := refused(model, self.given)):
            alone = ((n, refused(model, {n: value})) for n, value in self.given.items())
            name, why = next(((n, told) for n, told in alone if told), ("", why))
            name = name if role == "model" or not name else f"{role}.{name}"
            raise UsageError(f"--set {name}: {why}." if name else f"--set: {why}.")
        left: dict[str, str] = {}
        given = dict(self.given)
        settings = sending.request(asked).settings  # type: ignore[union-attr]
        for name in (n for n in settings if n not in given):
            if why := refused(model, given | {name: settings[name]}):
                left[name] = why
        if reasons(model, given):
            for name in _LIMITS:
                if name in settings and name not in given:
                    left[name] = f"{model} reasons, and a limit on the answer would count that"
        left |= _claude(model, settings, given, left) | _openai(
            model, settings, given, self.api_base
        )
        return replace(sending, left_out=left)

    def told(self, model: str) -> list[str]:
        """Return sentences about what is sent otherwise than the suite asks."""
        told = []
        for name, why in self.left_out.items():
            told.append(f"{name} is left out: {why}." if why else f"{name} is left out.")
        told += [f"{name} is left out, as --drop says." for name in self.dropped]
        if self.given:
            pairs = ", ".join(f"{k}={json.dumps(v)}" for k, v in self.given.items())
            told.append(f"{model} is asked with {pairs}.")
        return told


@dataclass(frozen=True, slots=True)
class Other:
    """Who is asked besides the audited model, and how: an analyst or a scorer.

    ``key`` is what a comparability key has of it. Its calls are known by it, so that with other
    settings they are made again.
    """

    name: str
    key: Mapping[str, Any]
    sending: Sending = field(default_factory=Sending)

    @classmethod
    def of(cls, name: str, sending: Sending) -> Other:
        """Return the one that is called ``name``, asked as ``sending`` has it."""
        return cls(name, {"model": name, **sending.key()}, sending)

    @classmethod
    def recorded(cls, key: Mapping[str, Any]) -> Other:
        """Return the one of a journal with this ``key``."""
        return cls(key["model"], key, Sending.recorded(key))

    def request(self, request: Request) -> Request:
        """Return ``request`` as it is asked of this one."""
        sent, whom = self.sending.request(request), json.dumps(self.key, sort_keys=True)
        assert isinstance(sent, Chat | Judge | GroupTexts)
        return replace(sent, whom=whom)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _alias(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what else a given setting takes the place of."""
    return _LIMITS if any(name in given for name in _LIMITS) else ()


def check_dropped(dropped: Sequence[str], suites: Sequence[Suite]) -> None:
    """Raise UsageError where ``dropped`` names what none of ``suites`` sends."""
    every = frozenset(get_args(Capability))
    asked = [_first(s.fitted(has)) for s in suites for has in (frozenset(), every)]
    sent = {name for request in asked if request is not None for name in request.settings}
    if any("logprobs" in suite.needs | suite.uses for suite in suites):
        sent.add(_LOGPROBS)
    for name in dropped:
        if name not in sent:
            names = ", ".join(suite.name for suite in suites)
            what = f"it sends {', '.join(sorted(sent))}" if sent else "it sends no settings"
            what = what.replace("it sends", "they send") if len(suites) > 1 else what
            raise UsageError(f"--drop {name} is no setting of {names}; {what}.")


def _first(suite: Suite, role: Role = "model") -> Chat | None:
    """Return the first chat that a suite asks of ``role``, as its publication has it."""
    own = _unbound(suite)
    item = next(iter(own.items()), None)
    answers: list[Answer] = []
    while item is not None and (request := own.request(item, 0, answers)) is not None:
        if request.by == role:
            return request if isinstance(request, Chat) else None
        answers.append(placeholder(request))
    return None


def _unbound(suite: Suite) -> Suite:
    """Return a copy of ``suite`` whose requests are its own, of no sending."""
    found = copy.copy(suite)
    vars(found).pop("request", None)
    return found


def refused(model: str, settings: Mapping[str, Any]) -> str:
    """Return why LiteLLM says that ``model`` does not take ``settings``; empty where it takes them.

    Of a model that LiteLLM does not know only the provider can tell.
    """
    import litellm
    from litellm.exceptions import UnsupportedParamsError
    from litellm.utils import get_optional_params

    if model.startswith("local:"):
        return ""
    litellm.suppress_debug_info = True
    try:
        name, provider, _, _ = litellm.get_llm_provider(model)
        get_optional_params(model=name, custom_llm_provider=provider, **settings)
    except UnsupportedParamsError as error:
        told = str(error).removeprefix("litellm.UnsupportedParamsError: ").splitlines()[0]
        return re.split(r"[.,;]? To drop", told)[0].rstrip(". ")
    except Exception:  # LiteLLM's mapping raises all sorts for values; the call itself will tell
        return ""
    return ""


def reasons(model: str, given: Mapping[str, Any]) -> bool:
    """Return whether ``model`` writes reasoning that counts as part of its answer's length."""
    import litellm

    if model.startswith("local:"):
        return False
    effort = given.get("reasoning_effort")
    if effort is not None:
        return effort not in ("none", "disable")
    litellm.suppress_debug_info = True
    try:
        if not litellm.supports_reasoning(model):
            return False
        facts = litellm.model_cost.get(litellm.get_model_info(model)["key"], {})
    except Exception:  # a model that is not in LiteLLM's map
        return False
    if "claude" in model.lower():  # reasons where it is told to
        return bool(facts.get("thinking_always_on")) or "thinking" in given
    return bool(facts.get("default_reasoning_effort") != "none")


def _claude(
    model: str, settings: Mapping[str, Any], given: Mapping[str, Any], left: Mapping[str, str]
) -> dict[str, str]:
    """Return what Claude does not take, which LiteLLM's map does not say.

    It takes temperature or top_p, not both, and neither of them while it reasons.
    """
    both = ("temperature", "top_p")
    if "claude" not in model.lower():
        return {}
    free = [n for n in both if n in settings and n not in left and n not in given]
    if reasons(model, given):
        return dict.fromkeys(free, f"{model} takes none while it reasons")
    if not free or any(n not in settings or n in left for n in both):
        return {}
    return {free[-1]: f"{model} takes temperature or top_p, not both"}


def _openai(
    model: str, settings: Mapping[str, Any], given: Mapping[str, Any], base: str | None
) -> dict[str, str]:
    """Return what OpenAI itself does not take, which LiteLLM passes on for servers like it."""
    if not model.startswith(("openai/", "azure/", "gpt-")) or base is not None:
        return {}
    return {n: "OpenAI takes none" for n in ("top_k",) if n in settings and n not in given}


def check_address(address: str | None, option: str) -> None:
    """Raise UsageError where what ``option`` gives is no address of a server."""
    if address is not None and not address.startswith(("http://", "https://")):
        raise UsageError(f"{option} takes an address that begins with http:// or https://.")


def shown(address: str) -> str:
    """Return an address without what may be secret in it: user, password and query."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def read_setting(name: str, text: str, role: Role = "model") -> Any:
    """Return the value of ``--set NAME=TEXT``, or ``--set ROLE.NAME=TEXT``: JSON, else the text.

    Raises UsageError for what the audit itself decides or has another option for, and for secrets.
    """
    of_model = role == "model"
    option = f"--set {name if of_model else f'{role}.{name}'}"
    own = _OWN if of_model else _OWN_OF_ANALYST
    if name in own:
        raise UsageError(f"{option} is not taken: {own[name]}.")
    if _SECRET.search(name):
        raise UsageError(
            f"{option} would be recorded; give keys in the environment variables that LiteLLM reads"
            + (", or in a --header." if of_model else ".")
        )
    try:
        return json.loads(text)
    except ValueError:
        return text
