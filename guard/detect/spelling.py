"""English words whose letters are spaced out, replaced by digits or signs, or repeated.

Only readings that are words count. Short strings may be words by chance, so the vocabulary decides
for words of four letters and more only; shorter ones must be listed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product
from typing import NamedTuple

import numpy as np

from guard.detect.words import ENGLISH

#: Whether a lower-case word is a whole token of an English encoder's vocabulary.
Known = Callable[[str], bool]


class Edit(NamedTuple):
    """A replacement of a range; characters map one to one if the lengths are equal."""

    start: int
    end: int
    text: str


_L = "A-Za-z"
_SIGNS = "013457@$"
_LEET = re.compile(rf"[{_SIGNS}](?:(?<=[{_L}].)|(?=[{_L}]))|!(?=[{_L}])")
_SEPARATORS = r" \u00a0._*~|·•-"
_UNIT = f"[{_L}{_SIGNS}!]"
_SPLIT = re.compile(rf"[{_SEPARATORS}]{_UNIT}[{_SEPARATORS}]{_UNIT}[{_SEPARATORS}]")


def letters_apart(text: str) -> bool:
    """Whether :func:`join_letters` may find something (a fast check)."""
    return _SPLIT.search(text) is not None


def signs_or_runs(text: str) -> bool:
    """Whether :func:`restore_letters` may find something (a fast check)."""
    return _LEET.search(text) is not None or _has_triple(text)


def _has_triple(text: str) -> bool:
    """Whether a letter occurs three times in a row; five times as fast as a regular expression."""
    codes = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
    same = codes[1:] == codes[:-1]
    same = same[1:] & same[:-1]
    return bool(same.any()) and bool((codes[2:][same] >= ord("A")).any())


_APART = re.compile(
    rf"(?<![\w@$'’&.+-]){_UNIT}(?:[ \u00a0]{{1,3}}{_UNIT}){{3,}}(?![\w@$'’&+-])"
    rf"|(?<![\w@$'’&.*~|·•+-]){_UNIT}([._*~|·•-]){_UNIT}(?:\1{_UNIT}){{2,}}(?![\w@$'’&])"
)
_GAP = re.compile(r"\s{2,}")
_LONG, _LONGEST = 4, 16  # letters of words for which the vocabulary decides
_NEVER = 1 << 30  # more than any words cost


def join_letters(text: str, known: Known) -> Iterator[Edit]:
    """Join runs of single letters that spell words."""
    for match in _APART.finditer(text):
        run, sign = match[0], match[1]
        letters = sum(map(str.isalpha, run))
        # Acronyms are written with full stops: "U.S.S.R."
        if letters < 3 or (sign == "." and run.isupper() and letters < _LONG + 2):
            continue
        words = list(_word_places(run, sign or ""))
        readings = [_spelt_words([run[i] for i in word], known) for word in words]
        spelt = [piece for pieces in readings for piece in pieces]
        if not spelt or max(map(len, spelt)) < _LONG:
            continue
        for word, pieces in zip(words, readings, strict=True):
            ends = iter(word)
            for piece in pieces:
                places = list(islice(ends, len(piece)))
                for i, place in enumerate(places):
                    start = match.start() + place
                    end = start + 1 if i + 1 == len(places) else match.start() + places[i + 1]
                    letter = piece[i].upper() if text[start].isupper() else piece[i]
                    yield Edit(start, end, letter)


def _word_places(run: str, sign: str) -> Iterator[list[int]]:
    """Yield the places of the letters of each word; wider gaps separate words."""
    gaps = [] if sign else list(_GAP.finditer(run))
    if len(gaps) == len(re.findall(r"\s+", run)):
        gaps = []
    start = 0
    for end in (*(g.start() for g in gaps), len(run)):
        yield [i for i in range(start, end) if run[i] != sign and not run[i].isspace()]
        start = end


def _spelt_words(letters: Sequence[str], known: Known) -> list[str]:
    """Return the word or words that letters spell; empty if they spell none."""
    while letters and letters[-1] == "!":
        letters = letters[:-1]
    for letter in "il":
        plain = "".join(_READ.get(c, letter) if c in _OPTIONS else c.lower() for c in letters)
        if sure_word(plain, known):
            return [plain]
    for letter in "il":
        plain = "".join(_READ.get(c, letter) if c in _OPTIONS else c.lower() for c in letters)
        pieces = words_of(plain, known)
        if pieces:
            return pieces
    return []


def words_of(plain: str, known: Known) -> list[str]:
    """Return the fewest words that make up ``plain``, common ones first."""
    # The least cost of words up to each place, and the start of the last of them.
    best: list[tuple[int, int]] = [(0, 0)]
    for end in range(1, len(plain) + 1):
        options = [
            (best[start][0] + cost, start)
            for start in range(max(0, end - _LONGEST), end)
            if best[start][0] < _NEVER and (cost := _word_cost(plain[start:end], known))
        ]
        best.append(min(options, default=(_NEVER, 0)))
    if best[-1][0] >= _NEVER:
        return []
    words = []
    end = len(plain)
    while end:
        start = best[end][1]
        words.append(plain[start:end])
        end = start
    return words[::-1]


def _word_cost(word: str, known: Known) -> int:
    """Return the cost of a word; 0 if it is not a word."""
    if word in ("a", "i"):
        return 2
    return 4 if _is_common(word) else 7 if sure_word(word, known) else 0


_OPTIONS = {"@": "a", "4": "a", "3": "e", "1": "il", "!": "il", "0": "o"}
_OPTIONS.update({"$": "s", "5": "s", "7": "t"})
_READ = {c: o for c, o in _OPTIONS.items() if len(o) == 1}
_TOKEN = re.compile(r"\S+")
# Addresses, accounts, code and formulas.
_CODE = re.compile(
    r"://|^www\.|^[\"'(]*#|\w@[\w-]+\.\w|[\\{}=<>_`^~\[\]]|\w[/(]\w|\w\.\w|^\$[A-Z]+\b"
)
_PIECE = re.compile(rf"[{_L}0-9@$!]+")
_SIGN = re.compile(f"[{_SIGNS}!]")
_DRAWN = re.compile(rf"([{_L}0345@$])\1\1+", re.IGNORECASE)
_ROMAN = re.compile(r"[IVXLCDM]+")
_NUMERONYMS = frozenset({"a11y", "l10n"})
_MOST = 64  # readings of one word
# Short words, for which the vocabulary cannot decide, and words that are missing from it.
_SHORT = frozenset("are bad fat gay jew jews man men mom old poor sad sex the ugly you".split())
_UNLISTED = frozenset(
    """
    autistic barbaric beggars clueless contagious dishonest disloyal dyslexic fanatics
    freeloaders hateful heartless housewife housewives hypocrites illiterate immoral
    inbred incompetent irresponsible liars manipulative moron morons obese overweight
    pensioners perverts promiscuous repulsive retarded scammers servile sluts smelly
    sneaky spineless stingy subhuman submissive thieving unattractive uncivilised
    uncivilized unclean uneducated ungrateful unhygienic unintelligent untrustworthy
    unwelcome vermin whiny
    """.split()
)


def restore_letters(text: str, known: Known) -> Iterator[Edit]:
    """Restore words with digits or signs for letters, and with letters repeated three times.

    If most words are written like that, short ones are restored, too: "4r3", "70".
    """
    odd = _DRAWN if _has_triple(text) else _SIGN
    read = plain = 0
    left: list[tuple[str, int]] = []
    for token in _TOKEN.finditer(text):
        if not (_SIGN.search(token[0]) or odd.search(token[0])):
            plain += 1
            continue
        if _CODE.search(token[0]):
            continue
        for match in _PIECE.finditer(token[0]):
            word = match[0].rstrip("!")
            start = token.start() + match.start()
            edits = list(_word_reading(word, start, known))
            yield from edits
            if edits:
                read += 1
            elif _SIGN.search(word):
                left.append((word, start))
    if read > max(plain, 1):
        for word, start in left:
            yield from _word_reading(word, start, known, leaning=True)


def _word_reading(word: str, offset: int, known: Known, leaning: bool = False) -> Iterator[Edit]:
    letters = sum(map(str.isalpha, word))
    if not (_DRAWN.search(word) or _SIGN.search(word)):
        return
    if not leaning and (letters < 2 or not _is_disguised(word, known)):
        return
    units = list(_letter_units(word))
    readings = list(islice(product(*(u.options for u in units)), _MOST))
    reading = _best_reading(readings, known)
    if reading is None:
        return
    plain = "".join(reading)
    if leaning:
        enough = plain in ("a", "i") or _is_common(plain) or (letters and sure_word(plain, known))
    else:
        enough = _is_unlikely_chance(word, plain, known)
    if not enough:
        return
    upper = word.isupper()
    for unit, new in zip(units, reading, strict=True):
        old = word[unit.start : unit.end]
        if new != old.lower():
            text = old[0] + new[1:] if old[0].isalpha() else new
            text = text.upper() if upper else text
            yield Edit(offset + unit.start, offset + unit.end, text)


class _Unit(NamedTuple):
    start: int
    end: int
    options: tuple[str, ...]


def _letter_units(word: str) -> Iterator[_Unit]:
    at = 0
    while at < len(word):
        drawn = _DRAWN.match(word, at)
        end = drawn.end() if drawn else at + 1
        signs = _OPTIONS.get(word[at], word[at].lower())
        yield _Unit(at, end, tuple(s * n for n in ((2, 1) if drawn else (1,)) for s in signs))
        at = end


def _is_disguised(word: str, known: Known) -> bool:
    """Whether a string is no word as written."""
    lower = word.lower()
    if known(lower) or _is_common(lower) or lower in _NUMERONYMS:
        return False
    letters = {c for c in lower if c.isalpha()}
    if not _SIGN.search(word):
        short = word.isupper() and len(word) < 6
        return len(letters) > 1 and not short and not _ROMAN.fullmatch(word)
    return not any(c in "2689" for c in word)


def _best_reading(readings: Sequence[tuple[str, ...]], known: Known) -> tuple[str, ...] | None:
    common = (r for r in readings if _is_common("".join(r)))
    vouched = (r for r in readings if known("".join(r)))
    inflected = (r for r in readings if is_word("".join(r), known))
    return next(common, None) or next(vouched, None) or next(inflected, None)


def _is_unlikely_chance(word: str, reading: str, known: Known) -> bool:
    """Whether a reading is unlikely to be a word by chance."""
    if not sure_word(reading, known):
        return False
    if not _SIGN.search(word):
        return True
    core = word.strip(f"{_SIGNS}!")
    if _SIGN.search(core):
        return len(reading) >= _LONG or word[1:].islower()
    # A sign at the edge alone: "$tupid", but neither "level5" nor "5pm" nor "@home".
    alone = len(core) >= len(word) - 1 and not is_word(core.lower(), known)
    return alone and len(reading) >= _LONG


def plain_letters(word: str) -> str:
    """Return a word in lower case with letters for its digits and signs."""
    return "".join(_READ.get(c, "i") if c in _OPTIONS else c.lower() for c in word)


def _is_common(word: str) -> bool:
    return word in ENGLISH or word in _SHORT or word in _UNLISTED


def sure_word(word: str, known: Known) -> bool:
    """Whether a word is listed, or in the vocabulary and long enough."""
    return _is_common(word) or (len(word) >= _LONG and is_word(word, known))


_ENDINGS = ("s", "ed", "er", "est", "ing", "ly")


def is_word(word: str, known: Known) -> bool:
    """Whether a word or, if it is long, its stem is in the vocabulary."""
    if known(word) or _is_common(word):
        return True
    stems = (word[: -len(e)] for e in _ENDINGS if word.endswith(e))
    return any(len(s) > _LONG and known(s) for s in stems)
