"""Where chat answers carry text: one table for a chunk's delta and a whole answer's message.

A field is one channel. Besides content, reasoning and tool arguments, a choice can speak in a
refusal and in the transcript of its audio; both are content, told apart by their number. A string
in any other field is a channel of its own, unless it is known to be no word of the model's.
"""

from __future__ import annotations

import zlib
from collections.abc import Container, Mapping
from functools import lru_cache
from typing import Any

from guard.doors.strings import is_name, member, members, not_text, walked
from guard.errors import UsageError
from guard.gate import Part
from guard.verdict import Channel, ChannelKind, GuardTrail

REFUSAL, TRANSCRIPT = 1, 2  # numbers of the two further content channels
THINKING = 1  # number of the thinking blocks among the reasoning channels
FUNCTION_CALL = -1  # number of the older `function_call` among the tool channels

_OTHER = 1 << 32  # from here on: the channels of strings in other fields, by their path

# Fields that are read by name.
_READ = frozenset({"content", "reasoning_content", "refusal"})
# What a search found, in an answer or in the provider's own fields: titles and words of pages.
_FOUND = frozenset({"citations", "search_results", "web_search_results", "groundingChunks"})
# Annotations point at what was found; in one of these kinds nothing else is said.
_ANNOTATIONS: Mapping[str, frozenset[str]] = {
    "url_citation": frozenset({"title", "url"}),
    "file_citation": frozenset({"filename"}),
    "container_file_citation": frozenset({"filename"}),
    "file_path": frozenset(),
}
# Shorter texts may be stream tokens that happen to be equal.
_WORD = 3
_TOKEN = 32  # characters of a long token
_CHOICE = frozenset({"index", "finish_reason", "logprobs"})

# All that a delta, a choice and a chunk keep after a cut: any other field can repeat the text.
FIELDS_AFTER_CUT = frozenset(
    "content role tool_calls function_call reasoning_content refusal delta index finish_reason "
    "choices id created model object system_fingerprint service_tier usage".split()
)


@lru_cache(1024)
def channel_of(choice: int, kind: ChannelKind = "content", number: int = 0) -> Channel:
    """Return the channel; the same few come with every chunk."""
    return Channel(choice, kind, number)


def parts_of(speech: Any, choice: int) -> list[Part]:
    """Return the texts of a delta or message in reading order, empty ones left out.

    Several may say the same: :meth:`Repeats.new` leaves that out.

    Raises UsageError on text that is not a string: it cannot be judged, so it cannot go out.
    """
    said = members(speech)
    content = said.get("content")
    more = [name for name, value in said.items() if _says(name, value)]
    if type(content) is str and more == ["content"]:
        return [Part(channel_of(choice), content)]
    parts: list[Part] = []

    def add(text: object, kind: ChannelKind, number: int = 0) -> None:
        if text is None or text == "":
            return
        if not isinstance(text, str):
            raise not_text(kind, text)
        parts.append(Part(channel_of(choice, kind, number), text))

    reasoning, thinking = said.get("reasoning_content"), _thinking(said)
    # LiteLLM fills both alike; a provider that fills only the blocks still speaks.
    add(reasoning or thinking, "reasoning")
    add(thinking, "reasoning", THINKING)
    add(content, "content")
    add(_refusal(said), "content", REFUSAL)
    add(member(said.get("audio"), "transcript"), "content", TRANSCRIPT)
    for position, call in enumerate(said.get("tool_calls") or ()):
        add(_arguments(call), "tool", tool_number(call, position))
    add(member(said.get("function_call"), "arguments"), "tool", FUNCTION_CALL)
    for name in more:
        if name not in _READ:
            parts += _others(name, said[name], choice)
    return parts


def around(choice: Any, number: int, speech: str) -> list[Part]:
    """Return the texts of a choice beside those of the field ``speech``, which its door reads."""
    parts: list[Part] = []
    for name, value in members(choice).items():
        if _says(name, value) and name not in _CHOICE and name != speech:
            parts += _others(name, value, number)
        elif value and name == "logprobs":
            parts += _others(name, value, number) if type(value) is str else _tokens(value, number)
    return parts


def index_of(choice: Any) -> int:
    """Return the number of a choice; raises UsageError where it is a text."""
    index: int = choice.index
    if isinstance(index, str):
        raise UsageError("A choice of an answer has a text in place of its number.")
    return index


