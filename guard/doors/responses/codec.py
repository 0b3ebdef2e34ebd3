"""Reads and rewrites the events of the Responses API. One codec serves one response."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from guard.doors.responses.events import (
    Place,
    around,
    delta_of,
    made,
    meaning,
    name_of,
    opens_with_more,
    plain,
    plain_delta,
    rewritten,
    rewritten_item,
    visited,
)
from guard.doors.responses.names import CALLS, EVENTS, TERMINAL
from guard.doors.responses.transcript import Item, Text, Transcript
from guard.gate import Codec, Part
from guard.verdict import Channel, ChannelKind

_TYPES: Mapping[ChannelKind, str] = {"reasoning": "reasoning", "content": "message"}


class ReadEvent:
    """One of the provider's events, and the texts in it."""

    __slots__ = (
        "ends",
        "event",
        "fields",
        "means",
        "message",
        "name",
        "new",
        "place",
        "texts",
        "texts_at",
    )

    def __init__(self, event: Any, name: str, fields: dict[str, Any]) -> None:
        self.event = event
        self.name = name
        self.means = meaning(name)
        self.fields = fields
        self.new: list[tuple[Text, str]] = []  # what no event said before
        self.texts_at: dict[Place, Text] = {}  # where the event says which text
        self.place: Place | None = None  # where a delta's text belongs
        self.texts: Mapping[Channel, str] | None = None  # what of the new goes out, where cut
        self.ends = False
        self.message: str | None = None

    @property
    def verb(self) -> str:
        """What the event does: ``delta``, ``added``, ``done`` or a state of the response."""
        return self.means.verb


