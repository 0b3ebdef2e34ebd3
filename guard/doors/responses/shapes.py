"""Where the Responses API carries text: the shapes of its events, items, parts and responses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from litellm.types.llms.openai import ResponsesAPIResponse

from guard.doors.fields import ANNOTATION, RESULTS, SOURCES
from guard.doors.responses.names import CALLS, ITEMS, SLOTS, SOUND, TEXTS
from guard.doors.strings import is_data, is_name
from guard.doors.walk import NamedText, Remains, Shape, TextPlace, without_prose
from guard.verdict import ChannelKind

# The fields, beside its texts, of a rewritten event or item: none of them can repeat the texts.
_EVENT = frozenset("type sequence_number output_index content_index summary_index item_id".split())
_ITEM = frozenset(
    "id type status role call_id name namespace phase server_label container_id "
    # What a call is to do, in the model's words; these are judged.
    "action actions operation queries revised_prompt".split()
)
# The API's own fields of a response, and all fields, including those repeated from the request.
_ANSWERED = frozenset(
    "id created_at incomplete_details model object previous_response_id status usage".split()
)
_RESPONSE = (set(ResponsesAPIResponse.model_fields) - {"output", "error"}) | {
    "background",
    "conversation",
    "prompt",
    "prompt_cache_key",
    "safety_identifier",
}


def _tokens(owner: Mapping[str, Any]) -> Any:
    """Return the tokens of log probabilities, joined; "" if they are part of the text."""
    logprobs = owner["logprobs"]
    if not isinstance(logprobs, (list, tuple)):
        return logprobs
    tokens = [entry.get("token") for entry in logprobs if isinstance(entry, Mapping)]
    joined = "".join(token for token in tokens if isinstance(token, str))
    return "" if joined in str(owner.get("delta") or owner.get("text")) else joined


_LOGPROBS = {"logprobs": NamedText("content", "logprobs", _tokens)}


def _part_at(place: TextPlace, number: int | None, part: object) -> TextPlace:
    return TextPlace(place.item, "part", place.part if number is None else number)


def _part(kind: ChannelKind, slot: str = "") -> Shape:
    """Return the shape of a part of an item whose texts are of that kind."""
    texts = {name: slot or ("refusal" if name == "refusal" else "text") for name in TEXTS}
    return Shape(
        {name: NamedText(kind, slot) for name, slot in texts.items()} | _LOGPROBS,
        {**SOURCES, "annotations": ANNOTATION},
        RESULTS,
        kept=frozenset({"type"}),
        kind=kind,
        at=_part_at,
        remains=_part_left,
    )


def _part_left(part: Remains) -> dict[str, Any]:
    left = {name: value for name, value in part.after.items() if name != "logprobs"}
    if left.get("type") == "output_text":
        left |= {"annotations": [], "logprobs": None}
    return left


_SUMMARY, _THOUGHT, _SAID = _part("reasoning", "summary"), _part("reasoning"), _part("content")
_PART = Shape(
    variant=lambda part: _THOUGHT if part.get("type") == "reasoning_text" else _SAID, at=_part_at
)


def _item(item: Mapping[str, Any]) -> Shape:
    named = str(item.get("type"))
    outputs = ITEMS.get(named, frozenset())
    if named == "image_generation_call" and is_data(item.get("result")):
        outputs |= {"result"}
    kind: ChannelKind = "tool" if "call" in named else "content"
    if named == "reasoning":
        kind = "reasoning"
    # Only an input that is a string is the text of a call.
    calls = [name for name in CALLS if isinstance(item.get(name), (str, type(None)))]
    inner = {"summary": _SUMMARY, "content": _THOUGHT if kind == "reasoning" else _PART}
    if named == "web_search_call":
        inner["action"] = Shape(skipped=frozenset({"sources"}))
    return Shape(
        {name: NamedText("tool", name) for name in calls},
        {**SOURCES, **inner},
        RESULTS | outputs,
        kept=_ITEM | {*inner, "arguments"},
        kind=kind,
    )


def _item_at(place: TextPlace, number: int | None, item: object) -> TextPlace:
    return TextPlace(place.item if number is None else number, "")


ITEM = Shape(variant=_item, at=_item_at)
"""The shape of an output item."""


def _response(response: Mapping[str, Any]) -> Shape:
    output = response.get("output") or ()
    skipped = RESULTS | (_RESPONSE - _ANSWERED)
    if response.get("output_text") == "".join(_output_texts(output)):
        skipped |= {"output_text"}
    return Shape(
        inner={**SOURCES, "output": ITEM},
        skipped=skipped,
        kept=frozenset({"output"}),
        remains=_response_left,
    )


def _output_texts(output: Iterable[Any]) -> Iterator[str]:
    items = (item for item in output if isinstance(item, Mapping))
    for part in (part for item in items for part in item.get("content") or ()):
        if isinstance(part, Mapping) and part.get("type") == "output_text":
            yield str(part.get("text") or "")


def _response_left(response: Remains) -> dict[str, Any]:
    return {**response_fields(response.before), "output": response.after.get("output") or []}


def response_fields(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known fields of a response without its output; the API's own without prose."""
    return {
        key: without_prose(key, value) if key in _ANSWERED else value
        for key, value in response.items()
        if key in _RESPONSE
    }


