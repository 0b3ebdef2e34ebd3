"""The text door: ``litellm.text_completion`` and ``litellm.atext_completion``, guarded.

LiteLLM gives every choice of a stream that a provider's text API sends the index 0; the guard
judges what LiteLLM gives, as one text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from litellm.litellm_core_utils.streaming_handler import CustomStreamWrapper
from litellm.types.utils import TextChoices, TextCompletionResponse
from litellm.utils import TextCompletionStreamWrapper

from guard.doors import accounting, closing
from guard.doors.door import Arguments, Door, Whole, number_of_choices, unreadable
from guard.doors.driver import GuardedStream
from guard.doors.fields import Again, around, envelope, index_of, may_repeat, parts_of
from guard.doors.said import Said, joined, withheld
from guard.doors.session import Session
from guard.doors.stream import ChatStream
from guard.doors.strings import members, without_prose
from guard.doors.whole import Answer, WholeAnswer
from guard.doors.whole import joined as texts_of
from guard.gate import Part
from guard.verdict import Channel


class TextCompletionCodec:
    """The gate's codec for LiteLLM's ``TextCompletionResponse``; never changes one it was given.

    ``n`` is the number of choices that the stream tells apart.
    """

    def __init__(self, n: int = 1) -> None:
        self._n = n
        self._changed: set[int] = set()  # choices of which text was cut or replaced
        self._again = Again()

    def parts(self, chunk: TextCompletionResponse) -> list[Part]:
        """Return the chunk's texts; raises UsageError on text not a string."""
        said = [part for choice in chunk.choices for part in _parts(chunk, choice)]
        return self._again.new(said)

    def choices(self, chunk: TextCompletionResponse) -> list[int]:
        """Return the choices that say something or end; usage alone belongs to none."""
        return [c.index for c in chunk.choices if c.finish_reason or _parts(chunk, c)]

    def finished(self, chunk: TextCompletionResponse) -> list[int]:
        """Return the choice whose finish reason the chunk brings.

        None where several were asked for: LiteLLM then gives one finish reason for all.
        """
        return [] if self._n > 1 else [c.index for c in chunk.choices if c.finish_reason]

    def cut(
        self,
        chunk: TextCompletionResponse,
        choice: int,
        texts: Mapping[Channel, str],
        *,
        ends: bool = False,
    ) -> TextCompletionResponse | None:
        """Return a copy with this choice alone, its texts replaced; None where it says nothing."""
        one = next(c for c in chunk.choices if c.index == choice)
        said = dict(_parts(chunk, one))
        if any(said.get(c) != texts.get(c) for c in said if c in texts or not may_repeat(c)):
            self._changed.add(choice)
        reason = None if ends else one.finish_reason
        return (
            _bare(chunk, _rewritten(one, texts, reason)) if reason or any(texts.values()) else None
        )

    def last(
        self, template: TextCompletionResponse, choice: int, message: str
    ) -> TextCompletionResponse:
        """Return the chunk that ends ``choice`` with ``message`` and ``content_filter``."""
        return _bare(template, TextChoices("content_filter", choice, message))

    def seal(self, chunk: TextCompletionResponse) -> TextCompletionResponse:
        """Return ``chunk`` as it may leave: after a replacement, with no field that repeats it."""
        if not any(c.index in self._changed for c in chunk.choices):
            return chunk
        choices = [_rewritten(c, dict(spoken(c, c.index)), c.finish_reason) for c in chunk.choices]
        return _bare(chunk, *choices)


