"""The design's promises 1 to 7 for the chat doors, over random texts, chunkings and findings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import litellm
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from litellm import CustomStreamWrapper

from guard.core import Guard
from guard.detect.protocol import Window
from guard.errors import BiasFound, DetectorError
from guard.policy import Policy
from guard.verdict import Channel
from tests.doors import replay as r
from tests.doors.replay import Outcome, Replay
from tests.doors.texts import TRIGGER, Unjudged, choices_, chunkings, chunks, letters, saids
from tests.scripted import Scripted, failing

KINDS = ("content", "reasoning", "tool")
ACTIONS = ("terminate", "redact", "flag", "raise")
actions = st.sampled_from(ACTIONS)
scopes = st.sampled_from(["choice", "response"])
few = settings(max_examples=60, deadline=None)

Door = Callable[..., Outcome]
STREAMS = [r.streamed, r.astreamed]
both = pytest.mark.parametrize("door", STREAMS, ids=["sync", "async"])


# 1. No leak.


class Watch:
    """Fails where a segment is asked about after any of it went out."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self._unjudged = Unjudged()
        self.asked = 0

    @property
    def leaks(self) -> set[str]:
        return self._unjudged.out

    def __call__(self, window: Window) -> None:
        self.asked += 1
        self._unjudged.note(window.text, r.serialised(*self.seen))


def watched(replay: Replay, chunks_: Any, policy: Policy) -> tuple[Watch, Any, list[Any]]:
    watch, events = Watch(), []
    session = r.session(policy, Scripted(TRIGGER, watch), [events.append])
    stream = r.stream(replay, chunks_, session)
    return watch, stream, events


def _letters(first: int, count: int) -> str:
    return "".join(chr(0x4E00 + i) for i in range(first, first + count))


# A segment that could end where another channel speaks, goes on, and is cut by force.
INTERRUPTED = [
    [
        ("reasoning", 0, _letters(0, 180) + "."),
        ("content", 0, _letters(180, 8)),
        ("reasoning", 0, _letters(188, 90)),
    ]
]
# One that ends before the white space with which it was judged when another channel spoke.
ENDED = [
    [
        ("content", 0, _letters(0, 12) + "\n" + _letters(12, 4) + ". "),
        ("reasoning", 0, _letters(20, 280)),
        ("content", 0, _letters(300, 40)),
    ]
]


@given(choices_(most=3, kinds=KINDS), chunkings, actions, scopes)
@example(INTERRUPTED, ([1], 0), "terminate", "choice")
@example(ENDED, ([1], 0), "terminate", "choice")
@few
def test_nothing_of_a_segment_goes_out_before_its_verdict(
    replay: Replay, choices: Any, chunking: Any, action: str, scope: str
) -> None:
    policy = Policy(action=action, scope=scope)
    watch, stream, _ = watched(replay, chunks(choices, chunking), policy)
    try:
        for chunk in stream:
            watch.seen.append(chunk)
    except BiasFound:
        pass
    assert watch.leaks == set()
    said = "".join(text for runs in choices for _, _, text in runs)
    assert watch.asked or not any(map(str.isalnum, said))  # a text without words is not judged


@given(choices_(most=3, kinds=KINDS), chunkings, actions)
@example(INTERRUPTED, ([1], 0), "terminate")
@example(ENDED, ([1], 0), "terminate")
@few
def test_nothing_of_a_segment_goes_out_before_its_verdict_async(
    replay: Replay, choices: Any, chunking: Any, action: str
) -> None:
    watch = Watch()
    session = r.session(Policy(action=action), Scripted(TRIGGER, watch))

    async def run() -> None:
        stream = await r.astream(replay, chunks(choices, chunking), session)
        try:
            async for chunk in stream:
                watch.seen.append(chunk)
        except BiasFound:
            pass

    r.arun(run())
    assert watch.leaks == set()


