"""Whether an answer that goes on begins by saying again what was let out before it."""

from __future__ import annotations

_MORE = 64  # white space that a repeat may have more than what it repeats, beside as much again


class Restart:
    """Compares the beginning of a growing text with ``said``, but for white space and case.

    What comes is held while it may be the repeat; no more than twice ``said`` and a little. A
    single word counts as none: many a sentence begins with the same.
    """

    def __init__(self, said: str) -> None:
        words = said.split()
        self._said = "".join(words).casefold()
        self._spaced = said[-1:].isspace()
        self._parted = False  # whether white space came behind the repeat
        self._most = 2 * len(said) + _MORE
        self._held: list[str] = []
        self._length = 0
        self._at = 0  # how much of what was said has come again
        self.over = len(words) < 2
        """Whether it is known; nothing is held then."""

    def feed(self, text: str) -> tuple[int, str]:
        """Return how many characters were a repeat, and the text that goes on."""
        for number, character in enumerate(text):
            if self._at == len(self._said):
                if self._spaced and character.isspace() and self._length + number < self._most:
                    self._parted = True
                    continue  # a space was let out, too
                # A word that goes on is another word.
                goes_on = character.isalnum() and self._said[-1].isalnum() and not self._parted
                again = 0 if goes_on else self._length + number
                return self._known(text, again)
            folded = character.casefold()
            if character.isspace() and self._length + number < self._most:
                continue
            if not self._said.startswith(folded, self._at):
                return self._known(text, 0)
            self._at += len(folded)
        self._held.append(text)
        self._length += len(text)
        return 0, ""

    def finish(self) -> tuple[int, str]:
        """Return the same at the end of the text."""
        return self._known("", self._length if self._at == len(self._said) else 0)

    def _known(self, text: str, again: int) -> tuple[int, str]:
        whole = "".join([*self._held, text])
        self._held.clear()
        self._length = 0
        self.over = True
        return again, whole[again:]
