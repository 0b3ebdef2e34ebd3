"""Characters that look like Latin letters, and invisible ones."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

_ASCII = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def _compatible_characters() -> dict[str, str]:
    """Return the characters that Unicode folds to an ASCII letter or digit, and similar ones."""
    table: dict[str, str] = {}
    for first, last in ((0x2102, 0x2134), (0x24B6, 0x24E9), (0xFF10, 0xFF5A), (0x1D400, 0x1D7FF)):
        for code in range(first, last + 1):
            plain = unicodedata.normalize("NFKC", chr(code))
            if plain in _ASCII or (len(plain) == 1 and plain.isascii() and plain.isdigit()):
                table[chr(code)] = plain
    for code in (0x249C, 0x1F110, 0x1F130, 0x1F150, 0x1F170):  # letters in brackets and boxes
        for i in range(26):
            table[chr(code + i)] = chr((97 if code < 0x3000 else 65) + i)
    # Greek among the mathematical letters looks as plain Greek does.
    for code in range(0x1D6A8, 0x1D7CC):
        plain = unicodedata.normalize("NFKC", chr(code))
        if plain in GREEK:
            table[chr(code)] = GREEK[plain]
    return table


def _lookalike_table(rows: str) -> dict[str, str]:
    """Return a table from rows of a plain letter and its look-alikes."""
    return {alike: row[0] for row in rows.split() for alike in row[1:]}


#: Cyrillic and Armenian letters that are drawn as Latin ones; the scripts never mix in a word.
CYRILLIC = _lookalike_table(
    "aа cс dԁ eе gց hһհ iі jјյ kк lӏ nո oоօ pр qԛզ sѕ uս vѵ wԝա xх yу "
    "AА BВ CС EЕ GԌ HН IІ JЈ KК LԼ MМ OОՕ PР QԚ SЅՏ TТ UՍ VѴ WԜ XХ YҮ"
)
#: Greek ones; formulas and names of genes mix them with Latin letters.
GREEK = _lookalike_table(
    "aα cϲ eε iι jϳ kκ oο pρ tτ uυ vν xχ yγ AΑ BΒ CϹ EΕ HΗ IΙ JͿ KΚ MΜ NΝ OΟ PΡ TΤ XΧ YΥ ZΖ"
)
#: Letters that only resemble one; they count only if they give an English word.
FAINT = _lookalike_table(
    "aɑДд bЬьвβ dժ eёєξ gɡ hнη iїɩ mм nпռи oσөθ rгяЯ sҫ tт uцμԱ wшщω yұү NИ UЦ WШЩ YУ"
)
#: The letters of Unicode's fancy alphabets.
STYLED = _compatible_characters()
#: Phonetic letters that look like small capitals.
SMALL = dict(zip("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnoprstuvwyz", strict=True))
SMALL["ǫ"] = "q"
#: Superscript letters; in phonetics they occur singly.
RAISED = {
    chr(code): plain
    for code in (*range(0x1D2C, 0x1D6B), *range(0x2B0, 0x2B9), 0x2E1, 0x2E2, 0x2E3, 0x2071, 0x207F)
    if (plain := unicodedata.normalize("NFKC", chr(code))) in _ASCII
}


def class_ranges(chars: Iterable[str]) -> str:
    """Return the inside of a regex character class with the non-ASCII ``chars``."""
    codes = sorted({ord(c) for c in chars})
    firsts = [c for c, before in zip(codes, [-1, *codes], strict=False) if c != before + 1]
    lasts = [c for c, after in zip(codes, [*codes[1:], -1], strict=True) if c != after - 1]
    return "".join(f"{chr(a)}-{chr(b)}" for a, b in zip(firsts, lasts, strict=True))


#: Inside of a character class: invisible characters (Default_Ignorable_Code_Point).
UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff"
)
#: Inside of a character class: combining marks of European scripts.
MARKS = "\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
#: Those of them that strike through or enclose a letter, which no language uses.
STRUCK = "\u0332-\u0338\u0305\u033f\u0347\u0488\u0489\u20d0-\u20df\u20e2\u20e4-\u20ff"
