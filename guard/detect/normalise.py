"""Undoes disguises of words: look-alikes, invisible characters, spaced-out and misspelt letters.

Also normalises control characters, HTML's numbers of characters, addresses, Markdown, hashtags,
words written as one, and chat abbreviations.

Ordinary text is returned as the same string. Each character of the normalised text has its origin
in the original, so spans can be mapped back. An edit that ordinary text could also call for is only
made if it gives an English word: "w0men" becomes "women", but "mp3" and "A B C D" stay.
Why: docs/decisions/disguised-words.md.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, groupby
from typing import NamedTuple

from guard.detect.chat import (
    has_chat_words,
    has_marks,
    remove_marks,
    run_together,
    split_words,
    written_out,
)
from guard.detect.links import decode_percents, has_encoding, has_link, part_words, space_encoded
from guard.detect.lookalikes import (
    CYRILLIC,
    FAINT,
    GREEK,
    MARKS,
    RAISED,
    SMALL,
    STRUCK,
    STYLED,
    UNSEEN,
    class_ranges,
)
from guard.detect.script import is_latin
from guard.detect.spelling import (
    Edit,
    Known,
    is_word,
    join_letters,
    letters_apart,
    plain_letters,
    restore_letters,
    signs_or_runs,
    sure_word,
)
from guard.verdict import Span


class Normalised(NamedTuple):
    """A text and the origins of its characters.

    Character i comes from ``origins[i]`` of the original; ``origins`` is empty if nothing changed.
    The starts and the ends of the origins never decrease.
    """

    text: str
    origins: tuple[Span, ...] = ()

    def original(self, span: Span) -> Span:
        """Map a non-empty span to the original text."""
        if not self.origins:
            return span
        return Span(self.origins[span.start].start, self.origins[span.end - 1].end)


def undo_disguises(text: str, known: Known) -> Normalised:
    """Return ``text`` with its disguises undone; the same string if there are none.

    ``known``: whether a lower-case word is a whole token of an English encoder's vocabulary. The
    function is idempotent.
    """
    normalised = Normalised(text)
    while True:
        changed = normalised
        for stage in _stages_for(normalised.text):
            changed = apply_edits(changed, stage(changed.text, known))
        # It ends: each change leaves fewer non-ASCII characters, fewer characters, more letters or
        # more words.
        if changed.text == normalised.text:
            return normalised
        normalised = changed


Stage = Callable[[str, Known], Iterable[Edit]]


def apply_edits(before: Normalised, edits: Iterable[Edit]) -> Normalised:
    """Return a text with edits of it made; the same object if they change nothing."""
    text = before.text
    todo = sorted({e for e in edits if text[e.start : e.end] != e.text})
    if not todo:
        return before
    origins = before.origins or tuple(Span(i, i + 1) for i in range(len(text)))
    chars: list[str] = []
    places: list[Span] = []
    done = 0
    for start, end, new in todo:
        if start < done:  # it overlaps the one before; the text is read again
            continue
        chars += (text[done:start], new)
        places += origins[done:start]
        if len(new) == end - start:
            places += origins[start:end]
        else:
            places += [Span(origins[start].start, origins[end - 1].end)] * len(new)
        done = end
    chars.append(text[done:])
    places += origins[done:]
    return Normalised("".join(chars), tuple(places))


_L = "A-Za-z"
_STYLED, _RAISED, _SMALL = class_ranges(STYLED), class_ranges(RAISED), class_ranges(SMALL)
_STRONG = {**GREEK, **CYRILLIC}
_ANY = {**FAINT, **_STRONG}
_ALIKE = class_ranges(_ANY)
# All but ASCII, accented Latin, punctuation, currencies, arrows, signs and most emoji.
_ODD = re.compile(
    "[^\x00-\xac\xae-\u0250\u1e00-\u1eff\u2010-\u2027\u2030-\u205e\u20a0-\u20bf"
    "\u2122\u2190-\u245f\u2500-\u2fff\U0001f300-\U0001faff]"
)


def _stages_for(text: str) -> Iterator[Stage]:
    if has_encoding(text):
        yield from (space_encoded, decode_percents)
    if has_link(text):
        yield part_words
    if "&" in text:
        yield _write_entities
    if _CONTROL.search(text):
        yield _drop_controls
    if not text.isascii():
        yield from (_undo_overrides, _replace_boxed, _emoji_apart)
        if not _ODD.search(text):
            yield _part_symbols
    if not text.isascii() and _ODD.search(text):
        yield from (
            _drop_invisible,
            _drop_marks,
            _replace_styled,
            _replace_lookalikes,
            _part_symbols,
            join_letters,
            remove_marks,
            restore_letters,
        )
        yield from (split_words, written_out)
        return
    if letters_apart(text):
        yield join_letters
    if has_marks(text):
        yield remove_marks
    if signs_or_runs(text):
        yield restore_letters
    if run_together(text):
        yield split_words
    if has_chat_words(text):
        yield written_out


# Characters by number, and the named space. Other names are left: "&amp;" hides no word.
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|nbsp);")


def _write_entities(text: str, known: Known) -> Iterator[Edit]:
    """Write HTML's numbers of characters as the characters that a reader of the page sees."""
    for match in _ENTITY.finditer(text):
        yield Edit(*match.span(), html.unescape(match[0]))


