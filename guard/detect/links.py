"""Reads addresses as a browser and its reader do: percent-encoded characters, words of a path.

Also a sentence whose words are joined by slashes, plus signs, underscores or hyphens elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from guard.detect.spelling import Edit, Known, is_word

_TOKEN = re.compile(r"\S+")
_CODES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_SPACE = re.compile(r"%(?:20|0[9AaDd]|[cC]2%[aA]0)")
_PLUS = re.compile(r"(?<=[\w'’%])\+(?=[\w'’%])")
_QUERY = re.compile(r"[?&;#][\w.~-]+=")
_OPENS, _CLOSES = "/=?&#:,;", "/?&#;,"  # before and behind the words of an address
_PLAIN = re.compile(r"(?:\w{1,12}://|mailto:)?[\w.:@]{0,60}")  # a host that hides no words
_NAME = re.compile(r"[?&;#]\w+=\Z")
_LONGEST_NAME = 16
_CHAR = "[A-Za-z0-9'’]"
_RUN = re.compile(rf"(?<!{_CHAR}){_CHAR}+(?:[-_+/]{_CHAR}+){{2,}}")
_JOIN = re.compile("[-_+/]")
_LEAST_LINKED, _LEAST = 3, 4  # words in an address, and of a sentence elsewhere
# Words without which joined words are no sentence, but a list, a name or a path.
_VERBS = frozenset(
    "always am are arent be been belong belongs can cannot cant deserve deserves do does doesnt "
    "dont had has have is isnt make makes must need needs never should shouldnt was were will wont "
    "would".split()
)


def has_encoding(text: str) -> bool:
    """Whether :func:`space_encoded` or :func:`decode_percents` may act (a fast check)."""
    if "%" in text and _CODES.search(text) is not None:
        return True
    return "+" in text and _QUERY.search(text) is not None


def has_link(text: str) -> bool:
    """Whether :func:`part_words` may find something (a fast check)."""
    if not ("/" in text or "+" in text or text.count("-") > 2 or text.count("_") > 2):
        return False
    return _RUN.search(text) is not None


def space_encoded(text: str, known: Known) -> Iterator[Edit]:
    """Set what an encoded space or a query's plus sign joins apart from the address around it."""
    for token in _TOKEN.finditer(text):
        start, end = token.span()
        spaces = [match.start() for match in _SPACE.finditer(text, start, end)]
        if "+" in token[0] and _QUERY.search(token[0]):
            plus = [match.start() for match in _PLUS.finditer(text, start, end)]
            yield from (Edit(at, at + 1, " ") for at in plus)
            spaces = sorted(spaces + plus)
        if spaces:
            yield from _drop_host(token)
            opens = max(text.rfind(sign, start, spaces[0]) for sign in _OPENS)
            closes = [at for sign in _CLOSES if (at := text.find(sign, spaces[-1], end - 1)) > 0]
            ends = (opens, min(closes, default=-1))
            for at in ends:
                if at >= 0 and not _in_host(token, at):
                    yield _replaced_delimiter(text, at)


def decode_percents(text: str, known: Known) -> Iterator[Edit]:
    """Decode percent-encoded characters of UTF-8; other bytes stay as they are."""
    for match in _CODES.finditer(text):
        at = match.start()
        raw = bytes.fromhex(match[0].replace("%", ""))
        for char in raw.decode(errors="surrogateescape"):
            end = at + 3 * len(char.encode(errors="surrogateescape"))
            if not "\udc80" <= char <= "\udcff":
                yield Edit(at, end, char)
            at = end


def part_words(text: str, known: Known) -> Iterator[Edit]:
    """Replace the signs that join words: in an address, and in a sentence elsewhere.

    An address loses its host: beside it the words would be judged as its continuation.
    """
    for token in _TOKEN.finditer(text):
        host = _host_range(token[0])
        for run in _RUN.finditer(text, token.start() + (host.stop if host else 0), token.end()):
            start, end = run.span()
            if host:
                words = [word for word in _JOIN.split(run[0]) if word.isalpha()]
                if sum(len(word) > 1 for word in words) < _LEAST_LINKED:
                    continue
                yield from _drop_host(token)
                if start > token.start() and text[start - 1] in _OPENS:
                    yield _replaced_delimiter(text, start - 1)
                if end < token.end() and text[end] in _CLOSES:
                    yield Edit(end, end + 1, " ")
            elif not _is_sentence(run[0].lower(), known):
                continue
            yield from (Edit(*sign.span(), " ") for sign in _JOIN.finditer(text, start, end))


def _replaced_delimiter(text: str, at: int) -> Edit:
    """Replace a delimiter, with the name of a query's value before it."""
    name = _NAME.search(text, max(0, at - _LONGEST_NAME), at + 1)
    return Edit(name.start() if name else at, at + 1, " ")


def _drop_host(token: re.Match[str]) -> Iterator[Edit]:
    """Drop the host of an address, with its scheme, unless words may be hidden in it."""
    host = _host_range(token[0])
    if host and _PLAIN.fullmatch(token[0], host.start, host.stop):
        yield Edit(token.start() + host.start, token.start() + host.stop, "")


def _in_host(token: re.Match[str], at: int) -> bool:
    host = _host_range(token[0])
    return host is not None and at < token.start() + host.stop


def _host_range(token: str) -> range | None:
    """Return where an address has its scheme and host, or a mailbox; None if it has none."""
    start = token.find("://")
    name = start + 3
    if start < 1:
        start = name = token.find("mailto:")
    if start < 0:
        start = name = token.find("www.")
    if start < 0 and (slash := token.find("/")) > 0 and "." in token[:slash]:
        start = name = slash
        while start and (token[start - 1].isalnum() or token[start - 1] in ".-"):
            start -= 1
    if start < 0:
        return None
    while start and token[start - 1].isalnum():
        start -= 1
    ends = (end for sign in "/?#" if (end := token.find(sign, name)) >= 0)
    return range(start, min(ends, default=len(token)))


def _is_sentence(run: str, known: Known) -> bool:
    words = _JOIN.split(run.replace("'", "").replace("’", ""))
    return (
        len(words) >= _LEAST
        and not _VERBS.isdisjoint(words)
        and all(is_word(word, known) for word in words)
    )