@given(choices_(most=2, kinds=KINDS), chunkings, st.sampled_from(["terminate", "redact", "raise"]))
@few
def test_a_biased_segment_never_goes_out(
    replay: Replay, choices: Any, chunking: Any, action: str
) -> None:
    texts = {
        (index, kind, tool): "".join(t for k, n, t in runs if (k, n) == (kind, tool))
        for index, runs in enumerate(choices)
        for kind, tool, _ in runs
    }
    _, stream, events = watched(replay, chunks(choices, chunking), Policy(action=action))
    outcome = r.drain(stream)
    out = r.serialised(*outcome.chunks, *stream.chunks) + stream.response_uptil_now
    out += repr(outcome.error) + str(outcome.error) + repr(events) + repr(stream.guard)
    for decision in stream.guard.findings:
        text = texts[decision.channel.choice, decision.channel.kind, decision.channel.tool]
        start, end = decision.span
        mine = [d.span for d in stream.guard if d.channel == decision.channel]
        # What was judged early and found harmless may be out.
        early = max((s.end for s in mine if s.start == start and s.end < end), default=start)
        assert not letters(text[early:end]) & letters(out)


# 2. Chunking does not matter.


@both
@given(
    choices=choices_(most=2, kinds=KINDS),
    one=chunkings,
    two=chunkings,
    action=st.sampled_from(["terminate", "redact", "flag"]),
)
@settings(max_examples=40, deadline=None)
def test_any_chunking_gives_the_same(
    replay: Replay, door: Door, choices: Any, one: Any, two: Any, action: str
) -> None:
    session = r.session(Policy(action=action), Scripted(TRIGGER))
    first = door(replay, chunks(choices, one), session)
    second = door(replay, chunks(choices, two), session)
    assert first.comparable == second.comparable


@given(choices_(kinds=KINDS), chunkings, chunkings)
@few
def test_any_chunking_gives_the_same_error_under_raise(
    replay: Replay, choices: Any, one: Any, two: Any
) -> None:
    session = r.session(Policy(action="raise"), Scripted(TRIGGER))
    first = r.streamed(replay, chunks(choices, one), session)
    second = r.streamed(replay, chunks(choices, two), session)
    assert first.comparable == second.comparable
    if any(d[1] == "raise" for d in first.decisions):
        assert isinstance(first.error, BiasFound)
        assert first.error.trail is first.trail


# 3. Transparent.


def dumped(chunks_: Any) -> list[dict[str, Any]]:
    """What the chunks hold; LiteLLM stamps its own last chunk with the second it was made in."""
    return [{**c.model_dump(), "created": 0} for c in chunks_]


@both
@given(choices=choices_(kinds=KINDS), chunking=chunkings, action=actions)
@settings(max_examples=30, deadline=None)
def test_harmless_text_comes_in_the_providers_own_chunks(
    replay: Replay, door: Door, choices: Any, chunking: Any, action: str
) -> None:
    sent = chunks(choices, chunking)
    session = r.session(Policy(action=action), Scripted("$none"))
    plain = r.unguarded(replay, sent)
    stream: Any = None

    async def run() -> Outcome:
        nonlocal stream
        stream = await r.astream(replay, sent, session)
        return await r.adrain(stream)

    if door is r.streamed:
        stream = r.stream(replay, sent, session)
        outcome = r.drain(stream)
    else:
        outcome = r.arun(run())
    assert isinstance(stream, CustomStreamWrapper)
    own = stream.__dict__["_upstream"].chunks
    assert len(outcome.chunks) == len(own)
    assert all(a is b for a, b in zip(outcome.chunks, own, strict=True))
    assert dumped(outcome.chunks) == dumped(plain)
    built = litellm.stream_chunk_builder(outcome.chunks, messages=r.MESSAGES)
    expected = litellm.stream_chunk_builder(plain, messages=r.MESSAGES)
    assert dumped([built]) == dumped([expected])
    assert stream.chunks == outcome.chunks


@given(choices_(most=3, kinds=KINDS), chunkings)
@few
def test_harmless_choices_come_in_order_each(replay: Replay, choices: Any, chunking: Any) -> None:
    sent = chunks(choices, chunking)
    outcome = r.streamed(replay, sent, r.session(Policy(), Scripted("$none")))
    plain = r.drain(_Plain(r.unguarded(replay, sent)))
    assert outcome.texts == plain.texts
    assert outcome.finish == plain.finish


class _Plain:
    def __init__(self, chunks_: Any) -> None:
        self.chunks = chunks_
        self.guard: Any = ()

    def __iter__(self) -> Any:
        return iter(self.chunks)


