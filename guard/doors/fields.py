"""Where chat answers carry text: one table for a chunk's delta and a whole answer's message.

A field is one channel. Besides content, reasoning and tool arguments, a choice may have a refusal
and an audio transcript; both are content channels with their own numbers. A string in any other
field is a channel of its own, unless the field is known not to hold the model's words.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Container, Mapping
from functools import lru_cache
from typing import Any

from guard.doors.strings import is_name, map_strings, member, members, not_text
from guard.errors import UsageError
from guard.gate import Part
from guard.verdict import Channel, ChannelKind, GuardTrail

REFUSAL, TRANSCRIPT = 1, 2  # numbers of the two further content channels
THINKING = 1  # number of the thinking blocks among the reasoning channels
FUNCTION_CALL = -1  # number of the older `function_call` among the tool channels

_OTHER = 1 << 32  # channel numbers from here on: strings in other fields, by their path
_QUOTE = 2 * _OTHER  # and from here on: those that quote the answer
_ADDRESS = re.compile(r"https?://[!-~]*")
_LATEST = 20_000  # characters of the answer in which a quotation is looked for
_PIECES = 1_000  # of it that are held apart

# Fields that are read by name.
_READ = frozenset({"content", "reasoning_content", "refusal"})
# What was found for the model: pages of the web, output of tools. Not its words.
_FOUND = frozenset({"search_results", "web_search_results", "tool_results"})
QUOTED = frozenset(
    "cited_text document_title title url uri domain license source sources sourceContent".split()
)
"""Fields of a citation, at any depth, that hold the words of its source."""
# Fields of an Azure search's documents that do.
_DOCUMENT = QUOTED | {"content", "filepath", "chunk_id", "filter_reason"}
# Fields of providers, and their fields at any depth that hold the words of sources, not the
# model's: of a citation, of a page, of a tool's output. LiteLLM streams Anthropic's citations one
# by one, as "citation".
_SOURCES: Mapping[str, frozenset[str]] = {
    "citation": QUOTED,
    "citations": QUOTED,
    "citationsContent": QUOTED,
    "vertex_ai_citation_metadata": QUOTED,
    "vertex_ai_grounding_metadata": frozenset({"groundingChunks", "searchEntryPoint"}),
    "all_retrieved_documents": _DOCUMENT,
    "web_search": QUOTED | {"content", "link", "media", "icon", "refer", "publish_date"},
    "web_search_calls": frozenset({"sources", "results"}),
    "code_interpreter_results": frozenset({"outputs"}),
    "executed_tools": frozenset({"output", "search_results", "code_results", "browser_results"}),
}
# Fields around others: each of their own is read by its name.
_AROUND = ("provider_specific_fields", "context")
# Fields in which the answer is quoted, and their fields that do so.
_QUOTING = frozenset({*_SOURCES, "annotations"})
_QUOTES = frozenset({"text", "supported_text"})
# Kinds of annotations, and their fields that hold the source's words, not the model's.
_ANNOTATIONS: Mapping[str, frozenset[str]] = {
    "url_citation": frozenset({"title", "url", "content"}),
    "file_citation": frozenset({"filename"}),
    "container_file_citation": frozenset({"filename"}),
    "file_path": frozenset(),
    "file": frozenset({"name", "hash", "content"}),
}
# A shorter text does not count as a repeat: stream tokens may happen to be equal.
_WORD = 3
_TOKEN = 32  # characters of a long token
_CHOICE = frozenset({"index", "finish_reason", "logprobs"})

# The only fields of a delta, a choice and a chunk after a cut: any other may repeat the text.
FIELDS_AFTER_CUT = frozenset(
    "content role tool_calls function_call reasoning_content refusal delta index finish_reason "
    "choices id created model object system_fingerprint service_tier usage".split()
)


@lru_cache(1024)
def channel_of(choice: int, kind: ChannelKind = "content", number: int = 0) -> Channel:
    """Return the channel (cached: the same few come with every chunk)."""
    return Channel(choice, kind, number)


def parts_of(message: Any, choice: int) -> list[Part]:
    """Return the non-empty texts of a delta or message in reading order.

    Fields may repeat each other: :meth:`Repeats.new` removes repeats.

    Raises UsageError on text that is not a string: it cannot be judged, so it cannot go out.
    """
    fields = members(message)
    content = fields.get("content")
    more = [name for name, value in fields.items() if has_content(name, value)]
    if type(content) is str and more == ["content"]:
        return [Part(channel_of(choice), content)]
    parts: list[Part] = []

    def add(text: object, kind: ChannelKind, number: int = 0) -> None:
        if text is None or text == "":
            return
        if not isinstance(text, str):
            raise not_text(kind, text)
        parts.append(Part(channel_of(choice, kind, number), text))

    reasoning, thinking = fields.get("reasoning_content"), _thinking(fields)
    # LiteLLM fills both with the same text; some providers fill only the blocks.
    add(reasoning or thinking, "reasoning")
    add(thinking, "reasoning", THINKING)
    add(content, "content")
    add(_refusal(fields), "content", REFUSAL)
    add(member(fields.get("audio"), "transcript"), "content", TRANSCRIPT)
    for position, call in enumerate(fields.get("tool_calls") or ()):
        add(arguments_of(call), "tool", tool_number(call, position))
    add(member(fields.get("function_call"), "arguments"), "tool", FUNCTION_CALL)
    for name in more:
        if name not in _READ:
            parts += _field_parts(name, fields[name], choice)
    return parts


def parts_around(choice: Any, number: int, message: str) -> list[Part]:
    """Return the texts of a choice outside its field ``message``, which its door reads."""
    parts: list[Part] = []
    for name, value in members(choice).items():
        if has_content(name, value) and name not in _CHOICE and name != message:
            parts += _field_parts(name, value, number)
        elif value and name == "logprobs":
            texts = _field_parts if type(value) is str else _token_parts
            parts += texts(name, value, number)
    return parts


def index_of(choice: Any) -> int:
    """Return the number of a choice; raises UsageError if it is a string."""
    index: int = choice.index
    if isinstance(index, str):
        raise UsageError("A choice of the answer has a string as its index, not a number.")
    return index


def envelope(answer: Any, number: int) -> list[Part]:
    """Return the texts of an answer or chunk outside its choices, as texts of choice ``number``."""
    parts: list[Part] = []
    for name, value in members(answer).items():
        # LiteLLM may return the same answer object twice; it then carries the first call's trail.
        if isinstance(value, GuardTrail):
            continue
        if has_content(name, value) and name != "choices":
            parts += _field_parts(name, value, number)
    return parts


def path_of(channel: Channel, path: str) -> Channel:
    """Return the channel of a string in a field that no other channel reads, by its path."""
    return other(channel, zlib.crc32(path.encode()))


def other(channel: Channel, number: int) -> Channel:
    """Return the channel of a string in a field that no other channel reads, by its number."""
    return channel._replace(tool=_OTHER + number)


def is_other(channel: Channel) -> bool:
    """Whether a channel is made by :func:`other`."""
    return channel.tool >= _OTHER


def _path_of(channel: Channel, path: str) -> Channel:
    """Return the channel of a string by its path; of another kind where it quotes the answer."""
    made, names = path_of(channel, path), path.split(".")
    quotes = names[-1] in _QUOTES and not _QUOTING.isdisjoint(names[:2])
    return made._replace(tool=_OTHER + made.tool) if quotes else made


def may_repeat(channel: Channel) -> bool:
    """Whether a channel's text may repeat another channel's, and is then judged once."""
    return is_other(channel) or channel[1:] == ("reasoning", THINKING)


class Repeats:
    """Removes texts that a response repeats, so that they are judged once.

    A repeat is a string of an unknown field that is the same in every chunk; a field whose
    whole text so far equals the whole text so far of another channel of its choice; or a quotation
    of the answer: a citation's ``text`` that is part of it.
    """

    def __init__(self) -> None:
        self._last: dict[Channel, str] = {}
        self._length: dict[Channel, int] = {}  # of a channel's text so far
        self._same: dict[Channel, list[Channel]] = {}  # channels with the same text so far
        self._left_out: dict[Channel, list[str]] = {}
        self._distinct: set[Channel] = set()  # channels with a text of their own
        self._said: dict[int, list[str]] = {}  # the content of each choice

    def note(self, channel: Channel, *texts: str) -> int:
        """Add to a channel's text; return its length so far."""
        characters = sum(map(len, texts))
        self._length[channel] = length = self._length.get(channel, 0) + characters
        if channel == (channel.choice, "content", 0):
            said = self._said.setdefault(channel.choice, [])
            said += texts
            if len(said) > _PIECES:
                said[:] = ["".join(said)[-_LATEST:]]
        return length

    def _quoted(self, channel: Channel, text: str) -> bool:
        """Whether a string quotes the answer of its choice, of which it is a part."""
        if channel.tool < _QUOTE:
            return False
        said = "".join(self._said.get(channel.choice, ()))[-_LATEST:]
        self._said[channel.choice] = [said]
        return text in said

    def new(self, parts: list[Part]) -> list[Part]:
        """Return the ``parts`` of a chunk or an answer without repeats."""
        new: list[Part] = []
        texts: dict[Channel, str] = {}
        for part in parts:
            channel, text = part
            length = self.note(channel, text)
            if self._quoted(channel, text):
                continue
            if not may_repeat(channel):
                new.append(part)
            elif fresh := self._fresh(channel, text, length, texts):
                repeated = self.repeated(part)
                if not repeated or fresh != text:
                    new.append(Part(channel, fresh))
            texts[channel] = texts.get(channel, "") + text
        return new

    def _fresh(self, channel: Channel, text: str, length: int, texts: Mapping[Channel, str]) -> str:
        """Return the text to judge now; once a channel differs, with its text left out so far."""
        if channel in self._distinct:
            return text
        same = [
            other
            for other in self._same.get(channel, texts)
            if other.choice == channel.choice
            and texts.get(other) == text
            and self._length[other] == length
        ]
        if same:
            self._same[channel] = same
            self._left_out.setdefault(channel, []).append(text)
            return ""
        self._distinct.add(channel)
        return "".join((*self._left_out.pop(channel, ()), text))

    def repeated(self, part: Part) -> bool:
        """Whether a string of an unknown field equals the last one of its channel."""
        channel, text = part
        if not is_other(channel):
            return False
        equal = len(text) >= _WORD and self._last.get(channel) == text
        self._last[channel] = text
        return equal


