"""The received and the released text of one response, and how a stopped response ends."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from guard.doors.fields import unknown_field
from guard.doors.repeats import Repeats
from guard.doors.responses.events import litellm_event, rewritten_item
from guard.doors.responses.names import CALLS, STEMS
from guard.doors.walk import TextPlace
from guard.gate import Part
from guard.verdict import Channel, ChannelKind


@dataclass(eq=False, slots=True)
class ResponseText:
    """One text of a response: what the provider sent of it, and what was released."""

    place: TextPlace
    channel: Channel
    received: list[str] = field(default_factory=list)  # the pieces, as they were fed to the gate
    length: int = 0  # characters received
    in_deltas: int = 0  # characters received in deltas
    released: list[str] = field(default_factory=list)
    unshown: deque[str] = field(default_factory=deque)  # released, but in no emitted event yet
    shown: bool = False  # whether any of it went out in an event

    def receive(self, text: str) -> str:
        """Add text of the provider; return it."""
        self.received.append(text)
        self.length += len(text)
        return text

    def delta(self, text: str) -> str:
        """Add a delta; return its new text: an earlier event may have had the text in whole."""
        ahead = "".join(self.received)[self.in_deltas :] if self.in_deltas < self.length else ""
        self.in_deltas += len(text)
        if ahead.startswith(text):
            return ""
        new = text.removeprefix(ahead)
        self.in_deltas = self.length + len(new)
        return self.receive(new)

    @property
    def whole(self) -> bool:
        """Whether everything received was released unchanged."""
        return self.released == self.received or "".join(self.released) == "".join(self.received)

    def release(self, text: str) -> None:
        """Add released text."""
        self.released.append(text)
        self.unshown.append(text)

    def show(self, length: int) -> None:
        """Mark the next ``length`` released characters as shown."""
        self.shown = True
        while length and self.unshown:
            first = self.unshown.popleft()
            if len(first) > length:
                self.unshown.appendleft(first[length:])
            length = max(0, length - len(first))

    def take_unshown(self) -> str:
        """Return the released text that was not shown yet, and mark it as shown."""
        rest = "".join(self.unshown)
        self.unshown.clear()
        self.shown = self.shown or bool(rest)
        return rest


class OutputItem:
    """One item of the output, as released."""

    def __init__(self, fields: Mapping[str, Any], *, announced: bool, done: bool = False) -> None:
        self.fields = dict(fields)
        self.announced = announced
        self.done = done


class Transcript:
    """The state of one response: its texts, its items, and the fields around them."""

    def __init__(self) -> None:
        self.texts: dict[TextPlace, ResponseText] = {}  # the first text at each place
        self.more: dict[TextPlace, list[ResponseText]] = {}  # further texts at the same place
        self.items: dict[int, OutputItem] = {}
        self.parts: dict[tuple[int, int], str] = {}  # the type of each announced part
        self.response: dict[str, Any] = {}
        self.sequence: int | None = None  # the number of the last event, if they are numbered
        self._numbers: dict[tuple[ChannelKind, bool], int] = {}
        self._repeats = Repeats()
        self._grown: dict[TextPlace, ResponseText] = {}  # texts that came in pieces
        # Texts that came in one event.
        self._wholes: dict[tuple[ChannelKind, str], ResponseText] = {}
        self._latest: dict[tuple[ChannelKind, str, int], Channel] = {}
        self._before: dict[Channel, Channel | None] = {}

    def text(self, place: TextPlace, kind: ChannelKind) -> ResponseText:
        """Return the text at a place, to be continued; each is a channel of its own."""
        text = self.texts.get(place) or self._begun(place, kind)
        self._grown[place] = text
        return text

    def _begun(self, place: TextPlace, kind: ChannelKind, *, beside: bool = False) -> ResponseText:
        """Return a new text at a place; ``beside``: of an unknown field, beside a known text."""
        number = self._numbers.get((kind, beside), 0)
        self._numbers[kind, beside] = number + 1
        channel = Channel(0, kind, number)
        text = ResponseText(place, unknown_field(channel, number) if beside else channel)
        behind = 0
        if self.texts.setdefault(place, text) is not text:
            more = self.more.setdefault(place, [])
            more.append(text)
            behind = len(more)
        # The arguments of a call continue no other text.
        line = (kind, place.slot, behind)
        self._before[text.channel] = None if kind == "tool" else self._latest.get(line)
        self._latest[line] = text.channel
        return text

    def all(self) -> list[ResponseText]:
        """Return all texts, including further ones at the same place."""
        return [*self.texts.values(), *(text for more in self.more.values() for text in more)]

    def before(self, channel: Channel) -> Channel | None:
        """Return the channel of the text that this one continues: the one before, of its kind."""
        return self._before.get(channel)

    def streamed(self, place: TextPlace, kind: ChannelKind, text: str) -> tuple[ResponseText, str]:
        """Return the text that a string of an unknown place continues, and its new characters."""
        if place not in self.texts:
            self._begun(place, kind, beside=True)
        known = self.text(place, kind)
        repeated = self._repeats.repeated(Part(known.channel, text))
        return known, "" if repeated else known.receive(text)

    def repeated(self, place: TextPlace, kind: ChannelKind, text: str) -> tuple[ResponseText, str]:
        """Return the text that an event carries in whole, and its new characters.

        It equals or continues the first or the last text at its place; or it equals a text of
        another place (LiteLLM moves reasoning between items); otherwise it is a new text.
        """
        first = self.texts.get(place)
        own = [] if first is None else [first, *self.more.get(place, ())[-1:]]
        for known in own:
            received = "".join(known.received)
            if received and received.startswith(text):
                return known, ""
            if received and text.startswith(received):
                self._wholes[kind, text] = known
                return known, known.receive(text[len(received) :])
        if (equal := self._equal(kind, text)) is not None:
            return equal, ""
        new = first if first is not None and not first.received else self._begun(place, kind)
        self._wholes[kind, text] = new
        return new, new.receive(text)

    def _equal(self, kind: ChannelKind, text: str) -> ResponseText | None:
        """Return the text of this kind that equals ``text``."""
        whole = self._wholes.get((kind, text))
        if whole is not None and whole.length == len(text):
            return whole
        for known in self._grown.values():
            same = known.length == len(text) and known.channel.kind == kind
            if same and "".join(known.received) == text:
                return known
        return None

    def ending(self, message: str) -> Iterator[Any]:
        """Yield the events that end a stopped response with ``message``.

        Open items are completed with their released text; the message is the last delta.
        """
        open_ = [number for number, item in sorted(self.items.items()) if not item.done]
        target = next((n for n in reversed(open_) if self._type(n) == "message"), None)
        if target is None:
            target = max(self.items, default=-1) + 1
            # Later items were not released: the message takes their place.
            self.texts = {place: t for place, t in self.texts.items() if place.item < target}
            self.items[target] = OutputItem(_message(), announced=False)
        for number in [n for n in open_ if n != target]:
            yield from self._completed(number)
        yield from self._completed(target, message)

    def ended(self, usage: Any = None) -> Any:
        """Return the event that ends a response as incomplete, with its released text."""
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
            text = self._message_text(number)
            text.release(message)
            yield from self._rest(text, where)
        if self._type(number) == "message":
            for text in self._own(number):
                yield from self._part_done(text, where)
        item.fields = {**self._fields(number), "status": "incomplete"}
        item.done = True
        yield self._event("response.output_item.done", output_index=number, item=item.fields)

    def _rest(self, text: ResponseText, where: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the events for the released text that was not shown yet."""
        kind, slot, part = text.channel.kind, text.place.slot, text.place.part
        rest = text.take_unshown()
        if not rest:
            return
        place = dict(where)
        if slot not in CALLS:
            place["summary_index" if slot == "summary" else "content_index"] = part
        if self._type(text.place.item) == "message" and self._announce(text):
            blank = _part(slot, "")
            yield self._event("response.content_part.added", **place, part=blank)
        yield self._event(f"response.{STEMS[kind, slot]}.delta", **place, delta=rest, logprobs=[])

    def _part_done(self, text: ResponseText, where: Mapping[str, Any]) -> Iterator[Any]:
        slot, released = text.place.slot, "".join(text.released)
        place = {**where, "content_index": text.place.part}
        stem = STEMS["content", slot]
        yield self._event(f"response.{stem}.done", **place, **{slot: released}, logprobs=[])
        yield self._event("response.content_part.done", **place, part=_part(slot, released))

    def _announce(self, text: ResponseText) -> bool:
        """Mark a text's part as announced; return whether it was not announced before."""
        key = (text.place.item, text.place.part)
        new = key not in self.parts and text.in_deltas == 0
        self.parts.setdefault(key, "refusal" if text.place.slot == "refusal" else "output_text")
        return new

    def _message_text(self, number: int) -> ResponseText:
        """Return the text of an item that the guard's message continues."""
        parts = {part: kind for (item, part), kind in self.parts.items() if item == number}
        parts |= {t.place.part: _part(t.place.slot, "")["type"] for t in self._own(number)}
        last = max(parts, default=0)
        if parts.get(last) == "refusal":
            last += 1
        return self.text(TextPlace(number, "text", last), "content")

    def _own(self, number: int) -> list[ResponseText]:
        own = (t for t in self.texts.values() if t.place.item == number)
        known = (t for t in own if (t.channel.kind, t.place.slot) in STEMS)
        return sorted(known, key=lambda t: t.place.part)

    def _type(self, number: int) -> str:
        named = self.items[number].fields.get("type")
        return str(named) if named else "message"

    def _fields(self, number: int) -> dict[str, Any]:
        """Return an item as released."""
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
            slot, released = text.place.slot, "".join(text.released)
            if slot in CALLS:
                fields[slot] = released
            elif slot == "summary":
                fields.setdefault("summary", []).append({"type": "summary_text", "text": released})
            elif text.channel.kind == "reasoning":
                part = {"type": "reasoning_text", "text": released}
                fields.setdefault("content", []).append(part)
            else:
                fields.setdefault("content", []).append(_part(slot, released))
        return fields

    def _event(self, name: str, **fields: Any) -> Any:
        if not name.startswith("response.output_text."):
            fields.pop("logprobs", None)
        if self.sequence is not None:
            self.sequence += 1
            fields["sequence_number"] = self.sequence
        return litellm_event(name, fields)


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