@both
@given(choices=choices_(most=2, kinds=KINDS), chunking=chunkings, action=actions)
@settings(max_examples=30, deadline=None)
def test_no_object_of_litellms_is_changed(
    replay: Replay, door: Door, choices: Any, chunking: Any, action: str
) -> None:
    sent = chunks(choices, chunking)
    plain = r.unguarded(replay, sent)
    session = r.session(Policy(action=action), Scripted(TRIGGER))

    async def run() -> Any:
        stream = await r.astream(replay, sent, session)
        await r.adrain(stream)
        return stream

    if door is r.streamed:
        stream = r.stream(replay, sent, session)
        r.drain(stream)
    else:
        stream = r.arun(run())
    own = stream.__dict__["_upstream"].chunks
    assert dumped(own) == dumped(plain[: len(own)])


# 4. Linear.


@pytest.mark.parametrize("size", [1, 7, 10**6])
def test_cost_grows_with_length(replay: Replay, size: int) -> None:
    def judged(sentences: int) -> tuple[int, int]:
        windows: list[Window] = []
        text = "All is well here, and so on it goes. " * sentences + "word " * sentences * 8
        session = r.session(Policy(), Scripted("$none", windows.append))
        r.streamed(replay, chunks([[("content", 0, text)]], ([size], 0)), session)
        return len(windows), sum(len(w.text) + sum(map(len, w.context)) for w in windows)

    # The first segments have less context than the later ones, so growth is compared with growth.
    (calls, characters), (calls2, characters2), (calls4, characters4) = map(judged, (20, 40, 80))
    assert calls4 - calls2 <= 2 * (calls2 - calls) + 1
    assert characters4 - characters2 <= 2.1 * (characters2 - characters)


# 5. Bounded delay.


@given(choices_(kinds=("content",)), chunkings)
@few
def test_at_most_a_segment_its_overlap_and_the_lookahead_are_held(
    replay: Replay, choices: Any, chunking: Any
) -> None:
    policy = Policy()
    bound = policy.max_segment_chars + policy.overlap + policy.lookahead
    sent = chunks(choices, chunking)
    stream = r.stream(replay, sent, r.session(policy, Scripted("$none")))
    sizes = [sum(len(c.delta.content or "") for c in chunk.choices) for chunk in sent]
    out = 0
    for shown, chunk in enumerate(stream):
        # All that came before the chunk in hand, less what went out, is what was held. The oldest
        # of the chunks held may be settled but for its end: it goes out whole.
        came = sum(sizes[: replay.pulled - 1])
        assert came - out - sizes[shown] <= bound
        out += len(chunk.choices[0].delta.content or "")
    assert out == sum(sizes)


@both
@pytest.mark.parametrize("end", ["no finish reason", "error"])
def test_an_ended_stream_is_flushed(replay: Replay, door: Door, end: str) -> None:
    text = "All is well. This never ends"
    sent = chunks([[("content", 0, text)]], ([5], 0))[:-1]
    session = r.session(Policy(), Scripted("$none"))

    def source() -> Any:
        yield from sent
        if end == "error":
            raise ConnectionResetError("the line broke")

    def run() -> Outcome:
        replay.source = source
        if door is r.streamed:
            return r.drain(r.chat.completion(session, (), {**r.CALL, "stream": True}))

        async def go() -> Outcome:
            return await r.adrain(await r.chat.acompletion(session, (), {**r.CALL, "stream": True}))

        return r.arun(go())

    outcome = run()
    assert outcome.texts == {Channel(): text}
    assert len(outcome.trail) == 2
    assert (outcome.error is not None) == (end == "error")
    assert replay.closed


# 6. Same everywhere.


@given(
    choices_(most=3, kinds=KINDS, ordered=True),
    chunkings,
    st.sampled_from(["terminate", "redact", "flag"]),
)
@settings(max_examples=40, deadline=None)
def test_whole_and_streamed_sync_and_async_agree(
    replay: Replay, choices: Any, chunking: Any, action: str
) -> None:
    session = r.session(Policy(action=action), Scripted(TRIGGER))
    sent = chunks(choices, chunking)
    everything = [s for line in saids(choices, ([10**6], 0)) for s in line]
    outcomes = [
        r.streamed(replay, sent, session),
        r.astreamed(replay, sent, session),
        r.whole(replay, everything, session),
        r.awhole(replay, everything, session),
    ]
    first = outcomes[0].comparable
    for outcome in outcomes[1:]:
        assert outcome.comparable == first


