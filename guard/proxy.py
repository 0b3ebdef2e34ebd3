"""The guardrail of LiteLLM's proxy.

LiteLLM makes it from six lines of ``config.yaml``::

    guardrails:
      - guardrail_name: bias
        litellm_params:
          guardrail: guard.proxy.Guardrail
          mode: post_call
          default_on: true

What stands under ``guard`` beside them are settings of the policy, and ``detector``, ``index`` and
``weights``; a detector of your own is named by its dotted path. A key's or a team's metadata may
hold settings under ``guard`` too: a team's replace the configured ones, a key's those of its team.
A request may hold some in its body, under ``guard``; they can only tighten (guard.tighten).
"""

from __future__ import annotations

import atexit
import importlib
import sys
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from fastapi import HTTPException
from litellm.exceptions import GuardrailRaisedException
from litellm.integrations.custom_guardrail import CustomGuardrail
from litellm.litellm_core_utils.core_helpers import get_or_create_metadata_bucket
from litellm.proxy.common_utils.callback_utils import add_guardrail_to_applied_guardrails_header
from litellm.proxy.utils import ProxyLogging
from litellm.types.guardrails import GuardrailEventHooks, LitellmParams

from guard.config import OWN_KEYS, known_keys, policy_from
from guard.core import Guard
from guard.doors import accounting
from guard.doors.proxy import Call, guarded_answer, guarded_stream, is_text
from guard.errors import BiasFound, ConfigError, DetectorError, GuardError, UsageError
from guard.policy import Policy
from guard.tighten import tightened
from guard.verdict import Decision

_POST = GuardrailEventHooks.post_call
# What the proxy looks for in the class of a guardrail itself, and not in what it derives from.
_HOOKS = (
    "async_pre_call_hook",
    "async_post_call_success_hook",
    "async_post_call_streaming_iterator_hook",
    "async_post_call_response_headers_hook",
)
# Kinds of calls that bring text of a model: those with a door, and those without.
_DOORS = {"acompletion", "atext_completion", "aresponses", "anthropic_messages"}
_NO_DOOR = {
    "agenerate_content": "Google's generateContent",
    "agenerate_content_stream": "Google's streamGenerateContent",
    "acreate_interaction": "interactions",
    "asend_message": "agents (A2A)",
    "allm_passthrough_route": "pass-through routes",
    "pass_through_endpoint": "pass-through routes",
    "_arealtime": "realtime sessions",
    "_aresponses_websocket": "responses over a websocket",
}


class NotStarted(GuardError):
    """A setting in config.yaml cannot be used.

    No ValueError, as ConfigError is: LiteLLM takes one for a reason to start without the guardrail.
    """


