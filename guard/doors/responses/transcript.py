"""What was said and let out of one response of the Responses API, and how it ends when stopped."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from guard.doors.fields import Repeats, other
from guard.doors.responses.events import Place, made, rewritten_item
from guard.doors.responses.names import CALLS, STEMS
from guard.doors.tools import breaker
from guard.gate import Part
from guard.verdict import Channel, ChannelKind


class Text:
    """One text of a response: what the provider said of it, and what was let out."""

    __slots__ = ("ahead", "channel", "heard", "length", "place", "released", "said", "shown")

    def __init__(self, place: Place, channel: Channel) -> None:
        self.place = place
        self.channel = channel
        self.said: list[str] = []  # each piece of it that the gate was given
        self.length = 0  # of what was said
        self.heard = 0  # of what the provider's deltas brought
        self.released: list[str] = []
        self.ahead: deque[str] = deque()  # what was released and is still to be shown
        self.shown = False  # whether any of it went out in an event

    def say(self, text: str) -> str:
        """Note what the provider said more; return it."""
        self.said.append(text)
        self.length += len(text)
        return text

    def delta(self, text: str) -> str:
        """Take a delta; return what of it is new: the same may have come in whole before."""
        ahead = "".join(self.said)[self.heard :] if self.heard < self.length else ""
        self.heard += len(text)
        if ahead.startswith(text):
            return ""
        new = text.removeprefix(ahead)
        self.heard = self.length + len(new)
        return self.say(new)

    @property
    def whole(self) -> bool:
        """Whether all that was said was let out unchanged."""
        return self.released == self.said or "".join(self.released) == "".join(self.said)

    def release(self, text: str) -> None:
        """Note what was let out."""
        self.released.append(text)
        self.ahead.append(text)

    def show(self, length: int) -> None:
        """Take so much of what was let out as shown."""
        self.shown = True
        while length and self.ahead:
            first = self.ahead.popleft()
            if len(first) > length:
                self.ahead.appendleft(first[length:])
            length = max(0, length - len(first))

    def unshown(self) -> str:
        """Return what was let out and not shown yet, and take it as shown."""
        rest = "".join(self.ahead)
        self.ahead.clear()
        self.shown = self.shown or bool(rest)
        return rest


class Item:
    """One item of the output as it was let out."""

    def __init__(self, fields: Mapping[str, Any], *, announced: bool, done: bool = False) -> None:
        self.fields = dict(fields)
        self.announced = announced
        self.done = done


class Transcript:
    """The state of one response: its texts, its items, and the fields around them."""

    def __init__(self) -> None:
        self.texts: dict[Place, Text] = {}  # the first text at each place
        self.more: dict[Place, list[Text]] = {}  # others that were said there
        self.items: dict[int, Item] = {}
        self.parts: dict[tuple[int, int], str] = {}  # the type of each part that was announced
        self.response: dict[str, Any] = {}
        self.sequence: int | None = None  # the number of the last event, where they are numbered
        self._numbers: dict[tuple[ChannelKind, bool], int] = {}
        self._repeats = Repeats()
        self._grown: dict[Place, Text] = {}  # texts that came in pieces
        self._wholes: dict[tuple[ChannelKind, str], Text] = {}  # texts that came whole
        self._latest: dict[tuple[ChannelKind, str, int], Channel] = {}
        self._before: dict[Channel, Channel | None] = {}

    def text(self, place: Place, kind: ChannelKind) -> Text:
        """Return the text at a place, to be gone on with; each is a channel of its own."""
        text = self.texts.get(place) or self._begun(place, kind)
        self._grown[place] = text
        return text

    def _begun(self, place: Place, kind: ChannelKind, *, beside: bool = False) -> Text:
        """Return a new text at a place, numbered by kind; ``beside`` others in a stream of them."""
        number = self._numbers.get((kind, beside), 0)
        self._numbers[kind, beside] = number + 1
        channel = Channel(0, kind, number)
        text = Text(place, other(channel, number) if beside else channel)
        behind = 0
        if self.texts.setdefault(place, text) is not text:
            more = self.more.setdefault(place, [])
            more.append(text)
            behind = len(more)
        # Texts that stand alone, as the arguments of a call do, go on from none.
        line = (kind, place.slot, behind)
        self._before[text.channel] = None if kind == "tool" else self._latest.get(line)
        self._latest[line] = text.channel
        return text

    def all(self) -> list[Text]:
        """Return all texts, those said at one place with the others."""
        return [*self.texts.values(), *(text for more in self.more.values() for text in more)]

    def before(self, channel: Channel) -> Channel | None:
        """Return the channel of the text that this one goes on from: one before it, of its kind."""
        return self._before.get(channel)

    def streamed(self, place: Place, kind: ChannelKind, text: str) -> tuple[Text, str]:
        """Return the text that a string of no known place goes on with, and what of it is new."""
        if place not in self.texts:
            self._begun(place, kind, beside=True)
        known = self.text(place, kind)
        return known, "" if self._repeats(Part(known.channel, text)) else known.say(text)

    def repeated(self, place: Place, kind: ChannelKind, text: str) -> tuple[Text, str]:
        """Return the text that an event says as a whole, and what of it is new.

        It is what was said at its place at first or at last, perhaps with more behind it; or what
        was said elsewhere, as LiteLLM moves reasoning about; or a text of its own.
        """
        first = self.texts.get(place)
        own = [] if first is None else [first, *self.more.get(place, ())[-1:]]
        for known in own:
            said = "".join(known.said)
            if said and said.startswith(text):
                return known, ""
            if said and text.startswith(said):
                self._wholes[kind, text] = known
                return known, known.say(text[len(said) :])
        if (again := self._said(kind, text)) is not None:
            return again, ""
        new = first if first is not None and not first.said else self._begun(place, kind)
        self._wholes[kind, text] = new
        return new, new.say(text)

    def _said(self, kind: ChannelKind, text: str) -> Text | None:
        """Return a text that says just that."""
        whole = self._wholes.get((kind, text))
        if whole is not None and whole.length == len(text):
            return whole
        alike = (t for t in self._grown.values() if t.length == len(text))
        return next((t for t in alike if t.channel.kind == kind and "".join(t.said) == text), None)

    def ending(self, message: str) -> Iterator[Any]:
        """Yield the events that end a stopped response with ``message``.

        Open items are completed with what was let out of them; the message is the last delta.
        """
        open_ = [number for number, item in sorted(self.items.items()) if not item.done]
        target = next((n for n in reversed(open_) if self._type(n) == "message"), None)
        if target is None:
            target = max(self.items, default=-1) + 1
            # Texts of items behind were not let out: the message takes their place.
            self.texts = {place: t for place, t in self.texts.items() if place.item < target}
            self.items[target] = Item(_message(), announced=False)
        for number in [n for n in open_ if n != target]:
            yield from self._completed(number)
        yield from self._completed(target, message)

    def ended(self, usage: Any = None) -> Any:
        """Return the event by which a response ends incomplete, as it was let out so far."""
        fields = {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": 0,
            **self.response,
            "status": "incomplete",
            "incomplete_details": {"reason": "content_filter"},
            "output": [self._fields(number) for number in sorted(self.items)],
        }
        fields["usage"] = fields.get("usage") or usage
        return self._event("response.incomplete", response=fields)

    def _completed(self, number: int, message: str = "") -> Iterator[Any]:
        item = self.items[number]
        where = {"output_index": number, "item_id": item.fields.get("id") or ""}
        if not item.announced:
            blank = rewritten_item(item.fields, number, lambda *_: "")
            yield self._event("response.output_item.added", output_index=number, item=blank)
        for text in self._own(number):
            yield from self._rest(text, where)
        if message:
            text = self._speaking(number)
            text.release(message)
            yield from self._rest(text, where)
        if self._type(number) == "message":
            for text in self._own(number):
                yield from self._part_done(text, where)
        item.fields = {**self._fields(number), "status": "incomplete"}
        item.done = True
        yield self._event("response.output_item.done", output_index=number, item=item.fields)

    def _rest(self, text: Text, where: Mapping[str, Any]) -> Iterator[Any]:
        """Yield what was let out of a text and not shown yet."""
        kind, slot, part = text.channel.kind, text.place.slot, text.place.part
        if slot == "arguments":
            said = "".join(text.released)
            text.release(breaker(said, complete=len(said) == text.length))
        rest = text.unshown()
        if not rest:
            return
        place = dict(where)
        if slot not in CALLS:
            place["summary_index" if slot == "summary" else "content_index"] = part
        if self._type(text.place.item) == "message" and self._announce(text):
            blank = _part(slot, "")
            yield self._event("response.content_part.added", **place, part=blank)
        yield self._event(f"response.{STEMS[kind, slot]}.delta", **place, delta=rest, logprobs=[])

    def _part_done(self, text: Text, where: Mapping[str, Any]) -> Iterator[Any]:
        slot, said = text.place.slot, "".join(text.released)
        place = {**where, "content_index": text.place.part}
        stem = STEMS["content", slot]
        yield self._event(f"response.{stem}.done", **place, **{slot: said}, logprobs=[])
        yield self._event("response.content_part.done", **place, part=_part(slot, said))

    def _announce(self, text: Text) -> bool:
        """Whether the part that holds a text is still to be announced; it then counts as such."""
        key = (text.place.item, text.place.part)
        new = key not in self.parts and text.heard == 0
        self.parts.setdefault(key, "refusal" if text.place.slot == "refusal" else "output_text")
        return new

    def _speaking(self, number: int) -> Text:
        """Return the text of a message that goes on with the guard's."""
        parts = {part: kind for (item, part), kind in self.parts.items() if item == number}
        parts |= {t.place.part: _part(t.place.slot, "")["type"] for t in self._own(number)}
        last = max(parts, default=0)
        if parts.get(last) == "refusal":
            last += 1
        return self.text(Place(number, "text", last), "content")

    def _own(self, number: int) -> list[Text]:
        own = (t for t in self.texts.values() if t.place.item == number)
        known = (t for t in own if (t.channel.kind, t.place.slot) in STEMS)
        return sorted(known, key=lambda t: t.place.part)

    def _type(self, number: int) -> str:
        named = self.items[number].fields.get("type")
        return str(named) if named else "message"

    def _fields(self, number: int) -> dict[str, Any]:
        """Return an item as it was let out."""
        item = self.items[number]
        if item.done:
            return item.fields
        fields = {**item.fields, "status": item.fields.get("status") or "incomplete"}
        kind = self._type(number)
        if kind == "message":
            fields["content"] = []
        elif kind == "reasoning":
            fields |= {"summary": [], "content": []}
        for text in self._own(number):
            slot, said = text.place.slot, "".join(text.released)
            if slot in CALLS:
                fields[slot] = said
            elif slot == "summary":
                fields.setdefault("summary", []).append({"type": "summary_text", "text": said})
            elif text.channel.kind == "reasoning":
                fields.setdefault("content", []).append({"type": "reasoning_text", "text": said})
            else:
                fields.setdefault("content", []).append(_part(slot, said))
        return fields

    def _event(self, name: str, **fields: Any) -> Any:
        if not name.startswith("response.output_text."):
            fields.pop("logprobs", None)
        if self.sequence is not None:
            self.sequence += 1
            fields["sequence_number"] = self.sequence
        return made(name, fields)


def _message() -> dict[str, Any]:
    return {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "status": "in_progress",
        "content": [],
    }


def _part(slot: str, text: str) -> dict[str, Any]:
    if slot == "refusal":
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": None}
