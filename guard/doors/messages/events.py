"""Where Anthropic's Messages API carries text, and how its events travel.

An event is a dict, or a server-sent event in bytes or text. What a transport hands over at once may
hold several events or a part of one; a :class:`Framer` puts them together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from guard.doors.responses.events import Place, visited
from guard.doors.strings import is_name, says
from guard.doors.strings import walked as strings_of
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
ERROR = "error"
"""The slot of what an error says: it is no text of the message."""
CALL = "input"
"""The slot of what a call gives its tool."""
# Blocks of which the content is what a tool answers.
_ANSWERS = frozenset(
    "web_search_tool_result web_fetch_tool_result code_execution_tool_result "
    "bash_code_execution_tool_result text_editor_code_execution_tool_result mcp_tool_result "
    "tool_search_tool_result tool_result".split()
)
# What a citation quotes of its source.
_QUOTED = ("cited_text", "document_title", "title", "url", "source")
# All that a rewritten block keeps beside its texts: none of it can repeat them.
_BLOCK = ("type", "id", "name", "server_name", "caller")
MESSAGE = ("id", "type", "role", "model", "usage", "stop_reason", "stop_sequence")
"""The same of a message."""
_END = re.compile(rb"\r\n\r\n|\n\r?\n|\r\r")
_LINE = re.compile(r"\r\n|\n|\r")  # not what str.splitlines knows besides: JSON may hold that


# Comments that keep a connection alive.
_ALIVE = frozenset({"", "ping", "keep alive", "keep-alive", "keepalive", "heartbeat"})


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


class FrameText(NamedTuple):
    """A text in a frame: the event that has it, and its channel.

    ``repeated`` marks one that was said and judged before: it follows what became of it then.
    """

    event: int
    place: Place
    channel: Channel
    text: str
    repeated: bool = False


@dataclass(slots=True)
class Frame:
    """Whole events that arrived together; ``chunk`` is what brought them.

    It is None for one made here, and where what brought them says more than they do.

    ``texts`` are what they say, filled in by the codec; ``message`` stands for a stopped message's
    end.
    """

    chunk: Any
    events: Sequence[Event]
    texts: list[FrameText] = field(default_factory=list)
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
        frame = _frame(made, bytes(self._pending[:end]))
        del self._pending[:end]
        self._searched = 0
        return [frame]

    def rest(self) -> list[Frame]:
        """Return what is left at the end of the stream: an event without the line that ends it."""
        if not self._pending:
            return []
        frame = _frame(self._made(len(self._pending)), bytes(self._pending))
        self._pending.clear()
        return [frame]

    def _made(self, end: int) -> Any:
        data = bytes(self._pending[:end])
        return data.decode(errors="replace") if self.form is str else data


def _frame(chunk: Any, data: bytes) -> Frame:
    """Return the frame of ``data``: its own bytes go out only where its events say all of them."""
    events: list[Event] = []
    plain = True
    for block in _END.split(data):
        if block.strip():
            event, alone = _event(_LINE.split(block.decode(errors="replace")))
            events.append(event)
            plain = plain and alone
    return Frame(chunk if plain else None, events)


def _event(lines: list[str]) -> tuple[Event, bool]:
    """Return the event of some lines, and whether they say nothing else."""
    plain = True

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal plain
        made = dict(pairs)
        plain = plain and len(made) == len(pairs)
        return made

    said = [line[5:].removeprefix(" ") for line in lines if line.startswith("data:")]
    text = "\n".join(said)
    try:
        fields = json.loads(text, object_pairs_hook=once) if said else None
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
            kept = fields["message"] if rest is not None else textless(fields["message"], MESSAGE)
            made = {**fields, "message": {**kept, "content": [b for b in blocks if b]}}
    elif event.type == "message_delta" and isinstance(fields.get("delta"), Mapping):
        read |= {"delta"}
        details = fields["delta"].get("stop_details")
        said = details.get("explanation") if isinstance(details, Mapping) else None
        changed = visited(visit, Place(0, "explanation"), "content", said) != said
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
        text = visited(visit, Place(0, ERROR), "content", error.get("message"))
        same = _rest(error, {"message"}, Place(0, f"{ERROR}."), visit) is not None
        if not same or text != error.get("message"):
            made = {**fields, "error": {**textless(error, ("type",)), "message": text}}
    if _rest(fields, read, Place(index, f"{event.type}."), visit) is None:
        # An event of an unknown kind is all rest.
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
    """Visit each string of the fields that are not ``read`` by name; None where one was changed."""
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
            strings_of(value, name, one)
    return None if changed else owner


def textless(owner: Mapping[str, Any], names: Container[str]) -> dict[str, Any]:
    """Return those of the fields in which nothing is to be judged."""
    return {name: v for name, v in owner.items() if name in names and not says(name, v)}


def without_details(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message's delta without what explains its stop reason, in the words it refused."""
    kept = {key: value for key, value in fields["delta"].items() if key != "stop_details"}
    return {**fields, "delta": kept}


def _delta(delta: Mapping[str, Any], index: int, visit: Visit) -> Mapping[str, Any] | None:
    kind = str(delta.get("type"))
    made: dict[str, Any] = {"type": kind}
    channel: ChannelKind = "reasoning" if kind == "signature_delta" else "content"
    if kind in _DELTAS:
        channel, name, slot = _DELTAS[kind]
        made[name] = visited(visit, Place(index, slot), channel, delta.get(name))
    same = all(made[name] == delta.get(name) for name in made if name != "type")
    rest = _rest(_unquoted(delta), made.keys(), Place(index, f"{kind}."), visit, channel)
    if rest is not None and same:
        return delta
    return made if any(made[name] for name in made if name != "type") else None


def _unquoted(owner: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a block or delta without what its citations quote."""

    def cited(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [cited(one) for one in value]
        if not isinstance(value, Mapping):
            return value
        return {key: one for key, one in value.items() if key not in _QUOTED}

    return {k: cited(v) if k in ("citation", "citations") else v for k, v in owner.items()}


def _block(block: Mapping[str, Any], index: int, visit: Visit) -> Mapping[str, Any] | None:
    kind = str(block.get("type"))
    read, place = {"content"} if kind in _ANSWERS else set(), Place(index, f"{kind}.")
    if kind in _BLOCKS:
        channel, name = _BLOCKS[kind]
        slot = "compaction" if kind == "compaction" else name
        text = visited(visit, Place(index, slot), channel, block.get(name))
        same = _rest(_unquoted(block), {name}, place, visit, channel) is not None
        if same and text == block.get(name):
            return block
        made = textless(block, _BLOCK) | {name: text}
        return {**made, "signature": ""} if kind == "thinking" else made
    if text := input_of(block):
        # A call is one thing: cut anywhere, none of it goes out.
        read |= {CALL}
        if visited(visit, Place(index, CALL), "tool", text) != text:
            return None
    channel = "tool" if CALL in block else "content"
    if kind == "redacted_thinking":
        channel = "reasoning"
    if _rest(block, read, place, visit, channel) is not None:
        return block
    # Later events belong to a block that begins.
    return None if channel == "tool" else textless(block, _BLOCK) or None


def input_of(block: Mapping[str, Any]) -> str:
    """Return what a block that calls a tool gives it, as JSON; empty where it comes in deltas."""
    given = block.get("input")
    if not given:
        return ""
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
