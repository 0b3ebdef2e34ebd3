"""Detect an answer that repeats the released text before it continues."""

from __future__ import annotations

_MORE = 64  # extra white space that a repeat may have, beside twice the released text's length


class Restart:
    """Compares the beginning of a growing text with ``released``, ignoring white space and case.

    The text is held while it may be a repeat: at most 2 * len(released) + 64 characters. A single
    word is no repeat: many sentences begin with the same word.
    """

    def __init__(self, released: str) -> None:
        words = released.split()
        self._released = "".join(words).casefold()
        self._spaced = released[-1:].isspace()
        self._parted = False  # whether white space followed the repeat
        self._most = 2 * len(released) + _MORE
        self._held: list[str] = []
        self._length = 0
        self._at = 0  # characters of the released text that were repeated
        self.over = len(words) < 2
        """Whether the comparison is over; nothing is held then."""

    def feed(self, text: str) -> tuple[int, str]:
        """Return the length of the repeat and the text after it; (0, "") while undecided."""
        for number, character in enumerate(text):
            if self._at == len(self._released):
                if self._spaced and character.isspace() and self._length + number < self._most:
                    self._parted = True
                    continue  # the released text ended with a space, too
                # If the last word continues, it is another word.
                continues = (
                    character.isalnum() and self._released[-1].isalnum() and not self._parted
                )
                return self._decide(text, 0 if continues else self._length + number)
            folded = character.casefold()
            if character.isspace() and self._length + number < self._most:
                continue
            if not self._released.startswith(folded, self._at):
                return self._decide(text, 0)
            self._at += len(folded)
        self._held.append(text)
        self._length += len(text)
        return 0, ""

    def finish(self) -> tuple[int, str]:
        """End the text; return the same as ``feed``."""
        return self._decide("", self._length if self._at == len(self._released) else 0)

    def _decide(self, text: str, repeated: int) -> tuple[int, str]:
        whole = "".join([*self._held, text])
        self._held.clear()
        self._length = 0
        self.over = True
        return repeated, whole[repeated:]