# All control characters but tab and the common line ends.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_SPACING = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
_CHUNK = re.compile(r"\S+")
_AROUND = ".,;:!?\"'"


def _drop_controls(text: str, known: Known) -> Iterator[Edit]:
    """Drop control characters within a word; elsewhere they are spaces, which some of them are.

    The tokenizer drops them all, which makes one word of many.
    """
    for match in _SPACING.finditer(text):
        yield Edit(*match.span(), " ")
    for chunk in _CHUNK.finditer(text):
        if not _CONTROL.search(chunk[0]):
            continue
        whole = _CONTROL.sub("", chunk[0]).strip(_AROUND).lower()
        inside = "" if whole.isascii() and is_word(whole, known) else " "
        for match in _CONTROL.finditer(chunk[0]):
            at = chunk.start() + match.start()
            yield Edit(at, at + 1, inside)


# Inside a word it is only invisible.
_OVERRIDE = re.compile("(?<!\\w)\u202e([^\u202a-\u202e\n]*)\u202c?")


def _undo_overrides(text: str, known: Known) -> Iterator[Edit]:
    """Write what is displayed from right to left in the order in which it is read."""
    for match in _OVERRIDE.finditer(text):
        yield Edit(*match.span(), match[1][::-1])


_BOX = "\U0001f1e6-\U0001f1ff"
_BOXED = re.compile(f"[{_BOX}]+")


def _replace_boxed(text: str, known: Known) -> Iterator[Edit]:
    """Replace boxed letters; pairs of them side by side are flags, unless they are a word."""
    for match in _BOXED.finditer(text):
        word = "".join(chr(ord(c) - 0x1F1E6 + ord("A")) for c in match[0])
        if len(word) == 1 or (len(word) > 2 and is_word(word.lower(), known)):
            yield Edit(*match.span(), word)


_EMOJI = "\u2600-\u27bf\U0001f000-\U0001faff"
_THRICE_APART = re.compile(rf"(?<!\w)[{_L}]([{_EMOJI}]\ufe0f?)(?:[{_L}]\1){{2}}")


def _emoji_apart(text: str, known: Known) -> Iterator[Edit]:
    """Drop an emoji that stands between single letters of a word."""
    for emoji in {match[1] for match in _THRICE_APART.finditer(text)}:
        for match in re.finditer(rf"(?<=[\w\s]){emoji}(?=[\w\s])", text):
            yield Edit(*match.span(), "")


_SHORT = 3  # the letters of a longer word are no formula: a→b→c
_UNSEEN_CHAR = re.compile(f"[{UNSEEN}\ufe0f\u20e3]")


def _part_symbols(text: str, known: Known) -> Iterator[Edit]:
    """Replace symbols that touch a word by a space, or drop them if they split one.

    The tokenizer separates punctuation from words, but not symbols, and does not know a word with a
    symbol: "\u2192women" would be read as one unknown token. Units and formulas stay.
    """
    for chunk in _CHUNK.finditer(text):
        if chunk[0].isascii():
            continue
        symbols = list(_touching_symbols(chunk[0]))
        if not symbols:
            continue
        ends = [0, *chain(*symbols), len(chunk[0])]
        cuts = zip(ends[::2], ends[1::2], strict=True)
        parts = [part for i, j in cuts if (part := chunk[0][i:j].strip(_AROUND))]
        whole, longest = "".join(parts), max((sum(map(str.isalpha, p)) for p in parts), default=0)
        split = len(parts) > 1 and not all(len(p) > 1 and is_word(p.lower(), known) for p in parts)
        if split and len(whole) > _SHORT and whole.isalpha() and is_word(whole.lower(), known):
            between = ""
        elif longest > 1:
            between = " "
        else:
            continue
        for start, end in symbols:
            yield Edit(chunk.start() + start, chunk.start() + end, between)


def _touching_symbols(chunk: str) -> Iterator[tuple[int, int]]:
    """Yield where symbols that touch a letter begin and end.

    An invisible character counts only beside a symbol, as in many emoji.
    """
    start = 0
    for symbol, run in groupby(chunk, _is_symbol):
        end = start + sum(1 for _ in run)
        if symbol and not all(_UNSEEN_CHAR.match(c) for c in chunk[start:end]):
            sides = chunk[start - 1 : start] + chunk[end : end + 1]
            if any(c.isalpha() for c in sides):
                yield start, end
        start = end


