"""A wrapped Router, and batches: a stop is no failure, so it is neither retried nor replaced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import litellm
import pytest
from litellm import CustomStreamWrapper, Router
from litellm.types.utils import ModelResponse

from guard.core import Guard
from guard.doors import responses
from guard.errors import BiasFound, UsageError
from guard.policy import Policy
from guard.verdict import Channel, Window
from tests.doors import replay as r
from tests.doors.replay import Replay, Said
from tests.doors.table import CHAT, KNOWN, RESPONSES, TEXT, UNKNOWN, Row, arun
from tests.provider import Provider, Script
from tests.scripted import Scripted

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")

STOP = Policy().message
LONG = ["All is well.", " BIAS is.", *[" And so it goes on."] * 60]

# The table's doors, as a Router has them; the name is that of the group of models.
ROUTED = [
    Row("first", CHAT, KNOWN),
    Row("openai/x", TEXT, UNKNOWN),
    Row("first", RESPONSES, KNOWN),
    Row("claude", RESPONSES, KNOWN),
]
every = pytest.mark.parametrize("row", ROUTED, ids=lambda r: f"{r.door.function} of {r.name}")


@pytest.fixture
def router(provider: Provider) -> Iterator[Any]:
    def deployment(name: str, model: str) -> Any:
        base = provider.anthropic if name == "claude" else provider.openai
        named = {"model": model, "api_base": base, "api_key": "k", "max_retries": 0}
        return {"model_name": name, "litellm_params": named}

    router = litellm.Router(
        model_list=[
            deployment("first", "openai/gpt-4o"),
            deployment("second", "openai/gpt-4o"),
            # Router.text_completion takes the name of the group for that of the model.
            deployment("openai/x", "openai/x"),
            deployment("claude", "anthropic/claude-x"),
        ],
        fallbacks=[{"first": ["second"]}],
        content_policy_fallbacks=[
            {"first": ["second"]},
            {"openai/x": ["second"]},
            {"claude": ["second"]},
        ],
        num_retries=2,
    )
    yield router
    router.discard()


def asked(row: Row) -> dict[str, Any]:
    return {"model": row.name, **row.door.asked}


@every
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_stop_makes_one_call_and_one_event_a_segment(
    provider: Provider, router: Any, row: Row, asynchronous: bool, stream: bool
) -> None:
    provider.script = Script([LONG], 0.1 if stream else 0)
    events: list[Any] = []
    guarded = Guard(Policy(), detector=Scripted(), sinks=[events.append]).wrap(router)
    more = {"stream": True} if stream else {}

    async def run() -> r.Outcome:
        answer = await getattr(guarded, "a" + row.door.function)(**asked(row), **more)
        outcome = await row.adrained(answer) if stream else row.answered(answer)
        await asyncio.sleep(0.1)
        return outcome

    if asynchronous:
        outcome = arun(run())
    else:
        answer = getattr(guarded, row.door.function)(**asked(row), **more)
        outcome = row.drained(answer) if stream else row.answered(answer)
    assert outcome.texts == {Channel(): "All is well. " + STOP}
    assert outcome.ends == {0: "content_filter"}
    assert [e.action for e in events] == ["pass", "terminate"]
    assert provider.last.over.wait(5)
    time.sleep(0.1)
    assert len(provider.served) == 1
    assert provider.last.disconnected == stream
    if stream:
        assert provider.last.sent <= 6  # of 62; the finding is made at the third


def test_it_is_a_router(router: Any) -> None:
    guarded = Guard(detector=Scripted()).wrap(router)
    assert isinstance(guarded, Router)
    assert guarded.model_list is router.model_list
    assert guarded.get_model_names() == router.get_model_names()


def test_settings_of_one_call(provider: Provider, router: Any) -> None:
    provider.script = Script([["All is well. BIAS is."]])
    guarded: Any = Guard(detector=Scripted()).wrap(router)
    answer = guarded.completion("first", r.MESSAGES, guard={"action": "flag"})
    assert answer.choices[0].message.content == "All is well. BIAS is."
    assert len(answer.guard.findings) == 1


@pytest.mark.parametrize("name", ["abatch_completion", "agenerate_content"])
def test_methods_without_a_door_are_refused(router: Any, name: str) -> None:
    with pytest.raises(UsageError, match=name):
        getattr(Guard(detector=Scripted()).wrap(router), name)


def test_a_class_made_for_one_stream_is_not_kept(provider: Provider, router: Any) -> None:
    # LiteLLM's Router makes one for each stream of responses, and it holds that stream.
    provider.script = Script([["Fine."]])

    async def run() -> type[Any]:
        guarded: Any = Guard(detector=Scripted()).wrap(router)
        stream = await guarded.aresponses(model="first", input="Tell me.", stream=True)
        async for _ in stream:
            pass
        return type(stream)

    made = arun(run())
    assert arun(run()) is made
    assert issubclass(made, responses.ResponsesStream)


class TestBatch:
    MESSAGES = ([{"role": "user", "content": "One."}], [{"role": "user", "content": "Two."}])

    def call(self, **more: Any) -> dict[str, Any]:
        return {"model": "replay/x", "messages": list(self.MESSAGES), **more}

    def test_each_answer_is_guarded(self, replay: Replay) -> None:
        replay.answer = r.answer_of([Said(0, "content", "All is well. BIAS is.")])
        answers = Guard(detector=Scripted()).batch_completion(**self.call())
        assert len(answers) == 2
        for answer in answers:
            assert isinstance(answer, ModelResponse)
            assert answer.choices[0].message.content == "All is well. " + STOP
            assert len(answer.guard) == 2

    def test_streams(self, provider: Provider) -> None:
        provider.script = Script([LONG], 0.01)
        base = {"model": "openai/x", "api_base": provider.openai, "api_key": "k"}
        streams = Guard(detector=Scripted()).batch_completion(**self.call(stream=True, **base))
        for stream in streams:
            assert isinstance(stream, CustomStreamWrapper)
            assert r.drain(stream).texts == {Channel(): "All is well. " + STOP}
        for served in provider.served:
            assert served.over.wait(5)
            assert served.disconnected

    def test_errors_stand_in_the_place_of_answers(self, replay: Replay) -> None:
        replay.answer = r.answer_of([Said(0, "content", "All is well. BIAS is.")])
        answers = Guard(detector=Scripted(), action="raise").batch_completion(**self.call())
        assert [type(a) for a in answers] == [BiasFound, BiasFound]
        failed = Guard(detector=Scripted()).batch_completion(
            **self.call(mock_response=litellm.RateLimitError("full", "replay", "x"))
        )
        assert all(isinstance(a, litellm.RateLimitError) for a in failed)

    def test_each_answers_user_message_is_its_own(self, replay: Replay) -> None:
        windows: list[Window] = []
        replay.answer = r.answer_of([Said(0, "content", "Fine.")])
        g = Guard(Policy(user_context=True), detector=Scripted(before=windows.append))
        g.batch_completion(**self.call())
        assert [w.user for w in windows] == ["One.", "Two."]
