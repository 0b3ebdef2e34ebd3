"""Reads an answer as the authors do: what is left must be one of the options, to the letter."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBERED = re.compile(r"option\s*\d*\s*:\s*")


def chosen(text: str, options: Sequence[str]) -> int | None:
    """Return which option an answer is, None where it is none of them.

    The answer is stripped, its full stops are dropped, it is lower-cased, and a leading
    "option N:" is taken off; then it must equal an option. Full stops are dropped from options too,
    or "St. Louis" could never be chosen.
    """
    answer = _plain(text)
    leading = _NUMBERED.match(answer)
    if leading:
        answer = answer[leading.end() :]
    return {_plain(option): at for at, option in enumerate(options)}.get(answer)


def _plain(text: str) -> str:
    return text.strip().replace(".", "").lower().strip()