class StreamEnded(GuardError):
    """Ends a stream under the action ``raise``, in the shape of an error of LiteLLM's proxy."""

    status_code = 400
    type = "guard"
    param = None

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Guardrail(CustomGuardrail):
    """Guards what the proxy's models say on the routes that have a door, whole and streamed.

    LiteLLM makes it, and says for which requests it runs: for all where ``default_on``, else where
    a request, its key, its team or its model names it. ``guard`` holds the settings. Raises
    NotStarted, which ends the start of the proxy with one sentence, for whatever cannot be used.
    """

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        for name in _HOOKS:
            if name not in cls.__dict__:
                setattr(cls, name, getattr(cls, name))

    def __init__(
        self,
        guardrail_name: str = "guard",
        event_hook: Any = None,
        default_on: bool = False,
        guard: Any = None,
        **others: Any,
    ) -> None:
        where = f"config.yaml: guardrail {guardrail_name!r}"
        try:
            _check_mode(event_hook, where)
            _check_others(others, where)
            self._guard = _guard(guard, where)
        except GuardError as error:
            _refuse(str(error))
        except Exception as error:
            _refuse(f"{where}: cannot be made ({type(error).__name__}: {error}).")
        self._calls: WeakKeyDictionary[Any, Call] = WeakKeyDictionary()
        super().__init__(
            guardrail_name=guardrail_name, event_hook=event_hook, default_on=bool(default_on)
        )

    def should_run_guardrail(self, data: Any, event_type: GuardrailEventHooks) -> bool:
        """Whether it runs: before the call, where it will behind it or ``guard`` is to be read."""
        if event_type != GuardrailEventHooks.pre_call:
            return bool(super().should_run_guardrail(data, event_type))
        return "guard" in data or bool(super().should_run_guardrail(data, _POST))

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Take ``guard`` out of the request and settle its policy, before a model is asked.

        Raises HTTPException: 400 where the request asks for what it cannot have, 500 where the
        settings of its key or team cannot be used.
        """
        logging = data.get("litellm_logging_obj")
        asked = data.pop("guard", None)
        if logging is not None:
            asked = _requested.setdefault(logging, asked)  # for whichever guardrail comes next
        if not self.should_run_guardrail(data, _POST):
            if asked is not None and not _others_run(self, data):
                raise _error(
                    400,
                    f"guard: settings were given, but guardrail {self.guardrail_name!r} is not on"
                    f' for this request; name it ("guardrails": ["{self.guardrail_name}"]).',
                )
            return data
        if call_type in _NO_DOOR:
            raise _error(
                400,
                f"guard: {_NO_DOOR[call_type]} have no door, so that guardrail "
                f"{self.guardrail_name!r} cannot judge what they bring; use another route, or have "
                "the key opt out of it.",
            )
        call = self._call(user_api_key_dict, asked)
        if logging is not None:
            self._calls[logging] = call
        if call_type in _DOORS:
            add_guardrail_to_applied_guardrails_header(data, self.guardrail_name)
        return data

    async def async_post_call_success_hook(
        self, data: dict[str, Any], user_api_key_dict: Any, response: Any
    ) -> Any:
        """Return a whole answer as it may go out.

        Raises GuardrailRaisedException under the action ``raise``: LiteLLM's own, which it reports.
        """
        if not is_text(response, data):
            return response
        call = self._known(data, user_api_key_dict)
        try:
            return await guarded_answer(response, call.session, data)
        except (BiasFound, DetectorError) as error:
            accounting.charge(data.get("litellm_logging_obj"), response)
            raise GuardrailRaisedException(
                self.guardrail_name,
                str(error),
                should_wrap_with_default_message=False,
                blocked_content=isinstance(error, BiasFound),
            ) from None
        finally:
            call.over = True
            self._log(call, data)

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: Any, request_data: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        """Yield of a stream what may go out, and close the provider's connection at its end."""
        call = self._known(request_data, user_api_key_dict)
        accounting.defer(request_data.get("litellm_logging_obj"))

        def heed(decision: Decision) -> None:
            # LiteLLM may report a stream as soon as it is closed.
            if decision.action in ("terminate", "raise"):
                self._log(call, request_data)

        session = replace(call.session, sinks=(*call.session.sinks, heed))
        stream: Any = guarded_stream(response, session, request_data)
        error: Exception | None = None
        try:
            async for chunk in stream:
                yield chunk
        except (BiasFound, DetectorError) as found:
            error = StreamEnded(str(found))
            raise error from None
        except UsageError as unusable:
            error = unusable
            raise
        finally:
            await stream.aclose()
            self._log(call, request_data)
            self._measure(call, error)

    async def async_post_call_response_headers_hook(
        self,
        data: dict[str, Any],
        user_api_key_dict: Any,
        response: Any,
        request_headers: dict[str, str] | None = None,
        litellm_call_info: dict[str, Any] | None = None,
    ) -> dict[str, str] | None:
        """Return guard's own headers; those of a stream leave before it is judged."""
        call = self._before(data)
        return None if call is None else call.headers()

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any]:
        """Do nothing: the proxy's own hooks come before and behind its Router."""
        return kwargs

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: Any
    ) -> None:
        """Do nothing: inside the Router a stop would look like a failure to fall back from."""

    def _known(self, data: Mapping[str, Any], key: Any) -> Call:
        call = self._before(data)
        return self._call(key, None) if call is None else call

    def _before(self, data: Mapping[str, Any]) -> Call | None:
        """Return the state that was settled before the call, where this request has one."""
        logging = data.get("litellm_logging_obj")
        return None if logging is None else self._calls.get(logging)

    def _call(self, key: Any, asked: Any) -> Call:
        """Return the state of a request: by the policy of its team, its key, and its own."""
        policy = self._guard.policy
        try:
            for holder, name in ((key.team_metadata, "team"), (key.metadata, "key")):
                given = (holder or {}).get("guard")
                if given is not None:
                    where = f"guard: metadata of the {name}"
                    policy = policy_from(_values(given, where), base=policy, where=where)
                    _check_possible(policy, where)
            session = self._guard.session(policy)
        except ConfigError as error:
            raise _error(500, str(error)) from None
        if asked is not None:
            try:
                values, points = _values(asked, "guard"), self._guard.detector.operating_points
                policy = tightened(policy, values, points, where="guard")
                _check_possible(policy, "guard")
                session = self._guard.session(policy)
            except ConfigError as error:
                raise _error(400, str(error)) from None
        return Call(session)

    def _log(self, call: Call, data: dict[str, Any]) -> None:
        """Put the key facts into LiteLLM's own log of guardrails, or those that are there right."""
        end = call.began + call.judging_s
        if call.entry is not None:
            call.entry |= {
                "guardrail_response": call.facts(),
                "guardrail_status": call.status,
                "masked_entity_count": call.types,
                "duration": call.judging_s,
                "end_time": end,
            }
            return
        self.add_standard_logging_guardrail_information_to_request_data(
            guardrail_json_response=call.facts(),
            request_data=data,
            guardrail_status=call.status,  # type: ignore[arg-type]
            start_time=call.began,
            end_time=end,
            duration=call.judging_s,
            masked_entity_count=call.types,
            guardrail_provider="guard",
            event_type=_POST,
        )
        _, bucket = get_or_create_metadata_bucket(data)
        call.entry = bucket["standard_logging_guardrail_information"][-1]

    def _measure(self, call: Call, error: Exception | None) -> None:
        """Count a stream in LiteLLM's metrics of guardrails, as it does whole answers itself."""
        emit = getattr(ProxyLogging, "_emit_guardrail_metrics", None)
        if emit is None:  # LiteLLM has no public way
            return
        intervened = call.status == "guardrail_intervened" and error is None
        emit(
            guardrail_name=self.guardrail_name,
            latency_seconds=call.judging_s,
            status="error" if error else "intervened" if intervened else "success",
            error_type=type(error).__name__ if error else None,
            hook_type="post_call",
        )


