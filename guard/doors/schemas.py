"""Whether a request's schema may refuse a string that guard puts in the place of the model's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

# The arguments of a call that hold schemas, at the doors' own and the providers' formats.
_SCHEMAS = (
    "response_format text_format text output_format output_config response_schema tools functions "
    "format guided_json json_schema"
).split()
# Those that say nothing but which strings there may be.
_RULES = ("guided_choice", "guided_regex", "guided_grammar", "grammar", "structured_outputs")
_FIXES = frozenset({"enum", "const", "pattern", "format"})
# Keys of a schema whose own keys are names, and keys whose values are no schemas.
_NAMED = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_SAID = ("default", "example", "examples", "description", "title")


def fixes_strings(call: Mapping[str, Any], mark: str) -> bool:
    """Whether a schema of the call says which strings there may be, such as an ``enum``.

    True also if ``mark`` breaks a length, or if a schema cannot be read.
    """
    more = call.get("extra_body")
    if isinstance(more, Mapping) and fixes_strings(more, mark):
        return True
    if any(call.get(name) is not None for name in _RULES):
        return True
    asked = (call[name] for name in _SCHEMAS if call.get(name) is not None)
    return any(_fixes(schema, len(mark), outer=True) for schema in asked)


def _fixes(schema: Any, length: int, *, outer: bool = False) -> bool:
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        schema = schema.model_json_schema()
    elif isinstance(schema, BaseModel):
        schema = schema.model_dump()
    if schema is None or isinstance(schema, (str, int, float)):
        return False
    if isinstance(schema, (list, tuple)):
        return any(_fixes(element, length) for element in schema)
    if not isinstance(schema, Mapping):
        return True
    # The argument itself may have a key "format" in which the schema is.
    if not outer and _FIXES.intersection(schema):
        return True
    least, most = schema.get("minLength", 0), schema.get("maxLength", length)
    if isinstance(least, int) and isinstance(most, int) and not least <= length <= most:
        return True
    for key, below in schema.items():
        if key in _NAMED and isinstance(below, Mapping):
            if any(_fixes(named, length) for named in below.values()):
                return True
        elif key not in _SAID and _fixes(below, length):
            return True
    return False
