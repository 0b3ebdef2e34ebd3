"""Every route of LiteLLM's proxy, and every key of a request that gives an answer another shape."""

from __future__ import annotations

import json
import re
from types import FunctionType
from typing import Any

import httpx
import pytest

from guard.policy import Policy
from tests.provider import Provider, Script

pytest.importorskip("fastapi", reason="the proxy of LiteLLM is not installed (extra 'proxy')")

from guard.proxy.routes import outcome_of_call, outcome_of_route
from tests.doors import proxy_routes
from tests.doors.proxy_process import Proxy
from tests.rows import rows

MESSAGE = Policy().message
SAID = ["All is ", "well. ", "BIA", "S is ", "here. ", "More. "]
STOPPED = f"All is well. {MESSAGE}"
MESSAGES = [{"role": "user", "content": "Tell me."}]

# The functions behind the routes that bring text of a model and have no door, by module.
REFUSED = {
    "agent_endpoints.a2a_endpoints": "invoke_agent_a2a",
    "container_endpoints.handler_factory": "handler_binary_content",
    "decisions_endpoints.endpoints": "decisions extraction systemone",
    "google_endpoints.endpoints": (
        "cancel_interaction create_interaction get_interaction google_generate_content "
        "google_stream_generate_content"
    ),
    "lens.adapter": "lens_request",
    "management_endpoints.policy_endpoints.endpoints": (
        "enrich_policy_template enrich_policy_template_stream suggest_policy_templates"
    ),
    "management_endpoints.usage_endpoints.endpoints": "usage_ai_chat",
    "ocr_endpoints.endpoints": "ocr",
    "openai_files_endpoints.files_endpoints": "get_file_content",
    "pass_through_endpoints.codex_passthrough_endpoints": "codex_passthrough_route",
    "pass_through_endpoints.llm_passthrough_endpoints": (
        "anthropic_proxy_route assemblyai_proxy_route azure_proxy_route azure_speech_proxy_route "
        "bedrock_proxy_route bespoke_proxy_route cohere_proxy_route comprehend_medical_proxy_route "
        "comprehend_medical_sdk_proxy_route cursor_proxy_route deepgram_listen_websocket_route "
        "deepgram_speak_websocket_route eu_jev_proxy_route fal_ai_proxy_route gemini_proxy_route "
        "gigachat_proxy_route laya_proxy_route milvus_proxy_route mistral_proxy_route "
        "nvidia_nim_proxy_route openai_proxy_route openai_websocket_proxy_route "
        "openrouter_proxy_route tinyfish_proxy_route transcribe_proxy_route "
        "transcribe_sdk_proxy_route typesafe_proxy_route vertex_discovery_proxy_route "
        "vertex_proxy_route vllm_proxy_route watsonx_proxy_route"
    ),
    "pass_through_endpoints.openai_passthrough_endpoints": "openai_passthrough_route",
    "plugin_routes": "plugin_proxy",
    "proxy_server": (
        "add_messages async_queue_request create_assistant create_threads delete_assistant "
        "get_assistants get_messages get_thread live_sessions_websocket_endpoint "
        "realtime_websocket_endpoint run_thread vertex_ai_live_passthrough_endpoint"
    ),
    "rag_endpoints.endpoints": "rag_query",
    "realtime_endpoints.endpoints": (
        "create_realtime_client_secret create_realtime_transcription_session proxy_realtime_calls"
    ),
    "response_api_endpoints.endpoints": (
        "compact_response get_response_input_items responses_websocket_endpoint"
    ),
    "vertex_ai_endpoints.langfuse_endpoints": "langfuse_proxy_route",
}

# These read the caller's key themselves, or ask for credentials of their own first, and come to
# the guardrail behind it, as calls of a kind that it refuses.
ASK_THEMSELVES = {
    *("gemini_proxy_route", "vertex_discovery_proxy_route", "vertex_proxy_route"),
    *("proxy_realtime_calls", "langfuse_proxy_route"),
}


@pytest.fixture(autouse=True)
def provider(behind_the_proxy: Provider) -> Provider:
    behind_the_proxy.scripts.clear()
    behind_the_proxy.script = Script([SAID])
    behind_the_proxy.served.clear()
    return behind_the_proxy


