"""Reads and rewrites the chunks of a chat stream. One codec serves one response."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

from litellm.types.utils import (
    ChatCompletionDeltaToolCall,
    Delta,
    Function,
    FunctionCall,
    ModelResponseStream,
    StreamingChoices,
)

from guard.doors.fields import (
    FIELDS_AFTER_CUT,
    FUNCTION_CALL,
    REFUSAL,
    THINKING,
    arguments_of,
    envelope,
    has_content,
    index_of,
    is_custom,
    may_repeat,
    name_channel,
    parts_around,
    parts_of,
    thinking_blocks,
    tool_number,
)
from guard.doors.litellm.compat import hidden_params, set_hidden_params
from guard.doors.repeats import Repeats
from guard.doors.strings import is_data, is_name, members, without_text
from guard.doors.tools import CallEnds
from guard.doors.walk import without_prose
from guard.gate import Codec, Part, by_channel
from guard.verdict import Channel

# Number of extra fields of a delta with content only: content, role, tool_calls, function_call,
# audio.
_USUAL = 5
_ROLES = (None, "assistant")
# Number of fields of a choice that carries nothing but its delta.
_FIELDS = 4
_MOST_FAST = 1_000  # texts that are noted together at most
# Identifies the response of a chunk: the same in all of its chunks.
_names = itemgetter("id", "model", "object", "system_fingerprint")


class _Choice(NamedTuple):
    """One choice of a chunk, as the gate reads it."""

    choice: int
    ends: bool
    parts: list[Part]
    calls: dict[Channel, str | None]  # as `_calls_of` returns them


def _parts(chunk: ModelResponseStream, choice: StreamingChoices) -> list[Part]:
    """Return the texts of a choice, and of the chunk around it, which goes out with each choice."""
    index = index_of(choice)
    parts = parts_of(members(choice).get("delta"), index)
    return [*parts, *parts_around(choice, index, "delta"), *envelope(chunk, index)]


class ChatCodec(Codec[ModelResponseStream]):
    """The gate's codec for LiteLLM's ``ModelResponseStream``; never changes a chunk in place.

    ``n`` is the number of choices requested.
    """

    def __init__(self, n: int = 1) -> None:
        self._n = n
        self._read: tuple[ModelResponseStream | None, list[_Choice]] = (None, [])
        self._call_ends = CallEnds()
        self._changed: set[int] = set()  # choices whose text was cut or replaced
        self._repeats = Repeats()
        self._names: tuple[Any, ...] = ()
        self._fast_channel: Channel | None = None  # the last channel that ``only_text`` read
        self._fast: list[str] = []  # what it read there since the last `_note_fast`
        self._last: dict[int, ModelResponseStream] = {}

    def parts(self, chunk: ModelResponseStream) -> list[Part]:
        """Return the chunk's texts in reading order; raises UsageError if one is not a string."""
        choices = self._choices(chunk)
        if len(choices) == 1:
            return choices[0].parts
        return [part for choice in choices for part in choice.parts]

    def only_text(self, chunk: ModelResponseStream, channel: Channel) -> str:
        """Return the content of a chunk with text in ``channel`` only; "" for any other chunk."""
        # Called for every chunk, so it reads pydantic's storage: attribute access is slower.
        fields = chunk.__dict__
        choices = fields["choices"]
        extra: Any = chunk.__pydantic_extra__
        if (
            len(choices) != 1
            or fields["provider_specific_fields"]
            or (extra and any(has_content(name, value) for name, value in extra.items()))
        ):
            return ""
        names = _names(fields)
        if names != self._names:
            if envelope(fields, 0):
                return ""
            self._names = names  # hold no text to judge, here and in all other chunks
        choice: Any = choices[0].__pydantic_extra__
        try:
            delta: Any = choice["delta"]
            more = delta.__pydantic_extra__
            if (
                choice["index"] == channel.choice
                and len(choice) == _FIELDS
                and choice["logprobs"] is None
                and choice["finish_reason"] is None
                and len(more) == _USUAL
                and more["tool_calls"] is None
                and more["function_call"] is None
                and more["audio"] is None
                and more["role"] in _ROLES
                and not any(delta.__dict__.values())
            ):
                text = more["content"]
                if type(text) is str:
                    if channel is not self._fast_channel:
                        self._note_fast()
                        self._fast_channel = channel
                    self._fast.append(text)
                    if len(self._fast) > _MOST_FAST:
                        self._note_fast()
                    return text
        except (KeyError, TypeError):
            pass
        return ""

    def choices(self, chunk: ModelResponseStream) -> list[int]:
        """Return the choice indexes in the chunk.

        A chunk that carries only usage has an empty first choice in LiteLLM; it is left out.
        """
        choices = self._choices(chunk)
        if members(chunk).get("usage") is not None and not any(c.ends or c.parts for c in choices):
            return []
        return [c.choice for c in choices]

    def finished(self, chunk: ModelResponseStream) -> list[int]:
        """Return the choice whose finish reason the chunk carries.

        Nothing if several choices were requested: LiteLLM then reports one finish reason for all,
        the first one, on the first choice, whose text may continue.
        """
        if self._n > 1:
            return []
        return [c.choice for c in self._choices(chunk) if c.ends]

    def calls(self, chunk: ModelResponseStream) -> list[Channel]:
        """Return the channels of the tool calls in the chunk."""
        return [call for choice in self._choices(chunk) for call in choice.calls]

    def closed(self, chunk: ModelResponseStream) -> list[Channel]:
        """Return the calls that end because something else of their choice begins."""
        closed: list[Channel] = []
        for choice in self._choices(chunk):
            more = any(part.channel.kind != "tool" for part in choice.parts)
            closed += self._call_ends.before(choice.choice, choice.calls, more=more)
        return closed

    def _choices(self, chunk: ModelResponseStream) -> list[_Choice]:
        # Cached: the gate calls this five times for each chunk.
        if self._read[0] is not chunk:
            self._note_fast()
            self._read = (chunk, [self._choice(chunk, c) for c in chunk.choices])
        return self._read[1]

    def _note_fast(self) -> None:
        """Note the texts that ``only_text`` read since the last call."""
        if self._fast_channel is not None:
            self._repeats.note(self._fast_channel, *self._fast)
        self._fast.clear()

    def _choice(self, chunk: ModelResponseStream, choice: StreamingChoices) -> _Choice:
        parts = self._repeats.new(_parts(chunk, choice))
        return _Choice(choice.index, choice.finish_reason is not None, parts, _calls_of(choice))

    def cut(
        self,
        chunk: ModelResponseStream,
        choice: int,
        texts: Mapping[Channel, str],
        *,
        ends: bool = False,
    ) -> ModelResponseStream | None:
        """Return a copy with this choice alone, its texts replaced; None if nothing is left."""
        own = next(c for c in chunk.choices if c.index == choice)
        before = by_channel(
            part
            for part in _parts(chunk, own)
            if part.channel in texts or not may_repeat(part.channel)  # else a repeat, judged before
        )
        if before == dict(texts) and not ends:
            copy: ModelResponseStream = chunk.model_copy(update={"choices": [own]})
            return copy
        if before != dict(texts):
            self._changed.add(choice)
        delta = _rewritten_delta(own.delta, choice, texts, ends=ends)
        reason = None if ends else own.finish_reason
        if reason is None and not parts_of(delta, choice) and not _announces(delta):
            return None
        return _bare(chunk, [StreamingChoices(finish_reason=reason, index=choice, delta=delta)])

    def last(self, template: ModelResponseStream, choice: int, message: str) -> ModelResponseStream:
        """Return the chunk that ends ``choice`` with ``message`` and ``content_filter``."""
        delta = Delta(content=message)
        end = StreamingChoices(finish_reason="content_filter", index=choice, delta=delta)
        self._last[choice] = _bare(template, [end])
        return self._last[choice]

    @property
    def seals(self) -> bool:
        """Whether ``seal`` has anything to do yet."""
        return bool(self._changed or self._last)

    def seal(
        self, chunk: ModelResponseStream, released: Iterable[ModelResponseStream]
    ) -> ModelResponseStream:
        """Return ``chunk`` as it may go out; ``released`` are the chunks emitted before it.

        A choice's last chunk carries the role if the choice had no chunk before. After a
        replacement, fields that could repeat the text are removed.
        """
        if not self.seals:
            return chunk
        for choice, last in self._last.items():
            if chunk is last:
                if not any(c.index == choice for earlier in released for c in earlier.choices):
                    last.choices[0].delta.role = "assistant"
                return chunk
        changed = [c for c in chunk.choices if c.index in self._changed]
        if changed and (_may_repeat(members(chunk)) or any(map(_choice_may_repeat, changed))):
            return _bare(chunk, [_stripped(c) for c in chunk.choices])
        return chunk


