"""Where Anthropic's Messages API carries text, and how its events are encoded.

An event is a dict, or a server-sent event in bytes or text. A transport's chunk may hold several
events or a part of one; a :class:`Framer` reassembles them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from guard.doors.fields import unquoted
from guard.doors.responses.events import Place, visit_text
from guard.doors.strings import has_prose, is_name, map_strings
from guard.doors.tools import is_complete
from guard.verdict import Channel, ChannelKind

Visit = Callable[[Place, ChannelKind, str], str]

STOPPED: Mapping[str, Any] = {"stop_reason": "refusal", "stop_sequence": None}
"""The end of a stopped message: Anthropic's own stop reason for interventions of its classifiers.

It has no ``stop_details``: LiteLLM would take them for a provider's refusal and fall back.
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
ERROR = "error"
"""The slot of an error's message, which is no text of the message."""
CALL = "input"
"""The slot of a tool call's input."""
# Blocks whose content is a tool's output.
_ANSWERS = frozenset(
    "web_search_tool_result web_fetch_tool_result code_execution_tool_result "
    "bash_code_execution_tool_result text_editor_code_execution_tool_result mcp_tool_result "
    "tool_search_tool_result tool_result".split()
)
# The fields, beside its texts, of a rewritten block: none of them can repeat the texts.
_BLOCK = ("type", "id", "name", "server_name", "caller")
MESSAGE = ("id", "type", "role", "model", "usage", "stop_reason", "stop_sequence")
"""The same for a message."""
_END = re.compile(rb"\r\n\r\n|\n\r?\n|\r\r")
_LINE = re.compile(r"\r\n|\n|\r")  # not str.splitlines: its other separators may occur in JSON


# Comments that keep a connection alive.
_ALIVE = frozenset({"", "ping", "keep alive", "keep-alive", "keepalive", "heartbeat"})


class Event(NamedTuple):
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
    place: Place
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
    events: Sequence[Event]
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
        frame = _frame(made, bytes(self._pending[:end]))
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
        frame = _frame(self._made(len(self._pending)), bytes(self._pending))
        self._pending.clear()
        return [frame]

    def _made(self, end: int) -> Any:
        data = bytes(self._pending[:end])
        return data.decode(errors="replace") if self.form is str else data


def _frame(chunk: Any, data: bytes) -> Frame:
    """Return the frame of ``data``; with its chunk only if the events cover all of the bytes."""
    events: list[Event] = []
    plain = True
    for block in _END.split(data):
        if block.strip():
            event, alone = _event(_LINE.split(block.decode(errors="replace")))
            events.append(event)
            plain = plain and alone
    return Frame(chunk if plain else None, events)


def _event(lines: list[str]) -> tuple[Event, bool]:
    """Return the event in some lines, and whether they hold nothing else."""
    plain = True

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal plain
        made = dict(pairs)
        plain = plain and len(made) == len(pairs)
        return made

    data = [line[5:].removeprefix(" ") for line in lines if line.startswith("data:")]
    text = "\n".join(data)
    try:
        fields = json.loads(text, object_pairs_hook=once) if data else None
    except ValueError:
        fields = None
    if isinstance(fields, dict):
        event = Event(fields)
    else:
        event = Event(None, "" if text.strip() == "[DONE]" else text)
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


def map_texts(event: Event, visit: Visit) -> Mapping[str, Any] | None:
    """Return an event's fields with each text replaced by ``visit``.

    If ``visit`` changes a text, fields of its block or delta that could repeat it are removed.
    Returns None if nothing is left to send. Raises UsageError on text that is not a string: it
    cannot be judged, so it cannot go out.
    """
    if event.fields is None:
        if not event.data:
            return None
        visit_text(visit, Place(0, "other"), "content", event.data)
        return None
    fields, index = event.fields, event.block
    read = {"type", "index"}
    made: Mapping[str, Any] | None = fields
    if event.type == "content_block_delta" and isinstance(fields.get("delta"), Mapping):
        read |= {"delta"}
        delta = _delta(fields["delta"], index, visit)
        made = fields if delta is fields["delta"] else delta and {**fields, "delta": delta}
    elif event.type == "content_block_start" and isinstance(fields.get("content_block"), Mapping):
        read |= {"content_block"}
        block = _block(fields["content_block"], index, visit)
        if block is not fields["content_block"]:
            made = block and {**fields, "content_block": block}
    elif event.type == "message_start" and isinstance(fields.get("message"), Mapping):
        read |= {"message"}
        content = fields["message"].get("content") or ()
        blocks = [_block(b, n, visit) for n, b in enumerate(content) if isinstance(b, Mapping)]
        rest = _rest(fields["message"], {"content"}, Place(index, "message."), visit)
        if rest is None or any(made is not b for made, b in zip(blocks, content, strict=False)):
            same = fields["message"] if rest is not None else textless(fields["message"], MESSAGE)
            made = {**fields, "message": {**same, "content": [b for b in blocks if b]}}
    elif event.type == "message_delta" and isinstance(fields.get("delta"), Mapping):
        read |= {"delta"}
        details = fields["delta"].get("stop_details")
        text = details.get("explanation") if isinstance(details, Mapping) else None
        changed = visit_text(visit, Place(0, "explanation"), "content", text) != text
        more = {**details} if isinstance(details, Mapping) else {"details": details}
        more.pop("explanation", None)
        place = Place(0, "delta.")
        if _rest(more, set(), place, visit) is None or changed:
            made = without_details(fields)
        if _rest(fields["delta"], {"stop_details"}, place, visit) is None:
            made = {**fields, "delta": textless(fields["delta"], ("stop_reason",))}
    elif event.type == "error" and isinstance(fields.get("error"), Mapping):
        read |= {"error"}
        error = fields["error"]
        text = visit_text(visit, Place(0, ERROR), "content", error.get("message"))
        unchanged = _rest(error, {"message"}, Place(0, f"{ERROR}."), visit) is not None
        if not unchanged or text != error.get("message"):
            made = {**fields, "error": {**textless(error, ("type",)), "message": text}}
    if _rest(fields, read, Place(index, f"{event.type}."), visit) is None:
        # All fields of an unknown event are in the rest.
        if not made or event.type not in KNOWN:
            return None
        return {name: value for name, value in made.items() if name in read}
    return made


