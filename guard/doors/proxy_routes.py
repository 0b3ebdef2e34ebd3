"""What each route and each kind of call of LiteLLM's proxy brings: text of a model or none.

Whatever stands in none of these lists is refused where the guardrail is on, so a route of a newer
LiteLLM is closed until it has its line here. Routes are told by the function that serves them,
which all aliases of a path share.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Literal

Outcome = Literal["guarded", "no text", "refused"]

GUARDED_CALLS = {
    *("acompletion", "atext_completion", "aresponses", "anthropic_messages"),
    *("aget_responses", "acancel_responses"),  # what was said in the background
    *("image_generation", "aimage_generation", "aimage_edit"),  # prompts a model revised
}
"""Kinds of calls whose answers the guardrail judges."""

_TEXTLESS_CALLS = {
    *("aembedding", "moderation", "amoderation", "rerank", "arerank", "aspeech"),
    *("transcription", "atranscription", "asearch", "apply_guardrail"),
    *("acreate_file", "afile_retrieve", "afile_delete", "afile_list"),
    *("acreate_batch", "aretrieve_batch", "acancel_batch", "alist_batches"),
    *("acreate_fine_tuning_job", "aretrieve_fine_tuning_job", "acancel_fine_tuning_job"),
    *("alist_fine_tuning_jobs", "adelete_responses"),
    *("avideo_generation", "avideo_list", "avideo_status", "avideo_content", "avideo_remix"),
    *("avideo_create_character", "avideo_get_character", "avideo_edit", "avideo_extension"),
    *("avector_store_create", "avector_store_retrieve", "avector_store_list"),
    *("avector_store_update", "avector_store_delete", "avector_store_search"),
    *("avector_store_file_create", "avector_store_file_list", "avector_store_file_retrieve"),
    *("avector_store_file_content", "avector_store_file_update", "avector_store_file_delete"),
    *("acreate_container", "alist_containers", "aretrieve_container", "adelete_container"),
    *("aupload_container_file", "alist_container_files", "aretrieve_container_file"),
    *("adelete_container_file",),
    *("acreate_skill", "alist_skills", "aget_skill", "adelete_skill"),
    *("acreate_agent", "alist_agents", "aget_agent", "adelete_agent", "alist_agent_versions"),
    *("adelete_interaction",),
    *("acreate_eval", "alist_evals", "aget_eval", "aupdate_eval", "adelete_eval", "acancel_eval"),
    *("acreate_run", "alist_runs", "aget_run", "acancel_run", "adelete_run"),
    *("call_mcp_tool", "list_mcp_tools"),  # what tools say, no model
}

_NAMES = {
    "agenerate_content": "Google's generateContent",
    "agenerate_content_stream": "Google's streamGenerateContent",
    "acreate_interaction": "interactions",
    "aget_interaction": "interactions",
    "acancel_interaction": "interactions",
    "asend_message": "agents (A2A)",
    "allm_passthrough_route": "pass-through routes",
    "pass_through_endpoint": "pass-through routes",
    "_arealtime": "realtime sessions",
    "acreate_realtime_client_secret": "realtime sessions",
    "acreate_realtime_transcription_session": "realtime sessions",
    "arealtime_calls": "realtime sessions",
    "_aresponses_websocket": "responses over a websocket",
    "afile_content": "contents of files, a batch's output among them,",
    "aretrieve_container_file_content": "files that a model wrote in a container",
    "alist_input_items": "a response's input items, earlier answers among them,",
    "acompact_responses": "compacted responses",
}


def outcome_of_call(call_type: str) -> Outcome:
    """Return what becomes of a call of LiteLLM's kind ``call_type``."""
    if call_type in GUARDED_CALLS:
        return "guarded"
    return "no text" if call_type in _TEXTLESS_CALLS else "refused"


def name_of_call(call_type: str) -> str:
    """Return what the answers of a kind of call are called in a sentence."""
    return _NAMES.get(call_type, f"calls of the kind {call_type!r}")