def _calls_of(choice: StreamingChoices) -> dict[Channel, str | None]:
    """Return the tool calls in a choice; the arguments that it has of each, None of free text."""
    calls: dict[Channel, str | None] = {}
    delta: Any = members(choice).get("delta")
    for position, call in enumerate(getattr(delta, "tool_calls", None) or ()):
        channel = Channel(choice.index, "tool", tool_number(call, position))
        known, text = calls.get(channel, ""), arguments_of(call) or ""
        json = getattr(call, "function", None) is not None and known is not None
        calls[channel] = f"{known}{text}" if json else None
    older = getattr(delta, "function_call", None)
    if older is not None:
        calls[Channel(choice.index, "tool", FUNCTION_CALL)] = older.arguments or ""
    return calls


def _rewritten_delta(
    delta: Delta, choice: int, texts: Mapping[Channel, str], *, ends: bool = False
) -> Delta:
    """Return a delta with ``texts`` and no other field that could repeat the replaced text.

    One that ``ends`` has no tool call without text: it may be incomplete.
    """

    def text(kind: Any, number: int = 0) -> str | None:
        return texts.get(Channel(choice, kind, number))

    calls: list[Any] = []
    call: Any
    for position, call in enumerate(delta.tool_calls or ()):
        number = tool_number(call, position)
        arguments = text("tool", number) or ""
        if ends and not arguments.strip():
            continue
        if (own := arguments_of(call) or "") in arguments:
            arguments = own  # another call may have the same number
        name = _released_name(_name(call), name_channel(choice, number), texts)
        identity = call.id if is_data(call.id) else None
        if is_custom(call):
            payload = type(call.custom)(name=name, input=arguments)
            calls.append(type(call)(id=identity, type=call.type, index=number, custom=payload))
        else:
            named = Function(arguments=arguments, name=name)
            calls.append(
                ChatCompletionDeltaToolCall(
                    id=identity, type=call.type, index=number, function=named
                )
            )
    older = delta.function_call
    if older is not None and ends and not (text("tool", FUNCTION_CALL) or "").strip():
        older = None
    if older is not None:
        name = _released_name(older.name, name_channel(choice, FUNCTION_CALL), texts)
        older = FunctionCall(name=name, arguments=text("tool", FUNCTION_CALL) or "")
    refusal = text("content", REFUSAL)
    more: dict[str, Any] = {"refusal": refusal} if refusal else {}
    # Audio cannot be cut, so it is left out together with its transcript.
    return Delta(
        content=text("content"),
        role=delta.role if is_name(delta.role or "") else None,
        reasoning_content=text("reasoning") or None,
        thinking_blocks=thinking_blocks(text("reasoning", THINKING)),
        tool_calls=calls or None,
        function_call=older,
        **more,
    )


