"""Where the Responses API carries text: one walk over its events, items and whole responses.

A text is identified by its place: the output item, the slot in it, and the number of the part.
The same text comes in deltas, in the events that end a part or an item, and in the whole response
at the end. LiteLLM's replay of a whole answer also sends it before its deltas.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from copy import deepcopy
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

from litellm.types.llms.openai import ResponsesAPIResponse
from pydantic import BaseModel, ValidationError

from guard.doors.fields import holds_sources, walk_annotation, walk_field
from guard.doors.litellm.compat import OpenAIResponsesAPIConfig, hidden_params, set_hidden_params
from guard.doors.responses.names import CALLS, ITEMS, SLOTS, SOUND, TEXTS
from guard.doors.strings import (
    is_data,
    is_name,
    map_strings,
    members,
    not_text,
    without_prose,
    without_text,
)
from guard.verdict import ChannelKind


class Place(NamedTuple):
    """The place of a text in a response."""

    item: int
    slot: str
    part: int = 0


Visit = Callable[[Place, ChannelKind, str], str]

# The fields, beside its texts, of a rewritten event or item: none of them can repeat the texts.
_EVENT = tuple("type sequence_number output_index content_index summary_index item_id".split())
_ITEM = frozenset(
    "id type status role call_id name namespace phase server_label container_id "
    # What a call is to do, in the model's words; these are judged.
    "action actions operation queries revised_prompt arguments".split()
)
_READ = frozenset({*_EVENT, "delta", "item", "part", "response", "logprobs", "obfuscation"})
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


def name_of(event: Any) -> str:
    """Return the name of an event, which LiteLLM gives as a string or an enum."""
    name = event.type
    return str(name.value if isinstance(name, Enum) else name)


def plain(event: Any) -> dict[str, Any]:
    """Return a copy of an event as a dict."""
    # Leaves out attributes that LiteLLM sets on the object itself; its dump has none of them.
    extra = getattr(event, "__pydantic_extra__", None) or {}
    fields = members(event).items()
    return {name: _plain(v) for name, v in fields if not name.startswith("_") or name in extra}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, int)):
        return value
    return value.model_dump(warnings=False) if isinstance(value, BaseModel) else deepcopy(value)


def delta_of(event: Mapping[str, Any], means: Meaning) -> tuple[Place, Any] | None:
    """Return the place of a delta's text and the text; None if it carries no text."""
    if means.verb != "delta" or (means.stem in SOUND and is_data(event.get("delta"))):
        return None
    if means.slot == means.stem and not isinstance(event.get("delta"), str):
        return None  # an unknown kind: read as any unknown field
    part = event.get("summary_index" if means.slot == "summary" else "content_index") or 0
    return Place(event.get("output_index") or 0, means.slot, part), event.get("delta")


def rewritten(
    event: Mapping[str, Any], name: str, visit: Visit, *, opens: bool = False
) -> dict[str, Any]:
    """Return a plain event with each text replaced by ``visit``, without fields that repeat it.

    In an event that ``opens`` an item or a part, unknown fields are not visited. Raises
    UsageError on text that is not a string: it cannot be judged, so it cannot go out.
    """
    made = {key: event[key] for key in _EVENT if key in event}
    verb, stem, kind, slot = means = meaning(name)
    item = event.get("output_index") or 0
    part = event.get("summary_index" if "summary" in stem else "content_index") or 0
    read = _READ
    if (delta := delta_of(event, means)) is not None:
        made["delta"] = visit_text(visit, delta[0], kind, delta[1])
    elif verb == "done":
        read |= {field for field in (*TEXTS, *CALLS) if field in event}
        for field in read - _READ:
            made[field] = visit_text(visit, Place(item, slot, part), kind, event[field])
    elif "delta" in event and not (stem in SOUND and is_data(event["delta"])):
        read -= {"delta"}
    if stem == "output_text" and verb in ("delta", "done"):
        text = event.get("delta" if verb == "delta" else "text")
        _tokens(event.get("logprobs"), text, Place(item, "logprobs", part), visit)
        made["logprobs"] = []
    if isinstance(event.get("item"), Mapping):
        made["item"] = rewritten_item(event["item"], item, visit, opens=opens)
    if isinstance(event.get("part"), Mapping):
        made["part"] = _part(
            event["part"], item, part, visit, summary="summary" in stem, opens=opens
        )
    if stem == "output_text.annotation" and "annotation" in event:
        read |= {"annotation"}
        _annotation(event["annotation"], Place(item, "annotation", part), visit)
    if isinstance(event.get("response"), Mapping):
        made["response"] = _response(event["response"], visit)
    read -= {key for key in ("item", "part", "response") if key in event and key not in made}
    if not opens:
        _rest(event, read, Place(item, f"{stem}." if stem else "", part), kind, visit)
    return made


