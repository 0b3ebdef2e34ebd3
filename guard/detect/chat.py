"""Normalises Markdown, hashtags, words joined together and chat abbreviations.

Only edits that give English words are made, and only where names, code and ordinary text would not
look like that: "**wom**en" becomes "women", but "f**k", "snake_case" and "PowerPoint" stay.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from guard.detect.spelling import Edit, Known, sure_word, words_of

_L = "A-Za-z"
_MARKED = re.compile(r"[*_~`#]")
_JOINED = re.compile(r"[a-z](?:[A-Z]|[a-z]{15})")


def has_marks(text: str) -> bool:
    """Whether :func:`remove_marks` may find something (a fast check)."""
    return _MARKED.search(text) is not None


def run_together(text: str) -> bool:
    """Whether :func:`split_words` may find something (a fast check)."""
    return "#" in text or _JOINED.search(text) is not None


_HEADING = re.compile(r"\A[\s>]*((?:#{1,6}[ \t][\s>]*)+)")
_TOKEN = re.compile(r"\S+")
_ADDRESS = re.compile(r"://|www\.|[@\\]")
_CHUNK = re.compile(r"[\w*~`]+")
_MARKS = re.compile(r"[*_~`]+")
_WORD = re.compile(r"[^\W_]+")
_FARTHEST = 240  # the longest distance between a pair of marks that names may contain, too
_PYTHON = re.compile(r"__[a-z]+__")  # names such as __main__
# Characters allowed before an opening and after a closing mark, besides white space and words.
_BEFORE, _BEHIND = frozenset("\"'“‘([|>-–—"), frozenset(".,;:!?…\"'”’)]|-–—")


class _ChatMark(NamedTuple):
    start: int
    end: int
    inside: bool  # of a word


def remove_marks(text: str, known: Known) -> Iterator[Edit]:
    """Remove Markdown's marks: of headings, and pairs inside and around words."""
    heading = _HEADING.match(text)
    if heading and heading.end() < len(text):
        yield Edit(*heading.span(1), "")
    opened: defaultdict[str, list[_ChatMark]] = defaultdict(list)
    for sign, mark in _marks_in(text, known):
        before, behind = text[mark.start - 1 : mark.start], text[mark.end : mark.end + 1]
        first = opened[sign[::-1]][-1:]
        closes = mark.inside or not behind or behind.isspace() or behind in _BEHIND
        if first and closes and not before.isspace() and _is_pair(text, first[0], mark, known):
            for pair_mark in (opened[sign[::-1]].pop(), mark):
                yield Edit(pair_mark.start, pair_mark.end, "")
        elif _opens_mark(before, mark, behind):
            opened[sign].append(mark)


def _opens_mark(before: str, mark: _ChatMark, behind: str) -> bool:
    first = mark.inside or not before or before.isspace() or before in _BEFORE
    return first and (behind.isalnum() or behind in _BEFORE)


def _marks_in(text: str, known: Known) -> Iterator[tuple[str, _ChatMark]]:
    """Yield the marks, except those in an address and those that replace letters ("f**k")."""
    for token in _TOKEN.finditer(text):
        if _ADDRESS.search(token[0]):
            continue
        for chunk in _CHUNK.finditer(token[0]):
            marks = list(_MARKS.finditer(chunk[0]))
            joins = bool(marks) and sure_word(_MARKS.sub("", chunk[0]).lower(), known)
            for match in marks:
                start = token.start() + chunk.start()
                inside = match.start() > 0 and match.end() < len(chunk[0])
                if match[0] != "~" and len(match[0]) < 4 and (joins or not inside):
                    yield match[0], _ChatMark(start + match.start(), start + match.end(), inside)


def _is_pair(text: str, first: _ChatMark, last: _ChatMark, known: Known) -> bool:
    """Whether two marks are a Markdown pair, and not part of code or a name."""
    sign, between = text[first.start], text[first.end : min(last.start, first.end + _FARTHEST)]
    if sign in "*~" or first.end + len(between) < last.start:
        return sign in "*~"
    if sign == "`":  # around whole words it is code
        return (first.inside or last.inside) and not sure_word(between.lower(), known)
    if first.inside or last.inside:
        return True
    return not _PYTHON.fullmatch(text, first.start, last.end) and all(
        len(word) == 1 or sure_word(word, known) for word in _WORD.findall(between.lower())
    )


_CODE = re.compile(r"`[^`]+`")
_TAG = re.compile(rf"(?<![\w#&@/.])#([{_L}]{{2,64}})(?![\w#/(]|\s*\{{)")
_LONG = re.compile(rf"(?<![\w#@&/.\\$=])[{_L}]{{9,64}}(?!\w|\.\w|[@/\\(\[<=])")
_HUMP = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_DIRECTIVES = frozenset("define elif else end error if import include line region".split())
# Function words, which are rare in names and identifiers.
_SENTENCE = frozenset(
    "always are arent because belong cant deserve dont never shouldnt than their them these they "
    "those too wont".split()
)