def _behind_items(place: TextPlace, number: int | None, response: Mapping[str, Any]) -> TextPlace:
    return TextPlace(len(response.get("output") or ()), "response")


_WHOLE = Shape(variant=_response, at=_behind_items)


class Meaning(NamedTuple):
    """The parts of an event's name: what happens, to what, and where its text belongs."""

    verb: str
    stem: str
    kind: ChannelKind
    slot: str


@lru_cache(256)
def meaning(name: str) -> Meaning:
    """Parse an event's name."""
    stem, _, verb = name.removeprefix("response.").rpartition(".")
    kind: ChannelKind = "tool" if "call" in stem else "content"
    return Meaning(verb, stem, *SLOTS.get(stem, (kind, stem)))


def place_of(event: Mapping[str, Any], means: Meaning) -> TextPlace:
    """Return the place of an event's own text."""
    part = event.get("summary_index" if "summary" in means.stem else "content_index") or 0
    return TextPlace(event.get("output_index") or 0, means.slot, part)


def delta_of(event: Mapping[str, Any], means: Meaning) -> tuple[TextPlace, Any] | None:
    """Return the place of a delta's text and the text; None if it carries no text."""
    if means.verb != "delta" or (means.stem in SOUND and is_data(event.get("delta"))):
        return None
    if means.slot == means.stem and not isinstance(event.get("delta"), str):
        return None  # an unknown kind: read as any unknown field
    return place_of(event, means), event.get("delta")


def plain_delta(event: Mapping[str, Any], means: Meaning) -> bool:
    """Whether an event is a delta that carries its text and nothing else."""
    if delta_of(event, means) is None or not is_name(means.stem):
        return False
    plain = _EVENT | {"delta", "obfuscation"}
    data = is_data(event.get("item_id")) and is_data(event.get("obfuscation"))
    return data and all(n in plain or (not v and is_name(n)) for n, v in event.items())


def event_shape(event: Mapping[str, Any], means: Meaning) -> Shape:
    """Return the shape of an event."""
    verb, stem, kind, slot = means
    names = (*TEXTS, *CALLS) if verb == "done" else ()
    names = ("delta",) if delta_of(event, means) is not None else names
    texts = dict.fromkeys(names, NamedText(kind, slot))
    if names and stem == "output_text":
        texts |= _LOGPROBS
    inner = {"item": ITEM, "part": _SUMMARY if "summary" in stem else _PART, "response": _WHOLE}
    annotated = {"annotation": ANNOTATION} if stem == "output_text.annotation" else {}
    sound = {"delta"} if stem in SOUND and is_data(event.get("delta")) else frozenset()
    return Shape(
        texts,
        {**SOURCES, **inner, **annotated},
        RESULTS | sound,
        kept=_EVENT | inner.keys(),
        kind=kind,
        remains=_event_left,
    )


def _event_left(event: Remains) -> dict[str, Any]:
    return {**event.after, "logprobs": []} if "logprobs" in event.after else event.after