def envelope(answer: Any, number: int) -> list[Part]:
    """Return the texts of an answer or chunk beside its choices, as texts of choice ``number``."""
    parts: list[Part] = []
    said = answer if isinstance(answer, Mapping) else members(answer)
    for name, value in said.items():
        # An answer that LiteLLM gives twice has the trail of the first time.
        if isinstance(value, GuardTrail):
            continue
        if _says(name, value) and name != "choices":
            parts += _others(name, value, number)
    return parts


def path_of(channel: Channel, path: str) -> Channel:
    """Return the channel of a string in a field that no other channel reads."""
    return other(channel, zlib.crc32(path.encode()))


def other(channel: Channel, number: int) -> Channel:
    """Return the channel of a string in a field that no other channel reads, by its number."""
    return channel._replace(tool=_OTHER + number)


def is_other(channel: Channel) -> bool:
    """Whether a channel is that of a string in a field that no other channel reads."""
    return channel.tool >= _OTHER


def may_repeat(channel: Channel) -> bool:
    """Whether what a channel says can be what another one says, and is then judged once."""
    return is_other(channel) or channel[1:] == ("reasoning", THINKING)


class Repeats:
    """Knows what a response says twice: it is judged once.

    That is a string of another field that comes alike with every chunk, and a field of which all
    that it said so far is all that another channel of its choice said so far.
    """

    def __init__(self) -> None:
        self._last: dict[Channel, str] = {}
        self._length: dict[Channel, int] = {}  # of what a channel said
        self._like: dict[Channel, list[Channel]] = {}  # channels that said the same so far
        self._left_out: dict[Channel, list[str]] = {}
        self._apart: set[Channel] = set()  # channels that say something of their own

    def note(self, channel: Channel, characters: int) -> int:
        """Note how much a channel says; returns the length of all that it said."""
        self._length[channel] = length = self._length.get(channel, 0) + characters
        return length

    def new(self, parts: list[Part]) -> list[Part]:
        """Return what a chunk's or an answer's ``parts`` say that was not said before."""
        new: list[Part] = []
        said: dict[Channel, str] = {}
        for part in parts:
            channel, text = part
            length = self.note(channel, len(text))
            if not may_repeat(channel):
                new.append(part)
            elif fresh := self._fresh(channel, text, length, said):
                again = self(part)
                if not again or fresh != text:
                    new.append(Part(channel, fresh))
            said[channel] = said.get(channel, "") + text
        return new

    def _fresh(self, channel: Channel, text: str, length: int, said: Mapping[Channel, str]) -> str:
        """Return what is to be judged now: with what was left out, once the channel differs."""
        if channel in self._apart:
            return text
        like = [
            other
            for other in self._like.get(channel, said)
            if other.choice == channel.choice
            and said.get(other) == text
            and self._length[other] == length
        ]
        if like:
            self._like[channel] = like
            self._left_out.setdefault(channel, []).append(text)
            return ""
        self._apart.add(channel)
        return "".join((*self._left_out.pop(channel, ()), text))

    def __call__(self, part: Part) -> bool:
        """Whether a channel of another field says what it said last."""
        channel, text = part
        if not is_other(channel):
            return False
        again = len(text) >= _WORD and self._last.get(channel) == text
        self._last[channel] = text
        return again


def name_channel(choice: int, number: int) -> Channel:
    """Return the channel of a tool call's name, where that is no name."""
    field = "function_call" if number == FUNCTION_CALL else f"tool_calls.{number}"
    return path_of(Channel(choice, "tool"), f"{field}.name")


def _says(name: str, value: Any) -> bool:
    """Whether a field says something: by its value, or by a name that is none."""
    return bool(value) or not is_name(name)


def _others(name: str, value: Any, choice: int) -> list[Part]:
    """Return the strings to judge in a field."""
    kind: ChannelKind = "content"
    if name in ("tool_calls", "function_call"):
        kind = "tool"
    elif name in ("reasoning_items", "thinking_blocks", "reasoning"):
        kind = "reasoning"
    parts: list[Part] = []
    if not is_name(name):
        parts.append(Part(path_of(channel_of(choice), f"{name}.key"), name))

    def visit(path: str, text: str) -> str:
        parts.append(Part(path_of(channel_of(choice, kind), path), text))
        return text

    if name == "tool_calls":
        for position, call in enumerate(value):
            number = tool_number(call, position)
            _walk_call(call, f"{name}.{number}", visit)
    elif name == "function_call":
        _walk_call(value, name, visit)
    elif name == "annotations":
        for position, annotation in enumerate(value):
            walk_annotation(annotation, f"{name}.{position}", visit)
    elif name not in _FOUND:
        read = _READ_INSIDE.get(name, frozenset())
        walked(_without(value, read), name, visit)
    return parts


