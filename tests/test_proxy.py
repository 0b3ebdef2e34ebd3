"""The guardrail as LiteLLM makes it from config.yaml, and what it reads of a stream's layers."""

from __future__ import annotations

import atexit
import importlib
import json
import sys
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

pytest.importorskip("fastapi", reason="the proxy of LiteLLM is not installed (extra 'proxy')")

import litellm
from fastapi import HTTPException
from litellm.types.guardrails import GuardrailEventHooks

from guard.detect.weights import open_weights, shipped_weights
from guard.doors.litellm import compat
from guard.doors.litellm.proxy import GuardedRequest, beneath
from guard.errors import GuardError, UsageError
from guard.places import ENCODERS
from guard.policy import Policy
from tests.doors import replay as r
from tests.scripted import Scripted

USUAL = {"guardrail": "guard.proxy.Guardrail", "mode": "post_call"}
DETECTOR = {"detector": "tests.scripted.Scripted"}


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Import LiteLLM's proxy, which takes seconds: not while tests are collected."""
    with warnings.catch_warnings():
        # LiteLLM leaves folders open that it lists when it is imported.
        warnings.simplefilter("ignore", ResourceWarning)
        importlib.import_module("litellm.proxy.guardrails.guardrail_registry")


@pytest.fixture(autouse=True)
def nothing_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atexit, "register", lambda call: call())
    monkeypatch.setattr(litellm, "callbacks", [])


def made(params: dict[str, Any]) -> Any:
    """What LiteLLM makes of one entry of config.yaml."""
    from litellm.proxy.guardrails.guardrail_registry import InMemoryGuardrailHandler

    handler = InMemoryGuardrailHandler()
    entry: Any = {"guardrail_name": "bias", "litellm_params": params}
    handler.initialize_guardrail(entry, config_file_path="config.yaml")
    (guardrail,) = litellm.callbacks
    return guardrail


WRONG = [
    ({"mode": "pre_call"}, "mode must be 'post_call', got 'pre_call'"),
    ({"mode": ["pre_call", "post_call"]}, "mode must be 'post_call', got"),
    ({"guard": {"axion": "redact"}}, "unknown setting 'axion' under guard; known are"),
    ({"guard": {"action": "stop"}}, "action: input should be"),
    ({"guard": {"action": "rewrite"} | DETECTOR}, "as the action 'rewrite' does"),
    ({"guard": {"litellm_records": "guarded"} | DETECTOR}, "has no effect on the proxy"),
    ({"guard": {"threshold": 2}}, "threshold: input should be less than or equal to 1, got 2"),
    ({"guard": ["strict"]}, "takes a mapping of settings or the name of an operating point"),
    ({"guard": "louder"}, "operating_point: input should be"),
    ({"guard": {"detector": 7}}, "detector must be a string, got 7"),
    ({"guard": {"detector": "nowhere.Thing"}}, "detector 'nowhere.Thing' cannot be imported"),
    ({"guard": {"detector": "tests.scripted.Nobody"}}, "cannot be imported"),
    ({"guard": {"detector": "pathlib.Path"}}, "is not a detector"),
    ({"guard": {"detector": "other"}}, "unknown detector 'other'"),
    ({"guard": {"weights": "/nowhere"}}, "/nowhere"),
    ({"operating_point": "strict"}, "unknown setting 'operating_point'; it goes under guard."),
    ({"run_in_parallel": True}, "unknown setting 'run_in_parallel'."),
    ({"defualt_on": True}, "unknown setting 'defualt_on'."),
]


@pytest.mark.parametrize(("params", "named"), WRONG)
def test_a_wrong_setting_is_named_and_no_reason_to_start_without(
    params: dict[str, Any], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(GuardError) as raised:
        made(USUAL | params)
    # LiteLLM starts without a guardrail for these.
    assert not isinstance(raised.value, (ValueError, TypeError))
    sentence = str(raised.value)
    assert named in sentence
    assert "\n" not in sentence
    assert capsys.readouterr().err.strip() == sentence


@pytest.mark.parametrize("name", ENCODERS)
def test_config_yaml_names_either_embedded_detector(name: str) -> None:
    from guard.proxy.settings import made_guard

    guard = made_guard({"detector": name}, "config.yaml")
    assert guard.detector.name == open_weights(shipped_weights(name)).name


@pytest.mark.parametrize("returns", ["UserAPIKeyAuth", "Caller", None])
def test_it_does_not_start_where_no_route_could_be_refused(
    monkeypatch: pytest.MonkeyPatch, returns: str | None
) -> None:
    def user_api_key_auth() -> None: ...

    user_api_key_auth.__annotations__ = {"return": returns}
    server = SimpleNamespace(app=SimpleNamespace(dependency_overrides={}))
    if returns is not None:
        server.user_api_key_auth = user_api_key_auth
    monkeypatch.setitem(sys.modules, "litellm.proxy.proxy_server", server)
    if returns == "UserAPIKeyAuth":
        assert made(USUAL | {"guard": DETECTOR})
        return
    with pytest.raises(GuardError, match="authenticates requests") as raised:
        made(USUAL | {"guard": DETECTOR})
    assert not isinstance(raised.value, (ValueError, TypeError))  # LiteLLM would start without it


def test_it_does_not_start_with_a_litellm_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "version", lambda: "1.83.7")
    with pytest.raises(GuardError, match=r"the proxy with LiteLLM 1\.106\.2 .* found 1\.83\.7"):
        made(USUAL | {"guard": DETECTOR})


