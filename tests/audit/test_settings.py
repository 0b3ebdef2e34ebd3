"""What ``--set`` takes: what decides how an answer is written, and nothing that LiteLLM obeys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from litellm.types.utils import all_litellm_params

from guard.audit import settings
from guard.cli import main
from tests.audit.answering import Answering

TINY = "tests.audit.tiny_suite:Tiny"
MODEL = ("--model", "openai/x")
SECRET = "sk-nested-0123456789"
pytestmark = pytest.mark.usefixtures("elsewhere")


def run(*args: str) -> Result:
    fixed = ("run", "--suite", TINY, "--sample", "3", "--plain-only", "--out", "out")
    return CliRunner().invoke(main, ["audit", *fixed, *MODEL, *args], catch_exceptions=False)


CONTROLS = {
    "num_retries": 3,
    "max_retries": 3,
    "fallbacks": ["openai/other"],
    "context_window_fallback_dict": {"openai/x": "openai/other"},
    "mock_response": "first",
    "mock_tool_calls": [],
    "mock_timeout": True,
    "model_list": [{"model_name": "x", "litellm_params": {"model": "openai/zz"}}],
    "custom_llm_provider": "anthropic",
    "extra_query": {"key": SECRET},
    "organization": "o",
    "client": "c",
    "caching": True,
    "cache": {"no-store": False},
    "metadata": {"a": 1},
    "drop_params": True,
    "tools": [],
    "web_search_options": {},
    "max_tokens_": 3,
}


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize("by_file", [False, True])
def test_litellms_own_controls_are_refused_by_name(
    provider: Answering, name: str, by_file: bool
) -> None:
    if by_file:
        Path("audit.toml").write_text(f"[run.settings]\n{name} = {_toml(CONTROLS[name])}\n")
        result = run("audit.toml")
    else:
        result = run("--set", f"{name}={json.dumps(CONTROLS[name])}")
    assert result.exit_code == 2
    assert f"--set {name} is not accepted: " in result.output
    assert SECRET not in result.output
    assert not provider.asked


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{k}" = {_toml(v)}' for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ('extra_body={"messages":[{"role":"user","content":"hi"}]}', "'messages', which is not"),
        ('extra_body={"model":"zz"}', "'model', which is not accepted"),
        ('extra_body={"chat_template_kwargs":{"messages":[]}}', "would replace what the audit"),
        ('extra_body={"max_tokens":5}', "has 'max_tokens'; give --set max_tokens."),
        ('extra_body={"fallbacks":["a"]}', "'fallbacks', which is not accepted"),
        ("extra_body=x", "takes a JSON object"),
        (f'extra_body={{"api_key":"{SECRET}"}}', "'api_key', which would be recorded"),
        (f'extra_body={{"provider":{{"deep":[{{"Token":"{SECRET}"}}]}}}}', "'Token', which would"),
        (f'reasoning={{"Authorization":"{SECRET}"}}', "'Authorization', which would"),
        (f'thinking={{"x-api-key":"{SECRET}"}}', "'x-api-key', which would be recorded"),
        ('reasoning_effort={"effort":"low","summary":"auto"}', "takes a word, such as low"),
        ("temperature=NaN", "has nan, which JSON does not have"),
        ("max_tokens=-500", "takes a whole number from 1 to 10,000,000"),
        ("max_tokens=0", "takes a whole number"),
        ("max_tokens=x", "takes a whole number"),
        ("max_tokens=true", "takes a whole number"),
        ("max_tokens=1e308", "takes a whole number"),
        ("max_completion_tokens=2.5", "takes a whole number"),
        (f"max_tokens={'9' * 5000}", "takes a whole number"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_value_that_no_audit_can_send_is_one_sentence(
    provider: Answering, setting: str, told: str, command: str
) -> None:
    fixed = (command, "--suite", TINY, "--sample", "3", "--plain-only", *MODEL)
    limit = ("--max-cost", "1") if command == "run" else ()
    result = CliRunner().invoke(main, ["audit", *fixed, "--set", setting, *limit])
    assert result.exit_code == 2, result.output
    assert told in result.output
    assert SECRET not in result.output
    assert not provider.asked


@pytest.mark.parametrize("scope", ["", "analyst."])
def test_the_analysts_settings_are_read_alike(provider: Answering, scope: str) -> None:
    suite = "tests.audit.test_others:Read"
    args = ("--suite", suite, *MODEL, "--analyst", "openai/y", "--set", f"{scope}fallbacks=[1]")
    result = CliRunner().invoke(main, ["audit", "plan", *args])
    assert result.exit_code == 2
    assert f"--set {scope}fallbacks is not accepted" in result.output


def test_settings_of_a_provider_are_sent(provider: Answering) -> None:
    given = {
        "temperature": 0.2,
        "seed": 7,
        "max_tokens": 40,
        "extra_body": {"top_k": 20, "chat_template_kwargs": {"enable_thinking": False}},
    }
    result = run(*(x for k, v in given.items() for x in ("--set", f"{k}={json.dumps(v)}")))
    assert result.exit_code == 0, result.output
    extra = given.pop("extra_body")
    assert isinstance(extra, dict)
    for body in provider.bodies:
        assert (given | extra).items() <= body.items()


def test_no_known_setting_is_one_of_litellms_controls() -> None:
    known = settings._COMMON | settings._OF_PROVIDERS
    assert {"safety_settings", "reasoning_effort", "thinking", "top_k"} <= known
    assert not known & {*all_litellm_params}
    assert not [name for name in known if settings.SECRET.search(name)]
