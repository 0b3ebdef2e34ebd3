"""The action ``rewrite``: the model goes on without what was withheld, through the same door."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import litellm
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.core import Guard
from guard.doors.litellm import compat
from guard.errors import UsageError
from guard.policy import Policy
from guard.verdict import Channel, Window
from tests.doors import replay as r
from tests.doors.log import Log, tasks_end
from tests.doors.replay import Replay
from tests.doors.texts import TRIGGER, choices_, chunkings, chunks, letters, saids
from tests.doors.versions import since
from tests.provider import Provider, Script
from tests.rows import examples, rows
from tests.scripted import Scripted

Read = Callable[[Guard, dict[str, Any]], r.Outcome]

BIASED = ["All is well.", " BIAS", " is here.", *[" And so it goes on."] * 40]
ON = ["And on", " it goes. ", "Fine."]
WHOLE = "All is well. And on it goes. Fine."
REWRITE = Policy(action="rewrite", rewrite_instruction="Leave out {association}.")


def streamed(guard: Guard, call: dict[str, Any]) -> r.Outcome:
    return r.drain(guard.completion(**call, stream=True))


def astreamed(guard: Guard, call: dict[str, Any]) -> r.Outcome:
    async def run() -> r.Outcome:
        outcome = await r.adrain(await guard.acompletion(**call, stream=True))
        await tasks_end()  # some of LiteLLM's call its callbacks
        return outcome

    return r.arun(run())


def whole(guard: Guard, call: dict[str, Any]) -> r.Outcome:
    return r.of_answer(guard.completion(**call))


def awhole(guard: Guard, call: dict[str, Any]) -> r.Outcome:
    async def run() -> r.Outcome:
        outcome = r.of_answer(await guard.acompletion(**call))
        await tasks_end()
        return outcome

    return r.arun(run())


every = pytest.mark.parametrize("read", [streamed, astreamed, whole, awhole])


def call(provider: Provider, **more: Any) -> dict[str, Any]:
    base = {"api_base": provider.openai, "api_key": "k", "max_retries": 0, "num_retries": 0}
    return {"model": "openai/x", "messages": r.MESSAGES, **base, **more}


def guard(policy: Policy = REWRITE, sinks: Sequence[Any] = (), pattern: str = "BIAS") -> Guard:
    return Guard(policy, detector=Scripted(pattern), sinks=sinks)


@every
def test_the_model_continues_from_the_released_text(
    provider: Provider, read: Read, log: Log
) -> None:
    events: list[Any] = []
    provider.scripts = [Script([BIASED], 0.01 if read in (streamed, astreamed) else 0)]
    provider.script = Script([ON])
    outcome = read(guard(sinks=[events.append]), call(provider))
    assert outcome.error is None
    assert outcome.texts == {Channel(): WHOLE}
    assert outcome.finish == {0: "stop"}
    assert [d.action for d in outcome.trail] == ["pass", "rewrite", "pass", "pass"]
    assert [e.action for e in events] == ["pass", "rewrite", "pass", "pass"]
    assert outcome.trail.rewrites == 1
    assert not outcome.trail.stopped
    first, second = provider.served
    assert first.over.wait(5)
    assert second.alone
    assert first.disconnected == (read in (streamed, astreamed))
    assert second.body["messages"] == [
        *r.MESSAGES,
        {"role": "assistant", "content": "All is well."},
        {"role": "user", "content": 'Leave out "BIAS" to "BIAS".'},
    ]
    assert {k: v for k, v in second.body.items() if k != "messages"} == {
        k: v for k, v in first.body.items() if k != "messages"
    }
    # Each call is reported once.
    said = [kind for kind, _, _ in log.settle()]
    assert said == ["async success" if read in (astreamed, awhole) else "success"] * 2


@rows("read", [streamed, astreamed])
def test_a_rewritten_stream_is_one_stream(provider: Provider, read: Read) -> None:
    provider.scripts = [Script([BIASED], 0.01), Script([ON], id="chatcmpl-2")]
    outcome = read(guard(), call(provider, stream_options={"include_usage": True}))
    assert outcome.texts == {Channel(): WHOLE}
    assert {type(c) for c in outcome.chunks} == {litellm.types.utils.ModelResponseStream}
    assert len({(c.id, c.created, c.model) for c in outcome.chunks}) == 1
    built = litellm.stream_chunk_builder(outcome.chunks)
    assert built is not None
    assert built.choices[0].message.content == WHOLE
    assert "BIAS" not in r.serialised(*outcome.chunks)


@rows("read", [whole, awhole])
def test_the_usage_of_a_whole_answer_is_that_of_all_calls(provider: Provider, read: Read) -> None:
    provider.scripts = [Script([BIASED]), Script([ON])]
    answers: list[Any] = []
    original = r.of_answer

    def keep(answer: Any) -> r.Outcome:
        answers.append(answer)
        return original(answer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(r, "of_answer", keep)
        read(guard(), call(provider))
    usage = answers[0].usage
    assert usage.prompt_tokens == 14
    assert usage.completion_tokens == len(BIASED) + len(ON)
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


@rows("read", [streamed, astreamed, whole, awhole])
def test_when_the_tries_are_used_up_the_answer_is_terminated(
    provider: Provider, read: Read
) -> None:
    provider.served.clear()
    provider.script = Script([["Well. ", "BIAS once more. ", *["And so it goes on."] * 40]])
    outcome = read(guard(), call(provider))
    assert outcome.texts == {Channel(): "Well. Well. Well. " + REWRITE.message}
    assert outcome.ends == {0: "content_filter"}
    assert len(provider.served) == 1 + REWRITE.rewrite_tries
    assert outcome.trail.rewrites == REWRITE.rewrite_tries
    rewritten = ["pass", "rewrite"]
    assert [d.action for d in outcome.trail] == [*rewritten * 2, "pass", "terminate"]


@rows("read", [streamed, astreamed, whole, awhole])
def test_an_answer_biased_from_its_first_word_is_begun_again(
    provider: Provider, read: Read
) -> None:
    provider.scripts = [Script([["BIAS from the start. ", "More."]]), Script([ON])]
    outcome = read(guard(), call(provider))
    assert outcome.texts == {Channel(): "".join(ON)}
    roles = [m["role"] for m in provider.last.body["messages"]]
    assert roles == ["user", "user"]


@rows("read", [streamed, astreamed, whole, awhole])
def test_where_asking_again_fails_the_answer_is_terminated(provider: Provider, read: Read) -> None:
    provider.scripts = [Script([BIASED]), Script(status=500)]
    events: list[Any] = []
    outcome = read(guard(sinks=[events.append]), call(provider))
    assert outcome.error is None
    assert [d.action for d in events] == ["pass", "rewrite", "terminate"]
    assert events[-1] == outcome.trail.decisions[-1]
    assert outcome.texts == {Channel(): "All is well. " + REWRITE.message}
    assert outcome.ends == {0: "content_filter"}
    assert outcome.trail.stopped
    assert outcome.trail.rewrites == 0


@rows("read", [streamed, astreamed, whole, awhole])
def test_the_released_text_is_context_of_the_continued_answer(
    provider: Provider, read: Read
) -> None:
    windows: list[Window] = []
    provider.scripts = [Script([BIASED]), Script([ON])]
    g = Guard(REWRITE, detector=Scripted(before=windows.append))
    read(g, call(provider))
    goes_on = next(w for w in windows if w.text.startswith("And on"))
    assert goes_on.context == ("All is well.",)


@rows("read", [streamed, astreamed, whole, awhole])
def test_several_choices_and_tool_calls_are_terminated(provider: Provider, read: Read) -> None:
    provider.served.clear()
    provider.script = Script([BIASED, ["Fine."]])
    outcome = read(guard(), call(provider, n=2))
    assert outcome.texts[Channel(0)] == "All is well. " + REWRITE.message
    assert outcome.texts[Channel(1)] == "Fine."
    named = {"name": "f", "arguments": '{"a": "BIAS is here"}'}
    tool = {"index": 0, "id": "c", "type": "function", "function": named}
    provider.script = Script([[{"tool_calls": [tool]}]], message={"tool_calls": [tool]})
    outcome = read(guard(), call(provider))
    assert outcome.ends == {0: "content_filter"}
    assert outcome.trail.rewrites == 0
    assert len(provider.served) == 2


@rows("read", [streamed, astreamed, whole, awhole])
def test_one_type_is_rewritten_where_the_policy_says_so(provider: Provider, read: Read) -> None:
    provider.scripts = [Script([["Well. LOOK is. ", *BIASED]]), Script([ON])]
    policy = Policy(actions={"gender": "rewrite", "appearance": "flag"})
    detector = Scripted("BIAS|LOOK", types={"LOOK": "appearance"})
    outcome = read(Guard(policy, detector=detector), call(provider))
    assert outcome.texts == {Channel(): "Well. LOOK is. " + WHOLE}
    assert [d.action for d in outcome.trail][:4] == ["pass", "flag", "pass", "rewrite"]


@rows("asynchronous", [False, True])
def test_a_reader_who_leaves_before_the_model_is_asked_has_it_asked_no_more(
    provider: Provider, asynchronous: bool
) -> None:
    provider.served.clear()
    provider.script = Script([BIASED], 0.02)

    def stopped(chunk: Any, stream: Any) -> bool:
        return any(d.action == "rewrite" for d in stream.guard)

    async def run() -> None:
        stream = await guard().acompletion(**call(provider), stream=True)
        async for chunk in stream:
            if stopped(chunk, stream):
                break
        await stream.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    if asynchronous:
        r.arun(run())
    else:
        stream = guard().completion(**call(provider), stream=True)
        with contextlib.closing(stream):
            next(chunk for chunk in stream if stopped(chunk, stream))
        with pytest.raises(StopIteration):
            next(stream)
    assert len(provider.served) == 1


@rows("asynchronous", [False, True])
def test_a_router_is_asked_again_through_itself(provider: Provider, asynchronous: bool) -> None:
    provider.served.clear()
    named = {"model": "openai/x", "api_base": provider.openai, "api_key": "k", "max_retries": 0}
    router = litellm.Router([{"model_name": "group", "litellm_params": named}], num_retries=0)
    guarded: Any = guard().wrap(router)
    provider.scripts = [Script([BIASED], 0.01), Script([ON])]

    async def run() -> r.Outcome:
        return await r.adrain(await guarded.acompletion("group", r.MESSAGES, stream=True))

    if asynchronous:
        outcome = r.arun(run())
    else:
        outcome = r.drain(guarded.completion("group", r.MESSAGES, stream=True))
    assert outcome.texts == {Channel(): WHOLE}
    assert len(provider.served) == 2
    router.discard()


@since(compat.ALL_DOORS)
def test_doors_without_rewriting_refuse_it_before_any_call(provider: Provider) -> None:
    g = guard()
    base = call(provider)
    base.pop("messages")
    refused: list[Callable[[], Any]] = [
        lambda: g.text_completion(**base, prompt="x"),
        lambda: asyncio.run(g.atext_completion(**base, prompt="x")),
        lambda: g.responses(**base, input="x"),
        lambda: asyncio.run(g.aresponses(**base, input="x")),
        lambda: g.batch_completion(**base, messages=[r.MESSAGES]),
        lambda: g.stream(["x"]),
    ]
    for refuse in refused:
        with pytest.raises(UsageError, match="'rewrite' works for completion and acompletion"):
            refuse()
    assert provider.served == []
    assert g.check("BIAS is here.").biased


# Random answers, each with findings of its own.


def apart(answers: list[Any]) -> list[Any]:
    """The answers with letters that no other of them has."""
    return [
        [
            [
                (kind, tool, "".join(chr(ord(c) + 5000 * n) if letters(c) else c for c in text))
                for kind, tool, text in runs
            ]
            for runs in choices
        ]
        for n, choices in enumerate(answers)
    ]


drawn = st.lists(
    choices_(kinds=("content", "reasoning"), ordered=True), min_size=1, max_size=4
).map(apart)


class Several(Replay):
    """Gives one answer a call, the last for good."""

    def __init__(self, answers: Sequence[Any], chunking: Any) -> None:
        super().__init__()
        self.answers, self.chunking, self.asked = list(answers), chunking, 0

    def take(self) -> Any:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def streaming(self, *args: Any, **kwargs: Any) -> Any:
        sent = chunks(self.take(), self.chunking)
        self.source = lambda: iter(sent)
        return super().streaming()

    async def astreaming(self, *args: Any, **kwargs: Any) -> Any:
        sent = chunks(self.take(), self.chunking)
        self.source = lambda: iter(sent)
        async for chunk in super().astreaming():
            yield chunk

    def completion(self, *args: Any, **kwargs: Any) -> Any:
        return r.answer_of([s for line in saids(self.take(), ([10**6], 0)) for s in line])

    async def acompletion(self, *args: Any, **kwargs: Any) -> Any:
        return self.completion()


@given(drawn, chunkings, st.sampled_from(["sentence", "association"]))
@examples(24)
def test_nothing_withheld_goes_out_and_every_way_agrees(
    replay: Replay, answers: Any, chunking: Any, hold: str
) -> None:
    seen: list[r.Outcome] = []
    for read in (streamed, astreamed, whole, awhole):
        handler = Several(answers, chunking)
        litellm.custom_provider_map = [{"provider": "replay", "custom_handler": handler}]
        biased: list[str] = []

        def note(window: Window, biased: list[str] = biased) -> None:
            if TRIGGER in window.text:
                biased.append(window.text)

        policy = Policy(action="rewrite", rewrite_tries=3, hold=hold)
        g = Guard(policy, detector=Scripted(TRIGGER, note))
        try:
            outcome = read(g, r.CALL)
        finally:
            litellm.custom_provider_map = [{"provider": "replay", "custom_handler": replay}]
        out = "".join(outcome.texts.values())
        if hold == "sentence":
            assert not letters("".join(biased)) & letters(out)
        assert TRIGGER not in out
        assert handler.asked == 1 + outcome.trail.rewrites <= 4
        seen.append(outcome)
    assert [s.ends for s in seen] == [seen[0].ends] * 4
    assert [s.texts.get(Channel()) for s in seen] == [seen[0].texts.get(Channel())] * 4
    assert [[d.action for d in s.trail] for s in seen] == [[d.action for d in seen[0].trail]] * 4


@rows(
    "read, again",
    product(
        [streamed, astreamed, whole, awhole],
        [
            ["All is well.", " And on it goes. Fine."],
            list("All is well. And on it goes. Fine."),
            ["all is\n\nwell. And on it goes. Fine."],
            ["All is well. And on it goes. Fine."],
        ],
    ),
)
def test_an_answer_that_repeats_the_released_text_is_not_shown_twice(
    provider: Provider, read: Read, again: list[str]
) -> None:
    provider.scripts = [Script([BIASED]), Script([again])]
    outcome = read(guard(), call(provider))
    assert outcome.texts == {Channel(): WHOLE}
    assert outcome.finish == {0: "stop"}


@rows(
    "read, again",
    product(
        [streamed, astreamed, whole, awhole],
        ["All is wellness. So.", "All is well", "All was well. So."],
    ),
)
def test_an_answer_that_only_begins_like_the_released_text_is_kept_whole(
    provider: Provider, read: Read, again: str
) -> None:
    provider.scripts = [Script([["All is well or", " so.", " BIAS is."]]), Script([list(again)])]
    outcome = read(guard(), call(provider))
    assert outcome.texts == {Channel(): "All is well or so. " + again}


@rows("read", [streamed, astreamed, whole, awhole])
def test_text_after_a_repeat_is_judged(provider: Provider, read: Read) -> None:
    provider.scripts = [Script([BIASED]), Script([list("All is well. BIAS is. More.")])]
    outcome = read(guard(Policy(action="rewrite", rewrite_tries=1)), call(provider))
    assert outcome.texts == {Channel(): "All is well. " + REWRITE.message}
    assert "BIAS" not in r.serialised(*outcome.chunks)
