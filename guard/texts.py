"""Texts of others: safe on a terminal, one line, in XML and in Markdown."""

from __future__ import annotations

import re

# Not allowed in XML 1.0 (section 2.2): control characters, surrogates, U+FFFE and U+FFFF.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Embeddings, overrides and isolates of the direction (Unicode annex 9).
_TURNS = re.compile("[\u202a-\u202e\u2066-\u2069]")
_SPACES = re.compile(r"\s+")
_MARKS = re.compile(r"([\\`*_\[\]<>#|~&$])")
_CALLS = re.compile(r"[@#](?=\w)")
_JOINER = "\u2060"


def printable(text: str) -> str:
    """Return ``text`` without what a terminal or a build server acts upon."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def normalised(text: str) -> str:
    """Return ``text`` in lower case with single spaces."""
    return " ".join(text.split()).casefold()


def for_xml(text: str) -> str:
    """Return ``text`` with each character that XML 1.0 does not allow replaced."""
    return _NOT_XML.sub("\ufffd", text)


def one_line(text: str) -> str:
    """Return ``text`` on one line, safe for XML and without controls of its direction."""
    return _SPACES.sub(" ", _TURNS.sub("\ufffd", for_xml(text))).strip()


def shortened(text: str, most: int) -> str:
    """Return ``text`` on one line, of at most ``most`` characters."""
    text = one_line(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def for_markdown(text: str) -> str:
    """Return ``text`` on one line, escaped for Markdown and for mentions on a code host."""
    # A word joiner prevents mentions of people and links to issues.
    called = _CALLS.sub(lambda match: match.group() + _JOINER, one_line(text))
    return _MARKS.sub(r"\\\1", called).replace("://", f":{_JOINER}//")
