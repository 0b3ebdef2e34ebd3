"""A guarded chat stream, sync or async."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from litellm.types.utils import ModelResponseStream

from guard.doors.chat.codec import ChatCodec
from guard.doors.driver import GuardedStream
from guard.doors.litellm import accounting, closing
from guard.doors.litellm.compat import CHAT_FIELDS, CustomStreamWrapper, usage_chunk
from guard.doors.session import DoorSession
from guard.doors.stream_text import StreamText, joined_texts, withheld_texts


class ChatStream(GuardedStream, CustomStreamWrapper):
    """LiteLLM's chat stream, guarded.

    Attributes that describe the call are read from LiteLLM's stream. Its other attributes are not
    available, because they hold the provider's stream or unreleased text. ``chunks`` and
    ``response_uptil_now`` hold released text only. ``n`` is the number of choices requested.
    """

    _passed_on = CHAT_FIELDS

    def __init__(
        self, upstream: CustomStreamWrapper, session: DoorSession, *, user: str = "", n: int = 1
    ) -> None:
        self.chunks: list[ModelResponseStream] = []
        self._sent: list[ModelResponseStream] = []  # the provider's; a Router's stream has none
        self._before = 0  # number of chunks of the answers before the present one
        self._usage: Any = None  # of a stopped stream, if its reader requested usage
        self._codec = ChatCodec(n)
        super().__init__(upstream, session, self._codec, user=user, n=n)

    @property
    def response_uptil_now(self) -> str:  # type: ignore[override]
        """The released text so far; as in LiteLLM, of each chunk's first choice."""
        first = (c.choices[0].delta.content for c in self.chunks if c.choices)
        return "".join(text for text in first if text)

    @property
    def completion_stream(self) -> Any:
        """This stream itself; LiteLLM's Router checks that the attribute exists."""
        return self

    def set_logging_event_loop(self, loop: Any) -> None:
        """Set the loop that LiteLLM reports a sync stream's chunks on."""
        self._upstream.set_logging_event_loop(loop)

    def __next__(self) -> ModelResponseStream:
        chunk: ModelResponseStream = super().__next__()
        if self._session.deferred is not None:
            self._session.deferred.chunk(chunk)
        return chunk

    def _count(self) -> None:
        if getattr(self._upstream, "send_stream_usage", False) and not self._gate.needs_rewrite:
            self._usage = self._answer().usage

    def _release(self) -> bool:
        over = super()._release()
        usage, self._usage = self._usage, None
        if usage is not None and self._error is None and not self._tells_usage():
            # LiteLLM's last chunk carries the usage; a stopped stream seldom reaches it.
            chunk = usage_chunk(self._upstream)
            chunk.usage = usage
            self.chunks.append(chunk)
            self._out.append(chunk)
        return over

    def _tells_usage(self) -> bool:
        return any(getattr(chunk, "usage", None) is not None for chunk in self.chunks)

    def _read(self, chunk: ModelResponseStream) -> ModelResponseStream:
        self._sent.append(chunk)
        return chunk

    def _sealed(self, chunk: ModelResponseStream) -> Iterable[ModelResponseStream]:
        sealed = self._codec.seal(chunk, self.chunks)
        if self._before:  # a continued answer has the identity of the first one
            same = {name: getattr(self.chunks[0], name) for name in ("id", "created", "model")}
            sealed = sealed.model_copy(update=same)
        self.chunks.append(sealed)
        return (sealed,)

    def _sealed_all(self, chunks: list[ModelResponseStream]) -> Iterable[ModelResponseStream]:
        if not (self._codec.seals or self._before):
            self.chunks += chunks
            return chunks
        return super()._sealed_all(chunks)

    def _stream_text(self) -> StreamText:
        return StreamText(
            bool(self.chunks),
            self.response_uptil_now,
            "\n".join(joined_texts(ChatCodec(), self.chunks)),
            withheld_texts(ChatCodec, self._sent, self.chunks),
        )

    def _next_upstream(self, answer: Any) -> CustomStreamWrapper | None:
        self._before = len(self.chunks)
        return closing.outermost_stream(answer, CustomStreamWrapper)

    def _logging(self) -> Any:
        return self._upstream.logging_obj

    def _answer(self) -> Any:
        return accounting.answer(self._upstream, self.chunks[self._before :])
