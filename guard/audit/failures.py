"""Why calls failed: what may be kept of an error, and a run's most frequent errors.

A provider's message may quote the request, a key or an answer. Only the exception's type, the HTTP
status and what of the message quotes nothing are recorded and shown in reports.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from guard.audit.calls import Call
from guard.doors.strings import is_name

MOST = 10
"""The kinds of errors that a result lists."""

_MOST_TEXT = 160  # characters of a recorded reason
_LONGEST_NAME = 40
_RUN = 16  # this many characters of the request in a row are a quotation
_LEAST = 4  # a shorter text of a request occurs in every message
# An opening quote without its end reaches to the end of the text, which was cut there.
_QUOTED = re.compile(
    r"(?<!\w)'([^']*)(?:'|$)|\"([^\"]*)(?:\"|$)|`([^`]*)(?:`|$)|“([^”]*)(?:”|$)|[{\[](.*)"
)
_QUERY = re.compile(r"(https?://[^\s?#]*)[?#]\S*")
_USER = re.compile(r"://[^/\s@]*@")
# Keys by their prefix or by the word before them; masked ones; and what no word looks like: twelve
# letters and digits mixed, or thirty-two of both cases without a break.
_KEY = re.compile(
    r"\b(?:sk|pk|rk)[-_][\w*.…-]{6,}|\b(?:bearer|basic)\s+\S+"
    r"|\bapi[-_ ]?key\s*[=:]\s*\S+|[\w.-]*\*{2,}[\w*.-]*"
    r"|\b\w*(?=[a-z]*\d|\d+[a-z])[a-z\d]{12,}\w*|(?-i:\b(?=[a-z\d]*[A-Z])(?=[A-Z\d]*[a-z])[A-Za-z\d]{32,})",
    re.IGNORECASE,
)
_OLD = re.compile(r"(\w*(?:Error|Exception|Timeout))(?: \((\d{3})\))?(?::|$)")
_NUMBER = re.compile(r"\d+")


def without_keys(text: str) -> str:
    """Return ``text`` with "…" in place of what looks like a key, whole or masked."""
    return _KEY.sub("…", text)


def safe_reason(message: str, texts: Iterable[str]) -> str:
    """Return what of an error's ``message`` may be kept; empty where it quotes one of ``texts``.

    Quotations other than names are left out, and so are keys and the queries of addresses.
    """
    plain = _folded_text(message)
    runs = {plain[at : at + _RUN] for at in range(len(plain) - _RUN + 1)}
    for text in map(_folded_text, texts):
        if (_LEAST <= len(text) < _RUN and text in plain) or any(run in text for run in runs):
            return ""
    kept = _QUERY.sub(r"\1", _USER.sub("://", _QUOTED.sub(_name_or_mark, message)))
    kept = " ".join(without_keys(kept).split())
    return kept if len(kept) <= _MOST_TEXT else f"{kept[: _MOST_TEXT - 1]}…"


def _name_or_mark(match: re.Match[str]) -> str:
    inner = next((group for group in match.groups() if group is not None), "")
    return match[0] if inner and len(inner) <= _LONGEST_NAME and is_name(inner) else "…"


def _folded_text(text: str) -> str:
    return " ".join(text.split()).casefold()


def errors_of(calls: Iterable[Call]) -> list[dict[str, Any]]:
    """Return the most frequent errors of failed calls, each with its count and the first item.

    Errors are equal whose role, type, status and reason are, whatever its numbers. Of calls that
    an earlier version recorded only type and status are shown.
    """
    counts: Counter[tuple[object, ...]] = Counter()
    first: dict[tuple[object, ...], dict[str, Any]] = {}
    for call in calls:
        if call.reply is not None:
            continue
        kind, status, reason = call.kind, call.status, call.error
        if not kind:
            old = _OLD.match(call.error)
            kind, reason = (old[1] if old else "CallError"), ""
            status = int(old[2]) if old and old[2] else None
        key = call.by, kind, status, _NUMBER.sub("#", reason)
        counts[key] += 1
        shown = {"by": call.by, "error": kind, "status": status, "reason": reason}
        first.setdefault(key, {**shown, "item": call.slot.item})
    return [{**first[key], "calls": number} for key, number in counts.most_common(MOST)]


def error_text(error: Mapping[str, Any]) -> str:
    """Return one of :func:`errors_of` as a phrase.

    >>> error_text({"by": "model", "error": "RateLimitError", "status": 429, "reason": "",
    ...             "item": "t7", "calls": 80})
    'RateLimitError (429), 80 calls, such as t7'

    """
    status = "" if error["status"] is None else f" ({error['status']})"
    whose = "" if error["by"] == "model" else f" of the {error['by']}"
    calls = "1 call" if error["calls"] == 1 else f"{error['calls']:,} calls"
    reason = f": {error['reason'].rstrip('.')}" if error["reason"] else ""
    return f"{error['error']}{status}{whose}, {calls}, such as {error['item']}{reason}"
