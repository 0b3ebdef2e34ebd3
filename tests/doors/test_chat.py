"""Whole answers, and what a door does around a call."""

from __future__ import annotations

import asyncio
import copy
import pickle
import queue
import threading
from collections.abc import Iterator
from contextvars import copy_context
from itertools import product
from typing import Any, ClassVar

import litellm
import pytest
from litellm.integrations.custom_logger import CustomLogger
from litellm.litellm_core_utils.thread_pool_executor import executor
from litellm.types.utils import Choices, Message, ModelResponse

from guard.core import Guard
from guard.doors import chat
from guard.doors.context import guarded, inside
from guard.doors.door import last_message
from guard.doors.litellm.compat import CHAT_FIELDS
from guard.errors import BiasFound, UsageError
from guard.policy import Policy
from guard.verdict import Channel, Window
from tests.doors import replay as r
from tests.doors.replay import Replay, Said, forget_callback
from tests.provider import Provider, Script
from tests.rows import rows
from tests.scripted import Scripted

HARMLESS = [Said(0, "reasoning", "Let me think."), Said(0, "content", "All is well. Really.")]
BIASED = [Said(0, "content", "All is well. BIAS is. More.")]


def answered(replay: Replay, response: ModelResponse, policy: Policy | None = None) -> Any:
    replay.answer = response
    return chat.completion(r.session(policy or Policy(), Scripted()), (), r.CALL)


class TestUncut:
    def test_the_providers_own_object_comes_back_with_the_trail(self, replay: Replay) -> None:
        seen: list[ModelResponse] = []

        class Spy(Replay):
            def completion(self, *args: Any, **kwargs: Any) -> ModelResponse:
                seen.append(r.answer_of(HARMLESS))
                return seen[-1]

        litellm.custom_provider_map = [{"provider": "replay", "custom_handler": Spy()}]
        try:
            response = chat.completion(r.session(Policy(), Scripted()), (), r.CALL)
        finally:
            litellm.custom_provider_map = [{"provider": "replay", "custom_handler": replay}]
        assert response is seen[0]
        assert type(response) is ModelResponse
        assert [d.action for d in response.guard] == ["pass", "pass", "pass"]

    def test_the_trail_is_not_part_of_the_data(self, replay: Replay) -> None:
        response = answered(replay, r.answer_of(HARMLESS))
        plain = litellm.completion(**r.CALL)
        plain.id, plain.created = response.id, response.created
        assert response.model_dump() == plain.model_dump()
        assert response.model_dump_json() == plain.model_dump_json()
        assert "guard" not in response.model_dump_json()
        assert "guard" not in repr(response)
        assert "guard" not in (response.__pydantic_extra__ or {})
        assert "guard" not in response.json()

    def test_it_survives_copies(self, replay: Replay) -> None:
        response = answered(replay, r.answer_of(HARMLESS))
        for twin in (
            copy.deepcopy(response),
            response.model_copy(),
            pickle.loads(pickle.dumps(response)),
        ):
            assert twin.model_dump() == response.model_dump()
            assert len(twin.guard) == 3

    def test_an_answer_without_text(self, replay: Replay) -> None:
        plain = ModelResponse(choices=[Choices(index=0, message=Message(content=None))])
        response = answered(replay, plain)
        assert list(response.guard) == []
        assert response.choices[0].message.content is None