class TextCompletionStream(GuardedStream, TextCompletionStreamWrapper):
    """LiteLLM's text stream, guarded; ``chunks`` holds what was let out."""

    def __init__(
        self, upstream: TextCompletionStreamWrapper, session: Session, *, user: str, n: int
    ) -> None:
        self.model = upstream.model
        self.stream_options = upstream.stream_options
        self.custom_llm_provider = upstream.custom_llm_provider
        self.chunks: list[TextCompletionResponse] = []
        self._sent: list[TextCompletionResponse] = []
        # What a chat API says comes through LiteLLM's chat stream. A text API's stream is begun
        # at the first pull, and tells no choices apart.
        self._chat = closing.under(upstream, CustomStreamWrapper)
        n = n if self._chat is not None else 1
        self._codec = TextCompletionCodec(n)
        super().__init__(upstream, session, self._codec, user=user, n=n)

    def _begin(self) -> None:
        super()._begin()
        self._chat = closing.under(self._upstream, CustomStreamWrapper)

    def _read(self, chunk: TextCompletionResponse) -> TextCompletionResponse:
        self._sent.append(chunk)
        return chunk

    def _sealed(self, chunk: TextCompletionResponse) -> Iterable[TextCompletionResponse]:
        self.chunks.append(self._codec.seal(chunk))
        return self.chunks[-1:]

    def _said(self) -> Said:
        first = (c.choices[0].text for c in self.chunks if c.choices)
        return Said(
            bool(self.chunks),
            "".join(text for text in first if text),
            "\n".join(joined(TextCompletionCodec(), self.chunks)),
            withheld(TextCompletionCodec, self._sent, self.chunks),
        )

    def _logging(self) -> Any:
        return None if self._chat is None else self._chat.logging_obj

    def _answer(self) -> Any:
        return None if self._chat is None else accounting.answer(self._chat, self.chunks)


def spoken(choice: TextChoices, number: int) -> list[Part]:
    """Return what a choice says."""
    said = members(choice)
    parts = parts_of(
        _Speech(content=said.get("text"), reasoning_content=said.get("reasoning_content")), number
    )
    rest = _Speech(**{name: value for name, value in said.items() if name != "reasoning_content"})
    return parts + around(rest, number, "text")


def _parts(chunk: TextCompletionResponse, choice: TextChoices) -> list[Part]:
    """Return the texts of a choice, and of the chunk around it."""
    index = index_of(choice)
    return spoken(choice, index) + envelope(chunk, index)


def cut_choice(choice: TextChoices, said: Answer, out: list[Answer]) -> TextChoices:
    """Return ``choice`` with the texts of ``out`` and no field that could repeat the others."""
    terminated = any(a.terminated for a in out)
    reason = "content_filter" if terminated else choice.finish_reason
    texts = {Channel(choice.index, *c[1:]): text for c, text in texts_of(out).items()}
    return _rewritten(choice, texts, reason)


class _Speech:
    """Fields of a text choice, as an object with them."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def _rewritten(choice: TextChoices, texts: Mapping[Channel, str], reason: Any) -> TextChoices:
    made = TextChoices(reason, choice.index, texts.get(Channel(choice.index)))
    thought = texts.get(Channel(choice.index, "reasoning"))
    if thought:
        made["reasoning_content"] = thought
    return made


def _bare(chunk: TextCompletionResponse, *choices: TextChoices) -> TextCompletionResponse:
    """Return a chunk of the same response that carries ``choices`` and no other text."""
    return TextCompletionResponse(
        id=without_prose("id", chunk.id),
        created=chunk.created,
        model=without_prose("model", chunk.model),
        usage=without_prose("usage", chunk.usage),
        choices=list(choices),
    )


def _wrap(
    response: object, session: Session, user: str, n: int
) -> TextCompletionStream | ChatStream | Whole:
    if isinstance(response, TextCompletionStreamWrapper):
        return TextCompletionStream(response, session, user=user, n=n)
    if isinstance(response, CustomStreamWrapper):  # LiteLLM replays its cache as a chat
        return ChatStream(response, session, user=user, n=n)
    if isinstance(response, TextCompletionResponse):
        return WholeAnswer(response, session, user, spoken, cut_choice)
    raise unreadable(response, "text completion")


def _user(call: Arguments) -> str:
    prompt = call.get("prompt")
    prompts = prompt if isinstance(prompt, list) else [prompt]
    return next((p for p in reversed(prompts) if isinstance(p, str)), "")


DOOR = Door("text_completion", "atext_completion", _wrap, user=_user, choices=number_of_choices)