@given(choices_(kinds=KINDS, ordered=True), chunkings)
@few
def test_whole_and_streamed_agree_where_one_stop_ends_all(
    replay: Replay, choices: Any, chunking: Any
) -> None:
    session = r.session(Policy(scope="response"), Scripted(TRIGGER))
    everything = saids(choices, ([10**6], 0))[0]
    streamed = r.streamed(replay, chunks(choices, chunking), session)
    assert r.whole(replay, everything, session).comparable == streamed.comparable


def test_a_stop_of_all_choices_keeps_the_text_released_before(replay: Replay) -> None:
    # Why the test above has one choice. A stop that ends all choices leaves of the others what
    # was judged by then: of a whole answer the choices before it, of a stream what had come of
    # each, as they interleave. And LiteLLM gives a stream of several choices one finish reason
    # for all, so even a choice that was complete cannot be told from one that would go on.
    policy = Policy(scope="response")
    session = r.session(policy, Scripted(TRIGGER))
    said = [
        r.Said(0, "content", "All is well. Really."),
        r.Said(1, "content", f"{TRIGGER} is. More."),
    ]
    whole = r.whole(replay, said, session)
    assert whole.texts == {Channel(0): "All is well. Really.", Channel(1): policy.message}
    assert whole.ends == {1: "content_filter"}
    ordered, reversed_ = ([r.chunk_of(s) for s in line] for line in (said, said[::-1]))
    first = r.streamed(replay, [*ordered, r.chunk_of(finish="stop")], session)
    assert first.texts == {
        Channel(0): "All is well. " + policy.message,
        Channel(1): policy.message,
    }
    other = r.streamed(replay, [*reversed_, r.chunk_of(finish="stop")], session)
    assert other.texts == {Channel(0): policy.message, Channel(1): policy.message}
    assert first.ends == other.ends == {0: "content_filter", 1: "content_filter"}


@given(choices_(kinds=("content",)).filter(lambda c: c[0][0][2].strip()), chunkings)
@few
def test_check_gives_the_same_verdicts(replay: Replay, choices: Any, chunking: Any) -> None:
    choices = [choices[0][:1]]
    guard = Guard(Policy(action="flag"), detector=Scripted(TRIGGER))
    outcome = r.streamed(replay, chunks(choices, chunking), guard.session())
    trail = guard.trail(choices[0][0][2])
    assert [(d.span, d.verdict.score) for d in outcome.trail] == [
        (d.span, d.verdict.score) for d in trail
    ]


@given(choices_(kinds=KINDS, ordered=True))
@few
def test_raise_stops_a_whole_answer_and_quotes_nothing(replay: Replay, choices: Any) -> None:
    session = r.session(Policy(action="raise"), Scripted(TRIGGER))
    everything = saids(choices, ([10**6], 0))[0]
    for outcome in (r.whole(replay, everything, session), r.awhole(replay, everything, session)):
        if isinstance(outcome.error, BiasFound):
            assert not letters(str(outcome.error) + repr(outcome.error))
        else:
            assert outcome.error is None
            assert TRIGGER not in "".join(outcome.texts.values())


# 7. Fail closed.


@both
@pytest.mark.parametrize("action", ACTIONS)
def test_a_failing_detector_ends_the_output(replay: Replay, door: Door, action: str) -> None:
    policy = Policy(action=action)
    sent = chunks([[("content", 0, "All is well. And so on.")]], ([4], 0))
    outcome = door(replay, sent, r.session(policy, Scripted("$none", failing)))
    if action == "raise":
        assert isinstance(outcome.error, DetectorError)
        assert outcome.texts == {}
    else:
        assert outcome.texts == {Channel(): policy.failure_message}
        assert outcome.finish == {0: "content_filter"}
    assert [d.verdict.unjudged for d in outcome.trail] == ["failure"]


@both
def test_a_failing_detector_lets_pass_where_the_policy_says_open(
    replay: Replay, door: Door
) -> None:
    events: list[Any] = []
    sent = chunks([[("content", 0, "All is well. And so on.")]], ([4], 0))
    session = r.session(Policy(failure="open"), Scripted("$none", failing), [events.append])
    outcome = door(replay, sent, session)
    assert outcome.texts == {Channel(): "All is well. And so on."}
    assert [e.verdict.unjudged for e in events] == ["failure", "failure"]