class TestCut:
    def test_terminated(self, replay: Replay) -> None:
        policy = Policy()
        plain = r.answer_of(BIASED)
        before = plain.model_dump()
        response = answered(replay, plain)
        assert response is not plain
        assert plain.model_dump() == {**before, "model": plain.model}
        (choice,) = response.choices
        assert choice.message.content == "All is well. " + policy.message
        assert choice.finish_reason == "content_filter"
        assert response.guard.stopped
        assert isinstance(response, ModelResponse)

    def test_redacted(self, replay: Replay) -> None:
        response = answered(replay, r.answer_of(BIASED), Policy(action="redact"))
        (choice,) = response.choices
        assert choice.message.content == "All is well. [removed] More."
        assert choice.finish_reason == "stop"

    def test_flagged(self, replay: Replay) -> None:
        response = answered(replay, r.answer_of(BIASED), Policy(action="flag"))
        assert response.choices[0].message.content == "All is well. BIAS is. More."
        assert len(response.guard.findings) == 1

    def test_raised(self, replay: Replay) -> None:
        with pytest.raises(BiasFound) as caught:
            answered(replay, r.answer_of(BIASED), Policy(action="raise"))
        assert "BIAS" not in f"{caught.value}{caught.value!r}"
        assert len(caught.value.trail.findings) == 1

    def test_choices_are_cut_alone(self, replay: Replay) -> None:
        response = answered(replay, r.answer_of([*BIASED, Said(1, "content", "Fine.")]))
        assert [c.finish_reason for c in response.choices] == ["content_filter", "stop"]
        assert response.choices[1].message.content == "Fine."

    def test_fields_that_repeat_the_text_go(self, replay: Replay) -> None:
        block = {"type": "thinking", "thinking": "BIAS is.", "signature": "s"}
        message = Message(
            content="BIAS is.",
            reasoning_content="Fine.",
            thinking_blocks=[block],
            provider_specific_fields={"raw": "BIAS is."},
            annotations=[{"note": "BIAS"}],
        )
        logprobs = {"content": [{"token": "BIAS", "logprob": 0.0, "top_logprobs": []}]}
        choice = Choices(index=0, message=message, logprobs=logprobs, finish_reason="stop")
        plain = ModelResponse(choices=[choice])
        plain._hidden_params = {
            "original_response": "BIAS is.",
            "model_id": "m",
            "provider_specific_fields": {"thinking_blocks": [{"thinking": "BIAS is."}]},
            "novelty": ["BIAS is."],
        }
        response = answered(replay, plain)
        assert "BIAS" not in r.serialised(response)
        assert "BIAS" not in str(response._hidden_params)
        assert response._hidden_params["litellm_model_name"] == "replay/x"
        assert response.choices[0].message.reasoning_content == "Fine."

    def test_thinking_blocks_of_their_own_are_judged(self, replay: Replay) -> None:
        blocks = [{"type": "thinking", "thinking": "Fine. BIAS is.", "signature": "s"}]
        message = Message(content="Yes.", reasoning_content="Well.", thinking_blocks=blocks)
        plain = ModelResponse(choices=[Choices(index=0, message=message, finish_reason="stop")])
        response = answered(replay, plain)
        (choice,) = response.choices
        assert "BIAS" not in r.serialised(response)
        assert choice.finish_reason == "content_filter"
        assert choice.message.reasoning_content == "Well."
        assert choice.message.thinking_blocks == [{"type": "thinking", "thinking": "Fine. "}]

    def test_choices_of_one_index_are_told_apart(self, replay: Replay) -> None:
        texts = ["Fine.", "All is well. BIAS is.", "Really."]
        choices = [Choices(message=Message(content=t), finish_reason="stop") for t in texts]
        assert {c.index for c in choices} == {0}
        response = answered(replay, ModelResponse(choices=choices))
        assert [c.message.content for c in response.choices] == [
            "Fine.",
            "All is well. " + Policy().message,
            "Really.",
        ]
        reasons = [c.finish_reason for c in response.choices]
        assert reasons == ["stop", "content_filter", "stop"]
        assert [d.channel.choice for d in response.guard] == [0, 1, 1, 2]

    def test_through_the_wire(self, provider: Provider) -> None:
        provider.script = Script([["All is well. BIAS is."], ["Fine."]])
        kwargs = {
            "model": "openai/x",
            "api_base": provider.openai,
            "api_key": "k",
            "messages": r.MESSAGES,
            "n": 2,
        }
        response = chat.completion(r.session(Policy(), Scripted()), (), kwargs)
        assert [c.finish_reason for c in response.choices] == ["content_filter", "stop"]
        assert "BIAS" not in r.serialised(response)
        assert response.usage.prompt_tokens == 7


