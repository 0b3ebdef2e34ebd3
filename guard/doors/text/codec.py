"""Reads and rewrites the chunks and choices of text completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litellm.types.utils import TextChoices, TextCompletionResponse

from guard.doors.fields import envelope, index_of, may_repeat, parts_around, parts_of
from guard.doors.repeats import Repeats
from guard.doors.strings import members
from guard.doors.walk import without_prose
from guard.doors.whole import ChoiceText
from guard.doors.whole import joined as texts_of
from guard.gate import Codec, Part
from guard.verdict import Channel


class TextCompletionCodec(Codec[TextCompletionResponse]):
    """The gate's codec for LiteLLM's ``TextCompletionResponse``; never changes a chunk in place.

    ``n`` is the number of choices that the stream distinguishes.
    """

    def __init__(self, n: int = 1) -> None:
        self._n = n
        self._changed: set[int] = set()  # choices whose text was cut or replaced
        self._repeats = Repeats()

    def parts(self, chunk: TextCompletionResponse) -> list[Part]:
        """Return the chunk's texts; raises UsageError if one is not a string."""
        parts = [part for choice in chunk.choices for part in _parts(chunk, choice)]
        return self._repeats.new(parts)

    def choices(self, chunk: TextCompletionResponse) -> list[int]:
        """Return the choices that have text or end; a chunk with usage only has none."""
        return [c.index for c in chunk.choices if c.finish_reason or _parts(chunk, c)]

    def finished(self, chunk: TextCompletionResponse) -> list[int]:
        """Return the choice whose finish reason the chunk carries.

        Nothing if several were requested: LiteLLM then reports one finish reason for all.
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
        """Return a copy with this choice alone, its texts replaced; None if nothing is left."""
        own = next(c for c in chunk.choices if c.index == choice)
        before = dict(_parts(chunk, own))
        if any(before.get(c) != texts.get(c) for c in before if c in texts or not may_repeat(c)):
            self._changed.add(choice)
        reason = None if ends else own.finish_reason
        if not reason and not any(texts.values()):
            return None
        return _bare(chunk, _rewritten_choice(own, texts, reason))

    def last(
        self, template: TextCompletionResponse, choice: int, message: str
    ) -> TextCompletionResponse:
        """Return the chunk that ends ``choice`` with ``message`` and ``content_filter``."""
        return _bare(template, TextChoices("content_filter", choice, message))

    def seal(self, chunk: TextCompletionResponse) -> TextCompletionResponse:
        """Return ``chunk`` as it may go out: after a replacement, without fields that repeat it."""
        if not any(c.index in self._changed for c in chunk.choices):
            return chunk
        choices = [
            _rewritten_choice(c, dict(parts_of_choice(c, c.index)), c.finish_reason)
            for c in chunk.choices
        ]
        return _bare(chunk, *choices)


def parts_of_choice(choice: TextChoices, number: int) -> list[Part]:
    """Return the texts of a choice."""
    fields = members(choice)
    message = {"content": fields.get("text"), "reasoning_content": fields.get("reasoning_content")}
    rest = {name: v for name, v in fields.items() if name != "reasoning_content"}
    return parts_of(message, number) + parts_around(rest, number, "text")


def _parts(chunk: TextCompletionResponse, choice: TextChoices) -> list[Part]:
    """Return the texts of a choice, and of the chunk around it."""
    index = index_of(choice)
    return parts_of_choice(choice, index) + envelope(chunk, index)


def cut_choice(choice: TextChoices, read: ChoiceText, out: list[ChoiceText]) -> TextChoices:
    """Return ``choice`` with the texts of ``out`` and no field that could repeat the others."""
    terminated = any(a.terminated for a in out)
    reason = "content_filter" if terminated else choice.finish_reason
    texts = {Channel(choice.index, *c[1:]): text for c, text in texts_of(out).items()}
    return _rewritten_choice(choice, texts, reason)


def _rewritten_choice(
    choice: TextChoices, texts: Mapping[Channel, str], reason: Any
) -> TextChoices:
    rewritten = TextChoices(reason, choice.index, texts.get(Channel(choice.index)))
    thought = texts.get(Channel(choice.index, "reasoning"))
    if thought:
        rewritten["reasoning_content"] = thought
    return rewritten


def _bare(chunk: TextCompletionResponse, *choices: TextChoices) -> TextCompletionResponse:
    """Return a chunk of the same response that carries ``choices`` and no other text."""
    return TextCompletionResponse(
        id=without_prose("id", chunk.id),
        created=chunk.created,
        model=without_prose("model", chunk.model),
        usage=without_prose("usage", chunk.usage),
        choices=list(choices),
    )
