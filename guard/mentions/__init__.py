"""Finds the first mention of a social group in a growing text.

It is fast and favours recall: a mention is held until a detector has judged it, so a false
positive costs a short delay, but a false negative lets text out unjudged.
"""

from guard.mentions.finder import Finder, first_mention
from guard.mentions.lexicon import Lexicon, fold_word, shipped_lexicon

__all__ = ["Finder", "Lexicon", "first_mention", "fold_word", "shipped_lexicon"]
