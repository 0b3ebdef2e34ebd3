"""The responses door: ``litellm.responses`` and ``litellm.aresponses``, guarded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from litellm.responses.streaming_iterator import BaseResponsesAPIStreamingIterator
from litellm.types.llms.openai import ResponseCompletedEvent, ResponsesAPIResponse

from guard.doors.door import Door, Whole, last_message, unreadable, with_trail
from guard.doors.driver import GuardedStream
from guard.doors.event_codec import EventCodec, Heard
from guard.doors.event_names import TERMINAL
from guard.doors.events import hidden, name_of
from guard.doors.said import Said
from guard.doors.session import Session


class ResponsesStream(GuardedStream):
    """A stream of the Responses API, guarded; of the class of the stream that it guards.

    What LiteLLM's stream gathers of the text is not to be had here; ``completed_response`` is the
    event that ended what was let out.
    """

    _OWN = (
        "model",
        "logging_obj",
        "litellm_logging_obj",
        "custom_llm_provider",
        "litellm_metadata",
        "request_data",
        "call_type",
        "start_time",
        "_hidden_params",
    )

    def __init__(self, upstream: Any, session: Session, *, user: str) -> None:
        self._counted: Any = None  # the usage so far, once stopped
        self._codec = EventCodec()
        super().__init__(upstream, session, self._codec, user=user)

    def __getattr__(self, name: str) -> Any:
        if name not in ResponsesStream._OWN:
            raise AttributeError(name)
        return getattr(self._upstream, name)

    def partial_response_on_disconnect(self) -> Any:
        """Return the event by which LiteLLM's proxy bills a stream whose client has left."""
        return None if self._over else self._codec.transcript.ended(self._usage())

    def _read(self, chunk: Any) -> Heard:
        return self._codec.hear(chunk)

    def _take(self, chunk: Any) -> bool:
        more = super()._take(chunk)
        # LiteLLM reports a response when its last event comes.
        self._ended = self._ended or name_of(chunk) in TERMINAL
        return more

    def _sealed(self, chunk: Heard) -> Iterable[Any]:
        for event in self._codec.seal(chunk, self._counted):
            if name_of(event) in TERMINAL:
                self.completed_response = event
            yield event

    def _said(self) -> Said:
        texts = self._codec.transcript.all()
        shown = {text: "".join(text.released) for text in texts}
        content = (said for text, said in shown.items() if text.channel.kind == "content")
        held = [text for text in texts if not text.whole]
        return Said(
            any(shown.values()),
            "".join(content),
            "\n".join(shown.values()),
            ["".join(text.said) for text in held] + [one for text in held for one in text.said],
        )

    def _count(self) -> None:
        self._counted = self._usage()

    def _logging(self) -> Any:
        return getattr(self._upstream, "logging_obj", None) or self._upstream.litellm_logging_obj

    def _answer(self) -> Any:
        usage = self._counted if self._gate.stopped else self._usage()
        event = self.completed_response or self._codec.transcript.ended(usage)
        # LiteLLM counts in the object that it is given, and in a thread of its own.
        return event.model_copy(deep=True)

    def _usage(self) -> Any:
        """Return the usage of all that the provider sent, as LiteLLM counts it."""
        partial: Any = None
        with contextlib.suppress(Exception):
            partial = self._upstream.partial_response_on_disconnect()
        return None if partial is None else partial.response.usage


class WholeResponse:
    """A whole response and the gate that it waits in: the event that would end a stream of it."""

    def __init__(self, response: ResponsesAPIResponse, session: Session, user: str) -> None:
        event = ResponseCompletedEvent(type="response.completed", response=response)
        self._response = response
        self._codec = EventCodec()
        self._heard = self._codec.hear(event)
        self.gate = session.gate(self._codec, user=user)
        self.gate.push(self._heard)
        self.gate.finish()
        self._told: Any = None

    def released(self) -> Any:
        """Return the response as it may go out, with the trail as its ``guard``.

        It is the provider's own object where nothing was cut. Raises the gate's error under the
        action ``raise``.
        """
        told = self.told()
        if self.gate.error is not None:
            raise self.gate.error
        return with_trail(told, self.gate)

    def told(self) -> Any:
        """Return what of the response was let out; its own object where that is all."""
        if self._told is None:
            self._told = self._made(self.gate.emit())
        return self._told

    def _made(self, out: list[Heard]) -> Any:
        if out == [self._heard]:
            return self._response
        events = [event for heard in out for event in self._codec.seal(heard)]
        end = events[-1] if events else self._codec.transcript.ended(self._response.usage)
        end.response._hidden_params = hidden(self._response)
        return end.response


def _wrap(response: object, session: Session, user: str, n: int) -> ResponsesStream | Whole:
    if isinstance(response, BaseResponsesAPIStreamingIterator):
        # LiteLLM's Router makes a class for each stream: one that all streams share stands for it.
        kind: Any = next(k for k in type(response).__mro__ if "<locals>" not in k.__qualname__)
        stream: ResponsesStream = _guarded(kind)(response, session, user=user)
        return stream
    if isinstance(response, ResponsesAPIResponse):
        return WholeResponse(response, session, user)
    raise unreadable(response, "responses")


@lru_cache
def _guarded(kind: Any) -> Any:
    """Return the guarded stream of a class of LiteLLM's."""
    return type(f"Guarded{kind.__name__}", (ResponsesStream, kind), {"__doc__": kind.__doc__})


DOOR = Door("responses", "aresponses", _wrap, user=lambda call: last_message(call.get("input")))
