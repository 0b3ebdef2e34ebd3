"""What the design promises of chat alone; the rest is in ``test_matrix.py``, for every door."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import litellm
import pytest
from hypothesis import given
from hypothesis import strategies as st
from litellm import CustomStreamWrapper

from guard.core import Guard
from guard.detect.protocol import Window
from guard.doors.litellm import compat
from guard.errors import BiasFound
from guard.policy import Policy
from guard.verdict import Channel
from tests.doors import replay as r
from tests.doors.replay import Outcome, Replay
from tests.doors.texts import TRIGGER, choices_, chunkings, chunks, letters, saids
from tests.doors.versions import since
from tests.rows import examples, rows
from tests.scripted import Scripted

KINDS = ("content", "reasoning", "tool")

Door = Callable[..., Outcome]
STREAMS = [r.streamed, r.astreamed]


actions = st.sampled_from(["terminate", "redact", "flag", "raise"])

# 3. Transparent.


def dumped(chunks_: Any) -> list[dict[str, Any]]:
    """What the chunks hold; LiteLLM stamps its own last chunk with the second it was made in."""
    return [{**c.model_dump(), "created": 0} for c in chunks_]


@pytest.mark.parametrize("door", STREAMS)
@examples(30)
@given(choices=choices_(kinds=KINDS), chunking=chunkings, action=actions)
@since(compat.ALL_DOORS)
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
@examples(40)
@since(compat.ALL_DOORS)
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


# 4. Linear.


@pytest.mark.parametrize(
    ("size", "least"),
    [
        (1, 8),
        (7, 20),
        (10**6, 20),
        pytest.param(1, 20, marks=pytest.mark.slow("LiteLLM takes a millisecond for a character")),
    ],
)
def test_cost_grows_with_length(replay: Replay, size: int, least: int) -> None:
    def judged(sentences: int) -> tuple[int, int]:
        windows: list[Window] = []
        text = "All is well here, and so on it goes. " * sentences + "word " * sentences * 8
        session = r.session(Policy(), Scripted("$none", windows.append))
        r.streamed(replay, chunks([[("content", 0, text)]], ([size], 0)), session)
        return len(windows), sum(len(w.text) + sum(map(len, w.context)) for w in windows)

    # The first segments have less context than the later ones, so growth is compared with growth.
    (calls, characters), (calls2, characters2), (calls4, characters4) = (
        judged(least * n) for n in (1, 2, 4)
    )
    assert calls4 - calls2 <= 2 * (calls2 - calls) + 1
    assert characters4 - characters2 <= 2.1 * (characters2 - characters)


# 5. Bounded delay.


@given(choices_(kinds=("content",)), chunkings)
@examples(60)
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


@rows("door, end", product(STREAMS, ["no finish reason", "error"]))
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


def test_a_stop_of_all_choices_keeps_the_text_released_before(replay: Replay) -> None:
    # Why whole and streamed agree there for one choice only. A stop that ends all choices leaves of
    # the others what was judged by then: of a whole answer the choices before it, of a stream what
    # had come of each, as they interleave. And LiteLLM gives a stream of several choices one finish
    # reason for all, so even a choice that was complete cannot be told from one that would go on.
    policy = Policy(scope="response")
    session = r.session(policy, Scripted(TRIGGER))
    said = [
        r.Said(0, "content", "All is well. Really."),
        r.Said(1, "content", f"{TRIGGER} is. So it is. More."),
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
@examples(60)
def test_check_gives_the_same_verdicts(replay: Replay, choices: Any, chunking: Any) -> None:
    choices = [choices[0][:1]]
    guard = Guard(Policy(action="flag"), detector=Scripted(TRIGGER))
    outcome = r.streamed(replay, chunks(choices, chunking), guard.session())
    trail = guard.trail(choices[0][0][2])
    assert [(d.span, d.verdict.score) for d in outcome.trail] == [
        (d.span, d.verdict.score) for d in trail
    ]


@given(choices_(kinds=KINDS, ordered=True))
@examples(60)
def test_raise_stops_a_whole_answer_and_quotes_nothing(replay: Replay, choices: Any) -> None:
    session = r.session(Policy(action="raise"), Scripted(TRIGGER))
    everything = saids(choices, ([10**6], 0))[0]
    for outcome in (r.whole(replay, everything, session), r.awhole(replay, everything, session)):
        if isinstance(outcome.error, BiasFound):
            assert not letters(str(outcome.error) + repr(outcome.error))
        else:
            assert outcome.error is None
            assert TRIGGER not in "".join(outcome.texts.values())
