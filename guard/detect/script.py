"""Whether a text is in a script the encoder has learned, and whether it says anything at all."""

from __future__ import annotations

# Marks that stand in sentences and never for a letter.
_PUNCTUATION = frozenset(".,;:?…'\"“”‘’«»¿。？｡．、，；：")
# Others; several of them can draw a word: "|-|", "@!!".
_SIGNS = frozenset("!¡！#%&()*+-/<=>@[\\]^_`{|}~$–—―•·")


def wordless(text: str) -> bool:
    """Whether a text cannot hold a word, in whatever disguise, so that nobody need judge it.

    That is one of white space and punctuation, with at most one kind of another sign: a word takes
    several. Digits, emoji and letters of any script may say something.
    """
    rest = {char for char in set(text) - _PUNCTUATION if not char.isspace()}
    return len(rest) <= 1 and rest <= _SIGNS


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