def _is_symbol(char: str) -> bool:
    """Whether a character is neither letter, mark, space nor what the tokenizer separates."""
    if char <= "\x7f" or char.isalpha() or char.isspace():
        return False
    return unicodedata.category(char)[0] in "SNC" or bool(_UNSEEN_CHAR.match(char))


_UNSEEN = re.compile(f"[{UNSEEN}]+")
_EUROPEAN = re.compile(f"[{_L}0-9\u00c0-\u058f\u1d00-\u1fff{_STYLED}{_SMALL}]")


def _drop_invisible(text: str, known: Known) -> Iterator[Edit]:
    """Drop invisible characters inside and beside words of European scripts.

    In other scripts and in emoji these characters have a function.
    """
    for match in _UNSEEN.finditer(text):
        start, end = match.span()
        sides = text[start - 1 : start], text[end : end + 1]
        words = [bool(_EUROPEAN.match(s)) for s in sides]
        if any(words) and all(
            w or not s or s.isspace() or (s.isascii() and not s.isalnum())
            for w, s in zip(words, sides, strict=True)
        ):
            yield Edit(start, end, "")


_NOISE = re.compile(rf"[{_L}{_STYLED}{_ALIKE}](?:[{MARKS}]{{3,}}|[{MARKS}]*[{STRUCK}][{MARKS}]*)")
_MARKED = re.compile(rf"(?:[^\W\d_][{MARKS}]*)+")
_MARK = re.compile(f"([^{MARKS}])[{MARKS}]+")


def _drop_marks(text: str, known: Known) -> Iterator[Edit]:
    """Drop all marks of a word with more than two on a letter, or with a struck letter."""
    if not _NOISE.search(text):
        return
    for word in _MARKED.finditer(text):
        if _NOISE.search(word[0]):
            for match in _MARK.finditer(word[0]):
                at = word.start() + match.start()
                yield Edit(at, at + len(match[0]), match[1])


_FANCY = re.compile(f"[{_STYLED}]")
_FANCY_WORD = re.compile(f"(?<=[{_L}])[{_STYLED}]|[{_STYLED}](?=[{_L}{_STYLED}])|(?<=[{_STYLED}]).")
_SMALL_WORD = re.compile(rf"(?<!\w)[{_SMALL}xsqocvwz]+(?!\w)")
_RAISED_WORD = re.compile(f"[{_RAISED}]{{3,}}")
_MANY = 4


def _replace_styled(text: str, known: Known) -> Iterator[Edit]:
    """Replace letters of fancy alphabets, except single ones as in formulas, by plain ones."""
    many = len(_FANCY.findall(text)) >= _MANY
    for match in (_FANCY if many else _FANCY_WORD).finditer(text):
        if match[0] in STYLED:
            yield Edit(*match.span(), STYLED[match[0]])
    small = [m for m in _SMALL_WORD.finditer(text) if any(c in SMALL for c in m[0])]
    if any(sum(c in SMALL for c in m[0]) > 1 and len(m[0]) > 2 for m in small):
        for match in small:
            yield Edit(*match.span(), "".join(SMALL.get(c, c) for c in match[0]))
    for match in _RAISED_WORD.finditer(text):
        yield Edit(*match.span(), "".join(RAISED[c] for c in match[0]))


_WORD = re.compile(r"[^\W_]+")
_STRANGE = re.compile(f"[{_ALIKE}]")


def _replace_lookalikes(text: str, known: Known) -> Iterator[Edit]:
    """Convert words of mixed scripts to Latin; also words of look-alikes if all else is Latin."""
    if not _STRANGE.search(text):
        return
    own = sum(map(_is_latin, text))
    other = sum(c.isalpha() and not _is_latin(c) and c not in _STRONG for c in text)
    if other > own:
        return
    mixed: list[re.Match[str]] = []
    alone: list[re.Match[str]] = []
    for match in _WORD.finditer(text):
        strange = [c for c in match[0] if c.isalpha() and not _is_latin(c)]
        if strange and all(c in _ANY for c in strange):
            (mixed if any(map(_is_latin, match[0])) else alone).append(match)
    # Formulas and abbreviations mix Greek with Latin, and IPA does with both; Cyrillic never mixes.
    words = {m: "".join(_ANY.get(c, c) for c in m[0]) for m in (*mixed, *alone)}
    sure = any(sure_word(plain_letters(words[m]), known) and len(m[0]) > 2 for m in mixed)
    for match in mixed:
        if sure or all(c in CYRILLIC for c in match[0] if not _is_latin(c) and c.isalpha()):
            yield Edit(*match.span(), words[match])
    for match in [] if other or not own else alone:
        word, plain = match[0], words[match].lower()
        if len(word) == 1:
            convert = plain in ("a", "i") and (sure or word in CYRILLIC)
        else:
            convert = (len(word) > 2 or sure or word[0] in CYRILLIC) and is_word(plain, known)
        if convert:
            yield Edit(*match.span(), words[match])


def _is_latin(char: str) -> bool:
    return char.isalpha() and is_latin(char)
