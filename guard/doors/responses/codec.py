"""Reads and rewrites the events of the Responses API. One codec serves one response."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from guard.doors.responses.events import (
    event_fields,
    litellm_event,
    name_of,
    rewritten,
    rewritten_item,
    walk_event,
)
from guard.doors.responses.names import CALLS, EVENTS, RUN, SLOT_OF, TERMINAL
from guard.doors.responses.shapes import (
    Meaning,
    delta_of,
    meaning,
    plain_delta,
    response_fields,
)
from guard.doors.responses.transcript import OutputItem, ResponseText, Transcript
from guard.doors.tools import CallEnds
from guard.doors.walk import TextPlace, Walk
from guard.gate import Codec, Part
from guard.verdict import Channel, ChannelKind

_TYPES: Mapping[ChannelKind, str] = {"reasoning": "reasoning", "content": "message"}


@dataclass(eq=False, slots=True)
class ReadEvent:
    """One of the provider's events, and the texts in it."""

    event: Any
    name: str
    fields: dict[str, Any]
    means: Meaning = field(init=False)
    new: list[tuple[ResponseText, str]] = field(default_factory=list)  # in no earlier event
    texts_at: dict[TextPlace, ResponseText] = field(default_factory=dict)  # all, by place
    place: TextPlace | None = None  # the place of a delta's text
    texts: Mapping[Channel, str] | None = None  # the released part of `new`, if cut
    ends: bool = False
    message: str | None = None

    def __post_init__(self) -> None:
        self.means = meaning(self.name)

    @property
    def verb(self) -> str:
        """What the event does: ``delta``, ``added``, ``done`` or a state of the response."""
        return self.means.verb


