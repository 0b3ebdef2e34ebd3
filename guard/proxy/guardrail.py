"""The guardrail: LiteLLM's hooks before a call, after it and while it streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from fastapi import HTTPException
from litellm.exceptions import GuardrailRaisedException
from litellm.integrations.custom_guardrail import CustomGuardrail
from litellm.types.guardrails import GuardrailEventHooks
from litellm.types.utils import StandardLoggingGuardrailInformation

from guard.config import policy_from, values_of
from guard.doors.errors import ajudged_error
from guard.doors.litellm import accounting
from guard.doors.litellm.compat import check_door, guardrail_log, name_in_headers
from guard.doors.litellm.proxy import (
    GuardedRequest,
    check_choices,
    guarded_answer,
    guarded_stream,
    guarded_text,
    textless,
)
from guard.errors import BiasFound, ConfigError, DetectorError, GuardError, UsageError
from guard.proxy.routes import name_of_call, outcome_of_call, watch
from guard.proxy.settings import check_others, check_possible, made_guard, refuse
from guard.tighten import tightened_policy
from guard.verdict import Decision

_POST = GuardrailEventHooks.post_call
# The proxy looks for these in the guardrail's own class, not in its base classes.
_HOOKS = (
    "async_pre_call_hook",
    "async_post_call_success_hook",
    "async_post_call_failure_hook",
    "async_post_call_streaming_iterator_hook",
    "async_post_call_response_headers_hook",
    "apply_guardrail",
)


# Requests of MCP servers to a model: LiteLLM runs no guardrail on the answer.
_SAMPLING = "/mcp/sampling/createMessage"


class StreamEnded(GuardError):
    """Ends a stream under the action ``raise``; has the attributes of LiteLLM's proxy errors."""

    status_code = 400
    type = "guard"
    param = None

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Guardrail(CustomGuardrail):
    """Guards the models' answers, whole and streamed, on the proxy's routes that have a door.

    LiteLLM creates it and decides for which requests it runs: for all with ``default_on``, else
    for those whose body, key, team or model names it. ``guard`` holds the settings. Raises
    NotStarted, which ends the start of the proxy with one sentence, if a setting is unusable.
    """

    # With apply_guardrail, LiteLLM would judge a stream's text only after it went out.
    use_native_lifecycle_hooks = True

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
            check_door("answers of the proxy")
            if event_hook not in (_POST.value, [_POST.value]):
                raise ConfigError(f"{where}: mode must be 'post_call', got {event_hook!r}.")
            check_others(others, where)
            self._guard = made_guard(guard, where)
            watch(_refusal)
        except GuardError as error:
            refuse(str(error))
        except Exception as error:
            refuse(f"{where}: cannot be made ({type(error).__name__}: {error}).")
        self._calls: WeakKeyDictionary[Any, GuardedRequest] = WeakKeyDictionary()
        super().__init__(
            guardrail_name=guardrail_name, event_hook=event_hook, default_on=bool(default_on)
        )

    def should_run_guardrail(self, data: Any, event_type: GuardrailEventHooks) -> bool:
        """Whether a hook runs; the one before a call also if the request has a ``guard``."""
        if event_type != GuardrailEventHooks.pre_call:
            return bool(super().should_run_guardrail(data, event_type))
        return "guard" in data or bool(super().should_run_guardrail(data, _POST))

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Take ``guard`` out of the request and determine its policy, before a model is called.

        Raises HTTPException: 400 if the request is not allowed what it asks for, 500 if the
        settings of its key or team are invalid.
        """
        logging = data.get("litellm_logging_obj")
        asked = data.pop("guard", None)
        if logging is not None:
            asked = _requested.setdefault(logging, asked)  # for the next guardrail of guard
        if not self.should_run_guardrail(data, _POST):
            if asked is not None and not _on(data):
                raise _error(
                    400,
                    f"guard: the request has settings, but guardrail {self.guardrail_name!r} is not"
                    f' on for it; name it ("guardrails": ["{self.guardrail_name}"]).',
                )
            return data
        outcome = outcome_of_call(call_type)
        if outcome == "refused":
            raise self._refused(name_of_call(call_type))
        if _path(data).endswith(_SAMPLING):
            raise self._refused("answers to MCP sampling")
        several = call_type == "acompletion" and "," in str(data.get("model"))
        if several and data.get("stream") and not data.get("fastest_response"):
            raise _error(
                400, "guard: LiteLLM cannot stream answers of several models; name one model."
            )
        try:
            check_choices(data, call_type)
        except UsageError as wrong:
            raise _error(400, f"guard: {wrong}") from None
        call = self._new_call(user_api_key_dict, asked)
        call.kind = call_type
        if logging is not None:
            self._calls[logging] = call
        if outcome == "guarded":
            name_in_headers(data, self.guardrail_name)
        return data

    async def async_post_call_success_hook(
        self, data: dict[str, Any], user_api_key_dict: Any, response: Any
    ) -> Any:
        """Return a whole answer as it may go out.

        Raises GuardrailRaisedException, which LiteLLM reports, under the action ``raise``;
        HTTPException 500 on an answer of an unknown kind.
        """
        call = self._call_of(data, user_api_key_dict)
        if textless(response, data, expected=outcome_of_call(call.kind) == "no text"):
            return response
        try:
            return await guarded_answer(response, call.session, data)
        except (BiasFound, DetectorError) as error:
            accounting.charge(data.get("litellm_logging_obj"), response)
            call.over = True
            raise self._raised(error, call) from None
        except UsageError as unknown:
            raise _error(500, f"guardrail {self.guardrail_name!r}: {unknown}") from None
        finally:
            call.over = True
            self._log(call, data)

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: Any,
        traceback_str: str | None = None,
    ) -> HTTPException | None:
        """Remove the message of an error that quotes an answer, before the client reads it.

        The request's own settings are not known here: the policy is that of its key. Some routes
        ignore the hook's result and answer with the error that was raised; so that is changed,
        too.
        """
        error = original_exception
        if isinstance(error, (HTTPException, GuardrailRaisedException)):
            return None  # the proxy's own, or a guardrail's
        if not self.should_run_guardrail(request_data, _POST):
            return None
        judged = await ajudged_error(error, self._new_call(user_api_key_dict, None).session)
        if judged is error:
            return None
        error.args, error.__cause__, error.__context__ = (str(judged),), None, None
        same = type(judged) is type(error)
        error.__dict__.update(judged.__dict__ if same else {"message": str(judged)})
        code = getattr(error, "status_code", None)  # may be the provider's status, such as 200
        return _error(code if isinstance(code, int) and code >= 400 else 500, str(judged))

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: Any, request_data: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        """Yield a stream's released chunks; close the provider's connection at the end."""
        call = self._call_of(request_data, user_api_key_dict)
        accounting.defer(request_data.get("litellm_logging_obj"))

        def log_stop(decision: Decision) -> None:
            # At once: LiteLLM may report a stream as soon as it is closed.
            if decision.action in ("terminate", "raise"):
                self._log(call, request_data)

        session = replace(call.session, sinks=(*call.session.sinks, log_stop))
        stream: Any = None
        error: Exception | None = None
        try:
            stream = await guarded_stream(response, session, request_data)
            async for chunk in stream:
                yield chunk
        except (BiasFound, DetectorError) as found:
            error = StreamEnded(str(found))
            raise error from None
        except UsageError as unusable:
            error = unusable
            raise
        finally:
            if stream is not None:
                await stream.aclose()
            self._log(call, request_data)
            call.measure(self.guardrail_name, error)

    async def async_post_call_response_headers_hook(
        self,
        data: dict[str, Any],
        user_api_key_dict: Any,
        response: Any,
        request_headers: dict[str, str] | None = None,
        litellm_call_info: dict[str, Any] | None = None,
    ) -> dict[str, str] | None:
        """Return guard's own headers; those of a stream are sent before it is judged."""
        call = self._stored_call(data)
        return None if call is None else call.headers()

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any]:
        """Do nothing: the proxy's own hooks run before and after its Router."""
        return kwargs

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: Any
    ) -> None:
        """Do nothing: inside the Router a stop would look like a failure to fall back from."""

    async def apply_guardrail(
        self, inputs: Any, request_data: Any, input_type: str, logging_obj: Any = None
    ) -> Any:
        """Judge single texts, from LiteLLM's playground and its test routes.

        Answers and streams use the hooks above instead. Raises HTTPException 400 under the action
        ``raise``.
        """
        session = self._guard.session(self._guard.policy)
        try:
            texts = [await guarded_text(text, session) for text in inputs.get("texts") or ()]
        except (BiasFound, DetectorError) as error:
            raise _error(400, str(error)) from None
        return {**inputs, "texts": texts}

    def _raised(self, error: GuardError, call: GuardedRequest) -> GuardrailRaisedException:
        """Return LiteLLM's error for the action ``raise``, with guard's headers."""
        raised: Any = GuardrailRaisedException(
            self.guardrail_name,
            str(error),
            should_wrap_with_default_message=False,
            blocked_content=isinstance(error, BiasFound),
        )
        raised.headers = call.headers()  # LiteLLM calls no headers hook once a call has failed
        return raised  # type: ignore[no-any-return]

    def _refused(self, what: str) -> HTTPException:
        return _error(
            400,
            f"guard: guardrail {self.guardrail_name!r} cannot judge {what}, so the request is "
            "refused; use another route, or have the owner of the key opt it out.",
        )

    def _call_of(self, data: Mapping[str, Any], key: Any) -> GuardedRequest:
        call = self._stored_call(data)
        return self._new_call(key, None) if call is None else call

    def _stored_call(self, data: Mapping[str, Any]) -> GuardedRequest | None:
        """Return the state that ``async_pre_call_hook`` stored for this request, if any."""
        logging = data.get("litellm_logging_obj")
        return None if logging is None else self._calls.get(logging)

    def _new_call(self, key: Any, asked: Any) -> GuardedRequest:
        """Return the state of a request, with the settings of its team, its key and its body."""
        policy = self._guard.policy
        try:
            for holder, name in ((key.team_metadata, "team"), (key.metadata, "key")):
                own = (holder or {}).get("guard")
                if own is not None:
                    where = f"guard: metadata of the {name}"
                    policy = policy_from(values_of(own, where), base=policy, where=where)
                    check_possible(policy, where)
            session = self._guard.session(policy)
        except ConfigError as error:
            raise _error(500, str(error)) from None
        if asked is not None:
            try:
                values, points = values_of(asked, "guard"), self._guard.detector.operating_points
                policy = tightened_policy(policy, values, points, where="guard")
                check_possible(policy, "guard")
                session = self._guard.session(policy)
            except ConfigError as error:
                raise _error(400, str(error)) from None
        return GuardedRequest(session)

    def _log(self, call: GuardedRequest, data: dict[str, Any]) -> None:
        """Add the key facts to LiteLLM's own guardrail log, or update the entry."""
        end = call.began + call.judging_s
        fields = StandardLoggingGuardrailInformation.__annotations__
        details = {k: v for k, v in call.details().items() if k in fields}
        if call.entry is not None:
            call.entry |= {
                "guardrail_response": call.facts(),
                "guardrail_status": call.status,
                "masked_entity_count": call.types,
                "duration": call.judging_s,
                "end_time": end,
                **details,
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
            tracing_detail=details,  # type: ignore[arg-type]
            event_type=_POST,
        )
        call.entry = guardrail_log(data)[-1]


_requested: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # the settings, by request


def _on(data: Mapping[str, Any]) -> list[Guardrail]:
    """Return guard's guardrails that judge a request."""
    import litellm

    ours = [c for c in litellm.callbacks if isinstance(c, Guardrail)]
    return [guardrail for guardrail in ours if guardrail.should_run_guardrail(data, _POST)]


def _path(data: Mapping[str, Any]) -> str:
    """Return the URL path of a request, from LiteLLM's record; empty if it has none."""
    return urlsplit(str((data.get("proxy_server_request") or {}).get("url", ""))).path


def _refusal(data: Mapping[str, Any], route: str) -> HTTPException | None:
    """Return the error for a request to a route without a door if a guardrail is on, else None."""
    on = _on(data)
    return on[0]._refused(f"answers to {route}") if on else None


def _error(status: int, sentence: str) -> HTTPException:
    return HTTPException(status_code=status, detail={"error": sentence})