def plain_delta(event: Mapping[str, Any], means: Meaning) -> bool:
    """Whether an event is a delta that carries its text and nothing else."""
    if event.get("logprobs") or delta_of(event, means) is None:
        return False
    return all(name in _READ or (not value and is_name(name)) for name, value in event.items())


def _response(response: Mapping[str, Any], visit: Visit) -> dict[str, Any]:
    output = response.get("output") or ()
    made = [
        rewritten_item(one if isinstance(one, Mapping) else {"unknown": one}, number, visit)
        for number, one in enumerate(output)
    ]
    # Texts of a response outside its items come after them.
    behind = Place(len(made), "response.")
    read = (_RESPONSE - _ANSWERED) | {"output"}
    if response.get("output_text") == "".join(_output_texts(output)):
        read |= {"output_text"}
    _rest(response, read, behind, "content", visit)
    return {**response_fields(response), "output": made}


def _output_texts(output: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    items = (item for item in output if isinstance(item, Mapping))
    for part in (part for item in items for part in item.get("content") or ()):
        if isinstance(part, Mapping) and part.get("type") == "output_text":
            yield str(part.get("text") or "")


def _rest(
    owner: Mapping[str, Any], read: Container[str], place: Place, kind: ChannelKind, visit: Visit
) -> dict[str, Any]:
    """Return the fields that are not ``read`` by name, with each string in them visited.

    Without fields of sources, which a rewritten item does not keep.
    """

    def one(path: str, text: str) -> str:
        return visit(place._replace(slot=place.slot + path), kind, text)

    made = {}
    for name, value in owner.items():
        if name in read or not (is_name(name) or one(f"{name}.key", name) == name):
            continue
        if holds_sources(name):
            walk_field(name, value, name, one)
        else:
            made[name] = map_strings(value, name, one)
    return made


def _tokens(logprobs: object, text: object, place: Place, visit: Visit) -> None:
    """Visit the tokens of log probabilities unless they are part of ``text``."""
    if isinstance(logprobs, (list, tuple)):
        tokens = [one.get("token") for one in logprobs if isinstance(one, Mapping)]
        joined = "".join(token for token in tokens if isinstance(token, str))
        if joined and joined not in str(text):
            visit(place, "content", joined)


def _annotation(annotation: Any, place: Place, visit: Visit) -> None:
    def one(path: str, text: str) -> str:
        return visit(place._replace(slot=path), "content", text)

    walk_annotation(annotation, place.slot, one)


def opens_with_more(event: Mapping[str, Any], read: Mapping[str, Any]) -> bool:
    """Whether an event that opens an item or part has fields beside those that were ``read``."""
    return not _all_in({key: event[key] for key in event if key != "obfuscation"}, read)


def _all_in(value: Any, read: Any) -> bool:
    if isinstance(value, Mapping):
        known: Mapping[Any, Any] = read if isinstance(read, Mapping) else {}
        return all(
            (key in known or is_name(str(key))) and _all_in(one, known.get(key))
            for key, one in value.items()
        )
    if isinstance(value, (list, tuple)):
        rest: list[Any] = read if isinstance(read, list) else []
        return all(map(_all_in, value, [*rest, *[None] * (len(value) - len(rest))]))
    return not value or bool(value == read)


def response_fields(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known fields of a response without its output; the API's own without prose."""
    return {
        key: without_prose(key, value) if key in _ANSWERED else value
        for key, value in response.items()
        if key in _RESPONSE
    }


def rewritten_item(
    item: Mapping[str, Any], number: int, visit: Visit, *, opens: bool = False
) -> dict[str, Any]:
    """Return an output item with each text replaced by ``visit``, without outputs of tools."""
    named = str(item.get("type"))
    answers = ITEMS.get(named, frozenset())
    if named == "image_generation_call" and is_data(item.get("result")):
        answers |= {"result"}
    made: dict[str, Any] = {}
    for field in ("summary", "content"):
        parts = item.get(field) or ()
        if field in item and all(isinstance(part, Mapping) for part in parts):
            made[field] = [
                _part(
                    part,
                    number,
                    position,
                    visit,
                    summary=field == "summary",
                    reasoning=named == "reasoning",
                    opens=opens,
                )
                for position, part in enumerate(parts)
            ]
    for field in CALLS:
        if isinstance(text := item.get(field, 0), str) or text is None:
            made[field] = visit_text(visit, Place(number, field), "tool", text)
    if named == "web_search_call" and isinstance(action := item.get("action"), Mapping):
        item = {**item, "action": {k: v for k, v in action.items() if k != "sources"}}
    kind: ChannelKind = "tool" if "call" in named else "content"
    if named == "reasoning":
        kind = "reasoning"
    read = answers | made.keys()
    if opens:
        read |= item.keys() - _ITEM
    rest = _rest(item, read, Place(number, ""), kind, visit)
    return {key: rest[key] for key in rest if key in _ITEM} | made


def litellm_event(name: str, fields: Mapping[str, Any], like: Any = None) -> Any:
    """Return LiteLLM's event of that name; None if the remaining fields are not valid.

    The class and the response's hidden parameters are those of the event ``like``.
    """
    kind = OpenAIResponsesAPIConfig.get_event_model_class(name) if like is None else type(like)
    try:
        event: Any = kind(**{**fields, "type": name})
    except ValidationError:
        return None
    response = getattr(like, "response", None)
    # In an event that LiteLLM does not model, the response is a dict.
    if isinstance(getattr(event, "response", None), BaseModel):
        set_hidden_params(event.response, hidden(response))
    return event


def hidden(response: Any) -> dict[str, Any]:
    """Return a response's hidden parameters without the model's text."""
    noted = hidden_params(response)
    return without_text(noted) if noted else {}


def _part(
    part: Mapping[str, Any],
    item: int,
    number: int,
    visit: Visit,
    *,
    summary: bool = False,
    reasoning: bool = False,
    opens: bool = False,
) -> dict[str, Any]:
    made: dict[str, Any] = {"type": part.get("type")}
    kind: ChannelKind = "content"
    if summary or reasoning or part.get("type") == "reasoning_text":
        kind = "reasoning"
    for field in TEXTS:
        if field in part:
            slot = "summary" if summary else "refusal" if field == "refusal" else "text"
            made[field] = visit_text(visit, Place(item, slot, number), kind, part[field])
    if part.get("text"):
        _tokens(part.get("logprobs"), part["text"], Place(item, "logprobs", number), visit)
    if not opens:
        for position, annotation in enumerate(part.get("annotations") or ()):
            _annotation(annotation, Place(item, f"annotations.{position}", number), visit)
        read = {*TEXTS, "annotations", "logprobs"}
        _rest(part, read, Place(item, "part.", number), kind, visit)
    if made["type"] == "output_text":
        made |= {"annotations": [], "logprobs": None}
    return made


def visit_text(visit: Visit, place: Place, kind: ChannelKind, text: object) -> Any:
    """Return a text replaced by ``visit``; an empty or missing one unchanged."""
    if text is None or text == "":
        return text
    if not isinstance(text, str):
        raise not_text(kind, text)
    return visit(place, kind, text)