@pytest.fixture(scope="module")
def routes(proxy: Proxy) -> list[tuple[list[str], str, str, str]]:
    """All routes of the installed LiteLLM: methods, path, module and name of the function."""
    answer = ask(proxy, "GET", "/v1/models", key=proxy_routes.KEY)
    assert answer.status_code == 401
    found: list[tuple[list[str], str, str, str]] = json.loads(
        (proxy.folder / "routes").read_text("utf-8")
    )
    return found


def ask(proxy: Proxy, method: str, path: str, body: Any = None, key: str = "sk-plain") -> Any:
    return httpx.request(
        method,
        f"{proxy.url}{path}",
        # Google's routes read the key from a header of their own.
        headers={"Authorization": f"Bearer {key}", "x-goog-api-key": key},
        json=body,
        timeout=120,
        verify=False,  # reading the certificates would take longer than most requests
    )


def function(module: str, name: str) -> FunctionType:
    def served() -> None: ...

    served.__module__, served.__name__ = module, name
    return served


def listed(module: str, name: str) -> bool:
    return name in REFUSED.get(module.removeprefix("litellm.proxy."), "").split()


def test_every_route_is_in_the_table(routes: Any) -> None:
    assert len(routes) > 800
    unnamed = {
        f"{path} ({module}.{name})"
        for _, path, module, name in routes
        if (outcome_of_route(function(module, name)) == "refused") != listed(module, name)
    }
    assert not unnamed


def test_a_route_that_nobody_has_named_is_refused() -> None:
    assert outcome_of_route(function("litellm.proxy.proxy_server", "a_new_route")) == "refused"
    assert outcome_of_route(function("litellm.proxy.new.endpoints", "create")) == "refused"
    assert outcome_of_route(function("somewhere", "pass_through")) == "refused"
    assert outcome_of_route(None) == "refused"
    owners = "litellm.proxy.management_endpoints.usage_endpoints.endpoints"
    assert outcome_of_route(function(owners, "usage_ai_chat_of_tomorrow")) == "refused"
    assert outcome_of_route(function("litellm.proxy.guardrails.chat", "ask")) == "refused"
    assert outcome_of_route(function("litellm_enterprise.proxy.liteadmin", "ask")) == "refused"
    assert outcome_of_route(function("fastapi.applications", "ask")) == "refused"
    assert outcome_of_call("anew_call") == "refused"


def test_every_refused_route_is_refused_by_name(
    proxy: Proxy, provider: Provider, routes: Any
) -> None:
    """Before any model is asked, whatever way of LiteLLM's serves it."""
    let_through = {}
    for methods, path, module, name in routes:
        if not methods or not listed(module, name):
            continue
        for method in set(methods) - {"HEAD", "OPTIONS"}:
            place = re.sub(r"\{[^}]*\}", "x", path)
            body = None if method == "GET" else {"model": "x", "messages": MESSAGES}
            answer = ask(proxy, method, place, body)
            refused = answer.status_code == 400 and "cannot judge" in answer.text
            if not refused and (answer.status_code < 400 or name not in ASK_THEMSELVES):
                let_through[f"{method} {place}"] = f"{answer.status_code} {answer.text[:200]}"
    assert not let_through
    assert provider.served == []


def test_a_key_that_opted_out_has_every_route(proxy: Proxy) -> None:
    body = {"model": "x", "messages": MESSAGES, "priority": 0}
    assert "BIAS" in ask(proxy, "POST", "/queue/chat/completions", body, "sk-out").text
    named = ask(
        proxy, "POST", "/queue/chat/completions", body | {"guardrails": ["asked"]}, "sk-out"
    )
    assert named.status_code == 400
    assert "guardrail 'asked' cannot judge" in named.text