def test_five_lines_make_a_guardrail() -> None:
    guardrail = made(USUAL | {"default_on": True, "guard": DETECTOR})
    assert guardrail.guardrail_name == "bias"
    assert guardrail.should_run_guardrail({}, GuardrailEventHooks.post_call)
    assert not guardrail.should_run_guardrail({}, GuardrailEventHooks.during_call)


def test_the_example_is_made_as_it_stands() -> None:
    example = Path(__file__).parents[1] / "examples" / "proxy" / "config.yaml"
    (entry,) = yaml.safe_load(example.read_text(encoding="utf-8"))["guardrails"]
    assert made(entry["litellm_params"])._guard.policy.action == "redact"


def test_a_guardrail_derived_from_it_guards_streams_too() -> None:
    from litellm.proxy.utils import ProxyLogging

    from guard import proxy

    class Mine(proxy.Guardrail):
        pass

    litellm.callbacks = [Mine("bias", "post_call", guard=DETECTOR)]
    capabilities = ProxyLogging.callback_capabilities()
    assert [kind for _, kind in capabilities.iterator_overrides] == ["override"]
    assert capabilities.has_post_call_response_headers


async def test_a_stream_is_found_under_the_layers_of_other_hooks() -> None:
    from litellm.proxy.utils import _UpstreamStreamBoundary

    async def layer(response: Any) -> AsyncIterator[Any]:
        async for chunk in response:
            yield chunk

    stream: Any = object.__new__(litellm.CustomStreamWrapper)
    assert beneath(stream) is stream
    assert beneath(layer(_UpstreamStreamBoundary(layer(stream)))) is stream
    assert beneath(layer(iter(()))) is None


async def test_a_stream_that_cannot_be_guarded_is_closed_logged_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from litellm.proxy.utils import ProxyLogging

    counted: list[Any] = []
    monkeypatch.setattr(ProxyLogging, "_emit_guardrail_metrics", lambda **kw: counted.append(kw))
    closed = False

    async def unknown() -> AsyncIterator[Any]:
        nonlocal closed
        try:
            yield "text"
            yield "more"
        finally:
            closed = True

    guardrail = made(USUAL | {"default_on": True, "guard": DETECTOR})
    data: dict[str, Any] = {"metadata": {}}
    chunks = unknown()
    await anext(chunks)  # what it stands on is open
    hooked = guardrail.async_post_call_streaming_iterator_hook(key(), chunks, data)
    with pytest.raises(UsageError, match="cannot read"):
        await anext(hooked)
    assert closed
    assert [(one["status"], one["error_type"]) for one in counted] == [("error", "UsageError")]
    assert len(data["metadata"]["standard_logging_guardrail_information"]) == 1


def test_the_facts_hold_no_word_of_the_text() -> None:
    call = GuardedRequest(r.session(Policy(action="redact"), Scripted("BIAS [a-z]+")))
    from guard.doors.plain import TextStream

    said = "".join(TextStream(iter(["Fine. BIAS secretword here. ", "Good."]), call.session))
    assert "[removed]" in said
    call.over = True
    facts = call.facts()
    assert facts["findings"] == 1
    assert facts["actions"] == {"redact": 1}
    assert call.status == "guardrail_intervened"
    for told in (json.dumps(facts), json.dumps(call.headers())):
        assert "secretword" not in told
        assert "BIAS" not in told


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"operating_point": "quiet"}, {"x-guard-operating-point": "quiet"}),
        ({"threshold": 0.6}, {"x-guard-threshold": "0.6"}),
        (
            {"thresholds": {"gender": 0.6, "age": 0.7}},
            {"x-guard-operating-point": "balanced", "x-guard-thresholds": "age=0.7,gender=0.6"},
        ),
        (
            {"threshold": 0.5, "thresholds": {"age": 0.7}},
            {"x-guard-threshold": "0.5", "x-guard-thresholds": "age=0.7"},
        ),
    ],
)
def test_the_headers_name_the_thresholds_in_force(
    settings: dict[str, Any], said: dict[str, str]
) -> None:
    headers = GuardedRequest(r.session(Policy(**settings), Scripted("BIAS [a-z]+"))).headers()
    named = ("x-guard-operating-point", "x-guard-threshold", "x-guard-thresholds")
    assert {k: v for k, v in headers.items() if k in named} == said