class TestToolCalls:
    @rows(
        "action, arguments",
        [
            ("terminate", '{"q": "Fine. BIAS is."}'),
            ("terminate", '{"q": "BIAS is."}'),
            *(
                (a, t)
                for a in ("terminate", "redact")
                for t in ('{"q": "Fine."} BIAS', "12. BIAS is.")
            ),
            *((a, '{"BIAS": "q"}') for a in ("terminate", "redact")),
        ],
    )
    def test_a_stopped_call_leaves_nothing(
        self, replay: Replay, action: Any, arguments: str
    ) -> None:
        s = r.session(Policy(action=action), Scripted())
        said = [Said(0, "content", "Calling."), Said(0, "tool", arguments, header=True)]
        pieces = [Said(0, "content", "Calling."), Said(0, "tool", "", header=True)]
        pieces += [Said(0, "tool", c) for c in arguments]
        outcomes = [
            r.whole(replay, said, s),
            r.streamed(replay, [r.chunk_of(p) for p in pieces], s),
            r.astreamed(replay, [r.chunk_of(p) for p in said], s),
        ]
        for outcome in outcomes:
            assert outcome.texts == {Channel(): f"Calling.{Policy().message}"}
            assert outcome.ends == {0: "content_filter"}
            for choice in (c for chunk in outcome.chunks for c in chunk.choices):
                one = getattr(choice, "delta", None) or choice.message
                assert not one.tool_calls

    def test_a_whole_call_before_the_cut_stays(self, replay: Replay) -> None:
        said = [
            Said(0, "tool", '{"a": 1}', 0, header=True),
            Said(0, "tool", '{"b": "BIAS"}', 1, header=True),
        ]
        s = r.session(Policy(), Scripted())
        for outcome in (
            r.whole(replay, said, s),
            r.streamed(replay, [r.chunk_of(p) for p in said], s),
        ):
            assert outcome.texts[Channel(0, "tool", 0)] == '{"a": 1}'
            assert "BIAS" not in str(outcome.texts)

    def test_a_harmless_call_is_untouched(self, replay: Replay) -> None:
        said = [Said(0, "tool", '{"a": "All is well."}', 0, header=True)]
        outcome = r.whole(replay, said, r.session(Policy(), Scripted()))
        assert outcome.texts == {Channel(0, "tool"): '{"a": "All is well."}'}


class TestOnce:
    """A response is guarded once, by the outermost door."""

    def test_an_inner_door_passes_through(self, replay: Replay) -> None:
        replay.answer = r.answer_of(BIASED)
        s = r.session(Policy(), Scripted())
        with inside():
            assert guarded()
            plain = chat.completion(s, (), r.CALL)
            assert "BIAS" in plain.choices[0].message.content
            assert not hasattr(plain, "guard")
        assert not guarded()

    def test_an_inner_async_door_passes_through(self, replay: Replay) -> None:
        async def run() -> Any:
            replay.answer = r.answer_of(BIASED)
            with inside():
                return await chat.acompletion(r.session(Policy(), Scripted()), (), r.CALL)

        assert "BIAS" in r.arun(run()).choices[0].message.content

    def test_calls_made_while_a_stream_is_read_are_inside(self, replay: Replay) -> None:
        seen: list[bool] = []

        def source() -> Any:
            seen.append(guarded())
            yield r.chunk_of(Said(0, "content", "Fine."))

        s = r.session(Policy(), Scripted())
        replay.source = source
        r.drain(chat.completion(s, (), {**r.CALL, "stream": True}))

        async def run() -> None:
            await r.adrain(await chat.acompletion(s, (), {**r.CALL, "stream": True}))

        r.arun(run())
        assert seen == [True, True]
        assert not guarded()

    def test_a_copy_of_the_context_outlives_no_call(self) -> None:
        with inside():
            copied = copy_context()
            with inside():
                nested = copy_context()
            assert guarded()
            assert copied.run(guarded)
            assert nested.run(guarded)
        assert not guarded()
        assert not copied.run(guarded)
        assert not nested.run(guarded)

    def test_a_logging_thread_of_litellms_is_never_inside_the_call_it_logs(self) -> None:
        def log() -> tuple[bool, bool]:
            before = guarded()
            with inside():
                return before, guarded()

        with inside():
            # LiteLLM may begin to log before the call has returned.
            assert executor.submit(copy_context().run, log).result(5) == (False, True)

    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
    def test_a_call_made_by_a_callback_is_guarded(self, logger: Asking, stream: bool) -> None:
        response = logger.guard.completion(**logger.CALL, stream=stream)
        if stream:
            r.drain(response)
        assert logger.heard.get(timeout=10) == (True, Policy().message)

    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
    def test_a_call_made_by_an_async_callback_is_guarded(
        self, logger: Asking, stream: bool
    ) -> None:
        async def run() -> tuple[bool, str]:
            response = await logger.guard.acompletion(**logger.CALL, stream=stream)
            if stream:
                await r.adrain(response)
            return await asyncio.to_thread(logger.heard.get, timeout=10)

        assert r.arun(run()) == (True, Policy().message)


