"""A structured answer keeps its structure on every door; under a schema it ends instead."""

from __future__ import annotations

import json
from enum import Enum
from typing import Any

import litellm
from openai.lib._parsing import parse_chat_completion
from openai.types.chat import ChatCompletion
from pydantic import BaseModel

from guard.doors.schemas import fixes_strings
from guard.policy import Policy
from guard.verdict import Channel
from tests.doors import replay as r
from tests.doors.replay import Replay, Said
from tests.doors.table import TABLE, Row, World, guard_of
from tests.rows import rows
from tests.scripted import Scripted

STOP = Policy().message
SAID = '{"name": "Ann", "notes": ["Fine.", "So BIAS is here."], "age": 40}'
REDACTED = {"name": "Ann", "notes": ["Fine.", "[removed]"], "age": 40}


class Person(BaseModel):
    name: str
    notes: list[str]
    age: int


class Colour(Enum):
    RED = "red"


class Car(BaseModel):
    colour: Colour


@rows("row", TABLE)
def test_a_removed_string_leaves_the_document_whole(world: World, row: Row) -> None:
    guard = guard_of(Policy(action="redact"), Scripted())
    row.play(world, [[("content", 0, SAID)]], ([5], 0))
    for way in row.ways(world, guard):
        assert json.loads(way.texts[Channel()]) == REDACTED
        assert "BIAS" not in r.serialised(*way.chunks)
        assert "content_filter" not in way.finish.values()


@rows("row", TABLE)
def test_a_stopped_document_never_looks_complete(world: World, row: Row) -> None:
    guard = guard_of(Policy(message=""), Scripted())
    row.play(world, [[("content", 0, SAID)]], ([5], 0))
    for way in row.ways(world, guard):
        assert way.texts[Channel()] == '{"name": "Ann", "notes": ["Fine.", "'
        assert way.ends or way.finish == {0: "content_filter"}


@rows(
    "call, fixed",
    [
        ({}, False),
        ({"messages": [{"content": "format", "role": "user"}], "format": "json"}, False),
        ({"response_format": {"type": "json_object"}}, False),
        ({"response_format": Person}, False),
        ({"response_format": Car}, True),
        ({"response_format": int}, True),
        ({"tools": [{"function": {"parameters": Person.model_json_schema()}}]}, False),
        ({"tools": [{"function": {"parameters": Car.model_json_schema()}}]}, True),
        ({"text": {"format": {"schema": {"properties": {"a": {"pattern": "x"}}}}}}, True),
        ({"text": {"format": {"type": "text"}}}, False),
        ({"output_format": {"schema": {"items": [{"const": "x"}]}}}, True),
        ({"response_format": Car | None}, True),
        ({"tools": [Person(name="a", notes=[], age=1)]}, False),
        ({"tools": iter([])}, True),
        ({"extra_body": {"response_format": Car}}, True),
        ({"extra_body": {"guided_regex": "x"}}, True),
        ({"format": Car.model_json_schema()}, True),
        ({"tools": [{"properties": {"format": {"type": "string"}}}]}, False),
        ({"tools": [{"properties": {"a": {"default": {"format": "x"}}}}]}, False),
        ({"tools": [{"properties": {"a": {"maxLength": 5}}}]}, True),
        ({"tools": [{"properties": {"a": {"maxLength": 50}}}]}, False),
        ({"tools": [{"properties": {"a": {"minLength": 50}}}]}, True),
        ({"functions": [{"parameters": {"properties": {"at": {"format": "date"}}}}]}, True),
    ],
)
def test_which_schemas_say_what_strings_there_may_be(call: dict[str, Any], fixed: bool) -> None:
    assert fixes_strings(call, "[removed]") is fixed


def answered(replay: Replay, schema: Any, *, stream: bool) -> Any:
    guard = guard_of(Policy(action="redact"), Scripted())
    replay.answer = r.answer_of([Said(0, "content", SAID)])
    pieces = [r.chunk_of(Said(0, "content", SAID[i : i + 5])) for i in range(0, len(SAID), 5)]
    replay.source = lambda: iter(pieces)
    answer = guard.completion(**r.CALL, response_format=schema, stream=stream)
    return litellm.stream_chunk_builder(list(answer)) if stream else answer


@rows("stream", [False, True])
def test_under_a_schema_with_an_enum_the_answer_ends(replay: Replay, stream: bool) -> None:
    (choice,) = answered(replay, Car, stream=stream).choices
    assert choice.message.content == '{"name": "Ann", "notes": ["Fine.", "' + STOP
    assert choice.finish_reason == "content_filter"


def test_parsers_read_what_was_redacted(replay: Replay) -> None:
    answer = answered(replay, Person, stream=False)
    assert Person.model_validate_json(answer.choices[0].message.content).model_dump() == REDACTED
    sent = ChatCompletion.model_validate_json(answer.model_dump_json())
    client = parse_chat_completion(response_format=Person, input_tools=[], chat_completion=sent)
    assert client.choices[0].message.parsed is not None
    assert client.choices[0].message.parsed.model_dump() == REDACTED
