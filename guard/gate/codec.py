"""The protocol by which the gate reads and rewrites a door's chunks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from guard.verdict import Channel

C = TypeVar("C")


class Part(NamedTuple):
    """One channel's text in a chunk."""

    channel: Channel
    text: str


def by_channel(parts: Iterable[tuple[Channel, str]]) -> dict[Channel, str]:
    """Return the texts of several parts, joined by channel."""
    texts: dict[Channel, str] = {}
    for channel, text in parts:
        texts[channel] = texts.get(channel, "") + text
    return texts


class Codec(Protocol[C]):
    """Reads and rewrites one door's chunks; never changes a chunk in place.

    Codecs derive from it. The defaults of ``only_text``, ``closed``, ``calls`` and ``continued``
    are correct for a codec without tool channels; one that knows more overrides them.
    """

    bundles: bool = False
    """Whether a chunk may hold several items: its content is then none of its calls'."""

    def only_text(self, chunk: C, channel: Channel) -> str:
        """Return the text of a chunk that only continues ``channel``; "" for any other chunk.

        This is the fast path for most chunks. Such a chunk has text in ``channel`` only (the
        first content channel of its choice) and ends nothing. Asking this is cheaper than
        ``choices``, ``parts`` and ``finished``.
        """
        return ""

    def parts(self, chunk: C) -> list[Part]:
        """Return the chunk's texts in reading order; an empty one shows where its channel ends.

        Raises UsageError if a text is not a string.
        """
        ...

    def choices(self, chunk: C) -> list[int]:
        """Return the choice indexes in the chunk; empty if it carries only usage."""
        ...

    def finished(self, chunk: C) -> list[int]:
        """Return the choices that end with this chunk."""
        ...

    def closed(self, chunk: C) -> list[Channel]:
        """Return the channels that end with this chunk while their choice may continue."""
        return []

    def calls(self, chunk: C) -> list[Channel]:
        """Return the channels of the tool calls of which the chunk carries anything.

        That is also a name or an id: a call goes out whole or not at all. A codec with tool
        channels implements it.
        """
        return []

    def continued(self, channel: Channel) -> Channel | None:
        """Return the channel that this one continues for a reader; None if it stands alone."""
        return None

    def cut(
        self, chunk: C, choice: int, texts: Mapping[Channel, str], *, ends: bool = False
    ) -> C | None:
        """Return a copy with this choice alone, its channels' texts replaced by ``texts``.

        ``ends`` means that the choice was terminated inside this chunk: the copy has no finish
        reason, and no tool call without text in ``texts``; a call in ``texts`` that has no text in
        this chunk has gone out in others. Returns None if nothing is left to send.
        """
        ...

    def last(self, template: C, choice: int, message: str) -> C:
        """Return the chunk that ends ``choice`` with ``message`` and ``content_filter``."""
        ...

    def closing(self, choice: int) -> C | None:
        """Return what is missing after the provider's finish reason; None if nothing is."""
        return None
