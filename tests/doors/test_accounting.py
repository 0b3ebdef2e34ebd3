"""A stopped stream is reported to LiteLLM's callbacks once, as a success, with its usage."""

from __future__ import annotations

import asyncio
import time
from itertools import product
from typing import Any

import litellm
import pytest

from guard.doors import chat
from guard.policy import Policy
from tests.doors import replay as r
from tests.doors.log import Log
from tests.doors.replay import Replay
from tests.doors.test_closing import BIASED, call, wires
from tests.provider import Provider, Script
from tests.rows import rows
from tests.scripted import Scripted


def assert_reported_once(log: Log, kind: str, texts: str) -> Any:
    reports = log.settle()
    assert [k for k, _, _ in reports] == [kind]
    _, payload, response = reports[0]
    assert response.choices[0].message.content == texts
    assert "BIAS" not in r.serialised(response)
    assert "BIAS" not in str(payload)
    assert payload["status"] == "success"
    assert payload["completion_tokens"] == response.usage.completion_tokens > 0
    assert payload["prompt_tokens"] == response.usage.prompt_tokens > 0
    return response


@wires
@pytest.mark.parametrize("action", ["terminate", "raise"])
def test_a_stopped_stream_is_reported_once(
    provider: Provider, log: Log, wire: str, action: str
) -> None:
    provider.script = Script([BIASED], 0.05)
    policy = Policy(action=action)
    stream = chat.completion(r.session(policy, Scripted()), (), call(provider, wire))
    outcome = r.drain(stream)
    response = assert_reported_once(log, "success", outcome.texts[r.Channel()])
    expected = {"terminate": policy.message, "raise": ""}[action]
    assert response.choices[0].message.content == "All is well. " + expected
    # The tokens are those that the provider sent, not only those that went out.
    sent = litellm.token_counter(model="x", text="".join(BIASED[:3]))
    assert response.usage.completion_tokens >= sent or wire == "anthropic"


@wires
def test_a_stopped_async_stream_is_reported_once(provider: Provider, log: Log, wire: str) -> None:
    provider.script = Script([BIASED], 0.05)
    policy = Policy()
    outcomes = []

    async def run() -> None:
        stream = await chat.acompletion(r.session(policy, Scripted()), (), call(provider, wire))
        outcomes.append(await r.adrain(stream))
        await log.told()

    r.arun(run())
    assert_reported_once(log, "async success", outcomes[0].texts[r.Channel()])


def test_a_stream_stopped_before_anything_went_out_is_reported(replay: Replay, log: Log) -> None:
    sent = [r.chunk_of(r.Said(0, "content", t)) for t in ("BIAS is.", " More")]
    stream = r.stream(replay, sent, r.session(Policy(action="raise"), Scripted()))
    assert r.drain(stream).texts == {}
    ((kind, _, response),) = log.settle()
    assert kind == "success"
    assert response.usage.completion_tokens > 0


def test_a_stream_stopped_at_its_very_end_is_reported_once(replay: Replay, log: Log) -> None:
    sent = [r.chunk_of(r.Said(0, "content", t)) for t in ("Fine. ", "BIAS is")]
    outcome = r.streamed(replay, sent, r.session(Policy(), Scripted()))
    assert outcome.ends == {0: "content_filter"}
    assert [k for k, _, _ in log.settle()] == ["success"]


@rows("asynchronous, end", product([False, True], ["BIAS is. More", "BIAS is"]))
def test_a_stopped_stream_gives_the_usage_that_was_asked_for(
    provider: Provider, asynchronous: bool, end: str
) -> None:
    provider.script = Script([["Fine. ", end, " and on. "]])
    asked = {**call(provider, "openai"), "stream_options": {"include_usage": True}}

    async def run() -> list[Any]:
        stream = await chat.acompletion(r.session(Policy(), Scripted()), (), asked)
        return [chunk async for chunk in stream]

    if asynchronous:
        chunks = r.arun(run())
    else:
        chunks = list(chat.completion(r.session(Policy(), Scripted()), (), asked))
    assert [c.usage.total_tokens > 0 for c in chunks if getattr(c, "usage", None)] == [True]
    assert chunks[-1].usage.completion_tokens > 0
    assert chunks[-2].choices[0].finish_reason == "content_filter"
    assert "BIAS" not in r.serialised(*chunks)
    plain = list(litellm.completion(**{**asked, "stream": True}))  # whose form differs by version
    assert len(chunks[-1].choices) == len(plain[-1].choices)
    built = litellm.stream_chunk_builder(chunks)
    assert built.choices[0].message.content == "Fine. " + Policy().message


def test_a_stream_that_ends_is_reported_once_by_litellm(replay: Replay, log: Log) -> None:
    sent = [r.chunk_of(r.Said(0, "content", t)) for t in ("Fine. ", "All is")]
    r.streamed(replay, sent, r.session(Policy(), Scripted()))
    assert [k for k, _, _ in log.settle()] == ["success"]


def test_switched_off_reports_stay_off(
    replay: Replay, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(litellm, "disable_streaming_logging", True)
    sent = [r.chunk_of(r.Said(0, "content", t)) for t in ("BIAS is.", " More")]
    r.streamed(replay, sent, r.session(Policy(), Scripted()))
    time.sleep(0.3)
    assert log.reports == []


class TestRouter:
    """A stop is no failure: Router neither retries nor falls back."""

    @staticmethod
    def router(provider: Provider) -> litellm.Router:
        def deployment(name: str) -> Any:
            params = {"model": "openai/x", "api_base": provider.openai, "api_key": "k"}
            return {"model_name": name, "litellm_params": params}

        return litellm.Router(
            model_list=[deployment("first"), deployment("second")],
            fallbacks=[{"first": ["second"]}],
            content_policy_fallbacks=[{"first": ["second"]}],
            num_retries=2,
        )

    def test_a_guarded_router_stream_stops_once(self, provider: Provider) -> None:
        provider.script = Script([BIASED], 0.05)
        router = self.router(provider)
        plain = router.completion(model="first", messages=r.MESSAGES, stream=True)
        s = r.session(Policy(), Scripted())
        outcome = r.drain(chat.guard(s, plain))
        assert outcome.ends == {0: "content_filter"}
        assert provider.last.over.wait(5)
        assert provider.last.disconnected
        assert len(provider.served) == 1

    def test_a_guarded_router_stream_stops_once_async(self, provider: Provider) -> None:
        provider.script = Script([BIASED], 0.05)

        async def run() -> None:
            router = self.router(provider)
            plain = await router.acompletion(model="first", messages=r.MESSAGES, stream=True)
            s = r.session(Policy(), Scripted())
            outcome = await r.adrain(await chat.aguard(s, plain))
            assert outcome.ends == {0: "content_filter"}
            assert await asyncio.to_thread(provider.last.over.wait, 5)

        r.arun(run())
        assert provider.last.disconnected
        assert len(provider.served) == 1
