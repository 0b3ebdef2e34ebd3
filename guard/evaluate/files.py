"""Reads files of texts; a mistake in one is a UsageError that names the file, and the line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from guard.errors import UsageError
from guard.evaluate.example import BadRow


def read_bytes(path: Path) -> bytes:
    """Return the bytes of the file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None


def decoded(path: Path, raw: bytes) -> str:
    """Return the text of a file's bytes."""
    try:
        # Spreadsheets put a byte order mark before the header.
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}, line {line}: not UTF-8 text; convert the file first.") from None


def json_object(line: str) -> Mapping[str, Any]:
    """Return the object that a line of JSON lines holds; BadRow where it holds none."""
    try:
        record = json.loads(line)
    except ValueError:
        raise BadRow("the line is not JSON") from None
    if not isinstance(record, dict):
        raise BadRow("the line is not a JSON object")
    return record