def name_channel(choice: int, number: int) -> Channel:
    """Return the channel of a tool call's name that is not a valid name and must be judged."""
    field = "function_call" if number == FUNCTION_CALL else f"tool_calls.{number}"
    return path_of(Channel(choice, "tool"), f"{field}.name")


def has_content(name: str, value: Any) -> bool:
    """Whether a field may carry text: in its value, or as a key that is no valid name."""
    return bool(value) or not is_name(name)


def _field_parts(name: str, value: Any, choice: int) -> list[Part]:
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
        parts.append(Part(_path_of(channel_of(choice, kind), path), text))
        return text

    if name == "tool_calls":
        for position, call in enumerate(value):
            number = tool_number(call, position)
            _walk_call(call, f"{name}.{number}", visit)
    elif name == "function_call":
        _walk_call(value, name, visit)
    else:
        walk_field(name, _without(value, _READ_INSIDE.get(name, ())), name, visit)
    return parts


def holds_sources(name: str) -> bool:
    """Whether a provider's field of this name may hold the words of what was found or cited."""
    return name in _SOURCES or name in _FOUND


def walk_field(name: str, value: Any, path: str, visit: Any) -> None:
    """Visit the strings of a provider's field, except the words of what was found or cited."""
    if name == "annotations" and isinstance(value, (list, tuple)):
        for position, annotation in enumerate(value):
            walk_annotation(annotation, f"{path}.{position}", visit)
    elif name in _SOURCES:
        map_strings(unquoted(value, _SOURCES[name]), path, visit)
    elif name in _AROUND and isinstance(value, Mapping):
        for key, one in value.items():
            if not is_name(str(key)):
                visit(f"{path}.{key}.key", str(key))
            if name == "context" and key == "citations":  # of an Azure search
                one = unquoted(one, _DOCUMENT)
            walk_field(str(key), one, f"{path}.{key}", visit)
    elif name not in _FOUND:
        map_strings(value, path, visit)


