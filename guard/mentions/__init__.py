"""Finds where a text that is still arriving begins to name a social group.

Fast and inclusive rather than exact: what it finds is held until a detector has judged it, so a
word too many costs a moment and a word too few costs the hold.
"""

from guard.mentions.finder import Finder, first_mention
from guard.mentions.lexicon import Lexicon, lexicon

__all__ = ["Finder", "Lexicon", "first_mention", "lexicon"]