def split_words(text: str, known: Known) -> Iterator[Edit]:
    """Split the words of hashtags, and of sentences written as one word."""
    prose = _CODE.sub(lambda code: " " * len(code[0]), text)
    for match in _TAG.finditer(prose):
        words = _joined_words(match[1], 7, known)
        if words and match[1] not in _DIRECTIVES:
            yield Edit(match.start(), match.start(1), "")
            yield from _spaced_edits(text, match.start(1), words)
    for match in _LONG.finditer(prose):
        words = _joined_words(match[0], 15, known)
        # A lower-case letter before the first capital is an identifier: "theyAreEqual".
        camel = match[0][0].islower() and not match[0].islower()
        if len(words) > 2 and not camel and not _SENTENCE.isdisjoint(map(str.lower, words)):
            yield from _spaced_edits(text, match.start(), words)


def _joined_words(word: str, least: int, known: Known) -> list[str]:
    """Return the words that are joined in ``word``; empty if any of them is not a word.

    Without capitals, a string of at most ``least`` characters may split into words by chance.
    """
    if sure_word(word.lower(), known):
        return [word]
    humps = _HUMP.findall(word)
    if len(humps) == 1:
        return words_of(word.lower(), known) if len(word) > least else []
    return humps if all(h in ("a", "A", "I") or sure_word(h.lower(), known) for h in humps) else []


def _spaced_edits(text: str, at: int, words: list[str]) -> Iterator[Edit]:
    for word in words[:-1]:
        at += len(word)
        yield Edit(at, at + 1, " " + text[at])


# Chat abbreviations with their evidence: 2 if unambiguous, 0 if it is evidence of nothing.
_CHAT: dict[str, tuple[str, int]] = {
    **{"gr8": ("great", 2), "h8": ("hate", 2), "l8r": ("later", 2), "2day": ("today", 2)},
    **{"some1": ("someone", 2), "any1": ("anyone", 2), "every1": ("everyone", 2)},
    **dict.fromkeys(("bcuz", "becuz", "cuz", "coz"), ("because", 1)),
    **{"r": ("are", 1), "u": ("you", 1), "ur": ("your", 1), "b4": ("before", 1)},
    **{"ppl": ("people", 1), "shud": ("should", 1), "wud": ("would", 1), "thru": ("through", 1)},
    **{"tbh": ("to be honest", 1), "imo": ("in my opinion", 1), "ngl": ("not going to lie", 1)},
    **{"idk": ("i don't know", 1), "pls": ("please", 1), "plz": ("please", 1)},
    **{"bc": ("because", 0), "n": ("and", 0), "da": ("the", 0), "2": ("to", 0), "4": ("for", 0)},
}
_SHORT = re.compile(rf"\b(?:[24] [a-z]+ [24]|{'|'.join(w for w in _CHAT if _CHAT[w][1])})\b")
_EDGES = "\"'“”‘’(),.;:!?…"
# Those that occur between words, and the words that ordinary text has before or after them.
_BETWEEN = frozenset("rn24")
_NO_VERB = frozenset(
    "a an and at by exactly for from have has had in into is language of on only or package plus "
    "than the to use using version with".split()
)
_COUNTED = frozenset(
    "am and at billion by children cm day feet for ft g hour hr hundred in inch kg km m men mile "
    "million min minus ml mm more of on or people percent plus pm thousand times to week women x "
    "year".split()
)
_IS = frozenset("are be im is r so was way were".split())


def has_chat_words(text: str) -> bool:
    """Whether :func:`written_out` may find something (a fast check)."""
    return _SHORT.search(text.lower()) is not None


def written_out(text: str, known: Known) -> Iterator[Edit]:
    """Expand chat abbreviations if a text has several, or an unambiguous one."""
    tokens = list(_TOKEN.finditer(text))
    words = ["", *(t[0].strip(_EDGES) for t in tokens), ""]
    edits: list[Edit] = []
    weights: dict[str, int] = {}
    for i, token in enumerate(tokens):
        before, word, behind = words[i : i + 3]
        key = word[0].lower() + word[1:] if len(word) > 2 else word
        if key not in _CHAT or (
            word in _BETWEEN
            and not (tokens[i - 1][0].endswith(before) and _links_words(before, token[0], behind))
        ):
            continue
        plain, weight = _CHAT[key]
        if word in "24" and (before in _IS or words[i - 1] == "2"):
            weight = 1  # "are 2 fat", "2 fat 2 walk"
            plain = "too" if word == "2" and before in _IS else plain
        weights[key] = weights.get(key, 0) + weight if word in "24" else weight
        start = token.start() + token[0].index(word)
        edits.append(Edit(start, start + len(word), plain if key == word else plain.capitalize()))
    return iter(edits if sum(weights.values()) > 1 else ())


def _links_words(before: str, token: str, behind: str) -> bool:
    """Whether a letter or digit between words is the verb or conjunction "r", "n" or "2"."""
    if not before.isalnum() or before.isdigit() or before in _NO_VERB:
        return False
    if token in ("r", "n"):
        return behind.isalpha() or behind in ("2", "4")
    plural = behind.endswith("s") and not behind.endswith("ss")
    return token in ("2", "4") and behind.isalpha() and not plural and behind not in _COUNTED
