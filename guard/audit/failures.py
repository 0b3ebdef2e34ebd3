"""Why calls failed: what may be kept of an error, and a run's most frequent errors.

A provider's message may hold the request, a key or an answer, with quotation marks or without. So
only the exception's type, the HTTP status and a cause in guard's own words are recorded and
reported. What is printed while a run is under way keeps the message, without its quotations.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from guard.audit.calls import Call
from guard.doors.strings import is_name
from guard.texts import normalised

MOST = 10
"""The kinds of errors that a result lists."""

_LONGEST_NAME = 40
_MOST_READ = 2000  # characters of a message
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
# The settings that a cause may name, none of which is an ordinary word.
_SETTING = re.compile(
    r"\b(?:max_(?:completion_|output_|new_)?tokens|(?:top_)?logprobs|top_[kp]|min_p|temperature"
    r"|(?:presence|frequency|repetition)_penalty|logit_bias|response_format|tool_choice"
    r"|parallel_tool_calls|stream_options|reasoning_effort|thinking_budget|service_tier)\b"
)
UNREADABLE = "the response is unreadable"
"""The cause where a successful response has no answer."""

_REFUSED_SETTING = "a setting was refused"
# What type and status do not say yet. Every pattern matches its own sentence: a recorded cause is
# read by cause_of again, and stays as it is.
_CAUSES = tuple(
    (re.compile(pattern, re.IGNORECASE), sentence)
    for pattern, sentence in (
        (
            r"insufficient[ _](?:quota|funds|balance|credit)|exceeded your current quota|billing"
            r"|credit balance|payment required|quota is used up",
            "the account's quota is used up",
        ),
        (
            r"context[ _-]?(?:length|window)|maximum context|too many (?:input )?tokens"
            r"|(?:prompt|input|string|request).{0,40}too (?:long|large)|more than the model's",
            "the request is too long",
        ),
        (
            r"content[ _-]?(?:filter|management policy|policy)|safety (?:system|filter|setting)"
            r"|responsible[ _]?ai|guardrail",
            "a content filter",
        ),
        (
            r"\b(?:model|deployment|engine)\b.{0,80}(?:does not exist|not found|not available)"
            r"|(?:unknown|no such) (?:model|deployment)",
            "the model was not found",
        ),
        (
            r"\btimed[ _-]?out|\btimeout\b|no (?:complete )?answer within|deadline exceeded",
            "no answer within the time limit",
        ),
        (
            r"connection (?:error|refused|reset|aborted|closed)|no connection|cannot connect"
            r"|name resolution|getaddrinfo|server disconnected|certificate verify",
            "no connection",
        ),
        (r"no module named|pip install|package is missing", "a package is missing here"),
        (r"the scorer .*failed", "the scorer failed"),
        (rf"{_SETTING.pattern}|{_REFUSED_SETTING}", _REFUSED_SETTING),
        (
            r"\(malformed\)|stream ended early|expecting value|json[ _]?decode|is unreadable"
            r"|unable to (?:get json|parse) response|invalid response object"
            r"|provider returned 'choices'",
            UNREADABLE,
        ),
        (
            r"unprocessable|validation error|field required|input should be|request is malformed",
            "the request is malformed for this provider",
        ),
    )
)


def without_keys(text: str) -> str:
    """Return ``text`` with "…" in place of what looks like a key, whole or masked."""
    return _KEY.sub("…", text)


def cause_of(message: str) -> str:
    """Return the cause of a failed call in guard's own words; empty where none is known.

    Nothing of ``message`` is in it but the names of settings that guard knows.

    >>> cause_of("Unsupported parameter: 'top_k' with prompt: are they all lazy?")
    'a setting was refused: top_k'
    >>> cause_of("Cannot answer this: they are all lazy")
    ''

    """
    message = message[:_MOST_READ]
    for pattern, sentence in _CAUSES:
        if pattern.search(message) is None:
            continue
        if sentence != _REFUSED_SETTING:
            return sentence
        names = dict.fromkeys(_SETTING.findall(message))
        return f"{sentence}: {', '.join(names)}" if names else sentence
    return ""


def without_quotes(message: str, texts: Iterable[str]) -> str:
    """Return what of an error's ``message`` may be printed; empty where it quotes one of ``texts``.

    Quotations other than names are left out, and so are keys and the queries of addresses.
    """
    plain = normalised(message)
    runs = {plain[at : at + _RUN] for at in range(len(plain) - _RUN + 1)}
    for text in map(normalised, texts):
        if (_LEAST <= len(text) < _RUN and text in plain) or any(run in text for run in runs):
            return ""
    rest = _QUERY.sub(r"\1", _USER.sub("://", _QUOTED.sub(_name_or_mark, message)))
    return " ".join(without_keys(rest).split())


def _name_or_mark(match: re.Match[str]) -> str:
    inner = next((group for group in match.groups() if group is not None), "")
    return match[0] if inner and len(inner) <= _LONGEST_NAME and is_name(inner) else "…"


def errors_of(calls: Iterable[Call]) -> list[dict[str, Any]]:
    """Return the most frequent errors of failed calls, each with its count and the first item.

    Errors are equal whose role, type, status and cause are. Earlier versions recorded messages, of
    which only the cause is shown.
    """
    counts: Counter[tuple[object, ...]] = Counter()
    first: dict[tuple[object, ...], dict[str, Any]] = {}
    for call in calls:
        if call.reply is not None:
            continue
        kind, status, reason = call.kind, call.status, cause_of(call.error)
        if not kind:
            old = _OLD.match(call.error)
            kind = old[1] if old else "CallError"
            status = int(old[2]) if old and old[2] else None
        key = call.by, kind, status, reason
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
    reason = f": {error['reason']}" if error["reason"] else ""
    return f"{error['error']}{status}{whose}, {calls}, such as {error['item']}{reason}"
