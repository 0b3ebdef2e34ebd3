"""Texts of others made fit for a line, an XML file or a comment."""

from __future__ import annotations

import re

# What XML 1.0 (section 2.2) has no place for: control characters, halves of characters, two more.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Embeddings, overrides and isolates of the direction (Unicode annex 9).
_TURNS = re.compile("[\u202a-\u202e\u2066-\u2069]")
_SPACES = re.compile(r"\s+")
_MARKS = re.compile(r"([\\`*_\[\]<>#|~&$])")
_CALLS = re.compile(r"[@#](?=\w)")
_JOINER = "\u2060"


def for_xml(text: str) -> str:
    """Return ``text`` with each character that XML 1.0 has no place for replaced."""
    return _NOT_XML.sub("\ufffd", text)


def one_line(text: str) -> str:
    """Return ``text`` on one line, fit for XML; what would turn its direction is replaced."""
    return _SPACES.sub(" ", _TURNS.sub("\ufffd", for_xml(text))).strip()


def shortened(text: str, most: int) -> str:
    """Return ``text`` on one line, of at most ``most`` characters."""
    text = one_line(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def for_markdown(text: str) -> str:
    """Return ``text`` on one line, with nothing in it that Markdown or a code host acts upon."""
    # A word joiner keeps a code host from calling somebody, or from linking to an issue.
    called = _CALLS.sub(lambda found: found.group() + _JOINER, one_line(text))
    return _MARKS.sub(r"\\\1", called).replace("://", f":{_JOINER}//")
