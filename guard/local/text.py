"""From tokens to text that may go out: whole characters, nothing of a stop sequence."""

from __future__ import annotations

from typing import Any

_INCOMPLETE = "\ufffd"
# Tokens that may pass without ending at the end of a character. Text that is one has long ended by
# then; a model that says bytes that are none must not be decoded from the start again and again.
_PATIENCE = 16


class Detokenizer:
    """Decodes token by token.

    A token is decoded together with those of the piece before it, for a tokenizer may write a
    token differently where text begins; so the cost does not grow with what was said before.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._before: list[int] = []  # let out last
        self._open: list[int] = []  # not let out yet

    def add(self, token: int) -> str:
        """Return the text ``token`` completes; none while it ends inside a character."""
        self._open.append(token)
        text = self._new()
        if not text:
            self._open.pop()  # a token without text, such as a mark of the chat template
        elif not text.endswith(_INCOMPLETE) or len(self._open) >= _PATIENCE:
            self._before, self._open = self._open, []
            return text
        return ""

    def rest(self) -> str:
        """Return what is left at the end of an answer."""
        text = self._new() if self._open else ""
        self._before, self._open = [], []
        return text

    def _new(self) -> str:
        return self._decode([*self._before, *self._open])[len(self._decode(self._before)) :]

    def _decode(self, tokens: list[int]) -> str:
        text = self._tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        assert isinstance(text, str)
        return text


class Stops:
    """Holds back what may be the beginning of a stop sequence, and cuts at the first whole one."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self.hit = False
        self._stops = stops
        self._held = ""

    def feed(self, text: str) -> str:
        """Return what may go out; after a stop sequence was met (``hit``), nothing more."""
        if self.hit:
            return ""
        self._held += text
        found = [(at + len(stop), at) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.hit = True
            # The one that was complete first, so that it does not matter how the text was cut.
            out, self._held = self._held[: min(found)[1]], ""
            return out
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        out, self._held = self._held[:cut], self._held[cut:]
        return out

    def rest(self) -> str:
        """Return what is held: the answer ended and it was no stop sequence after all."""
        out, self._held = self._held, ""
        return out


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of ``text`` that begins ``stop``."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if stop.startswith(text[-n:])), 0)
