"""The states of a guarded stream and the tables of their transitions.

There are two state machines, one for each side: ``UPSTREAM`` for the provider's stream,
``READER`` for the consumer of the guarded one. A transition that is in no table cannot happen: a
stream is over before it is closed, and closed before another takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class StreamEvent(Enum):
    """What happens to a stream."""

    __hash__ = object.__hash__  # faster than Enum's: some of these events come with each chunk

    FIRST_CHUNK = "the provider's first chunk came"
    LAST_CHUNK = "the chunk came after which LiteLLM reports the stream"
    COMPLETED = "the provider's stream ended"
    FAILED = "the provider's stream raised"
    STOPPED = "the guard stopped it, or its reader left"
    CLOSED = "its connection was closed"
    RESUMED = "the model's continued answer replaces it"
    AHEAD = "text went out before its verdict"
    JUDGING = "the verdicts on that text are taken"
    ASK = "the model must be asked to continue"
    ASKED = "the model was asked to continue"
    LEFT = "the reader stopped reading"


E = StreamEvent


@dataclass(frozen=True, eq=False, slots=True)
class State:
    """A state of one of the machines; the flags are for the driver of the stream."""

    name: str
    over: bool = False
    """Nothing more is pulled."""
    reported: bool = False
    """LiteLLM has reported the stream itself, as a success or a failure."""
    closed: bool = False
    """No connection is left to close."""
    has_work: bool = False
    """There is work to do before the next pull."""


UNREAD = State("unread")
FLOWING = State("flowing")
REPORTED = State("reported", reported=True)
STOPPED = State("stopped", over=True)
CLOSED = State("closed", over=True, closed=True)
ENDED = State("ended", over=True, reported=True)
DONE = State("done", over=True, reported=True, closed=True)

# Another thread may close a stream during a read; the result of that read changes nothing.
_LATE = (E.FIRST_CHUNK, E.COMPLETED, E.FAILED, E.STOPPED)
_OPEN = {
    E.FIRST_CHUNK: FLOWING,
    E.LAST_CHUNK: REPORTED,
    E.COMPLETED: DONE,
    E.FAILED: ENDED,
    E.STOPPED: STOPPED,
}
UPSTREAM: Mapping[State, Mapping[StreamEvent, State]] = {
    UNREAD: _OPEN,
    FLOWING: _OPEN,
    REPORTED: _OPEN | {E.FIRST_CHUNK: REPORTED, E.STOPPED: ENDED},
    STOPPED: dict.fromkeys(_LATE, STOPPED) | {E.LAST_CHUNK: ENDED, E.CLOSED: CLOSED},
    CLOSED: dict.fromkeys((*_LATE, E.CLOSED), CLOSED) | {E.LAST_CHUNK: DONE, E.RESUMED: UNREAD},
    ENDED: dict.fromkeys((*_LATE, E.LAST_CHUNK), ENDED) | {E.CLOSED: DONE},
    DONE: dict.fromkeys((*_LATE, E.LAST_CHUNK, E.CLOSED), DONE) | {E.RESUMED: UNREAD},
}

READING = State("reading")
BEHIND = State("behind", has_work=True)
"""Text went out before its verdicts, which must be taken now."""
ASKING = State("asking", has_work=True)
"""The model must be asked to continue."""
GONE = State("gone")

_READER = (E.AHEAD, E.JUDGING, E.ASK, E.ASKED, E.LEFT)
READER: Mapping[State, Mapping[StreamEvent, State]] = {
    READING: dict.fromkeys(_READER, READING) | {E.AHEAD: BEHIND, E.ASK: ASKING, E.LEFT: GONE},
    BEHIND: dict.fromkeys(_READER, BEHIND) | {E.JUDGING: READING, E.ASK: ASKING, E.LEFT: GONE},
    ASKING: dict.fromkeys(_READER, ASKING) | {E.ASKED: READING, E.LEFT: GONE},
    GONE: dict.fromkeys(_READER, GONE),
}