class EventCodec(Codec[ReadEvent]):
    """The gate's codec for the events of one response; records their texts.

    A response is one choice. An event that repeats text has no new text: it waits behind the text
    and is rewritten if the text was. An event that opens an item or part without text goes out
    first, so its unknown fields are removed: they may hold the text under another name. The event
    that ends the item or part carries them, behind the text.
    """

    def __init__(self) -> None:
        self.transcript = Transcript()
        self._changed = False  # whether any text was cut or replaced
        self._calls: dict[int, Channel] = {}  # the calls' channels, by item
        self._call_ends = CallEnds()

    def read(self, event: Any) -> ReadEvent:
        """Read an event of the provider; raises UsageError if a text is not a string."""
        read_event = ReadEvent(event, name_of(event), event_fields(event))
        delta = delta_of(read_event.fields, read_event.means)
        read_event.place = delta and delta[0]

        def visit(place: TextPlace, kind: ChannelKind, text: str) -> str:
            if place == read_event.place:
                known = self.transcript.text(place, kind)
                new = known.delta(text)
            elif read_event.verb == "delta" or read_event.name not in EVENTS:
                known, new = self.transcript.streamed(place, kind, text)
            else:
                known, new = self.transcript.repeated(place, kind, text)
            read_event.texts_at[place] = known
            if new:
                read_event.new.append((known, new))
            return text

        if delta is not None and plain_delta(read_event.fields, read_event.means):
            Walk(visit).text(delta[1], delta[0], read_event.means.kind)
            return read_event
        holds = "item" in read_event.fields or "part" in read_event.fields
        opens = holds and read_event.verb == "added" and read_event.name in EVENTS
        walk = Walk(visit, strips=True, opens=opens)
        read = walk_event(read_event.fields, read_event.means, walk)
        if opens and read_event.texts_at:
            rewritten(read_event.fields, read_event.name, visit)  # it waits, so all is judged
        elif walk.dropped:
            event = litellm_event(read_event.name, read, event)
            read_event.event, read_event.fields = event, read
        return read_event

    def parts(self, chunk: ReadEvent) -> list[Part]:
        """Return the texts that were in no earlier event."""
        return [Part(text.channel, new) for text, new in chunk.new]

    def choices(self, chunk: ReadEvent) -> list[int]:
        """Return the only choice, 0."""
        return [0]

    def finished(self, chunk: ReadEvent) -> list[int]:
        """Return the choice if the event ends the response."""
        return [0] if chunk.name in TERMINAL else []

    def closed(self, chunk: ReadEvent) -> list[Channel]:
        """Return the channels of the texts that the event ends.

        Reasoning ends with the response only: LiteLLM ends a chat's reasoning item whenever
        another item interrupts it.
        """
        begun = {t.channel: n if t.place.slot == "arguments" else None for t, n in chunk.new}
        calls = {channel: text for channel, text in begun.items() if channel.kind == "tool"}
        if (number := chunk.fields.get("output_index")) in self._calls:
            calls.setdefault(self._calls[number], "")
        before = self._call_ends.before(0, calls, more=len(calls) < len(begun))
        if chunk.verb != "done" and chunk.name not in TERMINAL:
            return before
        ended = [text.channel for text in chunk.texts_at.values()]
        if "item" in chunk.fields and number in self._calls:
            ended.append(self._calls[number])
        return before + [c for c in ended if c.kind != "reasoning" or chunk.name in TERMINAL]

    def calls(self, chunk: ReadEvent) -> list[Channel]:
        """Return the channels of the calls that the event is of."""
        number, item = chunk.fields.get("output_index"), chunk.fields.get("item")
        if isinstance(number, int) and isinstance(item, Mapping):
            kind = str(item.get("type"))
            if kind in SLOT_OF or kind in RUN:
                place = TextPlace(number, SLOT_OF.get(kind, "call"))
                self._calls[number] = self.transcript.text(place, "tool").channel
        texts = (t for t in chunk.texts_at.values() if t.place.slot in CALLS)
        channels = [text.channel for text in texts if text.channel.kind == "tool"]
        return [*channels, self._calls[number]] if number in self._calls else channels

    def continued(self, channel: Channel) -> Channel | None:
        """Return the channel of the part or item that this one continues for a reader."""
        return self.transcript.before(channel)

    def cut(
        self, chunk: ReadEvent, choice: int, texts: Mapping[Channel, str], *, ends: bool = False
    ) -> ReadEvent:
        """Return the event with the texts that may go out."""
        return replace(chunk, texts=dict(texts), ends=ends)

    def last(self, template: ReadEvent, choice: int, message: str) -> ReadEvent:
        """Return the marker that ends the response with ``message``."""
        return ReadEvent(template.event, "", {}, message=message)

    def seal(self, chunk: ReadEvent, usage: Any = None) -> list[Any]:
        """Return the events to emit for one that the gate released, in order."""
        if chunk.message is not None:
            return [*self.transcript.ending(chunk.message), self.transcript.ended(usage)]
        if chunk.ends and chunk.fields.get("output_index") in self._calls:
            self._changed = True
            return []  # of a call that was stopped
        for text, new in chunk.new:
            out = new if chunk.texts is None else chunk.texts.get(text.channel, "")
            self._changed = self._changed or chunk.ends or out != new
            text.release(out)
        if chunk.ends and chunk.verb != "delta":
            self._record(chunk, chunk.fields)  # its text goes out with the end
            return []
        fields = chunk.fields
        if self._changed:
            fields = rewritten(fields, chunk.name, self._rewriter(chunk))
        else:
            self._show(chunk)
        self._record(chunk, fields)
        if not self._changed:
            return [] if chunk.event is None else [chunk.event]
        if chunk.verb == "delta" and not fields.get("delta"):
            return []
        event = litellm_event(chunk.name, fields, chunk.event)
        return [] if event is None else [event]

    def _show(self, chunk: ReadEvent) -> None:
        for place, text in chunk.texts_at.items():
            if place == chunk.place:
                text.show(len(chunk.fields["delta"]))
            elif chunk.verb != "added":
                text.take_unshown()

    def _rewriter(self, chunk: ReadEvent) -> Any:
        def visit(place: TextPlace, kind: ChannelKind, sent: str) -> str:
            text = chunk.texts_at[place]
            if chunk.verb == "delta":
                return text.take_unshown()
            if chunk.verb == "added":
                return ""  # it comes in the deltas
            text.take_unshown()
            return "".join(text.released)

        return visit

    def _record(self, chunk: ReadEvent, fields: Mapping[str, Any]) -> None:
        """Record the response's fields, items and parts, from which a stopped response is ended."""
        transcript = self.transcript
        number = fields.get("output_index") or 0
        if isinstance(fields.get("sequence_number"), int):
            transcript.sequence = fields["sequence_number"]
        if isinstance(fields.get("response"), Mapping):
            transcript.response = response_fields(fields["response"])
            if chunk.ends:
                self._record_output(chunk, fields["response"].get("output") or ())
        elif isinstance(fields.get("item"), Mapping):
            known = transcript.items.get(number)
            announced = not chunk.ends or (known is not None and known.announced)
            if chunk.verb == "done" and not chunk.ends:
                transcript.items[number] = OutputItem(fields["item"], announced=True, done=True)
            else:
                blank = rewritten_item(fields["item"], number, _nothing)
                transcript.items[number] = OutputItem(blank, announced=announced)
        elif number not in transcript.items:
            for text in chunk.texts_at.values():  # of an item that was not announced
                if "output_index" not in fields and "item_id" not in fields:
                    break  # of no item
                kind = CALLS.get(text.place.slot, _TYPES.get(text.channel.kind, "message"))
                item = {"id": fields.get("item_id"), "type": kind, "role": "assistant"}
                transcript.items[number] = OutputItem(item, announced=text.shown)
        if chunk.verb == "added" and isinstance(fields.get("part"), Mapping):
            place = (number, fields.get("content_index") or 0)
            transcript.parts[place] = str(fields["part"].get("type"))

    def _record_output(self, chunk: ReadEvent, output: Iterable[Any]) -> None:
        """Record the items of a cut response, up to the one that contains the cut."""
        assert chunk.texts is not None
        channel = list(chunk.texts)[-1]  # texts behind the cut are not among them
        cut = next(p.item for p, text in chunk.texts_at.items() if text.channel == channel)
        for number, item in enumerate(output):
            texts = [text for place, text in chunk.texts_at.items() if place.item == number]
            if number < cut:
                if not all(text.whole for text in texts):
                    item = rewritten_item(item, number, self._rewriter(chunk))
                self.transcript.items[number] = OutputItem(item, announced=True, done=True)
            elif number == cut and item.get("type") in ("message", "reasoning"):
                self.transcript.items[number] = OutputItem(
                    rewritten_item(item, number, _nothing), announced=False
                )


def _nothing(place: TextPlace, kind: ChannelKind, text: str) -> str:
    return ""
