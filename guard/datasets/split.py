"""The part of a published set that training may use, by a hash of the words."""

from __future__ import annotations

import hashlib
import re

# The rest of BOLD's encyclopaedic text measures false positives and is never trained on.
BOLD_SHARE = 0.2
_WORDS = re.compile(r"\w+")


def fold(text: str) -> str:
    """Return ``text`` without case and punctuation; texts with equal folds are the same."""
    return " ".join(_WORDS.findall(text.casefold()))


def share(text: str, salt: str = "") -> float:
    """Return a number in [0, 1) that depends only on the folded text, for stable splits."""
    digest = hashlib.sha256(f"{salt}|{fold(text)}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / float(1 << 48)


def in_bold_share(text: str) -> bool:
    """Whether a BOLD sentence belongs to the part that training may use."""
    return share(text, "bold") < BOLD_SHARE
