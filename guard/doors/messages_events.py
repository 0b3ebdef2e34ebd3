"""Where Anthropic's Messages API carries text, and how its events travel.

An event is a dict, or a server-sent event in bytes or text. What a transport hands over at once may
hold several events or a part of one; a :class:`Framer` puts them together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from guard.doors.events import Place, visited
from guard.verdict import Channel, ChannelKind

Visit = Callable[[Place, ChannelKind, str], str]

STOPPED: Mapping[str, Any] = {"stop_reason": "refusal", "stop_sequence": None}
"""How a stopped message ends: with Anthropic's own reason for when its classifiers intervene.

It has no ``stop_details``: by these LiteLLM knows a provider's refusal, and falls back from it.
"""
TERMINAL = ("message_stop", "error")
KNOWN = frozenset(
    "message_start content_block_start content_block_delta content_block_stop message_delta "
    "message_stop ping error".split()
)
# Kinds of blocks, and of their deltas: the channel's kind, the field that holds the text, the slot.
_BLOCKS: Mapping[str, tuple[ChannelKind, str]] = {
    "text": ("content", "text"),
    "thinking": ("reasoning", "thinking"),
    "compaction": ("content", "content"),
}
_DELTAS: Mapping[str, tuple[ChannelKind, str, str]] = {
    "text_delta": ("content", "text", "text"),
    "thinking_delta": ("reasoning", "thinking", "thinking"),
    "input_json_delta": ("tool", "partial_json", "input"),
    "compaction_delta": ("content", "content", "compaction"),
}
_SPEECHLESS = ("signature_delta", "citations_delta")  # quotes of sources are not the model's words
# All that a rewritten block keeps beside its texts: none of it can repeat them.
_BLOCK = ("type", "id", "name", "server_name", "caller")
_END = re.compile(rb"\r\n\r\n|\n\r?\n|\r\r")
_LINE = re.compile(r"\r\n|\n|\r")  # not what str.splitlines knows besides: JSON may hold that


class Event(NamedTuple):
    """One event: its fields, or where it has none that can be read, its data as text."""

    fields: Mapping[str, Any] | None
    data: str = ""

    @property
    def type(self) -> str:
        """The event's name; empty for a comment and for data that is no JSON object."""
        return str(self.fields.get("type")) if self.fields is not None else ""

    @property
    def block(self) -> int:
        """The number of the block that the event belongs to."""
        return int(self.fields.get("index") or 0) if self.fields is not None else 0

    @property
    def delta_type(self) -> str:
        """The kind of delta that the event brings; empty where it brings none."""
        delta = self.fields.get("delta") if self.fields is not None else None
        return str(delta.get("type", "")) if isinstance(delta, Mapping) else ""


class Said(NamedTuple):
    """A text in a frame: the event that has it, and its channel."""

    event: int
    place: Place
    channel: Channel
    text: str


@dataclass(slots=True)
class Frame:
    """Whole events that arrived together; ``chunk`` is what brought them, None for one made here.

    ``texts`` are what they say, filled in by the codec; ``message`` stands for a stopped message's
    end.
    """

    chunk: Any
    events: Sequence[Event]
    texts: list[Said] = field(default_factory=list)
    message: str | None = None


class Framer:
    """Puts a transport's chunks together to frames: each chunk is one, if it ends with an event.

    ``form`` is the type of the chunks: dict, bytes or str.
    """

    def __init__(self) -> None:
        self.form: type[Any] = bytes
        self._pending = bytearray()
        self._searched = 0

    def feed(self, chunk: Any) -> list[Frame]:
        """Return the frames that ``chunk`` completes: none or one."""
        if isinstance(chunk, Mapping):
            self.form = dict
            return [Frame(chunk, [Event(chunk)])]
        self.form = str if isinstance(chunk, str) else bytes
        data = chunk.encode() if isinstance(chunk, str) else bytes(chunk)
        whole = not self._pending
        self._pending += data
        end = 0
        for found in _END.finditer(self._pending, self._searched):
            end = found.end()
        if not end:
            self._searched = max(0, len(self._pending) - 3)
            return []
        made = chunk if whole and end == len(self._pending) else self._made(end)
        frame = Frame(made, list(_events(bytes(self._pending[:end]))))
        del self._pending[:end]
        self._searched = 0
        return [frame]

    def rest(self) -> list[Frame]:
        """Return what is left at the end of the stream: an event without the line that ends it."""
        if not self._pending:
            return []
        frame = Frame(self._made(len(self._pending)), list(_events(bytes(self._pending))))
        self._pending.clear()
        return [frame]

    def _made(self, end: int) -> Any:
        data = bytes(self._pending[:end])
        return data.decode(errors="replace") if self.form is str else data


