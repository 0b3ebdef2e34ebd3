"""Report a stopped stream of messages to LiteLLM: once, and as a success.

LiteLLM has three kinds of such streams. One made from a chat or from the Responses API is
reported like those. One that a provider sends itself is reported by LiteLLM when its stream is
closed, from its list of received bytes; before that, the list is replaced by the released events.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import litellm
from litellm.types.utils import Choices, Message, ModelResponse, Usage

from guard.doors.litellm import accounting, closing
from guard.doors.litellm.compat import BaseResponsesAPIStreamingIterator, CustomStreamWrapper
from guard.doors.messages.codec import MessagesCodec
from guard.doors.messages.events import encoded
from guard.verdict import Channel, ChannelKind


class MessagesReport:
    """The report of one stopped stream; ``usage`` is that of everything the provider sent.

    ``logging`` is None if LiteLLM reports the stream by itself.
    """

    def __init__(self, upstream: Any, codec: MessagesCodec) -> None:
        self.usage: dict[str, int] = {}
        self._upstream = upstream
        self._codec = codec
        self._collected: list[bytes] | None = None
        self.logging: Any = None

    def count(self) -> None:
        """Count the tokens that the provider sent.

        Call it after the connection was closed and before LiteLLM's stream is. The first call may
        be slow: it loads a tokenizer.
        """
        chat = closing.outermost_stream(self._upstream, CustomStreamWrapper)
        events: Any = closing.outermost_stream(self._upstream, BaseResponsesAPIStreamingIterator)
        with contextlib.suppress(Exception):
            if chat is not None:
                self.logging = chat.logging_obj
                counted = accounting.answer(chat, chat.chunks).usage
                self._count(counted.prompt_tokens, counted.completion_tokens)
            elif events is not None:
                self.logging = events.logging_obj
                usage = events.partial_response_on_disconnect().response.usage
                self._count(usage.input_tokens, usage.output_tokens)
            else:
                self._native()

    def fill(self) -> None:
        """Have LiteLLM report the released events only; call it when all of them are known."""
        if self._collected is not None:
            self._collected[:] = [encoded(event, bytes) for event in self._events()]
            self._collected += self._codec.ended(self.usage, bytes)

    def _count(self, inputs: int | None, outputs: int | None) -> None:
        self.usage = {"input_tokens": inputs or 0, "output_tokens": outputs or 0}

    def _native(self) -> None:
        received = "".join(text for pieces in self._codec.received.values() for text in pieces)
        model = self._codec.start["message"].get("model") or ""
        count = litellm.token_counter(model=model, text=received, count_response_tokens=True)
        usage = self._codec.usage
        self._count(usage.get("input_tokens"), max(count, usage.get("output_tokens", 0)))
        collected = closing.generator_local(self._upstream, "raw_bytes")
        if isinstance(collected, list):
            self._collected = collected
            return
        # Here LiteLLM reads ahead in a task, which would continue without a reader.
        pump = closing.generator_local(self._upstream, "pump_task")
        if isinstance(pump, asyncio.Task):
            pump.get_loop().call_soon_threadsafe(pump.cancel)
            self.logging = closing.generator_local(self._upstream, "self").litellm_logging_obj

    def _events(self) -> Iterator[Mapping[str, Any]]:
        """Yield the released text as the events of a stream, with one block for each channel."""
        yield self._codec.start
        for index, (channel, text) in enumerate(self._released()):
            block: Mapping[str, Any] = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": text}
            if channel.kind == "reasoning":
                block = {"type": "thinking", "thinking": "", "signature": ""}
                delta = {"type": "thinking_delta", "thinking": text}
            elif channel.kind == "tool":
                block = {**self._codec.call_blocks.get(channel, {"type": "tool_use"}), "input": {}}
                delta = {"type": "input_json_delta", "partial_json": text}
            yield {"type": "content_block_start", "index": index, "content_block": block}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}

    def _released(self) -> list[tuple[Any, str]]:
        return [(c, text) for c, text in self._codec.joined(self._codec.released).items() if text]

    def answer(self) -> ModelResponse:
        """Return the released text as the answer to report."""
        texts = dict(self._released())
        calls = [
            {
                "id": self._codec.call_blocks.get(channel, {}).get("id"),
                "type": "function",
                "function": {
                    "name": self._codec.call_blocks.get(channel, {}).get("name"),
                    "arguments": text,
                },
            }
            for channel, text in texts.items()
            if channel.kind == "tool"
        ]
        message = Message(
            content=_of_kind(texts, "content"),
            reasoning_content=_of_kind(texts, "reasoning"),
            tool_calls=calls or None,
        )
        inputs, outputs = self.usage.get("input_tokens", 0), self.usage.get("output_tokens", 0)
        usage = Usage(
            prompt_tokens=inputs, completion_tokens=outputs, total_tokens=inputs + outputs
        )
        started = self._codec.start["message"]
        choice = Choices(finish_reason="content_filter", index=0, message=message)
        return ModelResponse(
            id=started.get("id"), model=started.get("model"), choices=[choice], usage=usage
        )


def _of_kind(texts: Mapping[Channel, str], kind: ChannelKind) -> str | None:
    return "".join(text for channel, text in texts.items() if channel.kind == kind) or None
