"""LiteLLM's Router with its completion methods guarded.

The Router is guarded from outside: inside it, its retries and fallbacks would treat a stop
as a failure and ask another model.

A Router has some 340 public attributes, and each release of LiteLLM adds more. An attribute that
no door guards is available only if it is known to return no text of a model: a method listed in
``HARMLESS``, or plain data. All others, including private ones, raise NotGuarded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from litellm.router import Router
from pydantic import BaseModel

from guard.doors import chat, messages, responses, text
from guard.doors.litellm.compat import AsyncCompletions, Chat, Completions
from guard.doors.session import DoorSession
from guard.errors import UsageError

_DOORS = (chat.DOOR, text.DOOR, responses.DOOR)
_SYNC = {door.function: door for door in _DOORS}
_ASYNC = {door.async_function: door for door in _DOORS}
# A Router has one such method, async, under two names.
_ASYNC |= dict.fromkeys(("aanthropic_messages", "anthropic_messages"), messages.DOOR)
#: The attributes of a guarded Router that a door guards.
GUARDED = frozenset({*_SYNC, *_ASYNC, "chat"})
#: Methods that return no text of a model: they manage the Router, or return vectors, scores
#: or audio.
HARMLESS = frozenset(
    """
    add_deployment add_optional_pre_call_checks apply_default_settings are_all_deployments_blocked
    arefresh_model_info arm_routing_read_prefetch async_callback_filter_deployments
    async_deployment_callback_on_failure async_get_available_deployment
    async_get_available_deployment_for_pass_through async_get_fully_unhealthy_model_names
    async_get_healthy_deployments async_routing_strategy_pre_call_checks
    auto_router_capability_violation cached_deployment_model_info cached_model_group_info
    config_deployments delete_deployment deployment_callback_on_failure
    deployment_callback_on_success deployment_is_active_for_environment deployment_usable_by_team
    deployments_for_request deployments_named discard flush_cache generate_model_id
    get_all_deployments get_allowed_fails_from_policy get_available_deployment
    get_available_deployment_for_pass_through get_available_guardrail
    get_candidate_model_ids_for_route get_configured_display_name get_configured_mode
    get_configured_service_tiers get_configured_token_limits get_credential_deployment
    get_deployment get_deployment_by_model_group_name get_deployment_credentials
    get_deployment_credentials_with_provider get_deployment_model_info get_discovered_model_info
    get_fully_blocked_model_names get_model_access_groups get_model_from_alias get_model_group
    get_model_group_info get_model_group_io_token_usage get_model_group_usage get_model_ids
    get_model_info get_model_list get_model_list_from_model_alias
    get_model_list_from_routing_groups get_model_list_of_routed_group get_model_listing_info
    get_model_names get_num_retries_from_retry_policy get_remaining_model_group_usage
    get_routable_deployments get_routable_upstream_model get_router_deployment_budget_limiter
    get_router_model_info get_routing_group get_search_tool_support get_settings get_valid_args
    has_model_id health increment_deployment_usage_for_response init_adaptive_router_deployment
    init_auto_router_deployment init_complexity_router_deployment init_quality_router_deployment
    initialize_assistants_endpoint initialize_router_endpoints is_deployment_blocked
    is_model_access_group_for_wildcard_route is_recognized_model map_team_model print_deployment
    replay_model_cost_registrations reset resolve_model_name_from_model_id
    resolve_served_model_name resolved_litellm_models routable_model_group
    routing_group_has_alternatives routing_strategy_init routing_strategy_pre_call_checks
    served_openai_models set_custom_routing_strategy set_model_list set_optional_pre_call_checks
    settings should_include_deployment should_retry_this_error sync_deployment_callback_on_success
    team_model_has_alternatives team_ptu_ceiling team_public_model_names_of update_redis_cache
    update_settings upsert_deployment validate_fallbacks wildcard_route_deployments
    wildcard_routed_models

    embedding aembedding amoderation arerank aspeech
    acreate_file afile_list afile_delete
    acreate_fine_tuning_job acancel_fine_tuning_job alist_fine_tuning_jobs
    aretrieve_fine_tuning_job
    """.split()
) | {
    f"{a}vector_store_{file}{verb}"
    for a in ("", "a")
    for file in ("", "file_")
    for verb in ("create", "delete", "list", "retrieve", "update")
}


class NotGuarded(UsageError, AttributeError):
    """An attribute of a Router that no door guards; ``hasattr`` is False for it."""


class GuardedRouter:
    """A proxy of a Router; ``isinstance(_, Router)`` holds. Harmless attributes are the Router's.

    An attribute that may return text and has no door raises NotGuarded: use the Router itself.
    """

    def __init__(self, router: Any, session: Callable[[Any], DoorSession]) -> None:
        if not isinstance(router, Router):
            kind = f"the class {router.__name__}" if isinstance(router, type) else type(router)
            name = kind if isinstance(kind, str) else f"a {kind.__name__}"
            raise UsageError(
                f"Guard.wrap takes a litellm.Router, not {name}; pass a Router, or guard other "
                "calls with the guard's own functions or Guard.intercept()."
            )
        self._router = router
        self._session = session

    @property  # type: ignore[misc]
    def __class__(self) -> type[Any]:
        return type(self._router)

    def __dir__(self) -> list[str]:
        return dir(self._router)

    def __getattr__(self, name: str) -> Any:
        if name in ("_router", "_session"):  # not set yet while a copy is being made
            raise AttributeError(name)
        router, session = self._router, self._session
        if name in _SYNC:

            def call(*args: Any, guard: Any = None, **kwargs: Any) -> Any:
                return _SYNC[name].call(session(guard), args, kwargs, router)

            return call
        if name in _ASYNC:

            async def acall(*args: Any, guard: Any = None, **kwargs: Any) -> Any:
                return await _ASYNC[name].acall(session(guard), args, kwargs, router)

            return acall
        value = getattr(router, name)  # raises AttributeError if the Router has none
        if name == "chat":
            return _chat(value, self)
        if name in HARMLESS or (not name.startswith("_") and _plain(value)):
            return value
        raise NotGuarded(
            f"guard cannot judge the output of Router.{name}; use the Router itself for it, where "
            "it is not guarded."
        )


class _Completions(Completions):
    """``chat.completions`` of a guarded Router."""

    def create(self, messages: Any, model: Any = None, **kwargs: Any) -> Any:
        asked = chat.call_arguments(self, (messages, model), kwargs)
        return self.router_obj.completion(**asked)  # type: ignore[union-attr]


class _AsyncCompletions(AsyncCompletions):
    """The same for a Router whose own is async."""

    async def create(self, messages: Any, model: Any = None, **kwargs: Any) -> Any:
        asked = chat.call_arguments(self, (messages, model), kwargs)
        return await self.router_obj.acompletion(**asked)  # type: ignore[union-attr]


def _chat(own: Any, router: Any) -> Chat:
    """Return a Router's ``chat`` that calls the guarded ``router``."""
    params = own.completions.params
    guarded = Chat({}, router)
    kind = _AsyncCompletions if isinstance(own.completions, AsyncCompletions) else _Completions
    guarded.params, guarded.completions = params, kind(params, router)
    return guarded


_SCALARS = (str, bytes, int, float, type(None), BaseModel)
_SERIES = (list, tuple, set, frozenset)


def _plain(value: object) -> bool:
    """Whether ``value`` is data, or a container whose direct members are data or containers."""
    members: Any = value.values() if isinstance(value, dict) else value
    if not isinstance(value, (dict, *_SERIES)):
        return isinstance(value, _SCALARS)
    return all(isinstance(m, (dict, *_SERIES, *_SCALARS)) for m in members)
