"""Whether a text is in a script the encoder has learned."""

from __future__ import annotations


def mostly_latin(text: str) -> bool:
    """Whether at least half of the letters are Latin; true for a text without letters.

    Latin letters are those up to U+024F, U+1E00 to U+1EFF, and the full-width forms.
    """
    latin = letters = 0
    for char in text:
        if char.isalpha():
            letters += 1
            code = ord(char)
            latin += code < 0x250 or 0x1E00 <= code <= 0x1EFF or 0xFF21 <= code <= 0xFF5A
    return 2 * latin >= letters
