"""The hold modes at the doors: never both out, the same however it is chunked, and watching."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.core import Guard
from guard.doors.litellm import compat
from guard.policy import Policy
from guard.verdict import Channel, Window
from tests.doors import replay as r
from tests.doors.replay import Outcome, Replay
from tests.doors.texts import chunkings, chunks, saids
from tests.doors.versions import since
from tests.rows import examples, rows
from tests.scripted import Scripted, slow

TIED = r"(?s)women.*LAZY|LAZY.*women"
UNITS = [
    "women ",
    "the women ",
    "LAZY ",
    "LAZY, ",
    "rain. ",
    "so! ",
    "\n\n",
    "w ",
    "3.14 ",
    "so it is ",
]
KINDS = ("content", "reasoning", "tool")
MODES = [("association", a) for a in ("terminate", "redact", "flag")] + [("none", "flag")]
modes = st.sampled_from(MODES)
few = examples(30)
Door = Callable[..., Outcome]
both = pytest.mark.parametrize("door", [r.streamed, r.astreamed], ids=["sync", "async"])
texts = st.lists(st.sampled_from(UNITS), min_size=1, max_size=25).map("".join)


@st.composite
def spoken(draw: st.DrawFn, most: int = 1) -> list[list[tuple[str, int, str]]]:
    """Choices, each saying something in some of the channels, in the order of a whole answer."""
    choices = []
    for _ in range(draw(st.integers(1, most))):
        kinds = [k for k in ("reasoning", "content", "tool") if draw(st.booleans())]
        choices.append([(k, 0, draw(texts)) for k in kinds or ["content"]])
    return choices


def leaks(outcome: Outcome, choices: Any, message: str) -> list[str]:
    """The biased segments of which more than what stands before the first mention went out."""
    found = []
    for decision in outcome.trail:
        if decision.verdict.biased:
            channel, (start, end) = decision.channel, decision.span
            said = {(kind, tool): text for kind, tool, text in choices[channel.choice]}
            text = said[channel.kind, channel.tool]
            out = outcome.texts.get(channel, "").removesuffix(message)
            if channel.kind == "tool" and not text.startswith(out):
                out = out.removesuffix("{")  # what breaks a cut call
            assert text.startswith(out)
            if len(out) > text.index("women", start):
                found.append(text[start:end])
    return found


@pytest.mark.parametrize("door", [r.streamed, r.astreamed])
@given(choices=spoken(most=2), chunking=chunkings, action=st.sampled_from(["terminate", "raise"]))
@few
def test_group_and_attribute_never_both_go_out(
    replay: Replay, door: Door, choices: Any, chunking: Any, action: str
) -> None:
    policy = Policy(hold="association", action=action)
    outcome = door(replay, chunks(choices, chunking), r.session(policy, Scripted(TIED)))
    assert leaks(outcome, choices, policy.message) == []


@pytest.mark.parametrize("door", [r.streamed, r.astreamed])
@given(choices=spoken(most=2), one=chunkings, two=chunkings, mode=modes)
@few
@since(compat.ALL_DOORS)
def test_any_chunking_gives_the_same(
    replay: Replay, door: Door, choices: Any, one: Any, two: Any, mode: tuple[str, str]
) -> None:
    session = r.session(Policy(hold=mode[0], action=mode[1]), Scripted(TIED))
    first = door(replay, chunks(choices, one), session)
    second = door(replay, chunks(choices, two), session)
    assert first.comparable == second.comparable


@given(spoken(most=2), chunkings, modes)
@few
@since(compat.ALL_DOORS)
def test_whole_and_streamed_sync_and_async_agree(
    replay: Replay, choices: Any, chunking: Any, mode: tuple[str, str]
) -> None:
    session = r.session(Policy(hold=mode[0], action=mode[1]), Scripted(TIED))
    sent = chunks(choices, chunking)
    everything = [s for line in saids(choices, ([10**6], 0)) for s in line]
    first = r.streamed(replay, sent, session).comparable
    assert r.astreamed(replay, sent, session).comparable == first
    assert r.whole(replay, everything, session).comparable == first
    assert r.awhole(replay, everything, session).comparable == first


@pytest.mark.parametrize("door", [r.streamed, r.astreamed])
@given(choices=spoken(), chunking=chunkings, mode=modes)
@few
@since(compat.ALL_DOORS)
def test_harmless_text_comes_in_the_providers_own_chunks(
    replay: Replay, door: Door, choices: Any, chunking: Any, mode: tuple[str, str]
) -> None:
    sent = chunks(choices, chunking)
    plain = r.unguarded(replay, sent)
    session = r.session(Policy(hold=mode[0], action=mode[1]), Scripted("$none"))
    outcome = door(replay, sent, session)
    assert len(outcome.chunks) == len(plain)
    said = [c.model_dump() | {"created": 0} for c in outcome.chunks]
    assert said == [c.model_dump() | {"created": 0} for c in plain]


@given(texts, st.integers(1, 12), modes)
@few
def test_the_text_door_agrees_with_itself_in_any_chunking(
    text: str, size: int, mode: tuple[str, str]
) -> None:
    guard = Guard(Policy(hold=mode[0], action=mode[1]), detector=Scripted(TIED))
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    many, one = guard.stream(pieces), guard.stream([text])

    async def source() -> AsyncIterator[str]:
        for piece in pieces:
            yield piece

    async def read() -> str:
        return "".join([t async for t in guard.astream(source())])

    shown = "".join(many)
    assert shown == "".join(one) == asyncio.run(read())
    assert [(d.action, d.span) for d in many.guard] == [(d.action, d.span) for d in one.guard]
    if mode[1] == "flag":
        assert shown == text
    elif many.guard.biased and mode[1] == "terminate":
        biased = next(d.span for d in many.guard if d.verdict.biased)
        begin = text.index("women", biased.start)
        assert shown.removesuffix(guard.policy.message) == text[:begin]


class Order:
    """What was pulled, judged and read, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def judged(self, window: Window) -> None:
        self.log.append(f"judged {window.text.strip()}")

    def said(self, *texts: str) -> Any:
        for text in texts:
            self.log.append(f"sent {text.strip()}")
            yield text