def _by_module(text: str) -> dict[str, str]:
    """Return the names by module of a text in which a word with a colon opens a module."""
    parts = re.split(r"(\S+):", text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


# Functions by module, without LiteLLM's own prefix.
_GUARDED = {
    "proxy_server": "chat_completion completion",
    "response_api_endpoints.endpoints": (
        "responses_api cursor_chat_completions get_response cancel_response"
    ),
    "anthropic_endpoints.endpoints": "anthropic_response",
    "prompts.prompt_endpoints": "test_prompt",
    "image_endpoints.endpoints": "image_generation image_edit_api",
    # These ask LiteLLM's own chat, with all its hooks.
    "lens.endpoints": "model",
    "management_endpoints.policy_endpoints.endpoints": "test_policies_and_guardrails",
}
_TEXTLESS = {
    "proxy_server": (
        "aggregate_mcp_route alerting_settings audio_speech audio_transcriptions "
        "cancel_anthropic_beta_headers_reload cancel_model_cost_map_reload claim_onboarding_link "
        "config_yaml_endpoint delete_callback delete_config_general_settings dynamic_mcp_route "
        "embeddings fallback_login get_adaptive_router_state "
        "get_anthropic_beta_headers_reload_status get_config get_config_general_settings "
        "get_config_list get_favicon get_image get_logo_url get_model_cost_map_reload_status "
        "get_model_cost_map_source get_routes home invitation_delete invitation_info "
        "invitation_update login login_v2 login_v3 login_v3_exchange model_deprecations "
        "model_group_info model_info model_info_lookup model_info_v1 model_info_v2 model_list "
        "model_metrics model_metrics_exceptions model_metrics_slow_responses model_settings "
        "model_streaming_metrics moderations new_invitation onboarding proxy_mcp_route "
        "reload_anthropic_beta_headers reload_model_cost_map "
        "schedule_anthropic_beta_headers_reload schedule_model_cost_map_reload "
        "supported_openai_params token_counter toolset_mcp_route transform_request update_config "
        "update_config_general_settings"
    ),
    "response_api_endpoints.endpoints": "cursor_model_list delete_response responses_input_tokens",
    "anthropic_endpoints.endpoints": "count_tokens event_logging_batch",
    "anthropic_endpoints.skills_endpoints": "create_skill delete_skill get_skill list_skills",
    "prompts.prompt_endpoints": (
        "convert_prompt_file_to_json create_prompt delete_prompt get_prompt_info "
        "get_prompt_versions list_prompts patch_prompt update_prompt"
    ),
    "batches_endpoints.endpoints": "cancel_batch create_batch list_batches retrieve_batch",
    "openai_files_endpoints.files_endpoints": "create_file delete_file get_file list_files",
    "fine_tuning_endpoints.endpoints": (
        "cancel_fine_tuning_job create_fine_tuning_job list_fine_tuning_jobs "
        "retrieve_fine_tuning_job"
    ),
    "container_endpoints.endpoints": (
        "create_container delete_container list_containers retrieve_container"
    ),
    "container_endpoints.handler_factory": (
        "handler_container_file handler_container_id handler_multipart_upload"
    ),
    "google_endpoints.endpoints": "delete_interaction google_count_tokens",
    "google_endpoints.agents_endpoints": (
        "create_gemini_agent delete_gemini_agent get_gemini_agent list_gemini_agent_versions "
        "list_gemini_agents"
    ),
    "agent_endpoints.a2a_endpoints": "get_agent_card",
    "agent_endpoints.endpoints": (
        "create_agent delete_agent get_agent_by_id get_agent_daily_activity "
        "get_agent_identity_providers get_agent_identity_status get_agents make_agent_public "
        "make_agents_public patch_agent trigger_agent_kill_switch update_agent"
    ),
    "openai_evals_endpoints.endpoints": (
        "cancel_eval cancel_run create_eval create_run delete_eval delete_run get_eval get_run "
        "list_evals list_runs update_eval"
    ),
    "pass_through_endpoints.pass_through_endpoints": (
        "create_pass_through_endpoints delete_pass_through_endpoints get_pass_through_endpoints "
        "update_pass_through_endpoints"
    ),
    "rag_endpoints.endpoints": "rag_ingest",
    "rerank_endpoints.endpoints": "rerank",
    "search_endpoints.endpoints": "list_search_tools search",
    "vector_store_endpoints.endpoints": (
        "index_create index_list vector_store_create vector_store_delete vector_store_list "
        "vector_store_retrieve vector_store_search vector_store_update"
    ),
    "vector_store_files_endpoints.endpoints": (
        "vector_store_file_content vector_store_file_create vector_store_file_delete "
        "vector_store_file_list vector_store_file_retrieve vector_store_file_update"
    ),
    "video_endpoints.endpoints": (
        "video_content video_create_character video_edit video_extension video_generation "
        "video_get_character video_list video_remix video_status"
    ),
}
# The owner's side: keys, teams, spend, settings, logs, tools. None of it serves a client's call.
# Each function by its module, as in the tables above; a name with a colon opens a module. Of what
# lies there, LiteLLM's own assistants and what passes on another service's answers are left out.
_OWNERS = _by_module(
    """
_experimental.mcp_server.byok_oauth_endpoints: byok_authorization_server_metadata
    byok_authorize_get byok_authorize_post byok_prefixed_authorization_server_metadata
    byok_protected_resource_metadata byok_token oauth_authorization_server_metadata
_experimental.mcp_server.discoverable_endpoints: authorize authorize_complete authorize_flow
    authorize_mcp_session callback introspect_endpoint jwks_json native_client_auth_discovery
    oauth_authorization_server_aggregate oauth_authorization_server_legacy
    oauth_authorization_server_mcp oauth_authorization_server_mcp_standard oauth_client_metadata
    oauth_protected_resource_aggregate oauth_protected_resource_mcp
    oauth_protected_resource_mcp_standard oauth_protected_resource_root openid_configuration
    register_client revoke_endpoint token_endpoint
_experimental.mcp_server.rest_endpoints: call_tool_rest_api list_tool_rest_api test_connection
    test_tools_list
_lazy_features: warm
a2a.endpoints: discover_agent_card
analytics_endpoints.analytics_endpoints: get_global_activity
anthropic_endpoints.claude_code_endpoints.claude_code_marketplace: delete_plugin disable_plugin
    enable_plugin get_marketplace get_plugin list_plugins register_plugin update_plugin
anthropic_endpoints.gateway_endpoints: device_authorization managed_settings
    oauth_authorization_server oauth_revoke oauth_token otlp_logs otlp_metrics otlp_traces
caching_routes: cache_delete cache_flushall cache_ping cache_redis_info
common_utils.debug_utils: configure_gc_thresholds_endpoint get_active_tasks_stats
    get_debug_report get_memory_details get_memory_summary get_otel_spans memory_usage
    memory_usage_in_mem_cache memory_usage_in_mem_cache_items
common_utils.openapi_route: openapi
credential_endpoints.endpoints: create_credential delete_credential delete_user_connection
    get_credential_by_model get_credential_by_name get_credential_internal_issuer_jwks
    get_credentials list_user_connections poll_user_connection start_user_connection
    update_credential
discovery_endpoints.agent_skills_endpoints: agent_skills_archive agent_skills_index
discovery_endpoints.ui_discovery_endpoints: get_ui_config
fastapi.applications: openapi redoc_html swagger_ui_html swagger_ui_redirect
guardrails.guardrail_endpoints: apply_guardrail approve_guardrail_submission create_guardrail
    delete_guardrail get_category_yaml get_guardrail_info get_guardrail_submission
    get_guardrail_ui_settings get_major_airlines get_provider_specific_params
    list_guardrail_submissions list_guardrails list_guardrails_v2 patch_guardrail
    register_guardrail reject_guardrail_submission test_custom_code_guardrail update_guardrail
    validate_blocked_words_file
guardrails.usage_endpoints: guardrails_usage_detail guardrails_usage_logs
    guardrails_usage_overview policies_usage_overview
health_endpoints._health_endpoints: active_callbacks health_backlog
    health_check_history_endpoint health_drain health_endpoint health_license_endpoint
    health_liveliness health_liveliness_options health_readiness health_readiness_details
    health_readiness_options health_services_endpoint latest_health_checks_endpoint
    shared_health_check_status_endpoint test_endpoint test_model_connection
health_endpoints.deployment_warning_endpoints: get_deployment_warnings
    update_deployment_warning_ignore
lens.adapter: service_connection
lens.dataset_endpoints: build_dataset_cases create_dataset eval_cases export_dataset
    list_datasets read_dataset save_revision
lens.endpoints: activity_available cached_reviews cancel_lens claim content create_ingestion_key
    create_lens evidence_content get_signals heartbeat ingestion_credentials list_agents
    list_ingestion_keys list_lenses list_runs preview_sample progress put_signals read_lens
    read_reviews read_run register_worker result revoke_ingestion_key revoke_worker run_lens
    sample service_connection set_worker_billing trace_findings trace_signal_statuses
    update_finding update_lens watch_all
lens.feedback_endpoints: delete_feedback feedback_summary read_feedback submit_feedback
litellm_enterprise.enterprise_callbacks.send_emails.endpoints: get_email_event_settings
    reset_event_settings update_event_settings
litellm_enterprise.proxy.audit_logging_endpoints: get_audit_log_by_id get_audit_logs
litellm_enterprise.proxy.enterprise_routes: get_robots
litellm_enterprise.proxy.liteadmin: connect_account connect_page
litellm_enterprise.proxy.management_endpoints.internal_user_endpoints:
    available_enterprise_users
litellm_enterprise.proxy.management_endpoints.project_endpoints: delete_project list_projects
    new_project project_info update_project
logging_endpoints.callback_logs_endpoints: ingest_callback_logs
management.users.endpoints: get_current_user
management_endpoints.access_group_endpoints: create_access_group delete_access_group
    get_access_group list_access_groups update_access_group
management_endpoints.auto_router_endpoints: get_auto_router_availability
    get_auto_router_benchmarks get_auto_router_session get_shadow_eval_job list_shadow_eval_jobs
    preview_auto_router_routing start_shadow_eval stop_shadow_eval_job
    validate_complexity_router_config
management_endpoints.budget_management_endpoints: budget_settings delete_budget info_budget
    list_budget new_budget update_budget
management_endpoints.cache_settings_endpoints: get_cache_settings test_cache_connection
    update_cache_settings
management_endpoints.callback_management_endpoints: get_callback_configs list_callbacks
management_endpoints.compliance_endpoints: check_eu_ai_act_compliance check_gdpr_compliance
management_endpoints.config_override_endpoints: delete_cyberark_config
    delete_hashicorp_vault_config get_cyberark_config get_hashicorp_vault_config
    test_cyberark_connection test_hashicorp_vault_connection update_cyberark_config
    update_hashicorp_vault_config
management_endpoints.coordination_redis_endpoints: check_coordination_redis_connection
    get_coordination_redis_settings update_coordination_redis_settings
management_endpoints.cost_tracking_settings: estimate_cost
    get_block_requests_for_models_without_pricing get_cost_discount_config
    get_cost_margin_config update_block_requests_for_models_without_pricing
    update_cost_discount_config update_cost_margin_config
management_endpoints.customer_endpoints: block_user delete_end_user end_user_info
    get_customer_daily_activity list_end_user new_end_user unblock_user update_end_user
management_endpoints.daily_activity_routes: aggregated cache_leakage_keys export key_page
    model_top_keys search user_page
management_endpoints.fallback_management_endpoints: create_fallback delete_fallback get_fallback
management_endpoints.gateway_request_endpoints: get_gateway_daily_activity
management_endpoints.internal_user_endpoints: bulk_user_update delete_user
    get_user_daily_activity get_users new_user ui_get_available_role ui_view_users user_info
    user_info_v2 user_update
management_endpoints.jwt_key_mapping_endpoints: create_jwt_key_mapping delete_jwt_key_mapping
    info_jwt_key_mapping list_jwt_key_mappings update_jwt_key_mapping
management_endpoints.key_management_endpoints: block_key bulk_update_keys bulk_update_team_keys
    check_encryption_endpoint delete_key_fn generate_key_fn generate_service_account_key_fn
    info_key_fn info_key_fn_v2 key_aliases key_health list_keys migrate_encryption_endpoint
    regenerate_key_fn reset_key_spend_fn unblock_key update_key_fn
management_endpoints.management_v1.budgets: list_budgets
management_endpoints.management_v1.spend_logs: list_spend_log_end_users list_spend_log_users
management_endpoints.management_v1.teams: bulk_delete_team_members_action
    bulk_update_team_member_budgets_action
management_endpoints.management_v1.users: bulk_create_users_route bulk_delete_users_action
management_endpoints.mcp_management_endpoints: add_mcp_server add_mcp_toolset
    add_session_mcp_server approve_mcp_server_submission clear_mcp_user_env_vars
    delete_mcp_gateway_sessions delete_mcp_oauth_user_credential delete_mcp_user_credential
    discover_mcp_servers edit_mcp_server edit_mcp_toolset fetch_all_mcp_servers fetch_mcp_server
    fetch_mcp_toolset fetch_mcp_toolsets get_client_ip get_mcp_access_groups
    get_mcp_gateway_sessions get_mcp_oauth_user_credential_status get_mcp_registry
    get_mcp_server_submissions get_mcp_tools get_mcp_user_env_vars get_openapi_registry
    health_check_servers import_mcp_servers list_mcp_server_user_credentials
    list_mcp_user_credentials list_mcp_user_env_var_status make_mcp_servers_public mcp_authorize
    mcp_register mcp_token pin_mcp_server_tools register_mcp_server reject_mcp_server_submission
    remove_mcp_server remove_mcp_toolset store_mcp_oauth_user_credential
    store_mcp_user_credential store_mcp_user_env_vars unpin_mcp_server_tools
management_endpoints.model_access_group_management_endpoints: create_model_group
    delete_access_group delete_access_group_budget get_access_group_budget get_access_group_info
    list_access_groups set_access_group_budget update_access_group
management_endpoints.model_insights_endpoints: get_model_insight_tasks get_model_insights
management_endpoints.model_management_endpoints: add_new_model block_model delete_model
    get_auto_router_classifier_default_prompt get_kubernetes_pods patch_model
    preview_auto_router_classifier_prompt unblock_model update_model update_public_model_groups
    update_useful_links
management_endpoints.organization_endpoints: delete_organization deprecated_info_organization
    get_organization_daily_activity info_organization list_organization new_organization
    organization_member_add organization_member_delete organization_member_update
    update_organization update_organization_v2
management_endpoints.password_endpoints: change_password
management_endpoints.policy_endpoints.endpoints: get_policy_info get_policy_templates
    list_policies test_policy_matching test_policy_template validate_policy
management_endpoints.prompt_cache_prediction: predict_cache_cost
management_endpoints.prompt_caching_requests: get_prompt_caching_requests
management_endpoints.request_error_endpoints: get_request_error_activity
management_endpoints.roi_calculator_endpoints: cancel_roi_calculator_sync
    get_roi_calculator_report get_roi_calculator_repositories get_roi_calculator_settings
    get_roi_calculator_sync_status reset_roi_calculator_setup start_roi_calculator_sync
    test_roi_calculator_connections update_roi_calculator_identity_map
    update_roi_calculator_settings
management_endpoints.roi_observed_endpoints: cancel_observed_sync get_observed_identities
    get_observed_report get_observed_settings get_observed_sync observed_apps
    observed_authorization_callback observed_installation_callback observed_repositories
    save_observed_identities save_observed_settings start_observed_authorization
    start_observed_sync
management_endpoints.router_settings_endpoints: get_router_fields get_router_settings
management_endpoints.scim.scim_v2: create_group create_user delete_group delete_user get_group
    get_groups get_resource_type get_resource_types get_schema get_schemas get_scim_base
    get_service_provider_config get_user get_users list_placeholders merge_placeholder
    patch_group patch_user update_group update_user
management_endpoints.session_endpoints: session_logout
management_endpoints.subscription_accounts: delete_subscription_account get_subscription_usage
    new_subscription_account update_subscription_account
management_endpoints.tag_management_endpoints: delete_tag get_tag_daily_activity info_tag
    list_tags new_tag update_tag
management_endpoints.team_callback_endpoints: add_team_callbacks delete_team_callback
    disable_team_logging get_team_callbacks
management_endpoints.team_endpoints: block_team bulk_team_member_add
    bulk_update_team_member_permissions delete_team get_team_daily_activity
    get_team_metadata_schema get_team_spend_by_user list_available_teams list_team list_team_v2
    new_team patch_team reset_team_member_budget_fn reset_team_member_spend_fn team_info
    team_member_add team_member_delete team_member_me team_member_permissions team_member_update
    team_model_add team_model_delete ui_view_teams unblock_team update_team
    update_team_member_permissions
management_endpoints.tool_management_endpoints: delete_tool_policy_override get_tool
    get_tool_detail get_tool_policy_options get_tool_spend get_tool_usage_logs list_tools
    update_tool_policy
management_endpoints.ui_sso: auth_callback cli_poll_key cli_sso_complete cli_sso_start
    debug_sso_callback debug_sso_login get_ui_settings google_login saml_callback saml_login
    saml_metadata sso_readiness
management_endpoints.user_agent_analytics_endpoints: get_daily_active_users
    get_distinct_user_agent_tags get_monthly_active_users get_per_user_analytics get_tag_summary
    get_weekly_active_users
management_endpoints.workflow_management_endpoints: append_workflow_event
    append_workflow_message create_workflow_run get_workflow_run list_workflow_events
    list_workflow_messages list_workflow_runs update_workflow_run
mcp_server.byok_oauth_endpoints: byok_authorization_server_metadata byok_authorize_get
    byok_authorize_post byok_prefixed_authorization_server_metadata
    byok_protected_resource_metadata byok_token oauth_authorization_server_metadata
mcp_server.discoverable_endpoints: authorize authorize_complete authorize_flow
    authorize_mcp_session callback introspect_endpoint jwks_json native_client_auth_discovery
    oauth_authorization_server_aggregate oauth_authorization_server_legacy
    oauth_authorization_server_mcp oauth_authorization_server_mcp_standard oauth_client_metadata
    oauth_protected_resource_aggregate oauth_protected_resource_mcp
    oauth_protected_resource_mcp_standard oauth_protected_resource_root openid_configuration
    register_client revoke_endpoint token_endpoint
mcp_server.rest_endpoints: call_tool_rest_api list_tool_rest_api test_connection test_tools_list
memory.memory_endpoints: create_memory delete_memory get_memory list_memory upsert_memory
moyai_endpoints: moyai_connect_exchange moyai_connect_start
plugin_routes: list_plugins plugin_auth_token
policy_engine.policy_endpoints: compare_policy_versions create_policy create_policy_attachment
    create_policy_version delete_all_policy_versions delete_policy delete_policy_attachment
    get_policy get_policy_attachment get_resolved_guardrails list_policies
    list_policy_attachments list_policy_versions test_pipeline update_policy
    update_policy_version_status
policy_engine.policy_resolve_endpoints: estimate_attachment_impact resolve_policies_for_context
public_endpoints.public_endpoints: get_agent_fields get_agents get_complexity_scorer_defaults
    get_litellm_blog_posts get_litellm_model_cost_map get_mcp_servers get_provider_fields
    get_public_autorouter_presets get_public_fuse_presets get_supported_endpoints
    get_supported_providers public_model_hub public_model_hub_info public_skill_hub
public_endpoints.public_v1.model_hub: public_model_hub_facet public_model_hub_list
search_endpoints.search_tool_management: create_search_tool delete_search_tool
    get_available_search_providers get_search_tool_info list_search_tools
    test_search_tool_connection update_search_tool
spend_tracking.cloudzero_endpoints: cloudzero_dry_run_export cloudzero_export
    delete_cloudzero_settings get_cloudzero_settings init_cloudzero_settings
    update_cloudzero_settings
spend_tracking.spend_management_endpoints: calculate_spend get_global_activity
    get_global_activity_exceptions get_global_activity_exceptions_per_deployment
    get_global_activity_model get_global_spend_provider get_global_spend_report
    get_key_spend_report get_organization_spend_report get_spend_capture_rate
    get_team_spend_report get_user_spend_report global_get_all_tag_names global_spend
    global_spend_end_users global_spend_keys global_spend_logs global_spend_models
    global_spend_per_team global_spend_refresh global_spend_reset global_view_all_end_users
    global_view_spend_tags provider_budgets spend_key_fn spend_user_fn
    ui_view_request_response_for_request_id ui_view_session_spend_logs ui_view_spend_logs
    view_spend_logs view_spend_tags
spend_tracking.vantage_endpoints: delete_vantage_settings get_vantage_settings
    init_vantage_settings update_vantage_settings vantage_dry_run_export vantage_export
telemetry.endpoints: export_telemetry_reports get_telemetry_settings record_ui_event
    ui_events_enabled update_telemetry_settings
tracing_endpoints: get_agent_trace get_agent_trace_span get_agent_trace_span_error
    help_agent_trace_queries ingest_otlp_traces list_agent_traces list_trace_agents
    query_agent_traces
ui_crud_endpoints.latest_release_endpoints: latest_release_info
ui_crud_endpoints.proxy_setting_endpoints: add_allowed_ip delete_allowed_ip get_allowed_ips
    get_background_chat_settings get_default_team_settings get_internal_user_settings
    get_mcp_semantic_filter_settings get_mcp_tool_search_settings get_sso_settings
    get_ui_settings get_ui_theme_settings get_websearch_interception_settings
    update_background_chat_settings update_default_team_settings update_internal_user_settings
    update_mcp_semantic_filter_settings update_mcp_tool_search_settings update_sso_settings
    update_ui_settings update_ui_theme_settings update_websearch_interception_settings
    upload_logo
ui_crud_endpoints.user_banner_endpoints: get_user_banner update_user_banner
vector_store_endpoints.management_endpoints: delete_vector_store get_vector_store_info
    list_vector_stores new_vector_store update_vector_store
"""
)


def outcome_of_route(endpoint: Callable[..., Any] | None) -> Outcome:
    """Return what becomes of a request that ``endpoint``, a function of LiteLLM's, would serve."""
    module = getattr(endpoint, "__module__", None) or ""
    name = getattr(endpoint, "__name__", "")
    if not module.startswith(("litellm.proxy.", "litellm_enterprise.", "fastapi.applications")):
        return "refused"
    module = module.removeprefix("litellm.proxy.")
    if _names(_GUARDED, module, name):
        return "guarded"
    textless = _names(_TEXTLESS, module, name) or _names(_OWNERS, module, name)
    return "no text" if textless else "refused"


def _names(table: dict[str, str], module: str, name: str) -> bool:
    return name in table.get(module, "").split()


class _Dependencies(dict[Callable[..., Any], Callable[..., Any]]):
    """FastAPI's replaced dependencies: each that says who is calling is followed by a check.

    Those of websockets are several, and LiteLLM loads some late: they are told by what they return.
    """

    def __init__(self, given: Any, check: Callable[[Any, Any], Awaitable[None]]) -> None:
        super().__init__(given)
        self._check = check

    def __bool__(self) -> bool:
        return True  # else FastAPI would not ask

    def get(self, known_by: Any, default: Any = None) -> Any:
        ask = super().get(known_by, default)
        if "UserAPIKeyAuth" not in str(getattr(known_by, "__annotations__", {}).get("return")):
            return ask

        @functools.wraps(ask)
        async def checked(*args: Any, **kwargs: Any) -> Any:
            key = await ask(*args, **kwargs)
            for connection in kwargs.values():
                if hasattr(connection, "scope"):
                    await self._check(connection, key)
            return key

        return checked


def watch(refusal: Callable[[dict[str, Any], str], Exception | None]) -> None:
    """Have every request and websocket of LiteLLM's proxy checked once its key is known.

    On some routes LiteLLM asks no guardrail at all (threads, its queue, retrieval with an answer),
    and of websockets some only about what the socket itself says, so those are refused where it
    says who is calling, by FastAPI's way to replace a dependency. ``refusal`` takes a request's
    data as LiteLLM gives them to guardrails, and the route; it returns the error to raise, None
    where no guardrail is on.
    """
    server = sys.modules.get("litellm.proxy.proxy_server")
    if server is None:  # no proxy runs here
        return
    app = server.app
    if isinstance(app.dependency_overrides, _Dependencies):
        return

    async def check(connection: Any, key: Any) -> None:
        if outcome_of_route(connection.scope.get("endpoint")) != "refused":
            return
        route = getattr(connection.scope.get("route"), "path", connection.url.path)
        kind = connection.scope.get("method", "the websocket")
        error = refusal(await asked_by(key, await _body(connection)), f"{kind} {route}")
        if error is not None:
            raise error

    app.dependency_overrides = _Dependencies(app.dependency_overrides, check)


async def _body(connection: Any) -> dict[str, Any]:
    """Return what a request asks for; a websocket says it in its address."""
    from litellm.proxy.common_utils.http_parsing_utils import _read_request_body

    if connection.scope["type"] != "websocket":
        return dict(await _read_request_body(connection) or {})
    said = dict(connection.query_params)
    if "guardrails" in said:
        said["guardrails"] = [name.strip() for name in said["guardrails"].split(",")]
    return said


async def asked_by(key: Any, body: dict[str, Any]) -> dict[str, Any]:
    """Return ``body`` with the guardrails that the key, its team and policies ask for."""
    from litellm.proxy.litellm_pre_call_utils import move_guardrails_to_metadata

    given = body.get("metadata")
    body = body | {
        "metadata": {
            **(given if isinstance(given, dict) else {}),
            "user_api_key_metadata": key.metadata,
            "user_api_key_team_metadata": key.team_metadata,
        }
    }
    body.pop("litellm_metadata", None)
    await move_guardrails_to_metadata(body, "metadata", key)
    return body
