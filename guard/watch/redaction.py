"""Replaces links, addresses, handles and numbers in a text by placeholders."""

from __future__ import annotations

import re
from typing import NamedTuple

from guard.verdict import Span

_AT = r"(?:[@\uff20\ufe6b]|%40|&\#64;)"  # as such, fullwidth, small, in links, in HTML
REDACTED = {
    f"[{name}]": re.compile(pattern, re.IGNORECASE | re.VERBOSE)
    for name, pattern in {
        # JSON escapes slashes; a query holds its links percent-encoded.
        "link": r"""(?<![a-z0-9+.\-]) (?: [a-z0-9+.\-]+ (?:[:\uff1a]|%3a) (?:\\*[/\uff0f]|%2f){2}
                    | www\d*[.\uff0e] | (?:[a-z0-9\-]+\.)+[a-z]{2,}/ ) \S*""",
        "address": rf"""(?: "[^"\n]{{1,64}}" | (?<![^\s@\uff20\ufe6b]) [^\s@\uff20\ufe6b]+? )
                    {_AT} [^\s@]*\w""",
        "handle": rf"(?<!\w) {_AT} \w+",
        "number": r"\d (?: [\d\ .,/()+\-]* \d )?",
    }.items()
}


class Redaction(NamedTuple):
    """Characters of a text that are replaced, from ``start`` to before ``end``."""

    start: int
    end: int
    placeholder: str


def redactions(text: str, link_end: int = 0) -> list[Redaction]:
    """Return the links, addresses, handles and numbers of ``text``, in their order.

    The first ``link_end`` characters belong to a link that began before the text.
    """
    places = [Redaction(0, link_end, "[link]")] if link_end else []
    for placeholder, pattern in REDACTED.items():
        places += [Redaction(*match.span(), placeholder) for match in pattern.finditer(text)]
    merged: list[Redaction] = []
    for each in sorted(places, key=lambda each: each.start):  # stable: a link before a number in it
        if merged and each.start < merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(each.end, merged[-1].end))
        else:
            merged.append(each)
    return merged


def redacted(text: str, link_end: int = 0) -> str:
    """Return ``text`` with placeholders; ``link_end`` is as in :func:`redactions`."""
    parts, end = [], 0
    for place in redactions(text, link_end):
        parts += [text[end : place.start], place.placeholder]
        end = place.end
    return "".join([*parts, text[end:]])


def redacted_name(name: str, span: Span, replaced: list[Redaction]) -> str:
    """Return ``name`` redacted, a part of something that is redacted in the text as a whole."""
    inside = (r.placeholder for r in replaced if r.start < span.end and span.start < r.end)
    return next(inside, None) or redacted(name)
