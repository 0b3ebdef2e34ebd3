"""Where chat answers carry text: one table for a chunk's delta and a whole answer's message.

A field is one channel. Besides content, reasoning and tool arguments, a choice may have a refusal
and an audio transcript; both are content channels with their own numbers. A string in any other
field is a channel of its own, unless the field is known not to hold the model's words.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from guard.doors.strings import is_name, member, members, not_text
from guard.doors.walk import UNKNOWN, Shape, TextPlace, Walk
from guard.errors import UsageError
from guard.gate import Part
from guard.verdict import Channel, ChannelKind, GuardTrail

REFUSAL, TRANSCRIPT = 1, 2  # numbers of the two further content channels
THINKING = 1  # number of the thinking blocks among the reasoning channels
FUNCTION_CALL = -1  # number of the older `function_call` among the tool channels

_UNKNOWN = 1 << 32  # channel numbers from here on: strings in other fields, by their path
_QUOTE = 2 * _UNKNOWN  # and from here on: those that quote the answer

# Fields in which the answer is quoted, beside those of sources, and their fields that do so.
_QUOTES = frozenset({"text", "supported_text"})
_CITATION = frozenset(
    "cited_text document_title title url uri domain license source sources sourceContent".split()
)
# Fields of an Azure search's documents.
_DOCUMENT = _CITATION | {"content", "filepath", "chunk_id", "filter_reason"}
# The words of an annotation's source, by the annotation's type.
_ANNOTATIONS: Mapping[str, frozenset[str]] = {
    "url_citation": frozenset({"title", "url", "content"}),
    "file_citation": frozenset({"filename"}),
    "container_file_citation": frozenset({"filename"}),
    "file_path": frozenset(),
    "file": frozenset({"name", "hash", "content"}),
}


def _annotation_text(annotation: Mapping[str, Any]) -> Shape:
    kind = str(annotation.get("type"))
    words = _ANNOTATIONS.get(kind)
    if words is None:
        return UNKNOWN
    return Shape(skipped=words, inner={kind: Shape(skipped=words)})


CITATION = Shape(quoted=_CITATION)
"""The shape of a citation: fields at any depth hold the words of its source."""
ANNOTATION = Shape(variant=_annotation_text)
"""The shape of an annotation, and of a list of them."""
SOURCES: Mapping[str, Shape] = {
    # LiteLLM streams Anthropic's citations one by one, as "citation".
    **dict.fromkeys(
        ("citation", "citations", "citationsContent", "vertex_ai_citation_metadata"), CITATION
    ),
    "vertex_ai_grounding_metadata": Shape(
        quoted=frozenset({"groundingChunks", "searchEntryPoint"})
    ),
    "all_retrieved_documents": Shape(quoted=_DOCUMENT),
    "web_search": Shape(
        quoted=_CITATION | {"content", "link", "media", "icon", "refer", "publish_date"}
    ),
    "web_search_calls": Shape(quoted=frozenset({"sources", "results"})),
    "code_interpreter_results": Shape(quoted=frozenset({"outputs"})),
    "executed_tools": Shape(
        quoted=frozenset({"output", "search_results", "code_results", "browser_results"})
    ),
}
"""Fields of providers that hold words of sources beside the model's: of a citation, of a page."""
RESULTS = frozenset({"search_results", "web_search_results", "tool_results"})
"""Fields that hold only what was found for the model: pages of the web, output of tools."""
_QUOTING = frozenset({*SOURCES, "annotations"})
# Fields around others: each of their own is read by its name.
_AROUND: dict[str, Shape] = {**SOURCES, "annotations": ANNOTATION}
_AROUND["provider_specific_fields"] = Shape(inner=_AROUND, skipped=RESULTS)
_AROUND["context"] = Shape(inner={**_AROUND, "citations": Shape(quoted=_DOCUMENT)}, skipped=RESULTS)
_REASONING = Shape(kind="reasoning")
# A delta, a message, and what is around it. A field that is skipped is read by `parts_of`.
_MESSAGE = Shape(
    inner={
        **_AROUND,
        "audio": Shape(skipped=frozenset({"transcript"})),
        "thinking_blocks": Shape(skipped=frozenset({"thinking"}), kind="reasoning"),
        "reasoning_items": _REASONING,
        "reasoning": _REASONING,
    },
    skipped=RESULTS | {"content", "reasoning_content", "refusal", "tool_calls", "function_call"},
)


def _beside(place: TextPlace, number: int | None, owner: object) -> TextPlace:
    return place._replace(slot=place.slot.rpartition(".")[0])


_FUNCTION = Shape(inner={"function": Shape(skipped=frozenset({"arguments"}), at=_beside)})
_CUSTOM = Shape(inner={"custom": Shape(skipped=frozenset({"input"}), at=_beside)})
_CALL = Shape(variant=lambda call: _CUSTOM if is_custom(call) else _FUNCTION)
_OLDER_CALL = Shape(skipped=frozenset({"arguments"}))
_TOKENS = Shape(skipped=frozenset({"token", "top_logprobs"}))
_LOGPROBS = Shape(inner={"content": _TOKENS, "refusal": _TOKENS})
_TOKEN = 32  # characters of a long token
_CHOICE = Shape(inner=_AROUND, skipped=RESULTS | {"index", "finish_reason"})
_ENVELOPE = Shape(inner=_AROUND, skipped=RESULTS | {"choices"})

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

    Fields may repeat each other: ``guard.doors.repeats`` removes repeats.

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
    calls = [(tool_number(c, n), c) for n, c in enumerate(fields.get("tool_calls") or ())]
    for number, call in calls:
        add(arguments_of(call), "tool", number)
    older = fields.get("function_call")
    add(member(older, "arguments"), "tool", FUNCTION_CALL)
    for number, call in calls:
        parts += _string_fields(call, _CALL, choice, "tool", f"tool_calls.{number}")
    parts += _string_fields(older, _OLDER_CALL, choice, "tool", "function_call")
    return parts + _string_fields({name: fields[name] for name in more}, _MESSAGE, choice)


