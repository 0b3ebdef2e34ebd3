"""Whether a text is in the encoder's script, and whether it can contain a word at all.

Why: docs/how-text-is-read.md.
"""

from __future__ import annotations

# Punctuation that never replaces a letter.
_PUNCTUATION = frozenset(".,;:?…'\"“”‘’«»¿。？｡．、，；：")
# Other signs; several of them can draw a word: "|-|", "@!!".
_SIGNS = frozenset("!¡！#%&()*+-/<=>@[\\]^_`{|}~$–—―•·")


def has_no_word(text: str) -> bool:
    """Whether a text cannot contain a word, even disguised, so that it need not be judged.

    Such a text has white space, punctuation and at most one kind of other sign only: a disguised
    word needs several. Digits, emoji and letters of any script may be words.
    """
    rest = {char for char in set(text) - _PUNCTUATION if not char.isspace()}
    return len(rest) <= 1 and rest <= _SIGNS


def mostly_latin(text: str) -> bool:
    """Whether at least half of the letters are Latin; true for a text without letters.

    Latin letters are those up to U+024F, U+1E00 to U+1EFF, and the full-width forms.
    """
    letters = [char for char in text if char.isalpha()]
    return 2 * sum(map(_is_latin_letter, letters)) >= len(letters)


def latin_part(text: str) -> str:
    """Return a text of the same length, with a space for each letter of another script."""
    return "".join(" " if c.isalpha() and not _is_latin_letter(c) else c for c in text)


def is_latin(char: str) -> bool:
    """Whether a character is in the blocks of Latin letters, without the full-width forms."""
    return char < "\u0250" or "\u1e00" <= char <= "\u1eff"


def _is_latin_letter(letter: str) -> bool:
    return is_latin(letter) or "\uff21" <= letter <= "\uff5a"