@rows(
    "hold, first",
    [
        ("sentence", ["sent It rained.", "sent Women", "judged It rained.", "read It rained."]),
        ("association", ["sent It rained.", "read It rained.", "sent Women", "judged It rained."]),
        ("none", ["sent It rained.", "read It rained.", "sent Women", "read Women"]),
    ],
)
def test_text_that_needs_no_verdict_is_read_before_one_is_taken(
    hold: str, first: list[str]
) -> None:
    order = Order()
    guard = Guard({"hold": hold}, detector=Scripted(TIED, order.judged))
    for text in guard.stream(order.said("It rained.", " Women", " came. ")):
        order.log.append(f"read {text.strip()}")
    assert order.log[:4] == first
    assert order.log.count("judged It rained.") == order.log.count("judged Women came.") == 1


@rows("door", [r.streamed, r.astreamed])
def test_a_chat_stream_is_read_ahead_of_a_slow_detector(replay: Replay, door: Door) -> None:
    seen: list[tuple[str, int]] = []
    detector = Scripted(TIED, slow)
    session = r.session(Policy(hold="none"), detector)
    sent = chunks([[("content", 0, "All is well. And so on. Then")]], ([13], 0))

    def take(chunk: Any) -> None:
        seen.append((chunk.choices[0].delta.content or "", detector.calls))

    def read() -> None:
        for chunk in r.stream(replay, sent, session):
            take(chunk)

    async def aread() -> None:
        async for chunk in await r.astream(replay, sent, session):
            take(chunk)

    read() if door is r.streamed else r.arun(aread())
    assert seen[0] == ("All is well. ", 0)
    assert detector.calls == 3
    # The chunk that ends the choice comes when everything is judged: a reader may leave with it.
    assert seen[-1] == ("", 3)


@rows("door", [r.streamed, r.astreamed])
def test_watching_flags_what_it_finds_and_lets_all_through(replay: Replay, door: Door) -> None:
    events: list[Any] = []
    text = "It rained. Here women are LAZY. More."
    session = r.session(Policy(hold="none"), Scripted(TIED), [events.append])
    outcome = door(replay, chunks([[("content", 0, text)]], ([4], 0)), session)
    assert outcome.texts == {Channel(): text}
    assert [e.action for e in events] == ["pass", "flag", "pass"]
    assert outcome.finish == {0: "stop"}


@rows(
    "action, shown, door",
    [
        (action, shown, door)
        for action, shown in [
            ("terminate", "It rained. Here all [stop]"),
            ("redact", "It rained. Here all [gone] More."),
        ]
        for door in [r.streamed, r.astreamed]
    ],
)
def test_a_cut_takes_the_mention_and_what_follows_it(
    replay: Replay, door: Door, action: str, shown: str
) -> None:
    text = "It rained. Here all women are LAZY. More."
    policy = Policy(hold="association", action=action, message="[stop]", replacement="[gone]")
    session = r.session(policy, Scripted(TIED))
    for size in (1, 3, 100):
        outcome = door(replay, chunks([[("content", 0, text)]], ([size], 0)), session)
        assert outcome.texts == {Channel(): shown}


def test_a_group_that_the_user_named_may_be_meant_by_a_pronoun(replay: Replay) -> None:
    said = [r.chunk_of(r.Said(0, "content", "So they are LAZY.")), r.chunk_of(finish="stop")]
    session = r.session(Policy(hold="association"), Scripted("they.*LAZY"))

    def asked(question: str) -> str:
        replay.source = lambda: iter([c.model_copy(deep=True) for c in said])
        messages = [{"role": "user", "content": question}]
        call = {**r.CALL, "messages": messages, "stream": True}
        return r.drain(r.chat.completion(session, (), call)).texts[Channel()]

    assert asked("What of the women?") == "So " + session.policy.message
    assert asked("What of the roses?").startswith("So they are LAZY.")


def test_a_reader_who_leaves_early_closes_the_stream(replay: Replay) -> None:
    session = r.session(Policy(hold="none"), Scripted(TIED))
    stream = r.stream(replay, chunks([[("content", 0, "It rained. So. " * 9)]], ([7], 0)), session)
    next(stream)
    stream.close()
    assert replay.closed
    assert list(stream) == []