# What is read by name inside a field.
_READ_INSIDE: Mapping[str, Container[str]] = {
    "audio": frozenset({"transcript"}),
    "thinking_blocks": frozenset({"thinking"}),
    "provider_specific_fields": _FOUND,
    "vertex_ai_grounding_metadata": _FOUND | {"searchEntryPoint"},
}


def _without(value: Any, names: Container[str]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_without(one, names) for one in value]
    fields = value if isinstance(value, Mapping) else getattr(value, "__dict__", None)
    if not isinstance(fields, Mapping):
        return value
    fields = fields if isinstance(value, Mapping) else members(value)
    return {key: one for key, one in fields.items() if key not in names}


def _walk_call(call: Any, path: str, visit: Any) -> None:
    for part in ("function", "custom"):
        if (given := member(call, part)) is not None:
            walked(_without(given, ("arguments", "input")), path, visit)
    walked(_without(call, ("function", "custom", "arguments")), path, visit)


def walk_annotation(annotation: Any, path: str, visit: Any) -> None:
    """Visit the strings of an annotation that are no words of what it points at."""
    kind = str(member(annotation, "type"))
    found = _ANNOTATIONS.get(kind)
    if found is None:
        walked(annotation, path, visit)
        return
    walked(_without(annotation, (kind, *found)), path, visit)
    walked(_without(member(annotation, kind), found), path, visit)


def _tokens(logprobs: Any, choice: int) -> list[Part]:
    """Return the tokens of log probabilities, joined."""
    fields = logprobs if isinstance(logprobs, Mapping) else members(logprobs)
    runs: list[tuple[str, list[Any]]] = []
    more: dict[str, Any] = {}
    for name, entries in fields.items():
        if name == "tokens":  # of a text completion
            runs.append((name, list(entries or ())))
        elif isinstance(entries, (list, tuple)) and name in ("content", "refusal"):
            runs.append((name, [member(one, "token") for one in entries]))
            rare = [member(a, "token") for e in entries for a in member(e, "top_logprobs") or ()]
            # What might have been said instead are tokens, not texts.
            runs.append((f"{name}.top", [t for t in rare if t is not None and len(t) > _TOKEN]))
            more[name] = _without(entries, ("token", "top_logprobs"))
        elif name == "top_logprobs":  # of a text completion
            rare = [t for e in entries or () if isinstance(e, Mapping) for t in e]
            runs.append((name, [t for t in rare if len(t) > _TOKEN]))
        elif name != "text_offset":
            more[name] = entries
    parts = []
    for name, tokens in runs:
        text = "".join(token for token in tokens if isinstance(token, str))
        if text:
            parts.append(Part(path_of(channel_of(choice), f"logprobs.{name}"), text))
    return [*parts, *_others("logprobs", more, choice)]


def tool_number(call: Any, position: int) -> int:
    """Return the index a tool call is known by; a whole message's calls have only a position."""
    index = getattr(call, "index", None)
    return position if index is None else int(index)


def is_custom(call: Any) -> bool:
    """Whether a tool call carries free text (``custom.input``) in place of JSON arguments."""
    return getattr(call, "custom", None) is not None


def _arguments(call: Any) -> object:
    if is_custom(call):
        return member(call.custom, "input")
    return member(getattr(call, "function", None), "arguments")


def _thinking(said: Mapping[str, Any]) -> object:
    """Return the text of the thinking blocks; of blocks that hold no text, what they hold."""
    texts = [member(block, "thinking") for block in said.get("thinking_blocks") or ()]
    texts = [text for text in texts if text]
    other = [text for text in texts if not isinstance(text, str)]
    return other[0] if other else "".join(texts)


def thinking_blocks(text: str | None) -> list[Any] | None:
    """Return what a delta or message carries ``text`` in; a signature would not fit a cut one."""
    return [{"type": "thinking", "thinking": text}] if text else None


def _refusal(said: Mapping[str, Any]) -> object:
    # A delta has it as an attribute, a whole message among the provider's fields.
    return said.get("refusal") or member(said.get("provider_specific_fields"), "refusal")