# Members of fields that are read by name.
_READ_INSIDE: Mapping[str, Container[str]] = {
    "audio": frozenset({"transcript"}),
    "thinking_blocks": frozenset({"thinking"}),
}


def unquoted(value: Any, names: Container[str] = QUOTED) -> Any:
    """Return a value without its fields ``names``, at any depth, and addresses in its lists."""
    if isinstance(value, (list, tuple)):
        kept = (v for v in value if not (isinstance(v, str) and _ADDRESS.fullmatch(v)))
        return [unquoted(one, names) for one in kept]
    if not isinstance(value, Mapping) and not hasattr(value, "__dict__"):
        return value
    return {k: unquoted(one, names) for k, one in members(value).items() if k not in names}


def _without(value: Any, names: Container[str]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_without(one, names) for one in value]
    if not isinstance(value, Mapping) and not hasattr(value, "__dict__"):
        return value
    return {key: one for key, one in members(value).items() if key not in names}


def _walk_call(call: Any, path: str, visit: Any) -> None:
    for part in ("function", "custom"):
        if (function := member(call, part)) is not None:
            map_strings(_without(function, ("arguments", "input")), path, visit)
    map_strings(_without(call, ("function", "custom", "arguments")), path, visit)


def walk_annotation(annotation: Any, path: str, visit: Any) -> None:
    """Visit the strings of an annotation, except the words of the cited source."""
    kind = str(member(annotation, "type"))
    found = _ANNOTATIONS.get(kind)
    if found is None:
        map_strings(annotation, path, visit)
        return
    map_strings(_without(annotation, (kind, *found)), path, visit)
    map_strings(_without(member(annotation, kind), found), path, visit)