class EventCodec(Codec[ReadEvent]):
    """The gate's codec for the events of one response, and the keeper of what they say.

    A response is one choice. An event that repeats text has no text of its own: it waits behind
    the text, and is rewritten where that was. What opens an item or a part and says nothing of its
    text would be first out: whatever it holds that is not read here is taken off, for that may be
    the text under another name. The event that ends the item or part has it, behind the text.
    """

    def __init__(self) -> None:
        self.transcript = Transcript()
        self._changed = False  # whether any text was cut or replaced

    def read(self, event: Any) -> ReadEvent:
        """Read an event of the provider; raises UsageError on text not a string."""
        read_event = ReadEvent(event, name_of(event), plain(event))
        delta = delta_of(read_event.fields, read_event.means)
        read_event.place = delta and delta[0]

        def visit(place: Place, kind: ChannelKind, text: str) -> str:
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
            visited(visit, delta[0], read_event.means.kind, delta[1])
            return read_event
        holds = "item" in read_event.fields or "part" in read_event.fields
        opens = holds and read_event.verb == "added" and read_event.name in EVENTS
        read = rewritten(read_event.fields, read_event.name, visit, opens=opens)
        if opens and read_event.texts_at:
            rewritten(read_event.fields, read_event.name, visit)  # it waits: all of it is judged
        elif opens and opens_with_more(read_event.fields, read):
            read_event.event, read_event.fields = made(read_event.name, read, event), read
        return read_event

    def parts(self, chunk: ReadEvent) -> list[Part]:
        """Return the texts that no event said before."""
        return [Part(text.channel, new) for text, new in chunk.new]

    def choices(self, chunk: ReadEvent) -> list[int]:
        """Return the one choice there is."""
        return [0]

    def finished(self, chunk: ReadEvent) -> list[int]:
        """Return the choice where the event ends the response."""
        return [0] if chunk.name in TERMINAL else []

    def closed(self, chunk: ReadEvent) -> list[Channel]:
        """Return the channels of the texts that the event says as a whole.

        Thoughts end with the response: LiteLLM ends a chat's whenever something comes between.
        """
        if chunk.verb != "done" and chunk.name not in TERMINAL:
            return []
        said = [text.channel for text in chunk.texts_at.values()]
        return [c for c in said if c.kind != "reasoning" or chunk.name in TERMINAL]

    def continued(self, channel: Channel) -> Channel | None:
        """Return the channel of the part or item that a reader joins this one to."""
        return self.transcript.before(channel)

    def cut(
        self, chunk: ReadEvent, choice: int, texts: Mapping[Channel, str], *, ends: bool = False
    ) -> ReadEvent:
        """Return the event as it was read, with what of its texts may go out."""
        cut = ReadEvent(chunk.event, chunk.name, chunk.fields)
        cut.new, cut.texts_at, cut.place = chunk.new, chunk.texts_at, chunk.place
        cut.texts, cut.ends = dict(texts), ends
        return cut

    def last(self, template: ReadEvent, choice: int, message: str) -> ReadEvent:
        """Return what ends the response with ``message``."""
        last = ReadEvent(template.event, "", {})
        last.message = message
        return last

    def seal(self, chunk: ReadEvent, usage: Any = None) -> list[Any]:
        """Return the events that leave for one that the gate let out, in order."""
        if chunk.message is not None:
            return [*self.transcript.ending(chunk.message), self.transcript.ended(usage)]
        for text, new in chunk.new:
            out = new if chunk.texts is None else chunk.texts.get(text.channel, "")
            self._changed = self._changed or chunk.ends or out != new
            text.release(out)
        if chunk.ends and chunk.verb != "delta":
            self._keep(chunk, chunk.fields)  # what it says goes out with the end
            return []
        fields = chunk.fields
        if self._changed:
            fields = rewritten(fields, chunk.name, self._rewriter(chunk))
        else:
            self._show(chunk)
        self._keep(chunk, fields)
        if not self._changed:
            return [] if chunk.event is None else [chunk.event]
        if chunk.verb == "delta" and not fields.get("delta"):
            return []
        event = made(chunk.name, fields, chunk.event)
        return [] if event is None else [event]

    def _show(self, chunk: ReadEvent) -> None:
        for place, text in chunk.texts_at.items():
            if place == chunk.place:
                text.show(len(chunk.fields["delta"]))
            elif chunk.verb != "added":
                text.unshown()

    def _rewriter(self, chunk: ReadEvent) -> Any:
        def visit(place: Place, kind: ChannelKind, said: str) -> str:
            text = chunk.texts_at[place]
            if chunk.verb == "delta":
                return text.unshown()
            if chunk.verb == "added":
                return ""  # it comes in the deltas
            text.unshown()
            return "".join(text.released)

        return visit

    def _keep(self, chunk: ReadEvent, fields: Mapping[str, Any]) -> None:
        """Note what the end of a stopped response is made of."""
        kept = self.transcript
        number = fields.get("output_index") or 0
        if isinstance(fields.get("sequence_number"), int):
            kept.sequence = fields["sequence_number"]
        if isinstance(fields.get("response"), Mapping):
            kept.response = around(fields["response"])
            if chunk.ends:
                self._keep_output(chunk, fields["response"].get("output") or ())
        elif isinstance(fields.get("item"), Mapping):
            known = kept.items.get(number)
            announced = not chunk.ends or (known is not None and known.announced)
            if chunk.verb == "done" and not chunk.ends:
                kept.items[number] = Item(fields["item"], announced=True, done=True)
            else:
                blank = rewritten_item(fields["item"], number, _nothing)
                kept.items[number] = Item(blank, announced=announced)
        elif number not in kept.items:
            for text in chunk.texts_at.values():  # of an item that was not announced
                if "output_index" not in fields and "item_id" not in fields:
                    break  # of none
                kind = CALLS.get(text.place.slot, _TYPES.get(text.channel.kind, "message"))
                item = {"id": fields.get("item_id"), "type": kind, "role": "assistant"}
                kept.items[number] = Item(item, announced=text.shown)
        if chunk.verb == "added" and isinstance(fields.get("part"), Mapping):
            place = (number, fields.get("content_index") or 0)
            kept.parts[place] = str(fields["part"].get("type"))

    def _keep_output(self, chunk: ReadEvent, output: Iterable[Any]) -> None:
        """Note the items of a response that is cut, up to the one in which it is."""
        assert chunk.texts is not None
        channel = list(chunk.texts)[-1]  # nothing behind the cut is among the texts
        cut = next(p.item for p, text in chunk.texts_at.items() if text.channel == channel)
        for number, item in enumerate(output):
            texts = [text for place, text in chunk.texts_at.items() if place.item == number]
            if number < cut:
                if not all(text.whole for text in texts):
                    item = rewritten_item(item, number, self._rewriter(chunk))
                self.transcript.items[number] = Item(item, announced=True, done=True)
            elif number == cut and (
                item.get("type") == "message" or "".join(t for x in texts for t in x.released)
            ):
                self.transcript.items[number] = Item(
                    rewritten_item(item, number, _nothing), announced=False
                )


def _nothing(place: Place, kind: ChannelKind, text: str) -> str:
    return ""
