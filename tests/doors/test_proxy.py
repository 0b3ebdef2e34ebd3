"""The guardrail in a real proxy of LiteLLM's, over HTTP."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from guard.policy import Policy
from tests.provider import Provider, Script
from tests.watch.reading import responses

pytest.importorskip("fastapi", reason="the proxy of LiteLLM is not installed (extra 'proxy')")

import openai

from tests.doors.proxy_process import Proxy, configured, guardrail, running
from tests.doors.test_quoted import ANSWER, TEXT

MESSAGE = Policy().message
SAID = ["All is ", "well. ", "BIA", "S is ", "here. ", *["More. "] * 80]
STOPPED = f"All is well. {MESSAGE}"
MESSAGES: Any = [{"role": "user", "content": "Tell me."}]


@pytest.fixture
def provider(behind_the_proxy: Provider) -> Provider:
    behind_the_proxy.scripts.clear()
    return behind_the_proxy


@pytest.fixture
def client(proxy: Proxy, provider: Provider) -> openai.OpenAI:
    provider.script = Script([SAID], 0.02)
    provider.served.clear()
    return client_of(proxy, "sk-plain")


_clients: list[openai.OpenAI] = []


@pytest.fixture(autouse=True)
def no_client_stays_open() -> Iterator[None]:
    """Close what a test asked with: a stream that ended with an error keeps its connection."""
    yield
    while _clients:
        _clients.pop().close()


def client_of(proxy: Proxy, key: str) -> openai.OpenAI:
    # Reading the certificates would take longer than most requests.
    plain = httpx.Client(timeout=120, verify=False)
    url = f"{proxy.url}/v1"
    client = openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=120, http_client=plain)
    _clients.append(client)
    return client


def chat(client: openai.OpenAI, model: str = "x", **settings: Any) -> tuple[str, str | None]:
    """What a streamed chat says, and how it ends."""
    stream = client.chat.completions.create(
        model=model, messages=MESSAGES, stream=True, extra_body=settings
    )
    text, reason = "", None
    for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
    return text, reason


def whole(client: openai.OpenAI, model: str = "x", **settings: Any) -> Any:
    return client.chat.completions.with_raw_response.create(
        model=model, messages=MESSAGES, extra_body=settings
    )


def say(client: openai.OpenAI, model: str = "x", **settings: Any) -> str:
    return whole(client, model, **settings).parse().choices[0].message.content or ""


def messages(proxy: Proxy, model: str, **fields: Any) -> list[Any]:
    """The events that the messages route streams, or the one answer."""
    body = {"model": model, "max_tokens": 500, "messages": MESSAGES} | fields
    answer = httpx.post(
        f"{proxy.url}/v1/messages",
        headers={"Authorization": "Bearer sk-plain"},
        json=body,
        timeout=120,
    )
    assert answer.status_code == 200, answer.text
    assert "BIAS" not in answer.text
    if not fields.get("stream"):
        return [answer.json()]
    return [json.loads(x[6:]) for x in answer.text.splitlines() if x.startswith("data: {")]


class TestRoutes:
    def test_a_chat_stream_stops(self, client: openai.OpenAI, provider: Provider) -> None:
        assert chat(client) == (STOPPED, "content_filter")
        assert len(provider.served) == 1

    def test_a_whole_chat_is_cut(self, client: openai.OpenAI, provider: Provider) -> None:
        answer = whole(client)
        choice = answer.parse().choices[0]
        assert (choice.message.content, choice.finish_reason) == (STOPPED, "content_filter")
        assert "BIAS" not in answer.text
        assert len(provider.served) == 1

    def test_several_choices_are_judged_each(
        self, client: openai.OpenAI, provider: Provider
    ) -> None:
        provider.script = Script([["Fine. ", "Really fine."], SAID[:6]], 0.0)
        stream = client.chat.completions.create(model="x", messages=MESSAGES, stream=True, n=2)
        texts = {0: "", 1: ""}
        for chunk in stream:
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        assert texts == {0: "Fine. Really fine.", 1: STOPPED}

    def test_a_text_stream_stops(self, client: openai.OpenAI) -> None:
        stream = client.completions.create(model="x", prompt="Tell me.", stream=True)
        choices = [choice for chunk in stream for choice in chunk.choices]
        assert "".join(c.text for c in choices) == STOPPED
        assert choices[-1].finish_reason == "content_filter"

    def test_a_whole_text_is_cut(self, client: openai.OpenAI) -> None:
        answer = client.completions.create(model="x", prompt="Tell me.")
        assert answer.choices[0].text == STOPPED

    def test_a_responses_stream_stops(self, client: openai.OpenAI) -> None:
        with client.responses.create(model="gpt-4o", input="Tell me.", stream=True) as stream:
            events: list[Any] = list(stream)
        said = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        assert said == STOPPED
        assert events[-1].type == "response.incomplete"
        assert events[-1].response.output_text == STOPPED

    def test_a_whole_response_is_cut(self, client: openai.OpenAI) -> None:
        response = client.responses.create(model="gpt-4o", input="Tell me.")
        assert response.output_text == STOPPED
        assert response.incomplete_details is not None
        assert response.incomplete_details.reason == "content_filter"

    @pytest.mark.parametrize("model", ["claude-x", "bridged"])
    def test_a_messages_stream_stops(
        self, proxy: Proxy, client: openai.OpenAI, provider: Provider, model: str
    ) -> None:
        events = messages(proxy, model, stream=True)
        said = "".join(e["delta"].get("text", "") for e in events if "text" in e.get("delta", {}))
        assert said == STOPPED
        assert events[-1]["type"] == "message_stop"
        assert provider.last.over.wait(20)
        assert provider.last.disconnected

    @pytest.mark.parametrize("model", ["claude-x", "bridged"])
    def test_a_whole_message_is_cut(self, proxy: Proxy, client: openai.OpenAI, model: str) -> None:
        (answer,) = messages(proxy, model)
        assert "".join(block["text"] for block in answer["content"]) == STOPPED
        assert "guard" not in answer

    def test_harmless_output_is_unchanged(self, client: openai.OpenAI, provider: Provider) -> None:
        provider.script = Script([["All ", "is well. ", "Really."]])
        assert chat(client) == ("All is well. Really.", "stop")
        assert say(client) == "All is well. Really."

    @pytest.mark.parametrize("split", range(1, 5))
    @pytest.mark.parametrize("path", ["chat/completions", "completions", "responses"])
    def test_curl_sees_no_byte_of_the_segment(
        self, proxy: Proxy, provider: Provider, path: str, split: int
    ) -> None:
        curl = shutil.which("curl")
        if curl is None:
            pytest.skip("curl is not installed")
        phrase = "BIAS secretly hidden words."
        pieces = [phrase[i : i + split * 3] for i in range(0, len(phrase), split * 3)]
        provider.script = Script([["All is well. ", *pieces, " More. "]])
        body = {"model": "gpt-4o", "stream": True, "messages": MESSAGES}
        if path != "chat/completions":
            del body["messages"]
            body["input" if path == "responses" else "prompt"] = "Tell me."
        done = subprocess.run(
            [
                *(curl, "-sS", "-N", "-m", "120", f"{proxy.url}/v1/{path}", "-d", json.dumps(body)),
                *("-H", "Authorization: Bearer sk-plain", "-H", "Content-Type: application/json"),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "All is well." in done.stdout
        assert MESSAGE in done.stdout
        for word in ("BIAS", "secretly", "hidden", "words"):
            assert word not in done.stdout

    def test_the_encoder_judges_too(self, proxy: Proxy, provider: Provider) -> None:
        provider.script = Script([["Ask both. ", "Old people are use", "less at work. ", "So."]])
        client = client_of(proxy, "sk-out")
        assert chat(client, guardrails=["encoder"]) == (f"Ask both. {MESSAGE}", "content_filter")
        assert say(client, guardrails=["encoder"]) == f"Ask both. {MESSAGE}"

    def test_a_route_without_a_door_is_refused(self, proxy: Proxy, provider: Provider) -> None:
        provider.served.clear()
        answer = httpx.post(
            f"{proxy.url}/v1beta/models/x:generateContent",
            headers={"Authorization": "Bearer sk-plain"},
            json={"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
            timeout=120,
        )
        assert answer.status_code == 400
        assert "generateContent, so the request is refused" in answer.text
        assert provider.served == []


class TestSwitches:
    def test_a_request_switches_a_guardrail_on(self, proxy: Proxy, provider: Provider) -> None:
        provider.script = Script([SAID])
        client = client_of(proxy, "sk-out")
        assert "BIAS" in chat(client)[0]
        text, reason = chat(client, guardrails=["redacting"])
        assert text == "All is well. [removed] " + "More. " * 79 + "More. "
        assert reason == "stop"

    def test_one_key_keeps_events_of_answers_and_streams(
        self, proxy: Proxy, provider: Provider, events_url: str
    ) -> None:
        provider.script = Script([SAID])
        # A key whose default guard is off, so that the watched one sees the provider's answer.
        alone = client_of(proxy, "sk-out")
        for asked in (chat, say):
            asked(alone, guardrails=["watched"], guard={"labels": {"tenant": "a"}})
        end = time.monotonic() + 20
        while [r["outcome"] for r in responses(events_url)] != ["completed"] * 2:
            assert time.monotonic() < end, responses(events_url)
            time.sleep(0.1)
        for response in responses(events_url):
            assert (response["door"], response["model"]) == ("chat", "x")
            assert response["request_id"]
            assert response["labels"] == {"tenant": "a"}
            assert (response["found"], response["mitigated"]) == (1, 1)
            assert response["judged"] == response["passed"] + 1 > 80

    def test_a_model_switches_it_on_and_judges_once(
        self, proxy: Proxy, client: openai.OpenAI, provider: Provider
    ) -> None:
        provider.script = Script([SAID[:6]])
        assert say(client_of(proxy, "sk-out"), "chosen") == "All is well. [removed] More. "
        assert len(provider.served) == 1

    def test_headers_say_what_ran_and_what_it_found(
        self, proxy: Proxy, client: openai.OpenAI, provider: Provider
    ) -> None:
        headers = whole(client).headers
        assert headers["x-litellm-applied-guardrails"] == "bias"
        found = {k: v for k, v in headers.items() if k.startswith("x-guard-")}
        assert found == {
            "x-guard-operating-point": "balanced",
            "x-guard-action": "terminate",
            "x-guard-hold": "sentence",
            "x-guard-stopped": "true",
            "x-guard-findings": "1",
            "x-guard-bias-types": "gender",
        }
        assert "x-guard-action" not in whole(client_of(proxy, "sk-out")).headers

    def test_an_error_response_of_raise_has_them_too(
        self, proxy: Proxy, client: openai.OpenAI
    ) -> None:
        asked = {"guard": {"action": "raise", "actions": {"age": "raise"}}}
        bodies = {
            "chat/completions": {"model": "x", "messages": MESSAGES},
            # LiteLLM sends none with such an error of text completions and of messages.
            "responses": {"model": "gpt-4o", "input": "Tell me."},
        }
        for route, body in bodies.items():
            answer = httpx.post(
                f"{proxy.url}/v1/{route}",
                headers={"Authorization": "Bearer sk-plain"},
                json=body | asked,
                timeout=120,
            )
            assert answer.status_code == 400, route
            found = {k: v for k, v in answer.headers.items() if k.startswith("x-guard-")}
            assert found == {
                "x-guard-operating-point": "balanced",
                "x-guard-action": "raise",
                "x-guard-actions": "age=raise",
                "x-guard-hold": "sentence",
                "x-guard-stopped": "true",
                "x-guard-findings": "1",
                "x-guard-bias-types": "gender",
            }, route

    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("n", ["2", 2.5, [2]])
    def test_an_invalid_number_of_choices_is_refused_before_a_model_is_called(
        self, client: openai.OpenAI, provider: Provider, n: Any, stream: bool
    ) -> None:
        with pytest.raises(openai.BadRequestError, match="n must be a whole number"):
            client.chat.completions.create(model="x", messages=MESSAGES, n=n, stream=stream)
        with pytest.raises(openai.BadRequestError, match="n must be a whole number"):
            client.completions.create(model="x", prompt="Hi", n=n, stream=stream)
        assert provider.served == []

    def test_a_stream_has_the_headers_that_are_known_at_its_start(
        self, client: openai.OpenAI
    ) -> None:
        create = client.chat.completions.with_streaming_response.create
        with create(model="x", messages=MESSAGES, stream=True) as stream:
            headers = stream.headers
            assert headers["x-litellm-applied-guardrails"] == "bias"
            assert headers["x-guard-action"] == "terminate"
            assert "x-guard-stopped" not in headers


class TestWhoLoosens:
    """A request can only tighten; a key or a team can loosen."""

    def test_a_request_tightens(self, client: openai.OpenAI, provider: Provider) -> None:
        with pytest.raises(openai.BadRequestError) as raised:
            whole(client, guard={"action": "raise", "message": "Not this."})
        assert "Not this." in str(raised.value)
        assert "BIAS" not in str(raised.value.body)
        assert "guard" not in provider.last.body

    def test_a_request_tightens_a_threshold(self, proxy: Proxy, client: openai.OpenAI) -> None:
        # The scripted detector gives harmless text 0.1.
        assert say(client, guard={"threshold": 0.05}) == MESSAGE
        assert say(client, guard="strict") == STOPPED

    @pytest.mark.parametrize(
        ("asked", "named"),
        [
            ("quiet", "the threshold of gender"),
            ({"action": "flag"}, "action"),
            ({"hold": "none", "action": "flag"}, "hold"),
            ({"failure": "open"}, "failure"),
            ({"axion": "raise"}, "unknown setting 'axion'"),
            ({"detector": "tests.scripted.Scripted"}, "unknown setting 'detector'"),
            (7, "takes a mapping"),
        ],
    )
    def test_a_request_cannot_loosen(
        self, client: openai.OpenAI, provider: Provider, asked: Any, named: str
    ) -> None:
        with pytest.raises(openai.BadRequestError) as raised:
            whole(client, guard=asked)
        assert named in str(raised.value)
        assert provider.served == []

    def test_a_request_cannot_loosen_through_litellms_own_fields(
        self, client: openai.OpenAI, provider: Provider
    ) -> None:
        for settings in (
            {"metadata": {"guard": "quiet", "user_api_key_metadata": {"guard": "quiet"}}},
            {"litellm_metadata": {"user_api_key_metadata": {"guard": {"action": "flag"}}}},
            {"disable_global_guardrails": True},
            {"metadata": {"opted_out_global_guardrails": ["bias"]}},
            {"guardrails": []},
        ):
            assert say(client, **settings) == STOPPED, settings

    @pytest.mark.parametrize(
        ("key", "shown"),
        [("sk-redacts", "[removed]"), ("sk-team", "[team]"), ("sk-over-team", "[key]")],
    )
    def test_a_key_or_its_team_loosens(
        self, proxy: Proxy, client: openai.OpenAI, provider: Provider, key: str, shown: str
    ) -> None:
        provider.script = Script([SAID[:6]])
        assert say(client_of(proxy, key)) == f"All is well. {shown} More. "
        assert chat(client_of(proxy, key)) == (f"All is well. {shown} More. ", "stop")

    def test_a_request_tightens_what_its_key_loosened(
        self, proxy: Proxy, client: openai.OpenAI
    ) -> None:
        assert say(client_of(proxy, "sk-redacts"), guard={"action": "terminate"}) == STOPPED
        assert say(client_of(proxy, "sk-quiet"), guard="balanced") == STOPPED

    def test_wrong_settings_of_a_key_are_named(
        self, proxy: Proxy, client: openai.OpenAI, provider: Provider
    ) -> None:
        with pytest.raises(openai.InternalServerError, match=r"metadata of the key: .*'axion'"):
            whole(client_of(proxy, "sk-wrong"))
        assert provider.served == []

    def test_settings_for_a_guardrail_that_is_off_are_refused(
        self, proxy: Proxy, client: openai.OpenAI
    ) -> None:
        with pytest.raises(openai.BadRequestError, match="is not on for it"):
            whole(client_of(proxy, "sk-out"), guard="strict")


class TestAccounting:
    """A stopped stream is reported once with its usage; slot and connection are free again."""

    @pytest.mark.parametrize("action", ["terminate", "raise"])
    @pytest.mark.parametrize("route", ["chat", "text", "responses", "messages", "bridged"])
    def test_a_stopped_stream_is_reported_once(
        self, proxy: Proxy, client: openai.OpenAI, provider: Provider, route: str, action: str
    ) -> None:
        before = len(proxy.reports(count=0))
        asked: Any = {"stream": True, "extra_body": {"guard": {"action": action}}}
        with suppress(openai.APIError):
            if route == "chat":
                list(client.chat.completions.create(model="x", messages=MESSAGES, **asked))
            elif route == "text":
                list(client.completions.create(model="x", prompt="Tell me.", **asked))
            elif route == "responses":
                list(client.responses.create(model="gpt-4o", input="Tell me.", **asked))
            else:
                model = "claude-x" if route == "messages" else "bridged"
                messages(proxy, model, stream=True, guard={"action": action})
        assert provider.last.over.wait(20)
        assert provider.last.disconnected
        assert provider.last.sent < len(SAID)
        (report,) = reported(proxy, before)
        assert report["kind"] == "success"
        payload = report["payload"]
        assert payload["completion_tokens"] > 0
        assert payload["prompt_tokens"] > 0
        assert payload["response_cost"] > 0
        assert "BIAS" not in json.dumps(payload)
        facts = information(payload)
        assert facts["guardrail_name"] == "bias"
        assert facts["guardrail_status"] == "guardrail_intervened"
        assert facts["guardrail_response"]["bias_types"] == {"gender": 1}
        assert facts["guardrail_response"]["stopped"] is True
        assert facts["guardrail_response"]["detector"] == "scripted-1"
        assert facts["guardrail_response"]["highest_score"] == 0.9
        assert facts["guardrail_mode"] == "post_call"
        assert facts["end_time"] >= facts["start_time"]
        assert facts["duration"] >= 0
        assert facts["masked_entity_count"] == facts["classification"] == {"gender": 1}
        assert facts["violation_categories"] == ["gender"]
        assert facts["guardrail_action"] == action
        assert facts["detection_method"] == "scripted-1"
        assert facts["risk_score"] == 9.0

    @pytest.mark.parametrize("stream", [False, True])
    def test_what_ran_to_its_end_is_reported_once_with_the_facts(
        self, proxy: Proxy, client: openai.OpenAI, provider: Provider, stream: bool
    ) -> None:
        provider.script = Script([["All ", "is well. ", "Really."]])
        before = len(proxy.reports(count=0))
        chat(client) if stream else say(client)
        (report,) = reported(proxy, before)
        assert report["kind"] == "success"
        facts = information(report["payload"])
        assert facts["guardrail_status"] == "success"
        assert facts["guardrail_response"]["segments"] == 2
        assert facts["guardrail_response"]["findings"] == 0
        assert facts["guardrail_action"] == "pass"
        assert facts["violation_categories"] is None
        assert facts["risk_score"] == 1.0

    def test_a_whole_answer_that_raises_is_reported_once(
        self, proxy: Proxy, client: openai.OpenAI
    ) -> None:
        before = len(proxy.reports(count=0))
        with pytest.raises(openai.BadRequestError):
            whole(client, guard={"action": "raise"})
        (report,) = reported(proxy, before)
        assert report["kind"] == "failure"
        assert report["payload"]["response_cost"] > 0
        assert "BIAS" not in json.dumps(report["payload"])

    def test_a_stream_that_raises_before_its_first_chunk_is_an_error_response(
        self, client: openai.OpenAI, provider: Provider
    ) -> None:
        provider.script = Script([["BIAS is here. ", *["More. "] * 40]], 0.02)
        with pytest.raises(openai.BadRequestError, match="Stopped here"):
            chat(client, guard={"action": "raise"})
        assert len(provider.served) == 1

    @pytest.mark.parametrize("end", ["stopped", "raised", "left", "whole", "whole raised"])
    def test_the_parallel_request_slot_is_freed(
        self, proxy: Proxy, client: openai.OpenAI, provider: Provider, end: str
    ) -> None:
        client = client_of(proxy, "sk-single")
        for _ in range(3):
            again(lambda: once(client, end))

    def test_the_slot_is_taken_while_a_stream_runs(
        self, proxy: Proxy, client: openai.OpenAI, provider: Provider
    ) -> None:
        provider.script = Script([["Fine. "] * 60], 0.1)
        client = client_of(proxy, "sk-single")
        stream = again(
            lambda: client.chat.completions.create(model="x", messages=MESSAGES, stream=True)
        )
        next(iter(stream))
        with pytest.raises(openai.RateLimitError):
            say(client)
        stream.close()

    def test_a_disconnected_client_closes_the_providers_connection(
        self, client: openai.OpenAI, provider: Provider
    ) -> None:
        provider.script = Script([["Fine. "] * 400], 0.05)
        stream = client.chat.completions.create(model="x", messages=MESSAGES, stream=True)
        next(iter(stream))
        stream.close()
        assert provider.last.over.wait(20)
        assert provider.last.disconnected
        assert provider.last.sent < 300

    def test_a_providers_failure_is_not_reported_as_the_guards(
        self, client: openai.OpenAI, provider: Provider
    ) -> None:
        provider.script = Script([["All is well. ", "Quite. ", "Secret"]], 0.02, error_after=2)
        with pytest.raises(openai.APIError) as raised:
            chat(client)
        assert "Secret" not in str(raised.value.body)


def test_streams_and_answers_are_counted_in_litellms_metrics(
    proxy: Proxy, client: openai.OpenAI
) -> None:
    pytest.importorskip("prometheus_client")
    chat(client)
    say(client)
    text = metrics_page(proxy)
    lines = [line for line in text.splitlines() if line.startswith("litellm_guardrail_")]
    assert any("latency_seconds_count" in x and 'guardrail_name="bias"' in x for x in lines)
    requests = [x for x in lines if "requests_total" in x and 'hook_type="post_call"' in x]
    assert any('status="intervened"' in x for x in requests)
    assert "BIAS" not in text


def test_guards_own_metrics_are_on_the_proxys_page(proxy: Proxy, provider: Provider) -> None:
    pytest.importorskip("prometheus_client")
    provider.script = Script([SAID])
    alone = client_of(proxy, "sk-out")
    before = samples(metrics_page(proxy))
    for end in (say, chat):
        end(alone, guardrails=["watched"])
    end_s = time.monotonic() + 20
    counted = 0.0
    while counted < 2 and time.monotonic() < end_s:
        text = metrics_page(proxy)
        after = samples(text)
        name = 'guard_responses_total{door="chat",model="x",outcome="completed"}'
        counted = after.get(name, 0) - before.get(name, 0)
    assert counted == 2
    found = 'guard_decisions_total{action="redact",bias_type="gender",door="chat",model="x"}'
    assert after[found] - before.get(found, 0) == 2
    assert after['guard_first_release_seconds_count{door="chat"}'] > 0
    assert "BIAS" not in text


def metrics_page(proxy: Proxy) -> str:
    return httpx.get(
        f"{proxy.url}/metrics",
        headers={"Authorization": "Bearer sk-plain"},
        follow_redirects=True,
        timeout=60,
    ).text


def samples(page: str) -> dict[str, float]:
    lines = (line.rsplit(" ", 1) for line in page.splitlines() if line.startswith("guard_"))
    return {name: float(value) for name, value in lines}


def reported(proxy: Proxy, before: int) -> list[Any]:
    """The reports behind the first ``before``, once no more come."""
    proxy.reports(before)
    time.sleep(0.4)
    return proxy.reports(before)


def information(payload: Any) -> Any:
    (entry,) = payload["guardrail_information"]
    return entry


def once(client: openai.OpenAI, end: str) -> None:
    settings = {"guard": {"action": "raise"}} if "raised" in end else {}
    try:
        if end.startswith("whole"):
            say(client, **settings)
        elif end == "left":
            with client.chat.completions.create(model="x", messages=MESSAGES, stream=True) as s:
                next(iter(s))
        else:
            chat(client, **settings)
    except openai.RateLimitError:
        raise
    except openai.APIError:
        assert "raised" in end


def again(call: Any) -> Any:
    """Call once the slot is free: LiteLLM counts down a little after the answer."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with suppress(openai.RateLimitError):
            return call()
        time.sleep(0.1)
    return call()


