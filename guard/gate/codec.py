"""The protocol by which the gate reads and rewrites a door's chunks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypeVar

from guard.verdict import Channel

C = TypeVar("C")


class Part(NamedTuple):
    """One channel's text in a chunk."""

    channel: Channel
    text: str


class Codec(Protocol[C]):
    """Reads and rewrites one door's chunks; never changes a chunk it was given.

    Codecs derive from it: ``alone``, ``closed`` and ``continued`` have answers that are always
    right, and are overridden where more is known.
    """

    def alone(self, chunk: C, channel: Channel) -> str:
        """Return the text of a chunk that only goes on with ``channel``; "" of any other.

        This is the fast path, asked first of most chunks: such a chunk says something in
        ``channel``, which is the first of its choice's content, nothing else, and ends nothing. It
        is cheaper than ``choices``, ``parts`` and ``finished``.
        """
        return ""

    def parts(self, chunk: C) -> list[Part]:
        """Return the chunk's texts in reading order; raises UsageError on text not a string."""
        ...

    def choices(self, chunk: C) -> list[int]:
        """Return the choice indexes in the chunk; none for one that carries only usage."""
        ...

    def finished(self, chunk: C) -> list[int]:
        """Return the choices that end with this chunk."""
        ...

    def closed(self, chunk: C) -> list[Channel]:
        """Return the channels that say nothing more after this chunk, though their choice may."""
        return []

    def continued(self, channel: Channel) -> Channel | None:
        """Return the channel whose text this one goes on with, where a reader would join them."""
        return None

    def cut(
        self, chunk: C, choice: int, texts: Mapping[Channel, str], *, ends: bool = False
    ) -> C | None:
        """Return a copy with this choice alone, its channels' texts replaced by ``texts``.

        With ``ends`` the choice was terminated inside this chunk: its finish reason is left out.
        None where nothing worth sending is left.
        """
        ...

    def last(self, template: C, choice: int, message: str) -> C:
        """Return the chunk that ends ``choice`` with ``message`` and ``content_filter``."""
        ...