def parts_around(choice: Any, number: int, message: str) -> list[Part]:
    """Return the texts of a choice outside its field ``message``, which its door reads."""
    fields = {name: value for name, value in members(choice).items() if name != message}
    logprobs = fields.get("logprobs")
    if logprobs and not isinstance(logprobs, str):
        del fields["logprobs"]
        return _string_fields(fields, _CHOICE, number) + _token_parts(logprobs, number)
    return _string_fields(fields, _CHOICE, number)


def index_of(choice: Any) -> int:
    """Return the number of a choice; raises UsageError if it is a string."""
    index: int = choice.index
    if isinstance(index, str):
        raise UsageError("A choice of the answer has a string as its index, not a number.")
    return index


def envelope(answer: Any, number: int) -> list[Part]:
    """Return the texts of an answer or chunk outside its choices, as texts of choice ``number``."""
    # LiteLLM may return the same answer object twice; it then carries the first call's trail.
    fields = {n: v for n, v in members(answer).items() if not isinstance(v, GuardTrail)}
    return _string_fields(fields, _ENVELOPE, number)


def channel_at(channel: Channel, path: str) -> Channel:
    """Return the channel of a string in a field that no other channel reads, by its path."""
    return unknown_field(channel, zlib.crc32(path.encode()))


def unknown_field(channel: Channel, number: int) -> Channel:
    """Return the channel of a string in a field that no other channel reads, by its number."""
    return channel._replace(tool=_UNKNOWN + number)


def is_unknown_field(channel: Channel) -> bool:
    """Whether a channel is made by :func:`unknown_field`."""
    return channel.tool >= _UNKNOWN


def may_quote(channel: Channel) -> bool:
    """Whether a channel is that of a field in which the answer may be quoted."""
    return channel.tool >= _QUOTE


def _channel_at(channel: Channel, path: str) -> Channel:
    """Return the channel of a string by its path; of another kind where it quotes the answer."""
    unknown, names = channel_at(channel, path), path.split(".")
    quotes = names[-1] in _QUOTES and not _QUOTING.isdisjoint(names[:2])
    return unknown._replace(tool=_UNKNOWN + unknown.tool) if quotes else unknown


def may_repeat(channel: Channel) -> bool:
    """Whether a channel's text may repeat another channel's, and is then judged once."""
    return is_unknown_field(channel) or channel[1:] == ("reasoning", THINKING)


def name_channel(choice: int, number: int) -> Channel:
    """Return the channel of a tool call's name that is not a valid name and must be judged."""
    field = "function_call" if number == FUNCTION_CALL else f"tool_calls.{number}"
    return channel_at(Channel(choice, "tool"), f"{field}.name")


def has_content(name: str, value: Any) -> bool:
    """Whether a field may carry text: in its value, or as a key that is no valid name."""
    return bool(value) or not is_name(name)


def _string_fields(
    value: Any, shape: Shape, choice: int, kind: ChannelKind = "content", path: str = ""
) -> list[Part]:
    """Return the strings to judge in a value of that shape at ``path``."""
    parts: list[Part] = []

    def visit(place: TextPlace, kind: ChannelKind, text: str) -> str:
        parts.append(Part(_channel_at(channel_of(choice, kind), place.slot), text))
        return text

    Walk(visit).over(value, shape, TextPlace(choice, path), kind)
    return parts


def _token_parts(logprobs: Any, choice: int) -> list[Part]:
    """Return the tokens of log probabilities, joined."""
    runs: list[tuple[str, list[Any]]] = []
    more: dict[str, Any] = {}
    for field, entries in members(logprobs).items():
        if field == "tokens":  # of a text completion
            runs.append((field, list(entries or ())))
        elif isinstance(entries, (list, tuple)) and field in ("content", "refusal"):
            runs.append((field, [member(entry, "token") for entry in entries]))
            rare = [member(a, "token") for e in entries for a in member(e, "top_logprobs") or ()]
            # Alternatives are single tokens; only long ones may be text.
            runs.append((f"{field}.top", [t for t in rare if t is not None and len(t) > _TOKEN]))
            more[field] = entries
        elif field == "top_logprobs":  # of a text completion
            rare = [t for e in entries or () if isinstance(e, Mapping) for t in e]
            runs.append((field, [t for t in rare if len(t) > _TOKEN]))
        elif field != "text_offset":
            more[field] = entries
    parts = []
    for path, tokens in runs:
        text = "".join(token for token in tokens if isinstance(token, str))
        if text:
            channel = channel_at(channel_of(choice), f"logprobs.{path}")
            parts.append(Part(channel, text))
    return [*parts, *_string_fields(more, _LOGPROBS, choice, path="logprobs")]


def tool_number(call: Any, position: int) -> int:
    """Return a tool call's index; in a whole message, calls have only a position."""
    index = member(call, "index")
    return position if index is None else int(index)


def is_custom(call: Any) -> bool:
    """Whether a tool call carries free text (``custom.input``) instead of JSON arguments."""
    return member(call, "custom") is not None


def arguments_of(call: Any) -> Any:
    """Return the input of a tool call: JSON, or the free text of a custom one."""
    if is_custom(call):
        return member(member(call, "custom"), "input")
    return member(member(call, "function"), "arguments")


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