CHAT = "/v1/chat/completions"
TEXT = {"model": "x", "prompt": "Tell me."}
INPUT = {"model": "gpt-4o", "input": "Tell me."}
LIMITED = {"model": "claude-x", "max_tokens": 500, "messages": MESSAGES}
ANSWERS: dict[str, tuple[str, dict[str, Any]]] = {
    "a comma": (CHAT, {"model": "x,"}),
    "a model twice": (CHAT, {"model": "x,x"}),
    "two models": (CHAT, {"model": "x, gpt-4o"}),
    "fastest of two": (CHAT, {"model": "x,gpt-4o", "fastest_response": True}),
    "fastest with a comma": (CHAT, {"model": "x,", "fastest_response": True}),
    "fastest of one": (CHAT, {"fastest_response": True}),
    "two choices": (CHAT, {"n": 2}),
    "stream as a text": (CHAT, {"stream": "true"}),
    "stream as a number": (CHAT, {"stream": 1}),
    "streamed": (CHAT, {"stream": True}),
    "not streamed": (CHAT, {"stream": False}),
    "streamed, usage": (CHAT, {"stream": True, "stream_options": {"include_usage": True}}),
    "streamed with a comma": (CHAT, {"model": "x,gpt-4o", "stream": True}),
    "streamed, fastest": (
        CHAT,
        {"model": "x,gpt-4o", "fastest_response": True, "stream": True},
    ),
    "fallbacks": (CHAT, {"fallbacks": ["gpt-4o"], "num_retries": 0}),
    "a mock": (CHAT, {"mock_response": "All is well. BIAS is here. More."}),
    "a mock, streamed": (
        CHAT,
        {"mock_response": "All is well. BIAS is here. More.", "stream": True},
    ),
    "a mock of several": (CHAT, {"mock_response": "BIAS is here. More.", "n": 3}),
    "guardrail's information": (CHAT, {"include_guardrail_response": True}),
    "a batch": (CHAT, {"batch": True}),
    "engines": ("/engines/x/chat/completions", {}),
    "deployments": ("/openai/deployments/x/chat/completions", {}),
    "no version": ("/chat/completions", {"model": "x,x"}),
    "a comma in the path": ("/engines/x,x/chat/completions", {}),
    "a comma in the deployment": ("/openai/deployments/x,x/chat/completions", {}),
    "cursor": ("/cursor/chat/completions", INPUT),
    "cursor, streamed": ("/cursor/chat/completions", INPUT | {"stream": True}),
    "text": ("/completions", TEXT),
    "text, two prompts": ("/v1/completions", TEXT | {"prompt": ["Tell me.", "And me."]}),
    "text of an engine": ("/engines/x/completions", TEXT),
    "text, a comma": ("/v1/completions", TEXT | {"model": "x,x"}),
    "text, best of": ("/v1/completions", TEXT | {"best_of": 2, "n": 2}),
    "text of a deployment": ("/openai/deployments/x/completions", TEXT | {"stream": True}),
    "a response": ("/openai/v1/responses", INPUT),
    "a response, a comma": ("/v1/responses", INPUT | {"model": "gpt-4o,gpt-4o"}),
    "a response in the background": ("/responses", INPUT | {"background": True}),
    "a streamed response": ("/responses", INPUT | {"stream": True}),
    "a message": ("/v1/messages", LIMITED),
    "streamed, two deployments": (
        "/openai/deployments/x,x/chat/completions",
        {"stream": True},
    ),
    "a streamed message": ("/v1/messages", LIMITED | {"stream": True}),
    "a message, a comma": ("/v1/messages", LIMITED | {"model": "claude-x,claude-x"}),
    "a prompt under test": (
        "/prompts/test",
        {"dotprompt_content": "---\nmodel: x\n---\nUser: Tell me."},
    ),
}
# LiteLLM itself has no such answer, or none that anybody could judge.
ERRORS = {
    "streamed with a comma",
    "streamed, two deployments",
    "text, a comma",
    "a response, a comma",
    "a message, a comma",
}


@rows("name", ANSWERS)
def test_no_key_of_a_request_and_no_alias_brings_text_unjudged(
    proxy: Proxy, provider: Provider, name: str
) -> None:
    path, fields = ANSWERS[name]
    chat = {"model": "x", "messages": MESSAGES} if "chat" in path or path == CHAT else {}
    answer = ask(proxy, "POST", path, chat | fields)
    assert "BIAS" not in answer.text
    if name in ERRORS:
        assert answer.status_code >= 400
    else:
        assert answer.status_code == 200
        assert MESSAGE in answer.text


