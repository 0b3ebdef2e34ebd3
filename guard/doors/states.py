"""The states of a guarded stream, and the table of what leads from one to the next.

There are two machines, as for the two sides of a connection: ``UPSTREAM`` is the provider's stream,
``READER`` whoever reads the guarded one. What a table does not have cannot happen: a stream is over
before it is closed, and closed before another takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Event(Enum):
    """What happens to a stream."""

    __hash__ = object.__hash__  # Enum's own takes longer, and some of these come with each chunk

    FIRST_CHUNK = "the provider's first chunk came"
    LAST_CHUNK = "the chunk came at which LiteLLM reports the stream"
    COMPLETED = "the provider's stream ended"
    FAILED = "the provider's stream raised"
    STOPPED = "the guard stopped it, or its reader left"
    CLOSED = "its connection was closed"
    RESUMED = "the answer by which the model goes on takes its place"
    AHEAD = "text went out before its verdict"
    JUDGING = "the verdicts that text went out before are taken"
    ASK = "the model is to be asked to go on"
    ASKED = "the model was asked to go on"
    LEFT = "the reader wants no more"


E = Event


@dataclass(frozen=True, eq=False, slots=True)
class State:
    """A state of one of the machines; the flags say what it means to whoever drives a stream."""

    name: str
    over: bool = False
    """Nothing more is pulled."""
    reported: bool = False
    """LiteLLM has reported the stream itself, well or as a failure."""
    closed: bool = False
    """There is no connection left to close."""


UNREAD = State("unread")
FLOWING = State("flowing")
REPORTED = State("reported", reported=True)
STOPPED = State("stopped", over=True)
CLOSED = State("closed", over=True, closed=True)
ENDED = State("ended", over=True, reported=True)
DONE = State("done", over=True, reported=True, closed=True)

# Another thread may close a stream: what its read then brings or fails with changes nothing.
_LATE = (E.FIRST_CHUNK, E.COMPLETED, E.FAILED, E.STOPPED)
UPSTREAM: Mapping[State, Mapping[Event, State]] = {
    UNREAD: {
        E.LAST_CHUNK: REPORTED,
        E.FIRST_CHUNK: FLOWING,
        E.COMPLETED: DONE,
        E.FAILED: ENDED,
        E.STOPPED: STOPPED,
    },
    FLOWING: {
        E.FIRST_CHUNK: FLOWING,
        E.LAST_CHUNK: REPORTED,
        E.COMPLETED: DONE,
        E.FAILED: ENDED,
        E.STOPPED: STOPPED,
    },
    REPORTED: {
        E.FIRST_CHUNK: REPORTED,
        E.LAST_CHUNK: REPORTED,
        E.COMPLETED: DONE,
        E.FAILED: ENDED,
        E.STOPPED: ENDED,
    },
    STOPPED: dict.fromkeys(_LATE, STOPPED) | {E.LAST_CHUNK: ENDED, E.CLOSED: CLOSED},
    CLOSED: dict.fromkeys((*_LATE, E.CLOSED), CLOSED) | {E.LAST_CHUNK: DONE, E.RESUMED: UNREAD},
    ENDED: dict.fromkeys((*_LATE, E.LAST_CHUNK), ENDED) | {E.CLOSED: DONE},
    DONE: dict.fromkeys((*_LATE, E.LAST_CHUNK, E.CLOSED), DONE) | {E.RESUMED: UNREAD},
}

READING = State("reading")
BEHIND = State("behind")
"""Text went out ahead of verdicts that are to be taken before anything more is pulled."""
ASKING = State("asking")
"""The model is to be asked to go on before anything more is pulled."""
GONE = State("gone")

_READER = (E.AHEAD, E.JUDGING, E.ASK, E.ASKED, E.LEFT)
READER: Mapping[State, Mapping[Event, State]] = {
    READING: dict.fromkeys(_READER, READING) | {E.AHEAD: BEHIND, E.ASK: ASKING, E.LEFT: GONE},
    BEHIND: dict.fromkeys(_READER, BEHIND) | {E.JUDGING: READING, E.ASK: ASKING, E.LEFT: GONE},
    ASKING: dict.fromkeys(_READER, ASKING) | {E.ASKED: READING, E.LEFT: GONE},
    GONE: dict.fromkeys(_READER, GONE),
}
