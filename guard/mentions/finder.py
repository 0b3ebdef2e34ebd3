"""Finds the first mention of a group in a growing text, and up to where none can begin.

Why: docs/decisions/hold-what-may-name-a-group.md.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from guard.mentions.lexicon import Lexicon, fold_word

# All characters but ASCII, accented Latin, punctuation, currencies, arrows, signs and most emoji:
# other scripts, look-alikes and invisible ones. A word with one may be a disguise of any word.
_ODD = (
    "[^\x00-\xac\xae-\u0250\u1e00-\u1eff\u2010-\u2027\u2030-\u205e\u20a0-\u20bf"
    "\u2122\u2190-\u245f\u2500-\u27ff\u2900-\u2fff\U0001f300-\U0001faff]"
)
# Modifiers of an emoji disguise nothing.
_SHAPES = "(?<![\u2190-\u27ff\u2900-\u2bff\U0001f300-\U0001faff\u200d\ufe0f])"
_ODD_CHAR = re.compile(f"{_SHAPES}{_ODD}|(?!\ufe0f|\u200d){_ODD}")
_CHAR = r"[^\W_]|[@$]|!(?=[^\W_])"
_WORD_ASCII = re.compile(rf"(?:{_CHAR})+")
_WORD = re.compile(rf"(?:{_CHAR}|{_ODD_CHAR.pattern})+")
# Separators between the words of one name, and between letters of a spaced-out word.
_LINK = re.compile(r"[ \t\u00a0*_'’“”\"]{0,4}(?:[-/\n][ \t\u00a0*_'’“”\"]{0,4})?")
_APART = re.compile(r"[ \u00a0!]{0,5}|[._*~|·•-]")
_LETTERS_APART = 4  # this many single letters in a row may spell a word
_LONGEST_CHAIN = 6
_LONGEST_WORD = 40  # a longer word that could still be a mention counts as one


class _Looked(NamedTuple):
    """Where the first mention begins, if one was found, and up to where none can begin."""

    found: int | None
    clear: int
    inside: bool = False  # whether the text ends inside a word that is not a mention


class _Link(NamedTuple):
    """A word that may begin a mention."""

    start: int
    folded: str
    opener: bool


class _Chain:
    """The latest words that may begin a mention, and single letters that may spell one."""

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon
        self._words: list[_Link] = []
        self._letters: list[int] = []

    def add_gap(self, gap: str) -> None:
        """Add the text between two words."""
        if self._words and not _LINK.fullmatch(gap):
            self._words.clear()
        if self._letters and not _APART.fullmatch(gap):
            self._letters.clear()

    def begins(self, at: int, *, letter: bool) -> int:
        """Return where a mention begins that continues at ``at``, with a ``letter`` or a word."""
        starts = [at, *(link.start for link in self._words[:1])]
        return min(starts + self._letters[:1]) if letter else min(starts)

    def take(self, start: int, word: str, *, pronouns: bool) -> int | None:
        """Add a whole word; return where a mention begins if the word completes one."""
        kinds = self._lexicon.kinds(word)
        words = self._words
        if kinds or words:
            folded = fold_word(word)
            goes_on = "opener" in kinds
            for i in range(len(words) + 1):
                name = (*(link.folded for link in words[i:]), folded)
                if self._lexicon.is_name(name):
                    return self._name_start(i, words[i].start if i < len(words) else start)
                goes_on = goes_on or self._lexicon.begins_name(name)
            named = "name" in kinds or (pronouns and "pronoun" in kinds)
            if named or ("bearer" in kinds and words and words[-1].opener):
                return self._name_start(len(words), start)
            # The beginning of a word with a "!" in it is too uncertain to begin a name.
            link = _Link(start, folded, "opener" in kinds)
            goes_on = goes_on and "!" not in word
            self._words = [*words[1 - _LONGEST_CHAIN :], link] if goes_on else []
        if len(word) > 1:
            self._letters.clear()
            return None
        self._letters.append(start)
        return self._letters[0] if len(self._letters) == _LETTERS_APART else None

    def _name_start(self, at: int, start: int) -> int:
        """Return where a name begins whose first word is link ``at``, its openers included."""
        while at and self._words[at - 1].opener:
            at -= 1
            start = self._words[at].start
        return start


def _look_for_name(
    text: str, at: int, lexicon: Lexicon, *, pronouns: bool, inside: bool, final: bool
) -> _Looked:
    """Search ``text`` from ``at``; without ``final`` more of it may come."""
    pattern = _WORD_ASCII if text.isascii() else _WORD
    size = len(text)
    # A final "!" may be a letter of its word; the next character decides.
    known = size if final or not text.endswith("!") else size - 1
    if inside and (word := pattern.match(text, at)):
        mark = text.find("!", at, word.end())
        end = word.end() if mark < 0 else mark  # a new word may begin after a "!"
        if odd := None if text.isascii() else _ODD_CHAR.search(text, at, end):
            return _Looked(odd.start(), odd.start())
        at = end
        if at >= known:
            return _Looked(None, at, inside=True)
    elif inside and at >= known:
        return _Looked(None, at, inside=True)
    chain = _Chain(lexicon)
    done = at
    for match in pattern.finditer(text, at):
        start, end = match.span()
        chain.add_gap(text[done:start])
        word_ = match[0]
        odd = None if word_.isascii() else _ODD_CHAR.search(text, start, end)
        if odd or len(word_) > _LONGEST_WORD:
            # It counts as a mention if its beginning could be one.
            stop = min(end, start + _LONGEST_WORD, odd.start() if odd else end)
            alive = _first_possible(text, start, stop, lexicon, pronouns=pronouns)
            if odd or alive < stop:
                begin = chain.begins(start, letter=stop < start + 2) if alive == start else alive
                begin = odd.start() if odd and alive == stop else begin
                return _Looked(begin, begin)
        if end >= known and not final:
            alive = _first_possible(text, start, end, lexicon, pronouns=pronouns)
            if alive > start and end < size:
                alive = min(alive, _first_possible(text, start, size, lexicon, pronouns=pronouns))
            if alive >= end:
                return _Looked(None, end, inside=True)
            if alive > start:
                return _Looked(None, alive)
            return _Looked(None, chain.begins(start, letter=len(word_) == 1))
        begins = chain.take(start, word_, pronouns=pronouns)
        if begins is None and "!" in word_[1:]:
            begins = _behind_mark(start, word_, lexicon, pronouns=pronouns)
        if begins is not None:
            return _Looked(begins, begins)
        done = end
    if final:
        return _Looked(None, size)
    chain.add_gap(text[done:known])
    return _Looked(None, chain.begins(known, letter=True))


def _first_possible(text: str, start: int, stop: int, lexicon: Lexicon, *, pronouns: bool) -> int:
    """Return where a mention could begin in a partial word: ``start``, a "!", or else ``stop``."""
    at = start
    while 0 <= at < stop:
        if stop < at + 2 or lexicon.may_begin(text[at:stop], pronouns=pronouns):
            return at
        at = text.find("!", at + 1, stop)
    return stop


def _behind_mark(start: int, word: str, lexicon: Lexicon, *, pronouns: bool) -> int | None:
    """Return where a mention begins right after a "!" inside ``word``, as in "so!women"."""
    for mark in re.finditer("!", word[1:]):
        kinds = lexicon.kinds(word[1 + mark.start() :])
        if "name" in kinds or (pronouns and "pronoun" in kinds):
            return start + 1 + mark.start()
    return None


class Finder:
    """Finds the first mention of a group in a growing text; offsets are characters of it.

    ``found`` is where it begins; None until there is one. ``clear`` is the offset up to which no
    mention can begin, whatever follows; the text after it is the longest suffix that could begin
    one. Memory and the cost of a feed are bounded by the longest name.
    """

    def __init__(self, lexicon: Lexicon, *, pronouns: bool) -> None:
        self.found: int | None = None
        self.clear = 0
        self._lexicon = lexicon
        self._pronouns = pronouns
        self._text = ""  # the character before `clear`, if any, and the text after it
        self._inside = False

    def feed(self, text: str) -> None:
        """Add ``text``."""
        if self.found is not None:
            return
        at = 1 if self.clear else 0
        self._text += text
        looked = _look_for_name(
            self._text,
            at,
            self._lexicon,
            pronouns=self._pronouns,
            inside=self._inside,
            final=False,
        )
        self._inside = looked.inside
        clear = self.clear + looked.clear - at
        self._text = self._text[max(0, looked.clear - 1) :]
        self.clear = clear
        if looked.found is not None:
            self.found = clear


def first_mention(text: str, lexicon: Lexicon, *, pronouns: bool) -> int | None:
    """Return where the first mention of a group in a whole text begins; None if there is none."""
    return _look_for_name(text, 0, lexicon, pronouns=pronouns, inside=False, final=True).found
