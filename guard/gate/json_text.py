"""Read JSON while it arrives: its keys and strings are texts, and all else of it is structure.

A text is read as JSON from a ``{`` or ``[`` on that begins it or a line, if a string comes before
anything that is no JSON, until it is none. Several documents may follow each other, as in JSON
lines. What stands between strings (brackets, commas, numbers, ``true``) says nothing that could be
judged; it goes out with what is before it. A string is judged with its keys, and what is put in its
place stays inside its quotation marks.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from guard.gate.escapes import Escapes

Kind = Literal["prose", "structure", "key", "value"]

_SPACE = " \t\r\n"
_INSIDE = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_WORDS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")
_SCALAR = re.compile(rf"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?|{'|'.join(_WORDS)}")
_SCALAR_BEGUN = re.compile(r"-?(?:(?:0|[1-9]\d*)(?:\.\d*)?(?:[eE][-+]?\d*)?)?")
_ZERO = ("0", "-0")  # no digit may follow it
# What is deeper is no JSON that a parser reads; it is judged as prose.
_DEEPEST = 10_000
LONGEST_PATH = 80


class Label(NamedTuple):
    """The key that a string is judged with, the keys around it, and its offset as sent."""

    key: str
    around: str
    sent: int

    @property
    def path(self) -> str:
        """The keys, the outermost first."""
        return f"{self.around} {self.key}".strip()


_NO_LABEL = Label("", "", 0)


class JsonPiece(NamedTuple):
    """A part of the reading.

    ``ends``: whether a key or a string ends with it. ``label`` is that of the key or the string.
    """

    kind: Kind
    text: str
    ends: bool = False
    label: Label = _NO_LABEL


class JsonReader:
    r"""Splits the text of one channel into pieces, and decodes it.

    ``after`` is an earlier answer's text that this one continues. Of a label's keys it keeps the
    last ``longest`` characters.

    >>> pieces = JsonReader(Escapes(letters=False)).feed('{"a": "so\\u0021"}')
    >>> [(piece.kind, piece.text, piece.label.path) for piece in pieces][2:5]
    [('key', 'a', 'a'), ('structure', '": "', ''), ('value', 'so!', 'a')]
    """

    def __init__(self, escapes: Escapes, *, after: str = "", longest: int = LONGEST_PATH) -> None:
        self.escapes = escapes
        self.over = False
        """Whether the text turned out to be no JSON, or no more; the end of it is ``rest``."""
        self.rest = ""
        self._label = _NO_LABEL  # of the string that is open, or was last
        self.string: Literal["key", "value"] | None = None
        """What the text is inside of."""
        self._longest = longest
        self._letters = escapes.letters
        self._known = False  # whether it is read as JSON: a first string has begun
        self._escaped = False  # whether the last character was a backslash
        self._closes = False  # whether the next character closes a string
        self._expects = "document"
        self._scalar = ""
        self._open: list[tuple[str, Label]] = []  # containers, with the label of what is in them
        if after:
            self._resume(after)

    def _resume(self, after: str) -> None:
        """Read an earlier answer, from whose end on offsets count."""
        escapes, self.escapes = self.escapes, Escapes(letters=self._letters)
        self.feed(after)
        self._label = self._label._replace(sent=0)
        self._open = [(mark, label._replace(sent=0)) for mark, label in self._open]
        self.escapes = escapes
        escapes.letters = self._letters or self._known

    def feed(self, text: str) -> list[JsonPiece]:
        """Add text as it was sent; read no further than JSON goes."""
        pieces: list[JsonPiece] = []
        at = 0
        while at < len(text) and not self.over:
            if self.string is not None:
                at = self._inside(text, at, pieces)
            else:
                at = self._between(text, at, pieces)
        self.rest = text[at:]
        return pieces

    @property
    def is_whole(self) -> bool:
        """Whether a document is complete, and no other has begun."""
        return not self._open

    def _inside(self, text: str, at: int, pieces: list[JsonPiece]) -> int:
        """Read on inside of a string; return the offset of its closing mark."""
        kind = self.string
        assert kind is not None
        begin = at
        if self._escaped:
            at += 1
            self._escaped = False
        match = _INSIDE.match(text, at)
        assert match is not None
        at = match.end()
        ends = at < len(text) and text[at] == '"'
        if not ends and at < len(text):  # a backslash whose character has not come
            self._escaped = True
            at = len(text)
        if kind == "key" and self._label.sent < 0:
            self._label = self._label._replace(sent=self.escapes.sent(self.escapes.read))
        reading = self.escapes.feed(text[begin:at])
        if ends:
            reading += self.escapes.finish()
            self.string = None
            self._closes = True
        if kind == "key":
            key = (self._label.key + reading)[-self._longest :]
            self._label = self._label._replace(key=key)
            if ends:
                room = self._longest - len(key) - 1
                around = self._label.around[-room:] if room > 0 else ""
                self._label = self._label._replace(around=around)
                self._expects = "colon"
        elif ends:
            self._expects = "comma"
        if reading or ends:
            pieces.append(JsonPiece(kind, reading, ends, self._label))
        return at

    def _between(self, text: str, at: int, pieces: list[JsonPiece]) -> int:
        """Read up to the opening mark of the next string, or to where JSON ends."""
        begin = at
        if self._closes:
            self._closes = False
            at += 1
        while at < len(text):
            character = text[at]
            if not self._follows(character):
                self.over = True
                self.escapes.letters = self._letters
                break
            at += 1
            if self.string is not None:
                break
        if not self._known:
            before = at - (self.string is not None)
            if before > begin:
                pieces.append(JsonPiece("prose", self.escapes.feed(text[begin:before])))
                begin = before
            self._known = self.string is not None
            self.escapes.letters = self.escapes.letters or self._known
        if at > begin:
            pieces.append(JsonPiece("structure", self.escapes.feed(text[begin:at])))
        return at

    def _follows(self, character: str) -> bool:
        """Whether a character may follow; note what it means."""
        if self._scalar or character in "-0123456789tfnNI":
            if character.isascii() and (character.isalnum() or character in "+-."):
                return self._begun(self._scalar + character)
            if _SCALAR.fullmatch(self._scalar) is None:
                return False
            self._scalar = ""
            self._expects = "comma"
        if character in _SPACE or (character == "\ufeff" and not self._known):
            return True
        expects = self._expects
        if character == '"':
            return self._quoted(expects)
        if character in "{[":
            return self._opened(character, expects)
        if character in "}]":
            return self._closed(character, expects)
        if character == ":" and expects == "colon":
            self._expects = "value"
            return True
        if character == "," and expects == "comma" and self._open:
            self._expects = "key" if self._open[-1][0] == "}" else "value"
            if self._expects == "value":
                self._label = self._open[-1][1]
            return True
        return False

    def _begun(self, scalar: str) -> bool:
        if self._expects not in ("value", "value or end"):
            return False
        if scalar[-1].isdigit() and scalar[-2:-1].isdigit() and scalar[:-1] not in _ZERO:
            return True  # one digit stands for all: a number may be long
        self._scalar = scalar
        words = any(word.startswith(scalar) for word in _WORDS)
        return words or _SCALAR_BEGUN.fullmatch(scalar) is not None

    def _quoted(self, expects: str) -> bool:
        if expects in ("key", "key or end"):
            self.string = "key"
            self._label = Label("", self._open[-1][1].path[-self._longest :], -1)
            return True
        if expects in ("value", "value or end"):
            self.string = "value"
            return True
        return False

    def _opened(self, character: str, expects: str) -> bool:
        if expects == "document" or (expects == "comma" and not self._open):
            self._label = _NO_LABEL
        elif expects not in ("value", "value or end"):
            return False
        self._open.append(("}" if character == "{" else "]", self._label))
        self._expects = "key or end" if character == "{" else "value or end"
        return len(self._open) <= _DEEPEST

    def _closed(self, character: str, expects: str) -> bool:
        if not self._open or self._open[-1][0] != character:
            return False
        if expects not in ("comma", "key or end" if character == "}" else "value or end"):
            return False
        self._open.pop()
        self._expects = "comma"
        return True
