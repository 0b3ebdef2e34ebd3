"""Reads and rewrites the events of Anthropic's Messages API. One codec serves one message."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from guard.doors.errors import cleaned
from guard.doors.fields import Repeats, is_other, path_of
from guard.doors.messages.events import (
    CALL,
    ERROR,
    KNOWN,
    MESSAGE,
    STOPPED,
    TERMINAL,
    Event,
    Frame,
    FrameText,
    encoded,
    textless,
    walked,
    without_details,
)
from guard.doors.responses.events import Place
from guard.doors.tools import breaker
from guard.gate import Codec, Part
from guard.verdict import Channel, ChannelKind

# Numbers of the content channels. Text blocks are one channel: citations part sentences by blocks.
_SLOTS: Mapping[str, int] = {"text": 0, "explanation": 1, "other": 2, "compaction": 3}
_INTERLEAVED = 4  # numbers from here on are of blocks that speak while another is open
CONTENT, REASONING = Channel(0), Channel(0, "reasoning")


class MessagesCodec(Codec[Frame]):
    """The gate's codec for the events of one message, and the keeper of what went out of it.

    A message is one choice. Its text blocks are one channel, its thinking blocks another, and each
    call of a tool is a channel of its own, with the blocks without a name behind it. So is a block
    that speaks while another one of its kind is open.
    """

    def __init__(self) -> None:
        self.said: dict[Channel, list[str]] = {}
        self.released: dict[Channel, list[str]] = {}
        self.calls: dict[Channel, Mapping[str, Any]] = {}  # the blocks that begin them
        self.start: Mapping[str, Any] = {"type": "message_start", "message": _blank()}
        self.usage: dict[str, int] = {}  # as the provider told it last
        self._tools: dict[int, Channel] = {}  # by block
        self._speaking: dict[tuple[ChannelKind, int], Channel] = {}  # open blocks of text
        self._stopped: set[int] = set()  # blocks
        self._signed: set[int] = set()  # blocks of thoughts
        self._latest: dict[ChannelKind, Channel] = {}
        self._joined: dict[Channel, Channel] = {}  # what a reader joins a channel to
        self._changed: set[ChannelKind] = set()  # kinds of which text was cut or replaced
        self._repeats = Repeats()
        self._dropped: set[Channel] = set()  # those of other fields that lost what they said last
        self._begun = False  # whether the message's start went out
        self._open: dict[int, str] = {}  # blocks that went out and have no end yet, and their type
        self._next = 0  # the number of the next block

    def read(self, frame: Frame) -> Frame:
        """Note what a frame says; raises UsageError on text that is not a string."""
        for number, event in enumerate(frame.events):
            self._track(event)

            def visit(place: Place, kind: ChannelKind, text: str, number: int = number) -> str:
                if place.slot == "explanation" and any(
                    text in said
                    for c, said in self.joined(self.said).items()
                    if c.kind == "content"
                ):
                    # FrameText before, and judged.
                    frame.texts.append(FrameText(number, place, CONTENT, text, repeated=True))
                    return text
                channel = self._channel(place, kind)
                if place.slot == ERROR:  # it is no text of the message
                    frame.texts.append(FrameText(number, place, channel, text))
                    return text
                if self._repeats(Part(channel, text)):
                    frame.texts.append(FrameText(number, place, channel, text, repeated=True))
                    return text
                self.said.setdefault(channel, []).append(text)
                frame.texts.append(FrameText(number, place, channel, text))
                return text

            walked(event, visit)
        return frame

    def parts(self, chunk: Frame) -> list[Part]:
        """Return the frame's texts in reading order."""
        return [Part(said.channel, said.text) for said in chunk.texts if not said.repeated]

    def choices(self, chunk: Frame) -> list[int]:
        """Return the one choice; none for what only keeps the connection alive."""
        alive = all(not e.data if e.fields is None else e.type == "ping" for e in chunk.events)
        return [] if alive and not chunk.texts else [0]

    def finished(self, chunk: Frame) -> list[int]:
        """Return the choice where the frame ends the message."""
        return [0] if any(_ends(event) for event in chunk.events) else []

    def closed(self, chunk: Frame) -> list[Channel]:
        """Return the channels of the calls and signed thoughts that end with the frame.

        A text does not end with its block, as citations part sentences, nor does a thought: LiteLLM
        ends its block whenever something else comes between. What is signed is whole.
        """
        ended = [e.block for e in chunk.events if e.type == "content_block_stop"]
        thoughts = [self._speaking.get(("reasoning", b)) for b in ended if b in self._signed]
        calls = [self._tools.get(block) for block in ended]
        return [channel for channel in (*thoughts, *calls) if channel is not None]

    def continued(self, channel: Channel) -> Channel | None:
        """Return the channel that a reader joins this one to."""
        return self._joined.get(channel)

    def cut(
        self, chunk: Frame, choice: int, texts: Mapping[Channel, str], *, ends: bool = False
    ) -> Frame | None:
        """Return the frame with what of its texts may go out; None where it says nothing."""
        out = _allotted(chunk.texts, texts)
        kept: list[Event] = []
        told: list[FrameText] = []
        for number, event in enumerate(chunk.events):
            mine = [(s, o) for s, o in zip(chunk.texts, out, strict=True) if s.event == number]
            changed = [said for said, text in mine if said.text != text]
            self._changed.update(said.channel.kind for said in changed)
            self._dropped.update(said.channel for said in changed if is_other(said.channel))
            made = _rewritten(event, [text for _, text in mine]) if changed else event
            if made is not None:
                told += [s._replace(event=len(kept), text=text) for s, text in mine]
                kept.append(made)
            later = [o for s, o in zip(chunk.texts, out, strict=True) if s.event > number]
            if ends and not any(later) and (changed or not later):
                break  # what was replaced in one channel ends no other
        return Frame(None, kept, told) if kept else None

    def last(self, template: Frame, choice: int, message: str) -> Frame:
        """Return what ends the message with ``message``."""
        return Frame(None, [], message=message)

    def seal(self, chunk: Frame, form: type[Any]) -> list[Any]:
        """Return what leaves for a frame that the gate let out, in the stream's own form."""
        if chunk.message is not None:
            return [encoded(fields, form) for fields in self.ending(chunk.message)]
        events = self.passed(chunk)
        if chunk.chunk is not None and [*map(id, events)] == [*map(id, chunk.events)]:
            return [chunk.chunk]
        made = [encoded(e.fields, form) for e in events if e.fields is not None]
        return made if form is dict or not made else [type(made[0])().join(made)]

    def passed(self, chunk: Frame) -> list[Event]:
        """Return the events that leave for a frame, and note them."""
        events = list(chunk.events)
        if self._changed:
            left = (self._without_dropped(n, e, chunk.texts) for n, e in enumerate(events))
            events = [e for e in map(self._silenced, filter(None, left)) if e is not None]
        for said in chunk.texts:
            if said.repeated:
                continue
            self.released.setdefault(said.channel, []).append(said.text)
        for event in events:
            self._note(event)
        return events

    def ended(self, usage: Mapping[str, int], form: type[Any]) -> list[Any]:
        """Return the last two events of a stopped message."""
        told = {"output_tokens": 0, **self.usage, **usage}
        delta = {"type": "message_delta", "delta": dict(STOPPED), "usage": told}
        return [encoded(delta, form), encoded({"type": "message_stop"}, form)]

    def joined(self, said: Mapping[Channel, Iterable[str]]) -> dict[Channel, str]:
        """Return the texts of ``said`` or ``released``, by channel."""
        return {channel: "".join(pieces) for channel, pieces in said.items()}

    def _track(self, event: Event) -> None:
        fields = event.fields
        if fields is None:
            return
        if event.type == "content_block_start":
            block = fields.get("content_block")
            if isinstance(block, Mapping) and "input" in block:
                if self._tools and not block.get("name"):
                    # LiteLLM goes on so with a chat's call where something came between.
                    self._tools[event.block] = [*self._tools.values()][-1]
                self.calls.setdefault(self._tool(event.block), block)
        elif event.delta_type == "signature_delta" and fields["delta"].get("signature"):
            self._signed.add(event.block)
        elif event.type == "content_block_stop":
            self._stopped.add(event.block)
        elif event.type == "message_start" and isinstance(fields.get("message"), Mapping):
            kept = textless(fields["message"], MESSAGE)
            self.start = {"type": "message_start", "message": {**kept, "content": []}}
            self.usage.update(_counts(fields["message"].get("usage")))
        elif event.type == "message_delta":
            self.usage.update(_counts(fields.get("usage")))

    def _channel(self, place: Place, kind: ChannelKind) -> Channel:
        if kind == "tool" and place.slot == CALL:
            return self._tool(place.item)
        if place.slot in ("text", "thinking"):
            return self._block(place.item, kind)
        if place.slot in _SLOTS:
            return Channel(0, kind, _SLOTS[place.slot])
        return path_of(Channel(0, kind), f"{place.item}.{place.slot}")

    def _block(self, block: int, kind: ChannelKind) -> Channel:
        known = self._speaking.get((kind, block))
        if known is None or block in self._stopped:
            self._stopped.discard(block)
            self._signed.discard(block)
            known = self._latest[kind] = self._unused(kind)
            self._speaking[kind, block] = known
        return known

    def _unused(self, kind: ChannelKind) -> Channel:
        """Return the channel of a block that begins: that of the last one, unless it is open."""
        latest = self._latest.get(kind)
        if latest is None:
            return CONTENT if kind == "content" else REASONING
        spoken = self._speaking.items()
        if all(c != latest or block in self._stopped for (_, block), c in spoken):
            return latest
        new = Channel(0, kind, _INTERLEAVED + len(self._joined))
        self._joined[new] = latest
        return new

    def _tool(self, block: int) -> Channel:
        return self._tools.setdefault(block, Channel(0, "tool", len(self._tools)))

    def _without_dropped(self, number: int, event: Event, texts: list[FrameText]) -> Event | None:
        """Return an event without what says again a text that did not go out."""
        mine = [said for said in texts if said.event == number]
        gone = {said for said in mine if said.repeated and said.channel in self._dropped}
        if not gone:
            return event
        return _rewritten(event, ["" if said in gone else said.text for said in mine])

    def _silenced(self, event: Event) -> Event | None:
        """Return an event without what could repeat a text that was cut or replaced."""
        fields, kind = event.fields, event.delta_type
        if fields is None:
            return event if not event.data else None
        if event.type not in KNOWN or kind == "citations_delta":
            return None
        if kind == "signature_delta" and "reasoning" in self._changed:
            return None
        if event.type == "message_delta" and isinstance(fields.get("delta"), Mapping):
            return Event(without_details(fields)) if "stop_details" in fields["delta"] else event
        if event.type == "error" and isinstance(fields.get("error"), Mapping):
            return self._cleaned(event, fields)
        return event

    def _cleaned(self, event: Event, fields: Mapping[str, Any]) -> Event:
        """Return an error's event as the consumer may see it: LiteLLM may quote the text in it."""
        error = RuntimeError(str(fields["error"].get("message")))
        shown = "\n".join(self.joined(self.released).values())
        clean = cleaned(error, shown, self.withheld(), began=True, shown=shown)
        if clean is error:
            return event
        kept = {"type": fields["error"].get("type"), "message": str(clean)}
        return Event({"type": "error", "error": kept})

    def withheld(self) -> list[str]:
        """Return the texts of which not all went out as it was said."""
        out = self.joined(self.released)
        said = {c: pieces for c, pieces in self.said.items() if "".join(pieces) != out.get(c)}
        pieces = [piece for channel in said.values() for piece in channel]
        return [*self.joined(said).values(), *pieces]

    def _note(self, event: Event) -> None:
        fields, index = event.fields, event.block
        if fields is None:
            return
        if event.type == "message_start":
            self._begun = True
        elif event.type == "content_block_start":
            block = fields.get("content_block")
            self._open[index] = str(block.get("type")) if isinstance(block, Mapping) else ""
            self._next = max(self._next, index + 1)
        elif event.type == "content_block_stop":
            self._open.pop(index, None)

    def ending(self, message: str) -> Iterator[Mapping[str, Any]]:
        """Yield what closes the open blocks of a stopped message, and says ``message``."""
        if not self._begun:
            yield self.start
        speaking = next((i for i in reversed(self._open) if self._open[i] == "text"), None)
        for index in list(self._open):
            if index == speaking and message:
                yield self._speech(index, message)
            elif index in self._tools and (more := self._breaker(self._tools[index])):
                delta = {"type": "input_json_delta", "partial_json": more}
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        if speaking is None and message:
            index = self._next
            block = {"type": "text", "text": ""}
            yield {"type": "content_block_start", "index": index, "content_block": block}
            yield self._speech(index, message)
            yield {"type": "content_block_stop", "index": index}

    def _speech(self, index: int, message: str) -> Mapping[str, Any]:
        channel = self._speaking.get(("content", index), CONTENT)
        self.released.setdefault(channel, []).append(message)
        delta = {"type": "text_delta", "text": message}
        return {"type": "content_block_delta", "index": index, "delta": delta}

    def _breaker(self, channel: Channel) -> str:
        out = "".join(self.released.get(channel, ()))
        more = breaker(out, complete=out == "".join(self.said.get(channel, ())))
        self.released.setdefault(channel, []).append(more)
        return more


