"""The pairs of group and attribute in a language model's answer, in whatever form it wrote them.

``associating "women" with "weak"``, ``associating ['women', 'girls'] with ['weak']``,
``associating women with weakness and girls with vanity``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, product

from guard.detect.answer import unquoted_text

#: Stands for a placeholder of the template in the texts that are searched for pairs.
PLACEHOLDER = "\ue000"
# More pairs than a sentence has; those of two long lists would grow with the square.
_MOST = 64

_STRING = r'"(?:[^"\\\n]|\\.){1,400}"'
_LIST = r"\[[^\[\]\n]{1,400}\]"
_TERM = rf"[*_]{{0,2}}(?:{_STRING}|{_LIST})[*_]{{0,2}}"
_CLOSED = rf"{_TERM} with {_TERM}"
_ASSOCIATION = re.compile(
    r"\bassociat(?:ing|es|ed):?[*_`]{0,3}\s{1,3}(?:"
    rf"(?P<closed>{_CLOSED}(?:(?:,? and|[,;]) {_CLOSED}){{0,99}})"
    # Up to the end of the sentence, of the line or of the answer.
    r"|(?P<open>[^\n]{1,400}?)(?=[.!]?[*_`\"']{0,3}\s*(?:\n|$)|[.!]\s))",
    re.IGNORECASE,
)
_CLOSED_PAIR = re.compile(rf"({_TERM}) with ({_TERM})", re.IGNORECASE)
# In single or double quotes, or up to the next comma; an apostrophe inside a word ends nothing.
_ELEMENT = re.compile(
    r"'((?:[^'\\]|\\.|(?<=\w)'(?=\w)){1,400})'"
    r'|"((?:[^"\\]|\\.){1,400})"'
    r"|([^,'\"\s][^,]{0,400})"
)
_WITH = re.compile(r" with ", re.IGNORECASE)
_WITH_PEOPLE = re.compile(
    r"\b(?:people|persons?|those|m[ae]n|wom[ae]n|child(?:ren)?|students?|patients?|adults?)$",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r",? and |[,;] ")
_EDGES = " \t*_`'\"()[]<>{}"

Pair = tuple[str, str]


def without_associations(text: str) -> tuple[str, tuple[Pair, ...]]:
    """Return an answer with its associations cut out, and their pairs, each once.

    What stands in a pair comes from the judged text and is no part of the verdict. A pair with a
    placeholder is none; the :data:`PLACEHOLDER` stays in the text.
    """
    pairs: dict[Pair, None] = {}

    def cut(association: re.Match[str]) -> str:
        if PLACEHOLDER in association[0]:
            return f" associating {PLACEHOLDER}"
        stated = list(_association_pairs(association))
        pairs.update(dict.fromkeys(stated))
        return " associating pairs" if stated else association[0]

    return _ASSOCIATION.sub(cut, text), tuple(pairs)


def _association_pairs(association: re.Match[str]) -> Iterator[Pair]:
    """Yield the pairs of one association."""
    if association["closed"]:
        for groups, attributes in _CLOSED_PAIR.findall(association["closed"]):
            yield from islice(product(_elements(groups), _elements(attributes)), _MOST)
        return
    clause = association["open"]
    if not _WITH.search(clause):
        return
    pieces = _BETWEEN.split(clause)
    several = all(len(_WITH.findall(piece)) == 1 for piece in pieces)
    for piece in pieces if several else [clause]:
        group, attribute = (half.strip(_EDGES) for half in _halves(piece))
        if group and attribute:
            yield group, attribute


def _halves(piece: str) -> Pair:
    """Split at the first "with" that is not part of a group ("people with disabilities")."""
    first, *others = _WITH.finditer(piece)
    at = others[0] if others and _WITH_PEOPLE.search(piece[: first.start()]) else first
    return piece[: at.start()], piece[at.end() :]


def _elements(term: str) -> list[str]:
    """Return the texts of a quoted term, or of a list of terms."""
    term = term.strip("*_")
    if term.startswith('"'):
        parts = [unquoted_text(term)]
    else:
        parts = [a or b or c.strip() for a, b, c in _ELEMENT.findall(term[1:-1])]
    return [part for part in parts if part.strip()]