def test_a_stream_of_several_models_is_refused_by_name(proxy: Proxy, provider: Provider) -> None:
    body = {"model": "x, gpt-4o", "messages": MESSAGES, "stream": True}
    answer = ask(proxy, "POST", CHAT, body)
    assert answer.status_code == 400
    assert "name one model" in answer.text
    assert provider.served == []
    assert ask(proxy, "POST", CHAT, body, "sk-out").status_code == 500  # of LiteLLM


def test_the_answer_after_a_fallback_is_judged(proxy: Proxy, provider: Provider) -> None:
    provider.scripts = [Script(status=500)]
    body = {"model": "x", "messages": MESSAGES, "fallbacks": ["gpt-4o"], "num_retries": 0}
    answer = ask(proxy, "POST", CHAT, body)
    assert answer.json()["choices"][0]["message"]["content"] == STOPPED
    assert len(provider.served) == 2


def test_each_answer_of_a_list_is_judged_and_an_error_in_it_quotes_nothing(
    proxy: Proxy, provider: Provider
) -> None:
    provider.scripts = [Script([SAID]), Script([["Quite fine."]])]
    both = ask(proxy, "POST", CHAT, {"model": "x,gpt-4o", "messages": MESSAGES}).json()
    said = {answer["choices"][0]["message"]["content"] for answer in both}
    assert said == {STOPPED, "Quite fine."}
    provider.scripts = [Script(status=400)] * 2
    # Neither of these falls back on another.
    failed = ask(proxy, "POST", CHAT, {"model": "gpt-4o,bridged", "messages": MESSAGES}).json()
    assert [answer["error"]["message"] for answer in failed] == 2 * [
        "The call to this model failed."
    ]


@rows("key", ["sk-plain", "sk-out"])
def test_the_playground_has_its_text_judged(proxy: Proxy, key: str) -> None:
    body = {"guardrail_name": "bias", "text": "".join(SAID)}
    answer = ask(proxy, "POST", "/guardrails/apply_guardrail", body, key)
    assert answer.json()["response_text"] == STOPPED
    fine = ask(proxy, "POST", "/apply_guardrail", body | {"text": "All is well."}, key)
    assert fine.json()["response_text"] == "All is well."
    raised = ask(proxy, "POST", "/apply_guardrail", body | {"guardrail_name": "asked"}, key)
    assert raised.status_code >= 400  # 500 where LiteLLM lacks its package for databases
    assert "BIAS" not in raised.text


@rows("key", ["sk-plain", "sk-asks", "sk-team-asks"])
def test_every_websocket_is_refused(
    proxy: Proxy, provider: Provider, routes: Any, key: str
) -> None:
    """By a guardrail that is always on; one that a key or team asks for needs LiteLLM Enterprise,

    which LiteLLM says to the same question, before the socket is open.
    """
    paths = [path for methods, path, module, name in routes if not methods and listed(module, name)]
    assert len(paths) >= 10
    said = {path: hear(proxy, re.sub(r"\{[^}]*\}", "v1/realtime", path), key) for path in paths}
    reason = "cannot judge" if key == "sk-plain" else "LiteLLM Enterprise"
    assert not {path: text for path, text in said.items() if reason not in text}
    assert provider.served == []


def test_a_websocket_of_a_key_that_opted_out_is_refused_if_it_asks_for_a_guardrail(
    proxy: Proxy,
) -> None:
    assert "cannot judge" not in hear(proxy, "/openai/v1/realtime", "sk-out")
    assert "guardrail 'asked' cannot" in hear(proxy, "/realtime?guardrails=asked", "sk-out")


def hear(proxy: Proxy, path: str, key: str) -> str:
    """All that a websocket says, its refusal and its closing included."""
    client = pytest.importorskip("websockets.sync.client")
    from websockets.exceptions import InvalidStatus, WebSocketException

    url = f"{proxy.url.replace('http', 'ws')}{path}{'&' if '?' in path else '?'}model=x"
    said = []
    try:
        with client.connect(url, additional_headers={"Authorization": f"Bearer {key}"}) as socket:
            socket.send(json.dumps({"type": "response.create", "input": "Tell me."}))
            said += [str(message) for message in socket]
    except InvalidStatus as refused:
        said.append((refused.response.body or b"").decode())
    except WebSocketException as closed:
        said.append(str(closed))
    return "\n".join(said)
