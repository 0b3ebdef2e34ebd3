"""What a response says twice is judged once."""

from __future__ import annotations

from collections.abc import Mapping

from guard.doors.fields import is_unknown_field, may_quote, may_repeat
from guard.gate import Part
from guard.verdict import Channel

_LATEST = 20_000  # characters of the answer in which a quotation is looked for
_PIECES = 1_000  # of it that are held apart
# A shorter text does not count as a repeat: stream tokens may happen to be equal.
_WORD = 3


class Repeats:
    """Removes texts that a response repeats, so that they are judged once.

    A repeat is a string of an unknown field that is the same in every chunk; a field whose
    whole text so far equals the whole text so far of another channel of its choice; or a quotation
    of the answer: a citation's ``text`` that is part of it.
    """

    def __init__(self) -> None:
        self._last: dict[Channel, str] = {}
        self._length: dict[Channel, int] = {}  # of a channel's text so far
        self._same: dict[Channel, list[Channel]] = {}  # channels with the same text so far
        self._left_out: dict[Channel, list[str]] = {}
        self._distinct: set[Channel] = set()  # channels with a text of their own
        self._said: dict[int, list[str]] = {}  # the content of each choice

    def note(self, channel: Channel, *texts: str) -> int:
        """Add to a channel's text; return its length so far."""
        characters = sum(map(len, texts))
        self._length[channel] = length = self._length.get(channel, 0) + characters
        if channel == (channel.choice, "content", 0):
            said = self._said.setdefault(channel.choice, [])
            said += texts
            if len(said) > _PIECES:
                said[:] = ["".join(said)[-_LATEST:]]
        return length

    def _quoted(self, channel: Channel, text: str) -> bool:
        """Whether a string quotes the answer of its choice, of which it is a part."""
        if not may_quote(channel):
            return False
        said = "".join(self._said.get(channel.choice, ()))[-_LATEST:]
        self._said[channel.choice] = [said]
        return text in said

    def new(self, parts: list[Part]) -> list[Part]:
        """Return the ``parts`` of a chunk or an answer without repeats."""
        new: list[Part] = []
        texts: dict[Channel, str] = {}
        for part in parts:
            channel, text = part
            length = self.note(channel, text)
            if self._quoted(channel, text):
                continue
            if not may_repeat(channel):
                new.append(part)
            elif fresh := self._fresh(channel, text, length, texts):
                repeated = self.repeated(part)
                if not repeated or fresh != text:
                    new.append(Part(channel, fresh))
            texts[channel] = texts.get(channel, "") + text
        return new

    def _fresh(self, channel: Channel, text: str, length: int, texts: Mapping[Channel, str]) -> str:
        """Return the text to judge now; once a channel differs, with its text left out so far."""
        if channel in self._distinct:
            return text
        same = [
            twin
            for twin in self._same.get(channel, texts)
            if twin.choice == channel.choice
            and texts.get(twin) == text
            and self._length[twin] == length
        ]
        if same:
            self._same[channel] = same
            self._left_out.setdefault(channel, []).append(text)
            return ""
        self._distinct.add(channel)
        return "".join((*self._left_out.pop(channel, ()), text))

    def repeated(self, part: Part) -> bool:
        """Whether a string of an unknown field equals the last one of its channel."""
        channel, text = part
        if not is_unknown_field(channel):
            return False
        equal = len(text) >= _WORD and self._last.get(channel) == text
        self._last[channel] = text
        return equal
