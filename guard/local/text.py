"""Turns tokens into text: whole characters only, and nothing of a stop sequence."""

from __future__ import annotations

from typing import Any

_INCOMPLETE = "\ufffd"
# The most tokens that are held because they end inside a character. Valid text needs fewer; without
# a bound, invalid bytes would be decoded again and again.
_PATIENCE = 16


class Detokenizer:
    """Decodes token by token.

    A token is decoded together with those of the piece before it, because a tokenizer may decode a
    token differently at the beginning of a text. The cost does not grow with the answer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._before: list[int] = []  # tokens of the last piece returned
        self._open: list[int] = []  # tokens not returned yet

    def add(self, token: int) -> str:
        """Return the text that ``token`` completes; "" while it ends inside a character."""
        self._open.append(token)
        text = self._new_text()
        if not text:
            self._open.pop()  # a token without text, such as a mark of the chat template
        elif not text.endswith(_INCOMPLETE) or len(self._open) >= _PATIENCE:
            self._before, self._open = self._open, []
            return text
        return ""

    def rest(self) -> str:
        """Return the rest at the end of an answer."""
        text = self._new_text() if self._open else ""
        self._before, self._open = [], []
        return text

    def _new_text(self) -> str:
        return self._decode_tokens([*self._before, *self._open])[
            len(self._decode_tokens(self._before)) :
        ]

    def _decode_tokens(self, tokens: list[int]) -> str:
        text = self._tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        assert isinstance(text, str)
        return text


class Stops:
    """Holds back a possible beginning of a stop sequence, and cuts at the first complete one."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self.hit = False
        self._stops = stops
        self._held = ""

    def feed(self, text: str) -> str:
        """Return the text that may go out; after a stop sequence (``hit``), nothing more."""
        if self.hit:
            return ""
        self._held += text
        stops = [(at + len(stop), at) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if stops:
            self.hit = True
            # The one that ends first, so that the result does not depend on the chunks.
            out, self._held = self._held[: min(stops)[1]], ""
            return out
        cut = len(self._held) - max(
            (_overlap_length(self._held, s) for s in self._stops), default=0
        )
        out, self._held = self._held[:cut], self._held[cut:]
        return out

    def rest(self) -> str:
        """Return the held text at the end of the answer: it was no stop sequence."""
        out, self._held = self._held, ""
        return out


def _overlap_length(text: str, stop: str) -> int:
    """Return the length of the longest suffix of ``text`` that is a prefix of ``stop``."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if stop.startswith(text[-n:])), 0)