def key() -> Any:
    return SimpleNamespace(metadata={}, team_metadata={})


async def test_mcp_sampling_is_refused_by_name() -> None:
    """LiteLLM asks the guardrail before it, as before a chat, and never about the answer."""
    try:
        sampling: Any = importlib.import_module("litellm.proxy.mcp_server.sampling_handler")
    except ImportError:  # where LiteLLM had it before
        name = "litellm.proxy._experimental.mcp_server.sampling_handler"
        sampling = importlib.import_module(name)
    url = str(sampling._build_sampling_request().url)
    guardrail = made(USUAL | {"default_on": True, "guard": DETECTOR})
    data: dict[str, Any] = {"model": "x", "proxy_server_request": {"url": url}}
    with pytest.raises(HTTPException, match="cannot judge answers to MCP sampling, so"):
        await guardrail.async_pre_call_hook(key(), None, data, "acompletion")


async def test_a_kind_of_call_that_nobody_has_named_is_refused_by_name() -> None:
    guardrail = made(USUAL | {"default_on": True, "guard": DETECTOR})
    for kind in ("anew_call", "afile_content", "pass_through_endpoint"):
        with pytest.raises(HTTPException, match="cannot judge"):
            await guardrail.async_pre_call_hook(key(), None, {"metadata": {}}, kind)
    with pytest.raises(HTTPException, match="'anew_call'"):
        await guardrail.async_pre_call_hook(key(), None, {"metadata": {}}, "anew_call")


@pytest.mark.parametrize("answer", [{"text": "BIAS said."}, "BIAS said.", [object()], None])
async def test_an_answer_of_a_kind_that_nobody_knows_is_stopped_by_name(answer: Any) -> None:
    guardrail = made(USUAL | {"default_on": True, "guard": DETECTOR})
    with pytest.raises(HTTPException) as raised:
        await guardrail.async_post_call_success_hook({}, key(), answer)
    kind = type(answer[0] if isinstance(answer, list) else answer).__name__
    assert kind in str(raised.value.detail)
    assert "BIAS" not in str(raised.value.detail)


async def test_an_embedding_passes_and_a_revised_prompt_is_judged() -> None:
    guardrail = made(USUAL | {"default_on": True, "guard": DETECTOR | {"action": "redact"}})
    hook = guardrail.async_post_call_success_hook
    embedding = litellm.EmbeddingResponse()
    assert await hook({}, key(), embedding) is embedding
    images = litellm.ImageResponse(data=[{"url": "u", "revised_prompt": "Fine. BIAS said. Fine."}])
    (image,) = (await hook({}, key(), images)).data
    assert (image.url, image.revised_prompt) == ("u", "Fine. [removed] Fine.")
    assert "BIAS" in images.data[0].revised_prompt


async def test_the_playground_hears_why_a_text_was_stopped() -> None:
    guardrail = made(USUAL | {"guard": DETECTOR})
    inputs = {"texts": ["Fine. BIAS said.", "Fine."], "model": "x"}
    judged = await guardrail.apply_guardrail(inputs, {}, "response")
    assert judged == {"texts": [f"Fine. {Policy().message}", "Fine."], "model": "x"}
    litellm.callbacks = []
    guardrail = made(USUAL | {"guard": DETECTOR | {"action": "raise"}})
    with pytest.raises(HTTPException) as raised:
        await guardrail.apply_guardrail(inputs, {}, "response")
    assert raised.value.status_code == 400
    assert "BIAS" not in str(raised.value.detail)


def test_apply_guardrail_takes_no_answer_from_the_hooks() -> None:
    """LiteLLM would judge through it alone, and let a stream's text out first."""
    from guard import proxy

    class Mine(proxy.Guardrail):
        pass

    for kind in (proxy.Guardrail, Mine):
        assert "apply_guardrail" in kind.__dict__
        assert kind.use_native_lifecycle_hooks is True