def _events(data: bytes) -> Iterator[Event]:
    for block in _END.split(data):
        if not block.strip():
            continue
        lines = _LINE.split(block.decode(errors="replace"))
        said = [line[5:].removeprefix(" ") for line in lines if line.startswith("data:")]
        text = "\n".join(said)
        try:
            fields = json.loads(text) if said else None
        except ValueError:
            fields = None
        if isinstance(fields, dict):
            yield Event(fields)
        else:
            yield Event(None, "" if text.strip() == "[DONE]" else text)


def encoded(event: Mapping[str, Any], form: type[Any]) -> Any:
    """Return an event as the stream's consumer reads it: a dict, or bytes or text of a SSE."""
    if form is dict:
        return dict(event)
    text = f"event: {event.get('type', 'message')}\ndata: {json.dumps(event)}\n\n"
    return text if form is str else text.encode()


def walked(event: Event, visit: Visit) -> Mapping[str, Any] | None:
    """Return an event's fields with each text as ``visit`` gives it.

    Of a block or a delta whose text ``visit`` changed, nothing is kept that could repeat it; None
    where nothing is left of it that is worth sending. Raises UsageError on text that is no string:
    it cannot be judged, so it cannot go out.
    """
    if event.fields is None:
        if not event.data:
            return None
        visited(visit, Place(0, "other"), "content", event.data)
        return None
    fields, index = event.fields, event.block
    if event.type == "content_block_delta" and isinstance(fields.get("delta"), Mapping):
        delta = _delta(fields["delta"], index, visit)
        return fields if delta is fields["delta"] else delta and {**fields, "delta": delta}
    if event.type == "content_block_start" and isinstance(fields.get("content_block"), Mapping):
        block = _block(fields["content_block"], index, visit)
        if block is fields["content_block"]:
            return fields
        return block and {**fields, "content_block": block}
    if event.type == "message_start" and isinstance(fields.get("message"), Mapping):
        content = fields["message"].get("content") or ()
        blocks = [_block(b, n, visit) for n, b in enumerate(content) if isinstance(b, Mapping)]
        if all(made is b for made, b in zip(blocks, content, strict=False)):
            return fields
        return {**fields, "message": {**fields["message"], "content": [b for b in blocks if b]}}
    if event.type == "message_delta" and isinstance(fields.get("delta"), Mapping):
        details = fields["delta"].get("stop_details")
        said = details.get("explanation") if isinstance(details, Mapping) else None
        if visited(visit, Place(0, "explanation"), "content", said) != said:
            return without_details(fields)
    return fields


def without_details(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message's delta without what explains its stop reason, in the words it refused."""
    kept = {key: value for key, value in fields["delta"].items() if key != "stop_details"}
    return {**fields, "delta": kept}


def _delta(delta: Mapping[str, Any], index: int, visit: Visit) -> Mapping[str, Any] | None:
    kind = str(delta.get("type"))
    if kind in _SPEECHLESS:
        return delta
    if kind in _DELTAS:
        channel, name, slot = _DELTAS[kind]
        named = [(name, channel, slot)]
    else:  # of a kind unknown: all of its strings are text
        named = [
            (name, "content", "other")
            for name, value in delta.items()
            if name != "type" and isinstance(value, str)
        ]
    made = {"type": kind}
    for name, channel, slot in named:
        made[name] = visited(visit, Place(index, slot), channel, delta.get(name))
    if all(made[name] == delta.get(name) for name, _, _ in named):
        return delta
    return made if any(made[name] for name, _, _ in named) else None


def _block(block: Mapping[str, Any], index: int, visit: Visit) -> Mapping[str, Any] | None:
    kind = str(block.get("type"))
    if kind in _BLOCKS:
        channel, name = _BLOCKS[kind]
        slot = "compaction" if kind == "compaction" else name
        text = visited(visit, Place(index, slot), channel, block.get(name))
        if text == block.get(name):
            return block
        made = {key: block[key] for key in _BLOCK if key in block} | {name: text}
        return {**made, "signature": ""} if kind == "thinking" else made
    if text := input_of(block):
        # A call is one thing: cut anywhere, none of it goes out.
        return block if visited(visit, Place(index, "input"), "tool", text) == text else None
    return block


def input_of(block: Mapping[str, Any]) -> str:
    """Return what a block that calls a tool gives it, as JSON; empty where it comes in deltas."""
    given = block.get("input")
    if not given:
        return ""
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