def _rest(
    owner: Mapping[str, Any],
    read: Container[str],
    place: Place,
    visit: Visit,
    kind: ChannelKind = "content",
) -> Mapping[str, Any] | None:
    """Visit each string of the fields that are not ``read`` by name; None if one was changed."""
    changed = False

    def one(path: str, text: str) -> str:
        nonlocal changed
        made = visit(place._replace(slot=place.slot + path), kind, text)
        changed = changed or made != text
        return made

    for name, value in owner.items():
        if name not in read:
            if not is_name(name):
                one(f"{name}.key", name)
            map_strings(value, name, one)
    return None if changed else owner


def textless(owner: Mapping[str, Any], names: Container[str]) -> dict[str, Any]:
    """Return the fields in ``names`` that hold no text to judge."""
    return {name: v for name, v in owner.items() if name in names and not has_prose(name, v)}


def without_details(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message delta without ``stop_details``, which may quote the refused text."""
    delta = {key: value for key, value in fields["delta"].items() if key != "stop_details"}
    return {**fields, "delta": delta}


def _delta(delta: Mapping[str, Any], index: int, visit: Visit) -> Mapping[str, Any] | None:
    kind = str(delta.get("type"))
    made: dict[str, Any] = {"type": kind}
    channel: ChannelKind = "reasoning" if kind == "signature_delta" else "content"
    if kind in _DELTAS:
        channel, name, slot = _DELTAS[kind]
        made[name] = visit_text(visit, Place(index, slot), channel, delta.get(name))
    same = all(made[name] == delta.get(name) for name in made if name != "type")
    rest = _rest(_unquoted(delta), made.keys(), Place(index, f"{kind}."), visit, channel)
    if rest is not None and same:
        return delta
    return made if any(made[name] for name in made if name != "type") else None


def _unquoted(owner: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a block or delta without the quotations in its citations."""
    return {k: unquoted(v) if k in ("citation", "citations") else v for k, v in owner.items()}


def _block(block: Mapping[str, Any], index: int, visit: Visit) -> Mapping[str, Any] | None:
    kind = str(block.get("type"))
    read, place = {"content"} if kind in _ANSWERS else set(), Place(index, f"{kind}.")
    if kind in _BLOCKS:
        channel, name = _BLOCKS[kind]
        slot = "compaction" if kind == "compaction" else name
        text = visit_text(visit, Place(index, slot), channel, block.get(name))
        same = _rest(_unquoted(block), {name}, place, visit, channel) is not None
        if same and text == block.get(name):
            return block
        made = textless(block, _BLOCK) | {name: text}
        return {**made, "signature": ""} if kind == "thinking" else made
    if text := input_of(block):
        # A tool call goes out whole or not at all.
        read |= {CALL}
        released = visit_text(visit, Place(index, CALL), "tool", text)
        if released != text:
            if not is_complete(released):
                return None
            made = released if isinstance(block["input"], str) else json.loads(released)
            block = {**block, "input": made}
    channel = "tool" if CALL in block else "content"
    if kind == "redacted_thinking":
        channel = "reasoning"
    if _rest(block, read, place, visit, channel) is not None:
        return block
    # A block that begins must go out: later events refer to it.
    return None if channel == "tool" else textless(block, _BLOCK) or None


def input_of(block: Mapping[str, Any]) -> str:
    """Return a tool call's input as JSON; empty if it comes in deltas."""
    value = block.get("input")
    if not value:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
