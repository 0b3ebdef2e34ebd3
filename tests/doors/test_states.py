"""The tables of a stream's states: every transition, and what real streams make of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from litellm.exceptions import MidStreamFallbackError

from guard.doors import chat, states
from guard.doors.driver import GuardedStream
from guard.doors.states import READER, READING, UNREAD, UPSTREAM, State, StreamEvent
from guard.policy import Policy
from tests.doors import replay as r
from tests.doors.replay import Replay, Said
from tests.rows import rows
from tests.scripted import Scripted

E = StreamEvent
OF_UPSTREAM = (E.FIRST_CHUNK, E.LAST_CHUNK, E.COMPLETED, E.FAILED, E.STOPPED, E.CLOSED, E.RESUMED)
OF_READER = (E.AHEAD, E.JUDGING, E.ASK, E.ASKED, E.LEFT)
UPSTREAM_STATES = [
    *(states.UNREAD, states.FLOWING, states.REPORTED, states.STOPPED),
    *(states.CLOSED, states.ENDED, states.DONE),
]
READER_STATES = [states.READING, states.BEHIND, states.ASKING, states.GONE]


def reached(table: Any, begin: State) -> set[State]:
    found, waiting = {begin}, [begin]
    while waiting:
        for state in table[waiting.pop()].values():
            if state not in found:
                found.add(state)
                waiting.append(state)
    return found


def test_tables_name_every_state_and_each_can_be_reached() -> None:
    assert set(UPSTREAM) == set(UPSTREAM_STATES) == reached(UPSTREAM, UNREAD)
    assert set(READER) == set(READER_STATES) == reached(READER, READING)
    assert {*OF_UPSTREAM} | {*OF_READER} == set(StreamEvent)


def flags(state: State) -> tuple[bool, bool, bool]:
    return state.over, state.reported, state.closed


def after(over: bool, reported: bool, closed: bool, event: StreamEvent) -> tuple[bool, bool, bool]:
    """What an event means, said without the table."""
    if event is E.RESUMED:
        return False, False, False
    if event in (E.COMPLETED, E.FAILED) and not over:
        return True, True, event is E.COMPLETED
    return (
        over or event is E.STOPPED,
        reported or event is E.LAST_CHUNK,
        closed or event is E.CLOSED,
    )


@rows("state, event", product(UPSTREAM_STATES, OF_UPSTREAM))
def test_every_transition_of_the_upstream(state: State, event: StreamEvent) -> None:
    if event not in UPSTREAM[state]:
        # Closed before it is over, or followed by another while it has a connection.
        assert (event is E.CLOSED and not state.over) or (
            event is E.RESUMED and not (state.over and state.closed)
        )
        return
    to = UPSTREAM[state][event]
    assert flags(to) == after(*flags(state), event)
    if event is E.FIRST_CHUNK:
        assert (to is states.FLOWING) == (state in (states.UNREAD, states.FLOWING))
    assert to is not UNREAD or event is E.RESUMED


@rows("state, event", product(READER_STATES, OF_READER))
def test_every_transition_of_the_reader(state: State, event: StreamEvent) -> None:
    to = READER[state][event]
    if state is states.GONE or event is E.LEFT:
        assert to is states.GONE
    elif event is E.ASK or (state is states.ASKING and event is not E.ASKED):
        assert to is states.ASKING
    elif event is E.AHEAD or (state is states.BEHIND and event is not E.JUDGING):
        assert to is states.BEHIND
    else:
        assert to is states.READING


@given(st.lists(st.sampled_from(OF_UPSTREAM), max_size=12))
def test_a_stream_that_is_over_is_pulled_from_again_only_where_another_takes_its_place(
    events: list[StreamEvent],
) -> None:
    state, over = UNREAD, False
    for event in events:
        if event in UPSTREAM[state]:
            state = UPSTREAM[state][event]
            over = event is not E.RESUMED and (over or state.over)
            assert state.over == over


class Taken:
    """Notes the transitions that real streams take."""

    def __init__(self, patching: pytest.MonkeyPatch) -> None:
        self.upstream: list[StreamEvent] = []
        on, read_on = GuardedStream._on, GuardedStream._on_reader
        self.reader: list[StreamEvent] = []

        def noted(stream: GuardedStream, event: StreamEvent) -> None:
            self.upstream.append(event)
            on(stream, event)

        def read_noted(stream: GuardedStream, event: StreamEvent) -> None:
            self.reader.append(event)
            read_on(stream, event)

        patching.setattr(GuardedStream, "_on", noted)
        patching.setattr(GuardedStream, "_on_reader", read_noted)


HARMLESS = ["All is well. ", "Really. ", "So it goes."]
BIASED = ["All is well. ", "BIAS is. ", "So it goes."]
ENDS = {
    "complete": (HARMLESS, None, [E.FIRST_CHUNK, E.COMPLETED], states.DONE),
    "stopped": (BIASED, None, [E.FIRST_CHUNK, E.STOPPED, E.CLOSED], states.CLOSED),
    "failed": (HARMLESS, RuntimeError("no"), [E.FIRST_CHUNK, E.FAILED, E.CLOSED], states.DONE),
    "failed at once": ([], RuntimeError("no"), [E.FAILED, E.CLOSED], states.DONE),
}


def begun(replay: Replay, texts: list[str], error: Exception | None, **policy: Any) -> Any:
    """A guarded stream over a provider that says ``texts``, and then fails or ends."""

    def source() -> Iterator[Any]:
        yield from [r.chunk_of(Said(0, "content", text)) for text in texts]
        if error is not None:
            raise error

    replay.source = source
    session = r.session(Policy(**policy), Scripted())
    return chat.completion(session, (), {**r.CALL, "stream": True})


@pytest.mark.parametrize("end", ENDS)
def test_a_real_stream_that_is_read_to_its_end(
    replay: Replay, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    texts, error, events, state = ENDS[end]
    taken = Taken(monkeypatch)
    stream = begun(replay, texts, error)
    assert (r.drain(stream).error is not None) == (error is not None)
    assert taken.upstream == events
    assert stream._state is state
    assert stream._reader is READING


def test_text_that_goes_out_ahead_is_judged_before_more_is_pulled(
    replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = Taken(monkeypatch)
    stream = begun(replay, HARMLESS, None, hold="none")
    pulled = []
    for _ in stream:
        pulled.append(replay.pulled)
        assert stream._reader in (states.BEHIND, READING)
    assert E.AHEAD in taken.reader
    for event, following in pairwise(taken.reader):
        assert event is not E.AHEAD or following is E.JUDGING
    assert pulled == sorted(pulled)


@rows("hold, end", product(["sentence", "none"], ["complete", "stopped", "failed"]))
def test_however_it_is_read_it_ends_over_and_closed(replay: Replay, end: str, hold: str) -> None:
    texts, error, *_ = ENDS[end]
    for steps in (s for n in range(4) for s in product(("next", "close"), repeat=n)):
        stream = begun(replay, texts, error, hold=hold)
        gone = False
        for step in (*steps, "close"):
            if step == "close":
                stream.close()
                gone = True
                assert flags(stream._state)[::2] == (True, True)
                assert stream._reader is states.GONE
            else:
                with suppress(MidStreamFallbackError):
                    assert next(stream, None) is None or not gone
