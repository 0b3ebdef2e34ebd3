"""A cut tool call must not run: its arguments never end as JSON that parses."""

from __future__ import annotations

import json

BREAK = "{"
"""Appended to cut arguments that happen to parse: no JSON text ends with it."""


def breaking_suffix(released: str, *, complete: bool) -> str:
    """Return what to append to the released arguments of a call whose choice was terminated.

    Blank arguments count as cut: some clients read them as an empty object and run the tool.

    >>> breaking_suffix('{"a": 1} ', complete=False), breaking_suffix('{"a": ', complete=False)
    ('{', '')
    """
    if not released.strip():
        return BREAK
    if complete:
        return ""
    try:
        json.loads(released)
    except ValueError:
        return ""
    return BREAK