def _released_name(name: str | None, channel: Channel, texts: Mapping[Channel, str]) -> str | None:
    """Return a tool's name if it may go out: one that is no valid name is judged as text."""
    return name if name is None or is_name(name) else texts.get(channel) or None


def _announces(delta: Delta) -> bool:
    """Whether a delta without text must be sent: it carries the role or begins a call."""
    calls = delta.tool_calls or ()
    named = any(_name(c) or c.id for c in calls)
    return bool(delta.role or named or (delta.function_call and delta.function_call.name))


def _name(call: Any) -> str | None:
    name: str | None = (call.custom if is_custom(call) else call.function).name
    return name


def _may_repeat(fields: Mapping[str, Any]) -> bool:
    return any(value and name not in FIELDS_AFTER_CUT for name, value in fields.items())


def _choice_may_repeat(choice: StreamingChoices) -> bool:
    return _may_repeat(members(choice)) or _may_repeat(members(choice.delta))


def _stripped(choice: StreamingChoices) -> StreamingChoices:
    texts = by_channel(Repeats().new(parts_of(choice.delta, choice.index)))
    delta = _rewritten_delta(choice.delta, choice.index, texts)
    return StreamingChoices(finish_reason=choice.finish_reason, index=choice.index, delta=delta)


def _bare(chunk: ModelResponseStream, choices: list[StreamingChoices]) -> ModelResponseStream:
    """Return a chunk of the same response that carries ``choices`` and no other text."""
    bare = ModelResponseStream(
        id=without_prose("id", chunk.id),
        created=chunk.created,
        model=without_prose("model", chunk.model),
        system_fingerprint=without_prose("system_fingerprint", chunk.system_fingerprint),
        choices=choices,
    )
    hidden = hidden_params(chunk)
    if isinstance(hidden, dict):
        set_hidden_params(bare, without_text(hidden))
    return bare
