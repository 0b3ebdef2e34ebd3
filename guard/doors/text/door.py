"""The text door: ``litellm.text_completion`` and ``litellm.atext_completion``, guarded.

In a stream from a provider's text API, LiteLLM sets the index of every choice to 0. Guard judges
such choices as one text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from litellm.types.utils import TextCompletionResponse

from guard.doors.chat.stream import ChatStream
from guard.doors.door import Arguments, Door, Whole, number_of_choices, unreadable
from guard.doors.driver import GuardedStream
from guard.doors.litellm import accounting, closing
from guard.doors.litellm.compat import CustomStreamWrapper, TextCompletionStreamWrapper
from guard.doors.session import DoorSession
from guard.doors.stream_text import StreamText, joined_texts, withheld_texts
from guard.doors.text.codec import TextCompletionCodec, cut_choice, parts_of_choice
from guard.doors.whole import WholeAnswer


class TextCompletionStream(GuardedStream, TextCompletionStreamWrapper):
    """LiteLLM's text stream, guarded; ``chunks`` holds the released chunks."""

    def __init__(
        self, upstream: TextCompletionStreamWrapper, session: DoorSession, *, user: str, n: int
    ) -> None:
        self.model = upstream.model
        self.stream_options = upstream.stream_options
        self.custom_llm_provider = upstream.custom_llm_provider
        self.chunks: list[TextCompletionResponse] = []
        self._sent: list[TextCompletionResponse] = []
        # For a chat API, LiteLLM wraps its chat stream. For a text API, the stream is created at
        # the first pull and does not distinguish choices.
        self._chat = closing.outermost_stream(upstream, CustomStreamWrapper)
        n = n if self._chat is not None else 1
        self._codec = TextCompletionCodec(n)
        super().__init__(upstream, session, self._codec, user=user, n=n)

    def _begin(self) -> None:
        super()._begin()
        self._chat = closing.outermost_stream(self._upstream, CustomStreamWrapper)

    def _read(self, chunk: TextCompletionResponse) -> TextCompletionResponse:
        self._sent.append(chunk)
        return chunk

    def _sealed(self, chunk: TextCompletionResponse) -> Iterable[TextCompletionResponse]:
        self.chunks.append(self._codec.seal(chunk))
        return self.chunks[-1:]

    def _stream_text(self) -> StreamText:
        first = (c.choices[0].text for c in self.chunks if c.choices)
        return StreamText(
            bool(self.chunks),
            "".join(text for text in first if text),
            "\n".join(joined_texts(TextCompletionCodec(), self.chunks)),
            withheld_texts(TextCompletionCodec, self._sent, self.chunks),
        )

    def _logging(self) -> Any:
        return None if self._chat is None else self._chat.logging_obj

    def _answer(self) -> Any:
        return None if self._chat is None else accounting.answer(self._chat, self.chunks)


def _wrap(
    response: object, session: DoorSession, user: str, n: int
) -> TextCompletionStream | ChatStream | Whole:
    if isinstance(response, TextCompletionStreamWrapper):
        return TextCompletionStream(response, session, user=user, n=n)
    if isinstance(response, CustomStreamWrapper):  # LiteLLM replays its cache as a chat
        return ChatStream(response, session, user=user, n=n)
    if isinstance(response, TextCompletionResponse):
        return WholeAnswer(response, session, user, parts_of_choice, cut_choice)
    raise unreadable(response, "text completion")


def _user(call: Arguments) -> str:
    prompt = call.get("prompt")
    prompts = prompt if isinstance(prompt, list) else [prompt]
    return next((p for p in reversed(prompts) if isinstance(p, str)), "")


DOOR = Door(
    "text",
    "text_completion",
    "atext_completion",
    _wrap,
    user=_user,
    choices=number_of_choices,
)