@pytest.mark.slow("starts a proxy; tests/test_proxy.py reads each sentence without one")
def test_a_wrong_setting_ends_the_start_with_a_sentence(
    behind_the_proxy: Provider, tmp_path: Path
) -> None:
    config = configured(behind_the_proxy, more=guardrail("wrong", "axion: redact"))
    with pytest.raises(AssertionError) as ended, running(tmp_path, config):
        pass
    last = str(ended.value).strip().splitlines()[-1]
    assert last.startswith(
        "config.yaml: guardrail 'wrong': unknown setting 'axion' under guard; known are"
    )


@pytest.mark.parametrize(
    ("path", "model", "asked"),
    [
        ("/v1/chat/completions", "unread-chat", {"messages": MESSAGES, "stream": True}),
        ("/v1/messages", "unread-messages", {"messages": MESSAGES, "max_tokens": 10}),
        ("/v1/responses", "unread-responses", {"input": "Hi"}),
    ],
)
def test_an_error_that_quotes_an_answer_loses_the_quotation(
    proxy: Proxy, provider: Provider, path: str, model: str, asked: dict[str, Any]
) -> None:
    if "stream" in asked:
        error = {"type": "e", "code": "c", "message": TEXT, "param": None}
        provider.script = Script(events=[{"type": "error", "error": error}])
    else:
        provider.script = Script(answer=TEXT if model == "unread-responses" else ANSWER)
    answer = httpx.post(
        proxy.url + path,
        headers={"Authorization": "Bearer sk-plain"},
        json={"model": model, **asked},
        timeout=120,
    )
    assert "left out" in answer.text
    assert [word for word in TEXT.split() if word in answer.text] == []
