"""The messages door: ``litellm.anthropic.messages``, guarded.

The functions are ``litellm.anthropic_messages`` and, synchronous, ``anthropic_messages_handler``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import AsyncGeneratorType, GeneratorType
from typing import Any

from guard.doors.door import Door, Whole, last_message, unreadable
from guard.doors.driver import GuardedStream, guarded_class
from guard.doors.litellm import closing
from guard.doors.litellm.compat import HIDDEN, MESSAGES_FIELDS
from guard.doors.messages.accounting import MessagesReport
from guard.doors.messages.codec import MessagesCodec
from guard.doors.messages.events import Frame, Framer, MessageEvent
from guard.doors.messages.shapes import MESSAGE, STOPPED
from guard.doors.session import DoorSession
from guard.doors.states import GONE
from guard.doors.stream_text import StreamText
from guard.doors.strings import is_name, without_text
from guard.doors.sync_or_async import SyncOrAsync, call_async, call_sync, run_without_loop
from guard.doors.walk import textless
from guard.verdict import GuardTrail


class MessagesStream(GuardedStream):
    """A guarded stream of Anthropic's messages; its chunks are bytes, text or dicts, as LiteLLM's.

    It is a subclass of the class of the stream that it guards, unless that is a bare generator.
    LiteLLM's accumulated text is not available here.
    """

    _passed_on = MESSAGES_FIELDS

    def __init__(self, upstream: Any, session: DoorSession, *, user: str = "") -> None:
        self._codec = MessagesCodec()
        self._framer = Framer()
        self._message_report = MessagesReport(upstream, self._codec)
        self._counted = False
        super().__init__(upstream, session, self._codec, user=user)

    @property
    def chunks(self) -> None:
        """None: the chunks of LiteLLM's own stream hold unreleased text."""
        return

    def _read(self, chunk: Frame) -> Frame:
        return self._codec.read(chunk)

    def _take(self, chunk: Any) -> bool:
        more = False
        for frame in self._framer.feed(chunk):
            more = super()._take(frame) or more
        return more

    def _end(self, error: Exception | None = None) -> None:
        if not self._state.over and error is None:
            for frame in self._framer.rest():
                super()._take(frame)
        super()._end(error)

    def _sealed(self, chunk: Frame) -> Iterable[Any]:
        yield from self._codec.seal(chunk, self._framer.form)
        if chunk.message is not None:
            end = self._codec.ended(self._message_report.usage, self._framer.form)
            yield from end[self._codec.ends_sent :]

    def _stream_text(self) -> StreamText:
        released = self._codec.joined(self._codec.released)
        content = (text for channel, text in released.items() if channel.kind == "content")
        return StreamText(
            any(released.values()),
            "".join(content),
            "\n".join(released.values()),
            self._codec.withheld(),
        )

    def _shut(self) -> None:
        if run_without_loop(self._report_follows(call_sync)):
            super()._shut()

    async def _ashut(self) -> None:
        if await self._report_follows(call_async):
            await super()._ashut()

    async def _report_follows(self, call: SyncOrAsync) -> bool:
        """Prepare LiteLLM's report of a stopped stream, made when its stream is closed.

        Returns False while the last events to go out are still unknown: the report has them, too.
        """
        if self._gate.ended_by_guard and not self._state.closed:
            for connection in closing.connections(self._upstream):
                await call(partial(closing.close, loop=self._loop), closing.aclose, connection)
            if not self._counted:
                self._counted = True
                # May be slow: it may count tokens.
                count = self._message_report.count
                await call(count, partial(asyncio.to_thread, count))
                if self._reader is not GONE:
                    return False
            self._message_report.fill()
        return True

    def _logging(self) -> Any:
        return self._message_report.logging

    def _answer(self) -> Any:
        return self._message_report.answer()


class TrailedMessage(dict[str, Any]):
    """A whole message: a dict, as LiteLLM's, with the trail as its attribute ``guard``."""

    guard: GuardTrail


class WholeMessage(Whole):
    """A whole message and its gate, which reads it as the events of a stream."""

    def __init__(self, message: Mapping[str, Any], session: DoorSession, user: str) -> None:
        self._message = message
        self._codec = MessagesCodec()
        self._blocks = {n: _plain(b) for n, b in enumerate(message.get("content") or ())}
        events = [MessageEvent(fields) for fields in self._events()]
        self._frames = [self._codec.read(Frame(None, [event])) for event in events]
        self.gate = session.gate(self._codec, user=user)
        for frame in self._frames:
            self.gate.push(frame)
        self.gate.finish()

    def delivered(self) -> TrailedMessage:
        """Return the message as released so far.

        Its values are the provider's own objects if nothing was cut. A tool call that was cut is
        left out, because a tool may run on partial input.
        """
        out = self.gate.emit()
        if [*map(id, out)] == [*map(id, self._frames)]:
            return TrailedMessage(self._message)
        message = {**textless(self._message, MESSAGE), **STOPPED}
        if isinstance(hidden := self._message.get(HIDDEN), Mapping):
            message[HIDDEN] = without_text(hidden)
        content: dict[int, Any] = {}
        for fields in self._out(out):
            index = fields.get("index", 0)
            if fields["type"] == "content_block_start":
                own = fields["content_block"] is self._blocks.get(index)
                content[index] = self._message["content"][index] if own else fields["content_block"]
            elif fields["type"] == "content_block_delta":  # the guard's message
                block = _plain(content[index])
                content[index] = {**block, "text": block["text"] + fields["delta"]["text"]}
            elif fields["type"] == "message_delta":
                message |= fields["delta"]
        return TrailedMessage({**message, "content": [content[n] for n in sorted(content)]})

    def _events(self) -> Iterator[Mapping[str, Any]]:
        ends = ("stop_reason", "stop_sequence", "stop_details")
        known = {*ends, "content", HIDDEN}
        if more := {
            k: v for k, v in self._message.items() if k not in known and (v or not is_name(k))
        }:
            yield {"type": "message_start", "message": more}
        for index, block in self._blocks.items():
            yield {"type": "content_block_start", "index": index, "content_block": block}
            yield {"type": "content_block_stop", "index": index}
        delta = {name: self._message[name] for name in ends if name in self._message}
        yield {"type": "message_delta", "delta": delta}

    def _out(self, frames: Iterable[Frame]) -> Iterator[Mapping[str, Any]]:
        for frame in frames:
            if frame.message is not None:
                yield from self._codec.ending(frame.message)
            yield from (e.fields for e in self._codec.passed(frame) if e.fields is not None)


def _plain(block: Any) -> Mapping[str, Any]:
    """Return a block as a dict; LiteLLM makes some as pydantic objects."""
    plain: Mapping[str, Any] = block if isinstance(block, Mapping) else block.model_dump()
    return plain


def _wrap(response: object, session: DoorSession, user: str, n: int) -> MessagesStream | Whole:
    if isinstance(response, Mapping):
        return WholeMessage(response, session, user)
    if not (hasattr(response, "__anext__") or hasattr(response, "__next__")):
        raise unreadable(response, "messages")
    kind: Any = response.__class__  # a tracer's proxy says that it is of the class of its stream
    bare = kind in (GeneratorType, AsyncGeneratorType)
    guarded = MessagesStream if bare else guarded_class(MessagesStream, kind)
    stream: MessagesStream = guarded(response, session, user=user)
    return stream


DOOR = Door(
    "messages",
    "anthropic_messages_handler",
    "anthropic_messages",
    _wrap,
    user=lambda call: last_message(call.get("messages")),
    records=False,
    newer=True,
)
