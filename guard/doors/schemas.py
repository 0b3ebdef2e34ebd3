"""Whether a request has a schema that another string in the place of the model's might not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The arguments of a call that hold schemas, at the doors' own and the providers' formats.
_ARGUMENTS = (
    "response_format text_format text output_format output_config response_schema tools functions"
).split()
_FIXES = frozenset({"enum", "const", "pattern", "format"})


def fixes_strings(call: Mapping[str, Any]) -> bool:
    """Whether a schema of the call says which strings there may be, such as an ``enum``."""
    return any(_fixes(call[name], outer=True) for name in _ARGUMENTS if call.get(name) is not None)


def _fixes(schema: Any, *, outer: bool = False) -> bool:
    if isinstance(schema, type):  # a pydantic model stands for its schema
        made = getattr(schema, "model_json_schema", None)
        return made is None or _fixes(made())
    if isinstance(schema, Mapping):
        # The argument itself may have a key "format" in which the schema is.
        return bool(not outer and _FIXES.intersection(schema)) or any(map(_fixes, schema.values()))
    return isinstance(schema, (list, tuple)) and any(map(_fixes, schema))
