"""The rows of a bias index, and their format as JSON lines.

One line is one object::

    {"statement": "...", "bias_type": "age", "group": "...", "attribute": "...",
     "implicit": false, "note": ""}

``implicit`` and ``note`` are optional. If the bias is implicit, group and attribute state what is
implied; they need not occur in the statement.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from guard.datasets.rows import has_surrogate
from guard.errors import BiasIndexError
from guard.verdict import BIAS_TYPES, BiasType

_WORD = re.compile(r"[^\W_]+")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f]")  # all of ASCII but white space


def fold_words(text: str) -> str:
    """Return the words of ``text`` without case or punctuation; equal for near-copies."""
    return " ".join(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


@dataclass(frozen=True, slots=True)
class BiasStatement:
    """A biased statement with its group and attribute.

    Raises:
        ValueError: a text is empty, spans lines, has a control character or cannot be written as
            UTF-8, or the bias type is unknown.

    """

    statement: str
    bias_type: BiasType
    group: str
    attribute: str
    implicit: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        for name in ("statement", "bias_type", "group", "attribute", "note"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise ValueError(f"'{name}' must be a string, not {value!r}")
            if name != "note" and not value.strip():
                raise ValueError(f"'{name}' is empty")
            if "\n" in value or "\r" in value:
                raise ValueError(f"'{name}' has a line break")
            if _CONTROL.search(value):
                raise ValueError(f"'{name}' has a control character")
            if has_surrogate(value):
                raise ValueError(f"'{name}' has a lone surrogate, which UTF-8 cannot encode")
        if not fold_words(self.statement):
            raise ValueError("'statement' has no word in it")
        if self.bias_type not in BIAS_TYPES:
            raise ValueError(
                f"unknown bias type {self.bias_type!r}; it is one of {', '.join(BIAS_TYPES)}"
            )
        if not isinstance(self.implicit, bool):
            raise ValueError(f"'implicit' must be true or false, not {self.implicit!r}")


_KEYS = tuple(f.name for f in fields(BiasStatement))
_NEEDED = _KEYS[:4]


def read_statements(path: Path, data: bytes | None = None) -> tuple[BiasStatement, ...]:
    """Parse a file of JSON lines, or its bytes ``data``; blank lines are skipped.

    Raises:
        BiasIndexError: the file cannot be read, or a line is invalid; the message names the file,
            the line (from 1) and the fault.

    """
    try:
        text = (path.read_bytes() if data is None else data).decode("utf-8")
    except FileNotFoundError:
        raise BiasIndexError(f"There is no statements file at {path}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BiasIndexError(f"{path} cannot be read: {error}.") from error
    statements = []
    # Not splitlines(): it also splits at characters that JSON allows inside a string.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                statements.append(parse_statement(line))
            except ValueError as error:
                raise BiasIndexError(f"{path}, line {number}: {error}.") from error
    return tuple(statements)


def statement_lines(statements: Iterable[BiasStatement]) -> str:
    """Return ``statements`` as JSON lines, in the normalised form that is hashed."""
    return "".join(json.dumps(asdict(s), ensure_ascii=False) + "\n" for s in statements)


def parse_statement(line: str) -> BiasStatement:
    """Parse one JSON line; raises ValueError that states the fault."""
    try:
        item: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at character {error.colno})") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(item, dict):
        raise ValueError("not a JSON object")
    if missing := [key for key in _NEEDED if key not in item]:
        raise ValueError(f"'{missing[0]}' is missing")
    if unknown := [key for key in item if key not in _KEYS]:
        raise ValueError(f"unknown key '{unknown[0]}'")
    return BiasStatement(**item)
