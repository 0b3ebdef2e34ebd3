"""A wrapped Router, and batches: a stop is no failure, so it is neither retried nor replaced."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import product
from typing import Any

import litellm
import pytest
from litellm import CustomStreamWrapper, Router
from litellm.types.utils import ModelResponse

from guard.core import Guard
from guard.doors.litellm import compat
from guard.doors.litellm.router import GUARDED, HARMLESS, GuardedRouter
from guard.doors.responses.door import ResponsesStream
from guard.errors import BiasFound, UsageError
from guard.policy import Policy
from guard.verdict import Channel, Window
from tests.doors import replay as r
from tests.doors.log import tasks_end
from tests.doors.replay import Replay, Said
from tests.doors.table import CHAT, KNOWN, RESPONSES, TEXT, UNKNOWN, Row, arun
from tests.doors.versions import ALL_DOORS, since
from tests.provider import Provider, Script
from tests.rows import rows
from tests.scripted import Scripted

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")

STOP = Policy().message
LONG = ["All is well.", " BIAS is.", *[" And so it goes on."] * 60]

# The table's doors, as a Router has them; the name is that of the group of models.
ROUTED = [
    Row("first", CHAT, KNOWN),
    Row("openai/x", TEXT, UNKNOWN),
    *[Row(name, RESPONSES, KNOWN) for name in ("first", "claude") if ALL_DOORS],
]


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


@rows("row, asynchronous, stream", product(ROUTED, [False, True], [False, True]))
def test_a_stop_makes_one_call_and_one_event_a_segment(
    provider: Provider, router: Any, row: Row, asynchronous: bool, stream: bool
) -> None:
    provider.served.clear()
    provider.script = Script([LONG], 0.1 if stream else 0)
    events: list[Any] = []
    guarded = Guard(Policy(), detector=Scripted(), sinks=[events.append]).wrap(router)
    more = {"stream": True} if stream else {}

    async def run() -> r.Outcome:
        answer = await getattr(guarded, "a" + row.door.function)(**asked(row), **more)
        outcome = await row.adrained(answer) if stream else row.answered(answer)
        await tasks_end()
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


@rows("asynchronous", [False, True])
def test_an_error_in_mid_stream_quotes_no_withheld_text(
    provider: Provider, router: Any, asynchronous: bool
) -> None:
    """A Router raises an error that holds all that was said, the choices mixed up."""
    said = [["All is well.", " BIAS is", " the word. ", "Fine"], ["No.", " So", " it", " goes"]]
    provider.script = Script(said, error_after=7)
    guarded = Guard(Policy(action="redact"), detector=Scripted("BIAS is the")).wrap(router)
    call = {"model": "openai/x", "messages": r.MESSAGES, "stream": True, "n": 2}

    async def run() -> r.Outcome:
        return await r.adrain(await guarded.acompletion(**call))

    outcome = arun(run()) if asynchronous else r.drain(guarded.completion(**call))
    assert outcome.texts == {Channel(): "All is well. [removed] Fine", Channel(1): "No. So it"}
    error: BaseException | None = outcome.error
    assert error is not None
    while error is not None:
        assert "the word" not in f"{error!r} {vars(error)}"
        error = error.__cause__


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


@rows("name", ["abatch_completion", "agenerate_content"])
def test_methods_without_a_door_are_refused(router: Any, name: str) -> None:
    with pytest.raises(UsageError, match=name):
        getattr(Guard(detector=Scripted()).wrap(router), name)


# What may bring text of a model and has no door; from LiteLLM 1.109 on there are those at the end.
REFUSED = frozenset(
    """
    a_add_message aadapter_completion aadapter_generate_content aapply abatch_completion
    abatch_completion_fastest_response abatch_completion_one_model_multiple_requests acancel_batch
    acancel_interaction acancel_responses acompact_responses acreate_agent acreate_assistants
    acreate_batch acreate_container acreate_interaction acreate_realtime_client_secret
    acreate_realtime_transcription_session acreate_realtime_translation_client_secret acreate_skill
    acreate_thread adecisions adelete_agent adelete_assistant adelete_container
    adelete_container_file adelete_interaction adelete_responses adelete_skill aextraction
    afile_content agenerate_content agenerate_content_stream aget_agent aget_assistants
    aget_interaction aget_messages aget_responses aget_skill aget_thread aguardrail aimage_edit
    aimage_generation alist_agent_versions alist_agents alist_batches alist_container_files
    alist_containers alist_input_items alist_skills allm_passthrough_route aocr apply
    arealtime_calls arealtime_translation_calls aretrieve_batch aretrieve_container
    aretrieve_container_file aretrieve_container_file_content arun_thread asearch
    async_admit_deployment_turn async_function_with_fallbacks
    async_function_with_fallbacks_common_utils async_function_with_retries async_pre_routing_hook
    asystemone atranscription aupload_container_file available_guardrail avector_store_file_content
    avector_store_search avideo_content avideo_create_character avideo_edit avideo_extension
    avideo_generation avideo_get_character avideo_list avideo_remix avideo_status
    bind_to_request_logging blocked_failure_exempt build cache call cancel_interaction
    cooldown_cache failed_calls cooldown_event cooldown_event_on_own_loop cooled_down
    count_realtime_session_success create_agent create_container create_interaction decisions
    delete_agent delete_container delete_container_file delete_interaction deployment_tracks_usage
    extraction factory_function failure_exits from_config function_with_fallbacks generate_content
    generate_content_stream get_agent get_interaction health_state_cache image_generation
    io_token_usage_sync kubernetes_pod_discovery list_agent_versions list_agents
    list_container_files list_containers log_retry make_call observe ocr outcome_callbacks
    params_sent_to_deployment pattern_router per_user_deployment priority_header_update
    prompt_caching_pin_cache python_cooldown ran_as_request_deployment recover_stream
    recover_stream_sync register_plugin registry repin_after_success report_stream_failure
    report_stream_failure_sync report_stream_success report_stream_success_sync retire
    retire_routing_state retrieve_container retrieve_container_file retrieve_container_file_content
    retry_stream routed_name run_routing_cache_sync schedule_acompletion scheduler search select
    serve_through_request_logging service_logged service_logger_obj set_response_headers
    settings_dict split_request_priority stream_policy systemone track_deployment_pick
    trigger_fallback_cooldown upload_container_file vector_store_file_content vector_store_search
    video_content video_create_character video_edit video_extension video_generation
    video_get_character video_list video_remix video_status
    """.split()
)


def test_every_attribute_of_a_router_is_guarded_refused_or_known_to_bring_no_text(
    router: Any,
) -> None:
    guarded = Guard(detector=Scripted()).wrap(router)
    assert not GUARDED & HARMLESS
    assert not REFUSED & (GUARDED | HARMLESS)
    names = {*dir(Router), *dir(router), *vars(router)}
    for name in sorted(names - {*dir(GuardedRouter), "_router", "_session"}):
        if not hasattr(router, name):
            continue
        if name in GUARDED:
            assert getattr(guarded, name) is not getattr(router, name), name
        elif name in REFUSED or name.startswith("_"):
            with pytest.raises(
                UsageError, match=rf"^guard cannot judge the output of Router\.{name};"
            ):
                getattr(guarded, name)
        else:
            # A new name: to be guarded, or put among those that are refused or harmless.
            value = getattr(guarded, name)
            assert name in HARMLESS or not callable(value), name


@rows("name", sorted(HARMLESS))
def test_harmless_attributes_are_the_routers_own(router: Any, name: str) -> None:
    # Some came with later versions of LiteLLM.
    if hasattr(router, name):
        own, wrapped = getattr(router, name), getattr(Guard(detector=Scripted()).wrap(router), name)
        # LiteLLM makes some anew at each look-up.
        assert wrapped == own or wrapped.__code__ is own.__code__


def test_introspection_of_a_guarded_router_finds_only_guarded_attributes(router: Any) -> None:
    guarded = Guard(detector=Scripted()).wrap(router)
    assert not hasattr(guarded, "function_with_fallbacks")
    assert getattr(guarded, "_acompletion", None) is None
    found = {name for name, _ in inspect.getmembers(guarded)}
    assert "completion" in found
    assert "function_with_fallbacks" not in found
    private = "_acompletion" if hasattr(router, "_acompletion") else "_core"
    with pytest.raises(UsageError, match="cannot judge the output of Router"):
        getattr(guarded, private)


def test_attributes_that_are_not_litellms_are_refused() -> None:
    own: Any = Guard(detector=Scripted()).wrap(Router(model_list=[]))
    own._router.ask = lambda: own._router.completion("first", r.MESSAGES)
    own._router.helper = object()
    own._router.helpers = {"one": object()}
    for name in ("ask", "helper", "helpers"):
        with pytest.raises(UsageError, match=name):
            getattr(own, name)
    with pytest.raises(AttributeError, match="nothing"):
        own.nothing  # noqa: B018
    assert not hasattr(own, "_repr_html_")


@rows(
    "given, name",
    [(litellm, "a module"), (litellm.completion, "a function"), (Router, "the class Router")],
)
def test_an_object_that_is_no_router_is_refused_by_name(given: Any, name: str) -> None:
    with pytest.raises(UsageError, match=f"takes a litellm.Router, not {name};"):
        Guard(detector=Scripted()).wrap(given)


class TestChatCompletionsCreate:
    """LiteLLM's Router as OpenAI's client: ``router.chat.completions.create``."""

    def create(self, router: Any, **call: Any) -> Any:
        call = {"model": "first", "messages": r.MESSAGES, **call}
        return router.chat.completions.create(**call)

    @pytest.fixture
    def asynchronous(self, provider: Provider) -> Iterator[Any]:
        named = {"model": "openai/gpt-4o", "api_base": provider.openai, "api_key": "k"}
        router = litellm.Router(
            model_list=[{"model_name": "first", "litellm_params": named}],
            default_litellm_params={"acompletion": True},
        )
        yield router
        router.discard()

    @rows("way", ["wrap", "intercept"])
    def test_whole_and_streamed(self, provider: Provider, router: Any, way: str) -> None:
        provider.served.clear()
        provider.script = Script([LONG])
        g = Guard(detector=Scripted())
        with g.intercept() if way == "intercept" else nullcontext():
            asked = g.wrap(router) if way == "wrap" else router
            assert isinstance(asked.chat, litellm.Chat)
            answer = self.create(asked)
            assert answer.choices[0].message.content == "All is well. " + STOP
            assert [d.action for d in answer.guard] == ["pass", "terminate"]
            stream = self.create(asked, stream=True)
            assert r.drain(stream).texts == {Channel(): "All is well. " + STOP}
        assert len(provider.served) == 2

    @rows("way", ["wrap", "intercept"])
    def test_async(self, provider: Provider, asynchronous: Any, way: str) -> None:
        provider.script = Script([LONG])
        g = Guard(detector=Scripted())
        asked = g.wrap(asynchronous) if way == "wrap" else asynchronous

        async def run() -> tuple[Any, Any]:
            with g.intercept() if way == "intercept" else nullcontext():
                whole = await self.create(asked)
                return whole, await r.adrain(await self.create(asked, stream=True))

        whole, streamed = arun(run())
        assert whole.choices[0].message.content == "All is well. " + STOP
        assert streamed.texts == {Channel(): "All is well. " + STOP}

    @rows("way", ["wrap", "intercept"])
    def test_settings_of_one_call_are_not_those_of_the_next(
        self, provider: Provider, router: Any, way: str
    ) -> None:
        provider.script = Script([["All is well. BIAS is."]])
        g = Guard(detector=Scripted())
        with g.intercept() if way == "intercept" else nullcontext():
            completions = (g.wrap(router) if way == "wrap" else router).chat.completions
            call = {"model": "first", "messages": r.MESSAGES}
            answer = completions.create(**call, guard={"action": "flag"})
            assert answer.choices[0].message.content == "All is well. BIAS is."
            answer = completions.create(**call)
            assert answer.choices[0].message.content == "All is well. " + STOP
            assert completions.create(r.MESSAGES, "first").choices[0].message.content == (
                "All is well. " + STOP
            )
        assert all("guard" not in served.body for served in provider.served)

    def test_litellms_own_client_is_intercepted(self, provider: Provider) -> None:
        provider.script = Script([LONG])
        client = litellm.LiteLLM(api_key="k", base_url=provider.openai)
        with Guard(detector=Scripted()).intercept():
            answer = client.chat.completions.create(r.MESSAGES, "openai/gpt-4o")
        assert answer.choices[0].message.content == "All is well. " + STOP


@rows("stream", [False, True])
def test_interception_covers_the_calls_inside_a_router(
    provider: Provider, router: Any, stream: bool
) -> None:
    provider.script = Script([LONG])
    call: dict[str, Any] = {"model": "second", "messages": r.MESSAGES, "stream": stream}

    def text(answer: Any) -> str:
        chunks = [c.choices[0].delta.content or "" for c in answer] if stream else []
        return "".join(chunks) if stream else answer.choices[0].message.content

    async def atext(answer: Any) -> str:
        return text([chunk async for chunk in answer] if stream else answer)

    async def run() -> list[Any]:
        if not has_fallback_methods:
            return [await atext(await router.call("acompletion", call))]
        by_fallbacks = router.async_function_with_fallbacks(
            original_function=router._acompletion, num_retries=0, **call
        )
        return [
            await atext(await router._acompletion(**call)),
            await atext(await by_fallbacks),
        ]

    # Until LiteLLM 1.109.
    has_fallback_methods = hasattr(router, "function_with_fallbacks")
    with Guard(detector=Scripted()).intercept():
        texts = arun(run())
        if has_fallback_methods:
            by_fallbacks = router.function_with_fallbacks(
                original_function=router._completion, num_retries=0, **call
            )
            texts += [text(router._completion(**call)), text(by_fallbacks)]
    assert set(texts) == {"All is well. " + STOP}


@since(compat.ALL_DOORS)
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
    assert issubclass(made, ResponsesStream)


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

    def test_errors_take_the_place_of_answers(self, replay: Replay) -> None:
        replay.answer = r.answer_of([Said(0, "content", "All is well. BIAS is.")])
        answers = Guard(detector=Scripted(), action="raise").batch_completion(**self.call())
        assert [type(a) for a in answers] == [BiasFound, BiasFound]
        failed = Guard(detector=Scripted()).batch_completion(
            **self.call(mock_response=litellm.RateLimitError("full", "replay", "x"))
        )
        assert all(isinstance(a, litellm.RateLimitError) for a in failed)

    def test_an_error_of_the_batch_itself_is_judged(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: Any, **__: Any) -> Any:
            raise litellm.APIError(500, "cannot read 'quagmire BIAS zephyr'", "replay", "x")

        monkeypatch.setattr(litellm, "batch_completion", fail)
        with pytest.raises(litellm.APIError, match="left out") as caught:
            Guard(detector=Scripted()).batch_completion(**self.call())
        assert "BIAS" not in f"{caught.value!r}{vars(caught.value)}"
        assert caught.value.__context__ is None

    def test_each_answers_user_message_is_its_own(self, replay: Replay) -> None:
        windows: list[Window] = []
        replay.answer = r.answer_of([Said(0, "content", "Fine.")])
        g = Guard(Policy(user_context=True), detector=Scripted(before=windows.append))
        g.batch_completion(**self.call())
        assert [w.user for w in windows] == ["One.", "Two."]

    def test_each_stream_holds_by_its_own_user_message(self, replay: Replay) -> None:
        said = ["They", " BIAS", " now", ". More."]
        replay.source = lambda: iter([r.chunk_of(Said(0, "content", text)) for text in said])
        asked = [[{"role": "user", "content": t}] for t in ("And women?", "And cars?")]
        g = Guard(Policy(hold="association"), detector=Scripted())
        named, unnamed = g.batch_completion(**self.call(messages=asked, stream=True))
        # Who "they" are is known where the user has named a group.
        assert r.drain(named).texts == {Channel(): STOP}
        assert r.drain(unnamed).texts == {Channel(): "They BIAS now." + STOP}

    @rows("scope", ["choice", "response"])
    def test_streams_of_several_choices_end_as_the_scope_says(
        self, replay: Replay, scope: str
    ) -> None:
        said = [
            (0, "All is well. "),
            (1, "Fine. "),
            (0, "BIAS is. It is. "),
            (1, "Really. "),
            (1, "On."),
        ]
        replay.source = lambda: iter(
            [*(r.chunk_of(Said(c, "content", t)) for c, t in said), r.chunk_of(finish="stop")]
        )
        g = Guard(Policy(scope=scope), detector=Scripted())
        for stream in g.batch_completion(**self.call(stream=True, n=2)):
            outcome = r.drain(stream)
            assert outcome.texts[Channel(0)] == "All is well. " + STOP
            assert outcome.finish[0] == "content_filter"
            if scope == "response":
                assert outcome.texts[Channel(1)] == "Fine. " + STOP
                assert outcome.finish[1] == "content_filter"
                assert replay.closed
            else:
                assert outcome.texts[Channel(1)] == "Fine. Really. On."
                assert outcome.ends == {0: "content_filter"}
