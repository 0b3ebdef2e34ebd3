"""What is sent: to a reasoning model, to Claude, to a plain one, and to a deployed thing."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from guard.audit.calls import key_of
from guard.audit.run_file import RunFile
from guard.audit.sending import Sending, model_reasons, reason_refused, shown_address
from guard.cli import main
from guard.errors import UsageError
from guard.suites import Answer, Chat, Item, Request
from tests.audit.answering import Answering
from tests.audit.tiny_suite import Tiny, TinyOptions

SUITE = "tests.audit.test_sending:Sampled"


class Sampled(Tiny):
    """Asks with the settings of a suite that samples."""

    name = "sampled"

    def request(self, item: Item, sample: int, answers: Sequence[Answer]) -> Request | None:
        request = super().request(item, sample, answers)
        if not isinstance(request, Chat):
            return request
        settings = {
            "temperature": 0.8,
            "top_p": 1,
            "max_tokens": 128,
            "frequency_penalty": 0.6,
        }
        messages = ({"role": "system", "content": "You are useful."}, *request.messages)
        return Chat(messages, settings, request.logprobs)


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")


def run(*args: str, suite: str = SUITE) -> Result:
    fixed = ("run", "--suite", suite, "--plain-only", "--json")
    return CliRunner().invoke(main, ["audit", *fixed, *args], catch_exceptions=False)


def plan(*args: str, suite: str = SUITE) -> dict[str, Any]:
    fixed = ("plan", "--suite", suite, "--plain-only", "--json")  # the guard's time is no matter
    result = CliRunner().invoke(main, ["audit", *fixed, *args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)["suites"]
    assert isinstance(found, dict)
    return found


def sent(provider: Answering, *args: str) -> dict[str, Any]:
    result = run(*args, "--sample", "2")
    assert result.exit_code == 0, result.output
    return provider.bodies[0]


@pytest.mark.parametrize("model", ["openai/o3", "openai/gpt-5"])
def test_a_reasoning_model_is_asked_without_options(provider: Answering, model: str) -> None:
    body = sent(provider, "--model", model)
    assert body.keys() & {"temperature", "top_p", "frequency_penalty"} == set()
    # A limit would count the reasoning, and leave no answer.
    assert body.keys() & {"max_tokens", "max_completion_tokens"} == set()
    assert body["model"] == model.partition("/")[2]


def test_a_limit_that_is_given_to_a_reasoning_model_has_its_name(provider: Answering) -> None:
    body = sent(
        provider, "--model", "openai/o3", "--set", "max_tokens=900", "--set", "reasoning_effort=low"
    )
    assert body["max_completion_tokens"] == 900
    assert "max_tokens" not in body
    assert body["reasoning_effort"] == "low"


def test_claude_is_asked_with_temperature_alone(provider: Answering) -> None:
    base = provider.base.removesuffix("/v1")
    body = sent(provider, "--model", "anthropic/claude-sonnet-4-5", "--api-base", base)
    assert provider.paths[0].endswith("/v1/messages")
    assert body["temperature"] == 0.8
    assert body["max_tokens"] == 128
    assert body.keys() & {"top_p", "frequency_penalty"} == set()


def test_a_claude_without_sampling_settings_is_asked_without_any(provider: Answering) -> None:
    base = provider.base.removesuffix("/v1")
    body = sent(provider, "--model", "anthropic/claude-opus-4-7", "--api-base", base)
    assert body.keys() & {"temperature", "top_p", "frequency_penalty"} == set()


def test_a_plain_model_gets_what_the_suite_says(provider: Answering) -> None:
    body = sent(provider, "--model", "openai/gpt-4o-mini")
    asked = {k: v for k, v in body.items() if k not in ("model", "messages")}
    assert asked == {"temperature": 0.8, "top_p": 1, "max_tokens": 128, "frequency_penalty": 0.6}
    assert body["messages"][0] == {"role": "system", "content": "You are useful."}


def test_settings_system_prompt_endpoint_and_headers_of_the_deployed_thing(
    provider: Answering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_BASE")
    prompt = tmp_path / "system.txt"
    prompt.write_text("You serve the bank of Elbonia.\n", "utf-8")
    secret = "tenant-48151623"
    result = run(
        *("--model", "openai/x", "--set", "temperature=0.25", "--drop", "top_p"),
        *("--system", str(prompt), "--api-base", provider.base, "--header", f"X-Tenant={secret}"),
        *("--out", "out", "--sample", "2"),
    )
    assert result.exit_code == 0, result.output
    body = provider.bodies[0]
    assert body["temperature"] == 0.25
    assert "top_p" not in body
    assert [m["role"] for m in body["messages"]] == ["system", "user"]
    said = body["messages"][0]["content"]
    assert said == "You serve the bank of Elbonia.\n\nYou are useful."
    assert provider.headers[0]["x-tenant"] == secret
    key = json.loads(result.stdout)["suites"][0]["key"]["request"]
    assert key["set"] == {"temperature": 0.25}
    assert key["drop"] == ["top_p"]
    assert key["api_base"] == provider.base
    assert key["headers"] == {"x-tenant": hashlib.sha256(secret.encode()).hexdigest()}
    assert len(key["system"]) == 64
    everything = result.output + json.dumps(key)
    assert secret not in everything
    assert "Elbonia" not in json.dumps(key)


def test_what_was_sent_is_part_of_the_comparability_key(provider: Answering) -> None:
    assert run("--model", "openai/x", "--out", "out", "--sample", "2").exit_code == 0
    asked = len(provider.asked)
    other = run("--model", "openai/x", "--out", "out", "--sample", "2", "--set", "temperature=0.1")
    assert other.exit_code == 2
    assert "another request settings: set was None, now {'temperature': 0.1}" in other.output
    assert len(provider.asked) == asked


def test_another_value_of_a_header_is_another_audit(provider: Answering) -> None:
    fixed = ("--model", "openai/x", "--out", "out", "--sample", "2")
    assert run(*fixed, "--header", "X-Tenant=one-4815").exit_code == 0
    asked = len(provider.asked)
    other = run(*fixed, "--header", "X-Tenant=two-1623")
    assert other.exit_code == 2
    assert "another request settings: headers" in other.output
    assert "one-4815" not in other.output
    assert "two-1623" not in other.output
    assert len(provider.asked) == asked


def test_a_recorded_audit_scores_and_replays_with_what_was_sent(provider: Answering) -> None:
    done = run("--model", "openai/x", "--out", "out", "--record", "kept", "--set", "temperature=0")
    assert done.exit_code == 0
    live = json.loads(done.stdout)["suites"][0]
    asked = len(provider.asked)
    again = run("--replay", "kept", "--out", "again")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["suites"][0]["scores"] == live["scores"]
    args = ["audit", "score", "--suite", SUITE, "--answers", "out/run.db", "--json"]
    scored = CliRunner().invoke(main, args, catch_exceptions=False)
    assert [s["value"] for s in json.loads(scored.stdout)["scores"]] == [
        s["value"] for s in live["scores"]
    ]
    assert len(provider.asked) == asked
    refused_ = run("--replay", "kept", "--out", "x", "--set", "temperature=0")
    assert refused_.exit_code == 2
    assert "A replay sends nothing" in refused_.output


def test_a_replay_has_the_recorded_address_prompt_and_headers(provider: Answering) -> None:
    Path("prompt.txt").write_text("Be brief.", "utf-8")
    address = ("--api-base", os.environ["OPENAI_API_BASE"], "--header", "X-Tenant=one-4815")
    prompt = ("--system", "prompt.txt", "--set", "temperature=0")
    done = run("--model", "openai/x", "--out", "out", "--record", "kept", *address, *prompt)
    assert done.exit_code == 0, done.output
    again = run("--replay", "kept", "--out", "again")
    assert again.exit_code == 0, again.output
    before, after = (Path(place, "run.db") for place in ("out", "again"))
    keys = [RunFile(path).suite("sampled").header.request for path in (before, after)]
    assert keys[0] == keys[1]
    assert {"api_base", "system", "headers", "set"} <= keys[0].keys()


def test_a_plan_says_what_a_model_does_not_take(provider: Answering) -> None:
    found = plan("--model", "openai/o3")
    assert set(found["left_out"]) == {"temperature", "top_p", "frequency_penalty", "max_tokens"}
    assert "Only temperature=1 is supported" in found["left_out"]["temperature"]
    assert found["settings"] == {}
    claude = plan("--model", "anthropic/claude-sonnet-4-5")
    assert claude["left_out"]["top_p"].endswith("accepts temperature or top_p, not both")
    assert claude["settings"] == {"temperature": 0.8, "max_tokens": 128}
    assert plan("--model", "openai/gpt-4o-mini")["left_out"] == {}
    asked = ("plan", "--suite", SUITE, "--plain-only", "--model", "openai/o3")
    told = CliRunner().invoke(main, ["audit", *asked])
    assert "top_p is left out: openai does not support" in told.stdout
    assert not provider.asked


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--model", "openai/o3", "--set", "temperature=0.5"), "--set temperature: O-series"),
        (("--model", "openai/x", "--set", "api_key=sk-1"), "--set api_key would be recorded"),
        (("--model", "openai/x", "--set", "stream=true"), "--set stream is not accepted: give --s"),
        (("--model", "openai/x", "--set", "n=4"), "an audit reads one answer a call"),
        (
            ("--model", "openai/x", "--header", "no"),
            "--header takes NAME=VALUE; number 1 is not of",
        ),
        (("--model", "openai/x", "--header", "a b=c"), "--header takes NAME=VALUE"),
        (("--model", "openai/x", "--system", "nowhere.txt"), "--system nowhere.txt cannot be read"),
        (("--model", "openai/x", "--api-base", "localhost"), "--api-base takes an address"),
        (
            ("--model", "openai/x", "--set", "top_p=1", "--drop", "top_p"),
            "--set top_p and --drop top_p exclude each other",
        ),
        (("--model", "openai/x", "--drop", "model"), "--drop model is not a setting of"),
        (("--model", "openai/x", "--drop", "messages"), "--drop messages is not a setting of"),
        (("--model", "openai/x", "--drop", "top-p"), "; it sends frequency_penalty, max_tokens"),
        (("--model", "openai/x", "--drop", "logprobs"), "--drop logprobs is not a setting of"),
        (
            ("--model", "openai/x", "--set", "temperature=1", "--set", f"{SUITE}.form=given"),
            "not chats; leave",
        ),
    ],
)
def test_a_mistake_in_what_is_sent_is_one_sentence_before_any_call(
    provider: Answering, args: tuple[str, ...], told: str
) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert told in result.output
    assert "sk-1" not in result.output
    assert not provider.asked


def test_only_a_setting_that_is_sent_is_said_to_be_left_out(provider: Answering) -> None:
    """What one of two suites sends may be dropped; of the other nothing is said."""
    args = ("--model", "openai/gpt-4o-mini", "--drop", "max_tokens", "--sample", "20")
    args += ("--plain-only",)
    result = CliRunner().invoke(main, ["audit", "plan", "--suite", "sai_asa,hbb", *args])
    assert result.exit_code == 0, result.output
    assert result.stdout.count("max_tokens is left out, as --drop says.") == 1
    assert not provider.asked


def test_equal_requests_are_each_asked_where_temperature_0_is_left_out(
    provider: Answering,
) -> None:
    tiny = "tests.audit.tiny_suite:Tiny"
    args = ("--sample", "2", "--set", f"{tiny}.samples=3", "--set", f"{tiny}.count=2")
    found = plan("--model", "openai/o3", *args, suite=tiny)
    assert found["calls"] == found["requests"] == 9
    assert run("--model", "openai/o3", *args, suite=tiny).exit_code == 0
    assert len(provider.asked) == 9
    assert plan("--model", "openai/gpt-4o-mini", *args, suite=tiny)["calls"] == 3


def test_several_models_have_results_and_journals_of_their_own(provider: Answering) -> None:
    args = ("--model", "openai/x", "--model", "openai/o3", "--out", "out", "--sample", "4")
    result = run(*args)
    assert result.exit_code == 0, result.output
    suites = json.loads(result.stdout)["suites"]
    assert [s["model"] for s in suites] == ["openai/x", "openai/o3"]
    assert {p.parent.name for p in Path("out").glob("*/run.db")} == {
        "openai_x",
        "openai_o3",
    }
    assert {b["model"] for b in provider.bodies} == {"x", "o3"}
    asked = len(provider.asked)
    assert run(*args).exit_code == 0
    assert len(provider.asked) == asked


def test_a_model_that_cannot_be_asked_does_not_stop_the_next(
    provider: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    result = run("--model", "anthropic/claude-sonnet-4-5", "--model", "openai/x", "--sample", "2")
    assert result.exit_code == 4
    assert "anthropic/claude-sonnet-4-5 cannot be asked" in result.stderr
    assert [s["model"] for s in json.loads(result.stdout)["suites"]] == ["openai/x"]


def test_which_models_reason_unasked() -> None:
    assert model_reasons("openai/o3", {})
    assert model_reasons("gemini/gemini-2.5-pro", {})
    assert not model_reasons("openai/gpt-5.1", {})  # LiteLLM's map: its default effort is none
    assert model_reasons("openai/gpt-5.1", {"reasoning_effort": "high"})
    assert not model_reasons("anthropic/claude-sonnet-4-5", {})
    assert model_reasons("anthropic/claude-sonnet-4-5", {"reasoning_effort": "low"})
    assert not model_reasons("openai/gpt-4o-mini", {})
    assert not model_reasons("openai/not-in-the-map", {})


def test_a_claude_that_reasons_gets_no_sampling_settings() -> None:
    sending = Sending({"reasoning_effort": "low"}).for_model(
        "anthropic/claude-sonnet-4-5", Sampled(TinyOptions())
    )
    assert set(sending.left_out) >= {"temperature", "top_p", "max_tokens"}


def test_the_key_of_a_request_is_the_same_when_read_from_a_journal() -> None:
    suite = Sampled(TinyOptions())
    item = next(iter(suite.items()))
    sending = Sending({"seed": 3}, ("top_p",)).for_model("openai/o3", suite)
    again = Sending.from_key(json.loads(json.dumps(sending.key())))
    keys = {
        key_of(found, item, 0, 0)
        for one in (sending, again)
        if (found := one.bound(suite).request(item, 0, ())) is not None
    }
    assert len(keys) == 1


def test_an_address_is_recorded_without_what_may_be_secret() -> None:
    assert shown_address("https://u:p@host:8/v1?key=1#x") == "https://host:8/v1"


def test_of_unknown_models_only_the_provider_can_tell() -> None:
    assert reason_refused("openai/not-in-the-map", {"temperature": 0}) == ""
    with pytest.raises(UsageError, match="Only temperature=1"):
        Sending({"temperature": 0}).for_model("openai/o3", Sampled(TinyOptions()))
