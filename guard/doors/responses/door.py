"""The responses door: ``litellm.responses`` and ``litellm.aresponses``, guarded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from litellm.types.llms.openai import ResponseCompletedEvent, ResponsesAPIResponse

from guard.doors.door import Door, Whole, last_message, unreadable
from guard.doors.driver import GuardedStream, guarded_class
from guard.doors.litellm.compat import (
    RESPONSES_FIELDS,
    BaseResponsesAPIStreamingIterator,
    set_hidden_params,
)
from guard.doors.responses.codec import EventCodec, ReadEvent
from guard.doors.responses.events import hidden_without_text, name_of
from guard.doors.responses.names import TERMINAL
from guard.doors.session import DoorSession
from guard.doors.states import StreamEvent
from guard.doors.stream_text import StreamText
from guard.doors.strings import member
from guard.doors.walk import without_prose


class ResponsesStream(GuardedStream):
    """A guarded stream of the Responses API; a subclass of the class of the stream it guards.

    LiteLLM's accumulated text is not available here. ``completed_response`` is the last event
    that went out.
    """

    _passed_on = RESPONSES_FIELDS

    def __init__(self, upstream: Any, session: DoorSession, *, user: str) -> None:
        self._counted: Any = None  # the usage so far, once stopped
        self._codec = EventCodec()
        super().__init__(upstream, session, self._codec, user=user)

    def partial_response_on_disconnect(self) -> Any:
        """Return the event from which LiteLLM's proxy bills a stream whose client has left."""
        return None if self._state.over else self._codec.transcript.ended(self._usage())

    def _read(self, chunk: Any) -> ReadEvent:
        return self._codec.read(chunk)

    def _take(self, chunk: Any) -> bool:
        more = super()._take(chunk)
        # LiteLLM reports a response when its last event comes.
        if name_of(chunk) in TERMINAL:
            self._on(StreamEvent.LAST_CHUNK)
        return more

    def _sealed(self, chunk: ReadEvent) -> Iterable[Any]:
        for event in self._codec.seal(chunk, self._counted):
            if name_of(event) in TERMINAL:
                self.completed_response = event
            yield event

    def _stream_text(self) -> StreamText:
        texts = self._codec.transcript.all()
        shown = {text: "".join(text.released) for text in texts}
        content = (out for text, out in shown.items() if text.channel.kind == "content")
        held = [text for text in texts if not text.whole]
        return StreamText(
            any(shown.values()),
            "".join(content),
            "\n".join(shown.values()),
            ["".join(text.received) for text in held]
            + [piece for text in held for piece in text.received],
        )

    def _count(self) -> None:
        self._counted = self._usage()

    def _logging(self) -> Any:
        return getattr(self._upstream, "logging_obj", None) or self._upstream.litellm_logging_obj

    def _answer(self) -> Any:
        usage = self._counted if self._gate.ended_by_guard else self._usage()
        event = self.completed_response or self._codec.transcript.ended(usage)
        # A copy: LiteLLM writes the usage into its argument, in another thread.
        return event.model_copy(deep=True)

    def _usage(self) -> Any:
        """Return the usage of everything that the provider sent, as LiteLLM counts it."""
        with contextlib.suppress(Exception):
            # LiteLLM counts for itself only as long as the provider's last event has not come.
            event = self._upstream.completed_response
            event = event or self._upstream.partial_response_on_disconnect()
            return without_prose("usage", member(member(event, "response"), "usage"))
        return None


class WholeResponse(Whole):
    """A whole response and its gate, which reads it as the last event of a stream."""

    def __init__(self, response: ResponsesAPIResponse, session: DoorSession, user: str) -> None:
        event = ResponseCompletedEvent(type="response.completed", response=response)
        self._response = response
        self._codec = EventCodec()
        self._event = self._codec.read(event)
        self.gate = session.gate(self._codec, user=user)
        self.gate.push(self._event)
        self.gate.finish()
        self._delivered: Any = None

    def delivered(self) -> Any:
        """Return the response as released so far; a copy if anything was cut."""
        if self._delivered is None:
            self._delivered = self._response_of(self.gate.emit())
        return self._delivered

    def _response_of(self, out: list[ReadEvent]) -> Any:
        if out == [self._event]:
            return self._response
        events = [event for read_event in out for event in self._codec.seal(read_event)]
        end = events[-1] if events else self._codec.transcript.ended(self._response.usage)
        set_hidden_params(end.response, hidden_without_text(self._response))
        return end.response


def _wrap(response: object, session: DoorSession, user: str, n: int) -> ResponsesStream | Whole:
    if isinstance(response, BaseResponsesAPIStreamingIterator):
        # LiteLLM's Router makes a class for each stream: use the base class that all share. A
        # tracer's proxy says that it is of the class of its stream.
        classes: Any = response.__class__.__mro__
        kind = next(k for k in classes if "<locals>" not in k.__qualname__)
        guarded = guarded_class(ResponsesStream, kind)
        stream: ResponsesStream = guarded(response, session, user=user)
        return stream
    if isinstance(response, ResponsesAPIResponse):
        return WholeResponse(response, session, user)
    raise unreadable(response, "responses")


DOOR = Door(
    "responses",
    "responses",
    "aresponses",
    _wrap,
    user=lambda call: last_message(call.get("input")),
    newer=True,
)