def _token_parts(name: str, logprobs: Any, choice: int) -> list[Part]:
    """Return the tokens of log probabilities (the field ``name``), joined."""
    runs: list[tuple[str, list[Any]]] = []
    more: dict[str, Any] = {}
    for field, entries in members(logprobs).items():
        if field == "tokens":  # of a text completion
            runs.append((field, list(entries or ())))
        elif isinstance(entries, (list, tuple)) and field in ("content", "refusal"):
            runs.append((field, [member(one, "token") for one in entries]))
            rare = [member(a, "token") for e in entries for a in member(e, "top_logprobs") or ()]
            # Alternatives are single tokens; only long ones may be text.
            runs.append((f"{field}.top", [t for t in rare if t is not None and len(t) > _TOKEN]))
            more[field] = _without(entries, ("token", "top_logprobs"))
        elif field == "top_logprobs":  # of a text completion
            rare = [t for e in entries or () if isinstance(e, Mapping) for t in e]
            runs.append((field, [t for t in rare if len(t) > _TOKEN]))
        elif field != "text_offset":
            more[field] = entries
    parts = []
    for path, tokens in runs:
        text = "".join(token for token in tokens if isinstance(token, str))
        if text:
            parts.append(Part(path_of(channel_of(choice), f"{name}.{path}"), text))
    return [*parts, *_field_parts(name, more, choice)]


def tool_number(call: Any, position: int) -> int:
    """Return a tool call's index; in a whole message, calls have only a position."""
    index = getattr(call, "index", None)
    return position if index is None else int(index)


def is_custom(call: Any) -> bool:
    """Whether a tool call carries free text (``custom.input``) instead of JSON arguments."""
    return getattr(call, "custom", None) is not None


def arguments_of(call: Any) -> Any:
    """Return the input of a tool call: JSON, or the free text of a custom one."""
    if is_custom(call):
        return member(call.custom, "input")
    return member(getattr(call, "function", None), "arguments")


def _thinking(fields: Mapping[str, Any]) -> object:
    """Return the joined text of the thinking blocks, or the first value that is no string."""
    texts = [member(block, "thinking") for block in fields.get("thinking_blocks") or ()]
    texts = [text for text in texts if text]
    other = [text for text in texts if not isinstance(text, str)]
    return other[0] if other else "".join(texts)


def thinking_blocks(text: str | None) -> list[Any] | None:
    """Return thinking blocks with ``text``; unsigned, as a signature is invalid after a cut."""
    return [{"type": "thinking", "thinking": text}] if text else None


def _refusal(fields: Mapping[str, Any]) -> object:
    # A delta has it as an attribute, a whole message among the provider's fields.
    return fields.get("refusal") or member(fields.get("provider_specific_fields"), "refusal")
