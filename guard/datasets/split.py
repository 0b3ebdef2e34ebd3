"""Which texts of a published set training may see: by a hash of the words, which never moves."""

from __future__ import annotations

import hashlib
import re

# The rest of BOLD's encyclopaedic text measures false positives and is never trained on.
BOLD_SHARE = 0.2
_WORDS = re.compile(r"\w+")


def fold(text: str) -> str:
    """Return ``text`` without case and punctuation: two texts are one if their folds are equal."""
    return " ".join(_WORDS.findall(text.casefold()))


def share(text: str, salt: str = "") -> float:
    """Return a number in [0, 1) fixed by the folded text, for splits that never move."""
    digest = hashlib.sha256(f"{salt}|{fold(text)}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / float(1 << 48)


def in_bold_share(text: str) -> bool:
    """Whether a BOLD sentence belongs to the part that training may see."""
    return share(text, "bold") < BOLD_SHARE