def _ends(event: Event) -> bool:
    if event.type != "message_delta":
        return event.type in TERMINAL
    delta = event.fields and event.fields.get("delta")
    return isinstance(delta, Mapping) and delta.get("stop_reason") is not None


def _rewritten(event: Event, texts: list[str]) -> Event | None:
    left = iter(texts)
    fields = walked(event, lambda place, kind, text: next(left, ""))
    return None if fields is None else Event(fields)


def _allotted(said: list[FrameText], texts: Mapping[Channel, str]) -> list[str]:
    """Return what of each text goes out, of what its channel says in this frame.

    A channel that goes out up to a point is shared out as it was said; one of which something was
    replaced stands where it began.
    """
    whole: dict[Channel, str] = {}
    for one in (one for one in said if not one.repeated):
        whole[one.channel] = whole.get(one.channel, "") + one.text
    left = {channel: texts.get(channel, "") for channel in whole}
    cut = {channel for channel in whole if whole[channel].startswith(left[channel])}
    out = []
    for one in said:
        if one.repeated:
            out.append(one.text)
            continue
        length = len(one.text) if one.channel in cut else len(left[one.channel])
        out.append(left[one.channel][:length])
        left[one.channel] = left[one.channel][length:]
    return out


def _counts(usage: Any) -> dict[str, int]:
    counts = usage.items() if isinstance(usage, Mapping) else ()
    return {name: count for name, count in counts if isinstance(count, int)}


def _blank() -> dict[str, Any]:
    return {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": "",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }
