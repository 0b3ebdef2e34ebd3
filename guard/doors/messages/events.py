"""The events of Anthropic's Messages API, and how they are encoded.

An event is a dict, or a server-sent event in bytes or text. A transport's chunk may hold several
events or a part of one; a :class:`Framer` reassembles them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from guard.doors.walk import TextPlace
from guard.verdict import Channel

TERMINAL = ("message_stop", "error")
_END = re.compile(rb"\r\n\r\n|\n\r?\n|\r\r")
_LINE = re.compile(r"\r\n|\n|\r")  # not str.splitlines: its other separators may occur in JSON


# Comments that keep a connection alive.
_ALIVE = frozenset({"", "ping", "keep alive", "keep-alive", "keepalive", "heartbeat"})


class MessageEvent(NamedTuple):
    """One event: its fields, or its data as text if that is not a JSON object."""

    fields: Mapping[str, Any] | None
    data: str = ""

    @property
    def type(self) -> str:
        """The event's name; empty for a comment and for data that is not a JSON object."""
        return str(self.fields.get("type")) if self.fields is not None else ""

    @property
    def block(self) -> int:
        """The number of the block that the event belongs to."""
        return int(self.fields.get("index") or 0) if self.fields is not None else 0

    @property
    def ends(self) -> bool:
        """Whether the event ends the message: it carries the stop reason, or is the last one."""
        if self.type != "message_delta":
            return self.type in TERMINAL
        delta = self.fields and self.fields.get("delta")
        return isinstance(delta, Mapping) and delta.get("stop_reason") is not None

    @property
    def delta_type(self) -> str:
        """The kind of the event's delta; empty if it has none."""
        delta = self.fields.get("delta") if self.fields is not None else None
        return str(delta.get("type", "")) if isinstance(delta, Mapping) else ""


class FrameText(NamedTuple):
    """A text in a frame: the number of its event, and its channel.

    ``repeated`` marks a repeat of a judged text; that text's decision applies to it.
    """

    event: int
    place: TextPlace
    channel: Channel
    text: str
    repeated: bool = False


@dataclass(slots=True)
class Frame:
    """Complete events that arrived together, and their ``chunk``.

    ``chunk`` is None for a frame made here, and if the chunk carries more than these events.
    ``texts`` are the events' texts, filled in by the codec. ``message`` is set on the frame that
    ends a stopped message.
    """

    chunk: Any
    events: Sequence[MessageEvent]
    texts: list[FrameText] = field(default_factory=list)
    message: str | None = None


class Framer:
    """Assembles a transport's chunks into frames: one for each chunk that completes an event.

    ``form`` is the type of the chunks: dict, bytes or str.
    """

    def __init__(self) -> None:
        self.form: type[Any] = bytes
        self._pending = bytearray()
        self._searched = 0

    def feed(self, chunk: Any) -> list[Frame]:
        """Return the frames that ``chunk`` completes: none or one.

        Two if events of text follow the stop reason: those do not belong to the message.
        """
        if isinstance(chunk, Mapping):
            self.form = dict
            return [Frame(chunk, [MessageEvent(chunk)])]
        self.form = str if isinstance(chunk, str) else bytes
        data = chunk.encode() if isinstance(chunk, str) else bytes(chunk)
        whole = not self._pending
        self._pending += data
        end = 0
        for match in _END.finditer(self._pending, self._searched):
            end = match.end()
        if not end:
            self._searched = max(0, len(self._pending) - 3)
            return []
        completed = chunk if whole and end == len(self._pending) else self._chunk_of(end)
        frame = _frame_of(completed, bytes(self._pending[:end]))
        del self._pending[:end]
        self._searched = 0
        events = frame.events
        last = next((n for n, event in enumerate(events, 1) if event.ends), len(events))
        if any(event.type.startswith("content_block_") for event in events[last:]):
            return [Frame(None, events[:last]), Frame(None, events[last:])]
        return [frame]

    def rest(self) -> list[Frame]:
        """Return the rest at the end of the stream: an event without its final blank line."""
        if not self._pending:
            return []
        frame = _frame_of(self._chunk_of(len(self._pending)), bytes(self._pending))
        self._pending.clear()
        return [frame]

    def _chunk_of(self, end: int) -> Any:
        data = bytes(self._pending[:end])
        return data.decode(errors="replace") if self.form is str else data


def _frame_of(chunk: Any, data: bytes) -> Frame:
    """Return the frame of ``data``; with its chunk only if the events cover all of the bytes."""
    events: list[MessageEvent] = []
    plain = True
    for block in _END.split(data):
        if block.strip():
            event, alone = _event(_LINE.split(block.decode(errors="replace")))
            events.append(event)
            plain = plain and alone
    return Frame(chunk if plain else None, events)


def _event(lines: list[str]) -> tuple[MessageEvent, bool]:
    """Return the event in some lines, and whether they hold nothing else."""
    plain = True

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal plain
        members = dict(pairs)
        plain = plain and len(members) == len(pairs)
        return members

    data = [line[5:].removeprefix(" ") for line in lines if line.startswith("data:")]
    text = "\n".join(data)
    try:
        fields = json.loads(text, object_pairs_hook=once) if data else None
    except ValueError:
        fields = None
    if isinstance(fields, dict):
        event = MessageEvent(fields)
    else:
        event = MessageEvent(None, "" if text.strip() == "[DONE]" else text)
    names = ("event", f"event:{event.type}", f"event: {event.type}")
    for line in lines:
        if line.startswith(":"):
            plain = plain and line[1:].strip() in _ALIVE
        elif line and not line.startswith("data:"):
            plain = plain and line in names
    return event, plain


def encoded(event: Mapping[str, Any], form: type[Any]) -> Any:
    """Return an event in the form of the stream: a dict, or a server-sent event."""
    if form is dict:
        return dict(event)
    text = f"event: {event.get('type', 'message')}\ndata: {json.dumps(event)}\n\n"
    return text if form is str else text.encode()
