r"""Decode JSON string escapes incrementally, so that the judge sees the characters they encode.

A tool's arguments are JSON: the tool reads ``\u0057omen`` as ``Women``. JSON nested in a JSON
string has escapes with more backslashes; a run of up to ``_DEPTH`` backslashes counts as one.
Everything else is left unchanged, so free text is decoded to itself.

The decoded text ("the reading") depends on the text alone, never on how it was chunked: an
incomplete escape is held back until it is complete. The held text is bounded.
"""

from __future__ import annotations

import re
from bisect import bisect_right

_DEPTH = 16  # backslashes before an escape: JSON in JSON, four times over
_RUN = rf"\\{{1,{_DEPTH}}}"
_HEX = "[0-9a-fA-F]"
_HIGH, _LOW = f"u([dD][89abAB]{_HEX}{{2}})", f"u([dD][c-fC-F]{_HEX}{{2}})"
_CODE = f"{_RUN}(?:{_HIGH}{_RUN}{_LOW}|u({_HEX}{{4}})"
_CODES = re.compile(f"{_CODE})")
_ALL = re.compile(rf'{_CODE}|(["/bfnrt]))|\\(\\)')
_LETTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
# A suffix that may be the beginning of an escape, or of a surrogate pair.
_BEGUN = re.compile(
    rf"{_RUN}(?:u(?:{_HEX}{{0,3}}|[dD][89abAB]{_HEX}{{2}}"
    rf"(?:{_RUN}(?:u(?:[dD](?:[c-fC-F]{_HEX}?)?)?)?)?))?\Z"
)
_LONGEST = 2 * (_DEPTH + 5)


class Escapes:
    r"""Decodes one channel and maps offsets of the reading to offsets of the text as sent.

    With ``letters`` all escapes of JSON strings are decoded, a pair of backslashes among them;
    otherwise only ``\\uXXXX``, because prose may hold a backslash before a letter. A lone surrogate
    is decoded to U+FFFD.

    >>> escapes = Escapes()
    >>> escapes.feed('"\\u005'), escapes.feed('7e\\n')
    ('"', 'We\n')
    >>> [escapes.sent(at) for at in range(5)]
    [0, 1, 7, 8, 10]
    """

    def __init__(self, *, letters: bool = True) -> None:
        self.letters = letters
        """Whether all escapes of JSON strings are decoded."""
        self.pending = ""
        """The end of the text fed so far, while it may be an incomplete escape."""
        self.read = 0
        """Characters of the reading so far; a caller that skips this class for text without
        escapes sets it."""
        # After each escape: the offset in the reading, and (offset in the text) - (this offset).
        self._after: list[int] = []
        self._further: list[int] = []
        self._behind = 0  # the same difference before the first of them

    def feed(self, text: str) -> str:
        """Add text as it was sent; return what it adds to the reading."""
        text, self.pending = self.pending + text, ""
        if "\\" not in text:
            self.read += len(text)
            return text
        begun = _BEGUN.search(text, max(0, len(text) - _LONGEST))
        if begun is not None:
            at = begun.start()
            # Backslashes before it are read in pairs, from the first one on.
            at -= (at - len(text[:at].rstrip("\\"))) % 2
            text, self.pending = text[:at], text[at:]
        return self._decode(text)

    def finish(self) -> str:
        """End the text: return what was held back."""
        text, self.pending = self.pending, ""
        return self._decode(text)

    def sent(self, at: int) -> int:
        """Return the offset in the text as sent of offset ``at`` of the reading."""
        behind = bisect_right(self._after, at) if self._after else 0
        return at + (self._further[behind - 1] if behind else self._behind)

    def skip(self, length: int) -> None:
        """Leave the next ``length`` characters as sent out of the reading.

        Raises ValueError after the first escape.
        """
        if self._further:
            raise ValueError("only the beginning of a text can be left out")
        self._behind += length

    def forget(self, before: int) -> None:
        """Drop the offsets before one of the reading; ``sent`` is not asked for them again."""
        behind = bisect_right(self._after, before) if self._after else 0
        if behind:
            self._behind = self._further[behind - 1]
            del self._after[:behind], self._further[:behind]

    def _decode(self, text: str) -> str:
        decoded: list[str] = []
        end = 0
        for escape in (_ALL if self.letters else _CODES).finditer(text):
            decoded += (text[end : escape.start()], _character(escape))
            self.read += escape.start() - end + 1
            end = escape.end()
            further = self._further[-1] if self._further else self._behind
            self._after.append(self.read)
            self._further.append(further + len(escape.group()) - 1)
        self.read += len(text) - end
        return "".join([*decoded, text[end:]])


def _character(escape: re.Match[str]) -> str:
    high, low, code, *letters = escape.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    if code:
        number = int(code, 16)
        return "\ufffd" if 0xD800 <= number < 0xE000 else chr(number)
    letter = letters[0] or letters[1]
    return _LETTERS.get(letter, letter)