_requested: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # what was under guard, by request


def _others_run(guardrail: Guardrail, data: Mapping[str, Any]) -> bool:
    """Whether another guardrail of guard's judges this request."""
    import litellm

    others = (c for c in litellm.callbacks if isinstance(c, Guardrail) and c is not guardrail)
    return any(other.should_run_guardrail(data, _POST) for other in others)


def _guard(settings: Any, where: str) -> Guard:
    values = dict(_values({} if settings is None else settings, f"{where}: guard"))
    for key in values:
        if key not in known_keys():
            raise ConfigError(
                f"{where}: unknown setting {key!r} under guard; known are "
                f"{', '.join(known_keys())}."
            )
    own = {key: values.pop(key) for key in OWN_KEYS if key in values}
    for key, value in own.items():
        if not isinstance(value, str):
            raise ConfigError(f"{where}: {key} takes a text, got {value!r}.")
    policy_from(values, where=where)
    if "." in own.get("detector", ""):
        own["detector"] = _detector(own["detector"], where)
    guard = Guard(values, **own)
    _check_possible(guard.policy, where)  # it may stand in guard.toml
    return guard


def _check_possible(policy: Policy, where: str) -> None:
    if policy.rewrites:
        raise ConfigError(
            f"{where}: the action 'rewrite' asks the model again, which the guardrail of the proxy "
            "cannot; choose 'terminate' or 'redact'."
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


def _values(given: Any, where: str) -> Mapping[str, Any]:
    """Return the settings that a mapping or the name of an operating point stands for."""
    if isinstance(given, str):
        return {"operating_point": given}
    if isinstance(given, Mapping):
        return given
    raise ConfigError(
        f"{where}: takes a mapping of settings or the name of an operating point, got {given!r}."
    )


def _check_mode(mode: Any, where: str) -> None:
    modes = mode if isinstance(mode, list) else [mode]
    if modes != [_POST.value]:
        raise ConfigError(f"{where}: mode must be 'post_call', got {mode!r}.")


def _check_others(others: Mapping[str, Any], where: str) -> None:
    """Refuse what no one would read. LiteLLM adds its defaults for the guardrails it knows."""
    usual = LitellmParams(guardrail="guard.proxy.Guardrail", mode=_POST.value).model_dump()
    for key, value in others.items():
        if key not in usual or usual[key] != value:
            hint = "; it goes under guard" if key in known_keys() else ""
            raise ConfigError(f"{where}: unknown setting {key!r}{hint}.")


def _refuse(sentence: str) -> NoReturn:
    """End the start of the proxy; the sentence also comes last, behind the server's own lines."""
    atexit.register(lambda: print(f"\n{sentence}", file=sys.stderr))
    raise NotStarted(sentence) from None


def _error(status: int, sentence: str) -> HTTPException:
    return HTTPException(status_code=status, detail={"error": sentence})
