"""Reads and rewrites the events of Anthropic's Messages API. One codec serves one message."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from typing import Any

from guard.doors.errors import redacted
from guard.doors.fields import channel_at, is_unknown_field
from guard.doors.messages.events import Frame, FrameText, MessageEvent, encoded
from guard.doors.messages.shapes import (
    CALL,
    ERROR,
    KNOWN,
    MESSAGE,
    STOPPED,
    walk_event,
    without_details,
)
from guard.doors.repeats import Repeats
from guard.doors.tools import is_complete
from guard.doors.walk import TextPlace, textless
from guard.gate import Codec, Part, by_channel
from guard.verdict import Channel, ChannelKind

# Numbers of the content channels. All text blocks are one channel: citations split a sentence
# into several blocks.
_SLOTS: Mapping[str, int] = {"text": 0, "explanation": 1, "other": 2, "compaction": 3}
_INTERLEAVED = 4  # numbers from here on: blocks whose text comes while another block is open
CONTENT, REASONING = Channel(0), Channel(0, "reasoning")


class MessagesCodec(Codec[Frame]):
    """The gate's codec for the events of one message; records its texts.

    A message is one choice. Its text blocks are one channel, its thinking blocks another. Each
    tool call is a channel of its own, together with the unnamed blocks after it. A block whose
    text comes while another block of its kind is open is a channel of its own, too.
    """

    bundles = True

    def __init__(self) -> None:
        self.received: dict[Channel, list[str]] = {}
        self.released: dict[Channel, list[str]] = {}
        self.call_blocks: dict[Channel, Mapping[str, Any]] = {}  # the blocks that begin them
        self.start: Mapping[str, Any] = {"type": "message_start", "message": _blank()}
        self.usage: dict[str, int] = {}  # the provider's latest counts
        self._tools: dict[int, Channel] = {}  # by block
        self._texts: dict[tuple[ChannelKind, int], Channel] = {}  # text and thinking, by block
        self._stopped: set[int] = set()  # blocks that have ended
        self._signed: set[int] = set()  # thinking blocks with a signature
        self._latest: dict[ChannelKind, Channel] = {}
        self._continued: dict[Channel, Channel] = {}  # the channel that one continues
        self._changed: set[ChannelKind] = set()  # kinds whose text was cut or replaced
        self._repeats = Repeats()
        self._dropped: set[Channel] = set()  # of unknown fields: those whose last text was cut
        self._begun = False  # whether the message's start went out
        self.ends_sent = 0  # of the last two events of a message
        self._end: Mapping[str, Any] = STOPPED
        self._open: dict[int, str] = {}  # types of the blocks that went out and have not ended
        self._next = 0  # the number of the next block

    def read(self, frame: Frame) -> Frame:
        """Record a frame's texts; raises UsageError on text that is not a string."""
        for number, event in enumerate(frame.events):
            self._track(event)

            def visit(place: TextPlace, kind: ChannelKind, text: str, number: int = number) -> str:
                received = self.joined(self.received).items() if place.slot == "explanation" else ()
                repeated = any(text in out for c, out in received if c.kind == "content")
                channel = CONTENT if repeated else self._channel(place, kind)
                if not repeated and place.slot != ERROR:  # an error is no text of the message
                    repeated = self._repeats.repeated(Part(channel, text))
                    if not repeated:
                        self.received.setdefault(channel, []).append(text)
                frame.texts.append(FrameText(number, place, channel, text, repeated))
                return text

            walk_event(event, visit)
        return frame

    def parts(self, chunk: Frame) -> list[Part]:
        """Return the frame's texts in reading order; an empty one stands where a call's block ends.

        Without it a call would seem to end before the other texts of its last frame.
        """
        parts = [(t.event, Part(t.channel, t.text)) for t in chunk.texts if not t.repeated]
        for number, event in enumerate(chunk.events):
            call = self._call_of(event) if event.type == "content_block_stop" else None
            if call is not None:
                parts.append((number, Part(call, "")))
        return [part for _, part in sorted(parts, key=itemgetter(0))]

    def choices(self, chunk: Frame) -> list[int]:
        """Return the only choice; none for a frame that only keeps the connection alive."""
        alive = all(not e.data if e.fields is None else e.type == "ping" for e in chunk.events)
        return [] if alive and not chunk.texts else [0]

    def finished(self, chunk: Frame) -> list[int]:
        """Return the choice if the frame ends the message."""
        return [0] if any(event.ends for event in chunk.events) else []

    def closed(self, chunk: Frame) -> list[Channel]:
        """Return the channels of the calls and signed thinking blocks that end with the frame.

        A text does not end with its block, because citations split sentences. Nor does thinking:
        LiteLLM ends its block whenever another one interrupts it. A signed block is complete.
        """
        ended = [e.block for e in chunk.events if e.type == "content_block_stop"]
        thinking = [self._texts.get(("reasoning", b)) for b in ended if b in self._signed]
        # LiteLLM continues an interrupted call of a chat in a later block.
        calls = [c for b in ended if (c := self._tools.get(b)) and self._is_complete(c)]
        return [channel for channel in (*thinking, *calls) if channel is not None]

    def calls(self, chunk: Frame) -> list[Channel]:
        """Return the channels of the calls of which the frame has an event."""
        calls = [self._call_of(event) for event in chunk.events]
        return [channel for channel in calls if channel is not None]

    def _call_of(self, event: MessageEvent) -> Channel | None:
        ours = event.fields is not None and event.type.startswith("content_block_")
        return self._tools.get(event.block) if ours else None

    def _is_complete(self, call: Channel) -> bool:
        return is_complete("".join(self.received.get(call, ())))

    def continued(self, channel: Channel) -> Channel | None:
        """Return the channel that this one continues for a reader."""
        return self._continued.get(channel)

    def cut(
        self, chunk: Frame, choice: int, texts: Mapping[Channel, str], *, ends: bool = False
    ) -> Frame | None:
        """Return the frame with the texts that may go out; None if nothing is left."""
        out = _allotted(chunk.texts, texts)
        out_events: list[MessageEvent] = []
        out_texts: list[FrameText] = []
        cut_calls = {
            said.channel for said in chunk.texts if not texts.get(said.channel, "").strip()
        }
        for number, event in enumerate(chunk.events):
            call = self._call_of(event)
            if ends and call is not None and (call not in texts or call in cut_calls):
                break
            mine = [(s, o) for s, o in zip(chunk.texts, out, strict=True) if s.event == number]
            changed = [said for said, text in mine if said.text != text]
            self._changed.update(said.channel.kind for said in changed)
            self._dropped.update(said.channel for said in changed if is_unknown_field(said.channel))
            rewritten = _rewritten_event(event, [text for _, text in mine]) if changed else event
            if rewritten is not None:
                out_texts += [s._replace(event=len(out_events), text=text) for s, text in mine]
                out_events.append(rewritten)
            later = [o for s, o in zip(chunk.texts, out, strict=True) if s.event > number]
            if ends and not any(later) and (changed or not later):
                break  # but a replacement in one channel does not end the others
        return Frame(None, out_events, out_texts) if out_events else None

    def last(self, template: Frame, choice: int, message: str) -> Frame:
        """Return the frame that ends the message with ``message``."""
        return Frame(None, [], message=message)

    def closing(self, choice: int) -> Frame | None:
        """Return the frame that closes what is open after the provider's stop reason."""
        return Frame(None, [], message="")

    def seal(self, chunk: Frame, form: type[Any]) -> list[Any]:
        """Return the chunks to emit for a frame that the gate released, of the type ``form``."""
        if chunk.message is not None:
            return [encoded(fields, form) for fields in self.ending(chunk.message)]
        events = self.passed(chunk)
        if chunk.chunk is not None and [*map(id, events)] == [*map(id, chunk.events)]:
            return [chunk.chunk]
        chunks = [encoded(e.fields, form) for e in events if e.fields is not None]
        return chunks if form is dict or not chunks else [type(chunks[0])().join(chunks)]

    def passed(self, chunk: Frame) -> list[MessageEvent]:
        """Return the events to emit for a released frame, and record them."""
        events = list(chunk.events)
        if self._changed:
            left = (self._without_dropped(n, e, chunk.texts) for n, e in enumerate(events))
            events = [e for e in map(self._silenced, filter(None, left)) if e is not None]
        for said in chunk.texts:
            if not said.repeated:
                self.released.setdefault(said.channel, []).append(said.text)
        for event in events:
            self._record(event)
        return events

    def ended(self, usage: Mapping[str, int], form: type[Any]) -> list[Any]:
        """Return the last two events of a stopped message."""
        counts = {"output_tokens": 0, **self.usage, **usage}
        delta = {"type": "message_delta", "delta": dict(self._end), "usage": counts}
        return [encoded(delta, form), encoded({"type": "message_stop"}, form)]

    def joined(self, texts: Mapping[Channel, Iterable[str]]) -> dict[Channel, str]:
        """Return the texts of ``received`` or ``released``, joined by channel."""
        return {channel: "".join(pieces) for channel, pieces in texts.items()}

    def _track(self, event: MessageEvent) -> None:
        fields = event.fields
        if fields is None:
            return
        if event.type == "content_block_start":
            block = fields.get("content_block")
            if isinstance(block, Mapping) and "input" in block:
                if self._tools and not block.get("name"):
                    # LiteLLM continues an interrupted tool call of a chat in an unnamed block.
                    self._tools[event.block] = [*self._tools.values()][-1]
                self.call_blocks.setdefault(self._tool(event.block), block)
        elif event.delta_type == "signature_delta" and fields["delta"].get("signature"):
            self._signed.add(event.block)
        elif event.type == "content_block_stop":
            self._stopped.add(event.block)
        elif event.type == "message_start" and isinstance(fields.get("message"), Mapping):
            message = textless(fields["message"], MESSAGE)
            self.start = {"type": "message_start", "message": {**message, "content": []}}
            self.usage.update(_counts(fields["message"].get("usage")))
        elif event.type == "message_delta":
            self.usage.update(_counts(fields.get("usage")))

    def _channel(self, place: TextPlace, kind: ChannelKind) -> Channel:
        if kind == "tool" and place.slot == CALL:
            return self._tool(place.item)
        if place.slot in ("text", "thinking"):
            return self._block(place.item, kind)
        if place.slot in _SLOTS:
            return Channel(0, kind, _SLOTS[place.slot])
        return channel_at(Channel(0, kind), f"{place.item}.{place.slot}")

    def _block(self, block: int, kind: ChannelKind) -> Channel:
        known = self._texts.get((kind, block))
        if known is None or block in self._stopped:
            self._stopped.discard(block)
            self._signed.discard(block)
            known = self._latest[kind] = self._unused(kind)
            self._texts[kind, block] = known
        return known

    def _unused(self, kind: ChannelKind) -> Channel:
        """Return a new block's channel: that of the last one of its kind, unless that is open."""
        latest = self._latest.get(kind)
        if latest is None:
            return CONTENT if kind == "content" else REASONING
        if all(c != latest or block in self._stopped for (_, block), c in self._texts.items()):
            return latest
        new = Channel(0, kind, _INTERLEAVED + len(self._continued))
        self._continued[new] = latest
        return new

    def _tool(self, block: int) -> Channel:
        return self._tools.setdefault(block, Channel(0, "tool", len(self._tools)))

    def _without_dropped(
        self, number: int, event: MessageEvent, texts: list[FrameText]
    ) -> MessageEvent | None:
        """Return an event without repeats of a text that did not go out."""
        mine = [said for said in texts if said.event == number]
        gone = {said for said in mine if said.repeated and said.channel in self._dropped}
        if not gone:
            return event
        return _rewritten_event(event, ["" if said in gone else said.text for said in mine])

    def _silenced(self, event: MessageEvent) -> MessageEvent | None:
        """Return an event without fields that could repeat a text that was cut or replaced."""
        fields, kind = event.fields, event.delta_type
        if fields is None:
            return event if not event.data else None
        if event.type not in KNOWN or kind == "citations_delta":
            return None
        if kind == "signature_delta" and "reasoning" in self._changed:
            return None
        if event.type == "message_delta" and isinstance(fields.get("delta"), Mapping):
            told = "stop_details" in fields["delta"]
            return MessageEvent(without_details(fields)) if told else event
        if event.type == "error" and isinstance(fields.get("error"), Mapping):
            return self._redacted(event, fields)
        return event

    def _redacted(self, event: MessageEvent, fields: Mapping[str, Any]) -> MessageEvent:
        """Return an error event without quotations of withheld text, which LiteLLM may add."""
        error = RuntimeError(str(fields["error"].get("message")))
        shown = "\n".join(self.joined(self.released).values())
        clean = redacted(error, shown, self.withheld(), began=True, shown=shown)
        if clean is error:
            return event
        message = {"type": fields["error"].get("type"), "message": str(clean)}
        return MessageEvent({"type": "error", "error": message})

    def withheld(self) -> list[str]:
        """Return the texts that did not go out unchanged, joined by channel and piece by piece."""
        out = self.joined(self.released)
        held = {c: pieces for c, pieces in self.received.items() if "".join(pieces) != out.get(c)}
        return [*self.joined(held).values(), *chain.from_iterable(held.values())]

    def _record(self, event: MessageEvent) -> None:
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
        elif event.type == "message_stop":
            self.ends_sent = 2
        elif event.ends and event.type != "error":
            self.ends_sent = max(self.ends_sent, 1)
            self._end = fields["delta"]

    def ending(self, message: str) -> Iterator[Mapping[str, Any]]:
        """Yield the events that close the open blocks of a stopped message and add ``message``."""
        if not self._begun:
            yield self.start
        text_block = next((i for i in reversed(self._open) if self._open[i] == "text"), None)
        for index in list(self._open):
            if index == text_block and message:
                yield self._message_delta(index, message)
            yield {"type": "content_block_stop", "index": index}
        if text_block is None and message:
            index = self._next
            block = {"type": "text", "text": ""}
            yield {"type": "content_block_start", "index": index, "content_block": block}
            yield self._message_delta(index, message)
            yield {"type": "content_block_stop", "index": index}

    def _message_delta(self, index: int, message: str) -> Mapping[str, Any]:
        channel = self._texts.get(("content", index), CONTENT)
        self.released.setdefault(channel, []).append(message)
        delta = {"type": "text_delta", "text": message}
        return {"type": "content_block_delta", "index": index, "delta": delta}


def _rewritten_event(event: MessageEvent, texts: list[str]) -> MessageEvent | None:
    left = iter(texts)
    fields = walk_event(event, lambda place, kind, text: next(left, ""))
    return None if fields is None else MessageEvent(fields)


def _allotted(frame_texts: list[FrameText], texts: Mapping[Channel, str]) -> list[str]:
    """Return the released part of each of a frame's texts; ``texts`` are those by channel.

    If a channel's released text is a prefix of its text, each text of the channel gets its share.
    If something was replaced, the first text of the channel gets all of it.
    """
    whole = by_channel((said.channel, said.text) for said in frame_texts if not said.repeated)
    left = {channel: texts.get(channel, "") for channel in whole}
    cut = {channel for channel in whole if whole[channel].startswith(left[channel])}
    out = []
    for said in frame_texts:
        if said.repeated:
            out.append(said.text)
            continue
        length = len(said.text) if said.channel in cut else len(left[said.channel])
        out.append(left[said.channel][:length])
        left[said.channel] = left[said.channel][length:]
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