class Asking(CustomLogger):
    """A callback of LiteLLM's that makes one guarded call of its own, and notes what it gets."""

    CALL: ClassVar[dict[str, Any]] = {
        "model": "openai/x",
        "messages": r.MESSAGES,
        "mock_response": "All is well. And so on.",
    }
    INNER: ClassVar[dict[str, Any]] = {**CALL, "mock_response": "BIAS is."}

    def __init__(self) -> None:
        super().__init__()
        self.guard = Guard(detector=Scripted())
        self.heard: queue.Queue[tuple[bool, str]] = queue.Queue()
        self.asked = threading.Event()

    def _note(self, response: Any) -> None:
        self.heard.put((hasattr(response, "guard"), response.choices[0].message.content))

    def log_success_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        if not self.asked.is_set():
            self.asked.set()
            self._note(self.guard.completion(**self.INNER))

    async def async_log_success_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        if not self.asked.is_set():
            self.asked.set()
            self._note(await self.guard.acompletion(**self.INNER))


@pytest.fixture
def logger(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asking]:
    logger = Asking()
    monkeypatch.setattr(litellm, "callbacks", [logger])
    yield logger
    forget_callback(logger)


class TestSession:
    MESSAGES = (
        {"role": "user", "content": "First."},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": [{"type": "text", "text": "Last."}, {"type": "image_url"}]},
        {"role": "tool", "content": "42"},
    )

    @rows("shown, positional", product([True, False], [True, False]))
    def test_the_last_user_message_is_context_where_the_policy_says_so(
        self, replay: Replay, shown: bool, positional: bool
    ) -> None:
        windows: list[Window] = []
        s = r.session(Policy(user_context=shown), Scripted(before=windows.append))
        replay.answer = r.answer_of(HARMLESS[1:])
        if positional:
            chat.completion(s, ("replay/x", self.MESSAGES), {})
        else:
            chat.completion(s, (), {"model": "replay/x", "messages": self.MESSAGES})
        assert [w.user for w in windows] == ["Last." if shown else None, None]

    def test_sinks_get_every_decision(self, replay: Replay) -> None:
        events: list[Any] = []
        replay.answer = r.answer_of(BIASED)
        response = chat.completion(r.session(Policy(), Scripted(), [events.append]), (), r.CALL)
        assert events == list(response.guard)

    def test_an_answer_of_another_kind_is_refused(self) -> None:
        with pytest.raises(UsageError, match="EmbeddingResponse"):
            chat.guard(r.session(Policy(), Scripted()), litellm.EmbeddingResponse())

    def test_output_that_is_not_text_is_refused(self, replay: Replay) -> None:
        # Of a first choice LiteLLM itself refuses it.
        chunk = r.chunk_of(Said(0, "content", "x"), Said(1, "content", "y"))
        chunk.choices[1].delta.content = [{"type": "text", "text": "BIAS"}]
        outcome = r.streamed(replay, [chunk], r.session(Policy(), Scripted()))
        assert isinstance(outcome.error, UsageError)
        assert outcome.chunks == []
        assert replay.closed
        assert "BIAS" not in str(outcome.error)


class TestNumberOfChoices:
    """The stream stays open for as many choices as the call asks for, however it asks."""

    SENT = ((0, "BIAS is. "), (0, "More. "), (1, "All is well."))

    def play(self, replay: Replay) -> None:
        replay.source = lambda: iter([r.chunk_of(Said(c, "content", t)) for c, t in self.SENT])

    def assert_second_choice_came(self, outcome: r.Outcome) -> None:
        assert outcome.ends == {0: "content_filter"}
        assert outcome.texts[Channel(1)] == "All is well."

    def test_named_or_by_position(self, replay: Replay) -> None:
        s = r.session(Policy(), Scripted())
        for args, kwargs in (
            (("replay/x", r.MESSAGES), {"n": 2}),
            (("replay/x", r.MESSAGES, None, None, None, 2), {}),
        ):
            self.play(replay)
            stream = chat.completion(s, args, {**kwargs, "stream": True})
            self.assert_second_choice_came(r.drain(stream))

    def test_named_or_by_position_async(self, replay: Replay) -> None:
        # The async call has its parameters in another order.
        s = r.session(Policy(), Scripted())

        async def run(args: Any, kwargs: Any) -> r.Outcome:
            return await r.adrain(await chat.acompletion(s, args, {**kwargs, "stream": True}))

        for args, kwargs in (
            (("replay/x", r.MESSAGES), {"n": 2}),
            (("replay/x", r.MESSAGES, None, None, None, None, None, 2), {}),
        ):
            self.play(replay)
            self.assert_second_choice_came(r.arun(run(args, kwargs)))

    @rows("n", ["2", 2.0, [2]])
    def test_an_n_that_is_no_number_is_refused_before_the_call(
        self, replay: Replay, n: Any
    ) -> None:
        opened: list[int] = []
        replay.source = lambda: iter([opened.append(1)])
        call = {**r.CALL, "stream": True, "n": n}
        s = r.session(Policy(), Scripted())
        with pytest.raises(UsageError, match="n must be a whole number"):
            chat.completion(s, (), call)
        with pytest.raises(UsageError, match="n must be a whole number"):
            r.arun(chat.acompletion(s, (), call))
        assert opened == []

    @rows("fault", ["n", "kind"])
    def test_a_stream_that_cannot_be_guarded_is_closed(self, replay: Replay, fault: str) -> None:
        wrong: Any = "2"
        s = r.session(Policy(), Scripted())

        class Other:
            """A stream that the chat door does not know."""

            def __init__(self, stream: Any) -> None:
                self.completion_stream = stream

        def opened() -> Any:
            if fault == "n":
                stream = litellm.completion(**r.CALL, stream=True)
                next(stream)
                return stream
            source = replay.play()
            next(source)
            return Other(source)

        self.play(replay)
        with pytest.raises((TypeError, UsageError)):
            chat.guard(s, opened(), n=wrong)
        assert replay.closed

        async def run() -> None:
            await chat.aguard(s, opened(), n=wrong)

        with pytest.raises((TypeError, UsageError)):
            r.arun(run())
        assert replay.closed


class TestStreamObject:
    def test_it_reads_like_litellms_own(self, replay: Replay) -> None:
        sent = [r.chunk_of(Said(0, "content", "All is well."))]
        stream = r.stream(replay, sent, r.session(Policy(), Scripted()))
        assert isinstance(stream, litellm.CustomStreamWrapper)
        assert stream.model == "x"
        assert stream.custom_llm_provider == "replay"
        assert stream.logging_obj is not None
        assert stream._hidden_params is stream.__dict__["_upstream"]._hidden_params
        assert stream.messages == r.MESSAGES
        assert iter(stream) is stream
        assert stream.chunks == []
        assert stream.response_uptil_now == ""
        with pytest.raises(AttributeError):
            _ = stream.no_such_thing
        r.drain(stream)
        assert stream.response_uptil_now == "All is well."
        assert len(stream.guard) == 1

    def test_a_stopped_stream_holds_released_text_only(self, replay: Replay) -> None:
        sent = [r.chunk_of(Said(0, "content", t)) for t in ("Fine. ", "BIAS is.", " More.")]
        stream = r.stream(replay, sent, r.session(Policy(), Scripted()))
        r.drain(stream)
        assert "BIAS" not in r.serialised(*stream.chunks)
        assert "BIAS" not in stream.response_uptil_now

    def test_litellms_unreleased_text_is_not_available(self, replay: Replay) -> None:
        sent = [r.chunk_of(Said(0, "content", t)) for t in ("Fine. ", "quagmire", " BIAS is.")]
        stream = r.stream(replay, sent, r.session(Policy(), Scripted()))
        next(stream)
        under = stream._upstream
        under.new_in_litellm = under.holding_chunk = "quagmire"
        assert stream.completion_stream is stream
        held = ("complete_response", "holding_chunk", "new_in_litellm")
        assert [name for name in held if hasattr(stream, name)] == []
        assert all(hasattr(under, name) for name in held)
        # What is left of its attributes says how the call was made.
        left = {name for name in vars(under) if hasattr(stream, name)}
        left -= {*vars(stream), *dir(type(stream))}
        assert left <= CHAT_FIELDS


@rows("content", [5, None, {"text": "x"}, [5], [{"text": 5}]])
def test_a_message_of_an_unknown_kind_is_not_the_users_text(content: Any) -> None:
    assert last_message([{"role": "user", "content": content}]) == ""
