"""Each model is asked at its own address with its own key, and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from guard.audit.endpoints import endpoint
from guard.audit.sending import Sending
from guard.cli import main
from tests.audit.answering import Answering, answering

SUITE = "tests.audit.test_others:Read"
OURS, THEIRS = "key-of-the-given-host", "key-of-the-analysts-host"
MODELS = ("--model", "openai/audited", "--analyst", "openai/analyst")


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Answering]:
    """Where LiteLLM would send what has no address."""
    monkeypatch.chdir(tmp_path)
    with answering() as public:
        monkeypatch.setenv("OPENAI_API_BASE", public.base)
        monkeypatch.setenv("ANTHROPIC_API_BASE", public.base)
        monkeypatch.setenv("OPENAI_API_KEY", OURS)
        monkeypatch.setenv("ANTHROPIC_API_KEY", OURS)
        yield public


@pytest.fixture
def given() -> Iterator[Answering]:
    with answering() as host:
        yield host


def call(command: str, *args: str) -> Result:
    fixed = ("--suite", SUITE, "--plain-only", *(() if command == "plan" else ("--out", "out")))
    return CliRunner().invoke(main, ["audit", command, *fixed, *args], catch_exceptions=False)


def asked(host: Answering) -> dict[str, set[str | None]]:
    """The keys with which each model was asked at ``host``."""
    found: dict[str, set[str | None]] = {}
    for body, headers in zip(host.bodies, host.headers, strict=True):
        found.setdefault(body["model"], set()).add(headers.get("authorization"))
    return found


def test_an_analyst_without_an_address_is_asked_at_the_given_one(
    given: Answering, elsewhere: Answering
) -> None:
    args = (*MODELS, "--api-base", given.base, "--header", "X-Tenant=blue")
    ran = call("run", *args)
    assert ran.exit_code == 0, ran.output
    key = {f"Bearer {OURS}"}
    assert asked(given) == {"audited": key, "analyst": key}
    assert len(given.bodies) == 30
    assert {headers.get("x-tenant") for headers in given.headers} == {"blue"}
    assert not elsewhere.paths
    assert f"the analyst is openai/analyst: {given.base}, key in OPENAI_API_KEY" in ran.stderr


def test_an_analyst_with_its_own_address_and_key_is_asked_there_with_it(
    given: Answering, elsewhere: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANALYST_KEY", THEIRS)
    with answering() as own:
        own_settings = ("--set", f"analyst.api_base={own.base}")
        own_settings += ("--set", "analyst.api_key_env=ANALYST_KEY")
        args = ("--api-base", given.base, "--header", "X-Tenant=blue", *own_settings)
        ran = call("run", *MODELS, *args, "--json")
        assert ran.exit_code == 0, ran.output
        assert asked(given) == {"audited": {f"Bearer {OURS}"}}
        assert asked(own) == {"analyst": {f"Bearer {THEIRS}"}}
        assert not any("x-tenant" in headers for headers in own.headers)
        assert not elsewhere.paths
        assert THEIRS not in ran.output
        assert OURS not in ran.output


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (
            ("--model", "openai/audited", "--analyst", "anthropic/claude-x"),
            "the analyst anthropic/claude-x is of another provider; give its own: --set analyst.ap",
        ),
        (
            ("--model", "openai/audited", "--model", "local:smollm2", "--analyst", "patterns"),
            "local:smollm2 runs in this process; leave --api-base and --header out.",
        ),
        (
            (*MODELS, "--set", "api_key_env=NO_SUCH_KEY"),
            "The environment variable NO_SUCH_KEY is not set",
        ),
        (
            (*MODELS, "--set", "analyst.api_key_env=sk-12"),
            "--set analyst.api_key_env takes the name of an environment variable, not a key.",
        ),
        (
            (*MODELS, "--scorer", "openai/judge:balanced"),
            "openai/judge",
        ),
    ],
)
def test_what_would_be_asked_elsewhere_is_refused_before_any_call(
    args: tuple[str, ...], told: str, given: Answering, elsewhere: Answering
) -> None:
    ran = call("run", *args, "--api-base", given.base)
    assert ran.exit_code == 2, ran.output
    assert told in ran.stderr
    assert "sk-12" not in ran.output
    assert not given.paths
    assert not elsewhere.paths


def test_a_plan_prints_where_each_is_asked_with_which_key_and_settings(
    elsewhere: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = ("--api-base", "https://me:secret@llm.example/v1?token=secret")
    args = (*MODELS, *base, "--header", "X-Tenant=secret", "--set", "temperature=0.25")
    args += ("--set", "analyst.api_key_env=ANALYST_KEY", "--set", "analyst.temperature=0.5")
    (suite,) = json.loads(call("plan", *args, "--json").stdout)["suites"]
    analyst = suite["others"]["analyst"]
    for one in (suite, analyst):
        assert one["address"] == "https://llm.example/v1"
        assert one["headers"] == ["X-Tenant"]
        assert not one["in_process"]
    assert (suite["key_variables"], suite["missing_variables"]) == (["OPENAI_API_KEY"], [])
    assert (analyst["key_variables"], analyst["missing_variables"]) == (["ANALYST_KEY"],) * 2
    assert suite["settings"]["temperature"] == 0.25
    assert analyst["settings"] == {"temperature": 0.5, "top_k": 20}
    assert suite["others"]["scorer"]["in_process"]
    shown = call("plan", *args).stdout
    assert "https://llm.example/v1, key in OPENAI_API_KEY, headers X-Tenant" in shown
    assert "https://llm.example/v1, key in ANALYST_KEY (NOT SET), headers X-Tenant" in shown
    assert "in this process" in shown
    assert "secret" not in shown
    assert OURS not in shown
    monkeypatch.delenv("OPENAI_API_BASE")
    public = call("plan", *MODELS).stdout
    assert public.count("https://api.openai.com/v1, key in OPENAI_API_KEY") == 2


def test_addresses_and_keys_are_those_of_each_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GROQ_API_KEY", "AZURE_API_KEY", "AZURE_API_BASE", "OPENROUTER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MISTRAL_API_KEY", "k")
    monkeypatch.setenv("AZURE_API_BASE", "https://u:p@mine.example")
    groq = endpoint("groq/llama3-8b", Sending())
    assert groq.address == "https://api.groq.com/openai/v1"
    assert groq.keys == groq.missing == ("GROQ_API_KEY",)
    mistral = endpoint("mistral/mistral-small", Sending())
    assert (mistral.keys, mistral.missing) == (("MISTRAL_API_KEY",), ())
    azure = endpoint("azure/mine", Sending())
    assert (azure.address, azure.keys) == ("https://mine.example", ("AZURE_API_KEY",))
    unknown = endpoint("openrouter/x/y", Sending())
    assert unknown.address == ""
    assert str(unknown) == ("LiteLLM's address of openrouter, key in OPENROUTER_API_KEY (NOT SET)")
