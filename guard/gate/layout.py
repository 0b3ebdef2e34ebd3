"""What stays of a removed passage, so that the text around it is still read as what it was.

That is white space at a line's end, an indent, the markers of a line, a row's bars, HTML tags, and
marks whose partner is elsewhere: an open bracket whose closing one is yet to come, the end of
emphasis that began before. Nothing that stays has a letter, but for the names of HTML's tags and a
done task's x.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from guard.verdict import Span

_OPENING = re.compile(
    r"\s*(?:(?:[-*+•–·▪◦]|\d{1,3}[.)]|#{1,6}|>)[ \t]+(?:\[[ xX]\][ \t]+)?)*(?:\||`{3,}|~{3,})?"
)
_TAGS = (
    "a abbr address article aside b blockquote body button caption cite code dd del details div dl "
    "dt em fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 head header html i ins kbd "
    "label legend li main mark nav ol option p pre q s samp script section select small span "
    "strong style sub summary sup table tbody td textarea tfoot th thead title tr u ul var "
    # Void elements.
    "br hr img input link meta wbr "
    # Tags in which models put their parts of an answer.
    "answer output reasoning reflection response result think thinking thought"
).split()
_PAIRS = {
    **{"(": ")", "[": "]", "{": "}", "“": "”", "«": "»", "‹": "›", "「": "」", "『": "』"},
    **{"（": "）", "【": "】", "<!--": "-->"},
}
_CLOSING = frozenset(_PAIRS.values())
_MARKS = re.compile(
    rf"\\.|<!--|-->|(?P<tag></?(?:{'|'.join(_TAGS)})(?=[\s/>]))[^<>]*>|\n[ \t]*(?=\n)|"
    r"\"\"\"|'''|\*{1,3}|_{1,3}|~~|`+|[\"|()\[\]{}“”«»‹›「」『』（）【】]",
    re.IGNORECASE,
)
_ROW = re.compile(r"[ \t]*(?:>[ \t]*)*\|")
_TAG_BEGUN = re.compile(r"<(?:/?|/?[a-z][^<>]*)\Z", re.IGNORECASE)
_TAG_NAME = re.compile(r"</?([a-zA-Z0-9]*)")
_TAG_END = re.compile(r"[\"']?/?>")
_LONGEST_NAME = 20  # of a tag, with what is before it
# More open marks than that are no layout.
_MOST = 50


def stretches(text: str, begin: int, kept: Iterable[Span]) -> Iterator[tuple[Span, bool]]:
    """Return what of a text from ``begin`` on is removed, between the spans that are kept.

    One of them comes with True: a mark may stand for it. That is the first that is not inside of a
    tag; white space before it stays, and before each span that is kept.
    """
    marked = False
    for span in (*kept, Span(len(text), len(text))):
        said = text[begin : span.start]
        if said.strip():
            marks = not marked and _TAG_END.fullmatch(text, *span) is None
            lead = len(said) - len(said.lstrip()) if marks else 0
            last = begin + len(said.rstrip()) if span.end > span.start else len(text)
            yield Span(begin + lead, last), marks
            marked = marked or marks
        begin = max(begin, span.end)


class _Open(NamedTuple):
    """An opening mark, and the one that closes it."""

    closes: str
    span: Span


def opening(text: str) -> int:
    """Return the length of a segment's indent and markers: of list, heading, quotation or row.

    >>> opening("  2. So it is."), opening("> - So it is."), opening("| a | b |"), opening("So.")
    (5, 4, 1, 0)
    """
    match = _OPENING.match(text)
    assert match is not None
    if match.end() >= len(text.rstrip()):  # what looks like a marker is all that is said
        return len(text) - len(text.lstrip())
    return match.end()


class Marks:
    """Follows the marks of one text that are open."""

    def __init__(self) -> None:
        self._open: tuple[str, ...] = ()  # what closes them, the innermost last
        self._line_ended = False
        self._tag = ""  # the beginning of a tag at the end, and how many quotation marks it has
        self._quotes = 0

    def copy(self) -> Marks:
        """Return a copy that reads on by itself."""
        copied = Marks()
        copied.__dict__.update(self.__dict__)
        return copied

    def read(self, text: str, begin: int = 0, end: int | None = None) -> list[Span]:
        r"""Read a part of a text; return what stays of it if it is removed, in order.

        ``text[:begin]`` was read before, and ``text[end:]`` is what follows.

        >>> said = 'so** (he said "this" and'
        >>> Marks().read(said), Marks().read("**It is " + said)
        ([Span(start=5, end=6)], [Span(start=13, end=14)])
        >>> marks = Marks()
        >>> marks.read("**It is ")
        [Span(start=0, end=2)]
        >>> marks.read(said)
        [Span(start=2, end=4), Span(start=5, end=6)]
        """
        end = len(text) if end is None else end
        kept: list[Span] = []
        inner: list[_Open] = []
        pairs: list[tuple[Span, Span]] = []
        row = _ROW.match(text) is not None
        if self._line_ended and text[begin:].lstrip(" \t").startswith("\n"):
            self._open = ()
        begin = self._end_tag(text, begin, end, kept)
        for match in _MARKS.finditer(text, begin, end):
            mark, span = match.group(), Span(*match.span())
            if match["tag"] is not None:
                kept += (Span(*match.span("tag")), Span(span.end - 1, span.end))
            elif mark == "|":
                kept += (span,) * row
            elif mark[0] == "\n":  # no mark is open beyond a paragraph
                inner.clear()
                self._open = ()
            elif mark in _PAIRS:
                inner.append(_Open(_PAIRS[mark], span))
            elif mark in _CLOSING:
                self._close(mark, span, inner, pairs, kept)
            elif mark[0] != "\\":
                before = text[span.start - 1 : span.start] or " "
                after = text[span.end : span.end + 1] or " "
                if mark[0] == "_" and before.isalnum() and after.isalnum():
                    continue
                opens, closes = not after.isspace(), not before.isspace()
                if (closes or not opens) and self._close(mark, span, inner, pairs, kept):
                    continue
                if opens:
                    inner.append(_Open(mark, span))
        kept += [one.span for one in inner]
        kept += _around(text[:end], begin, pairs)
        if kept and text[:end].endswith((",", ";")) and max(kept).end == end - 1:
            kept.append(Span(end - 1, end))  # of a list
        self._open = (*self._open, *(one.closes for one in inner))[-_MOST:]
        if begin < end:
            self._line_ended = text[:end].rstrip(" \t").endswith("\n")
            begun = _TAG_BEGUN.search(text, begin, end)
            self._tag = begun.group()[:_LONGEST_NAME] if begun else ""
            self._quotes = begun.group().count('"') if begun else 0
            name = _TAG_NAME.match(self._tag)
            if begun and name and any(tag.startswith(name[1].lower()) for tag in _TAGS):
                kept.append(Span(begun.start(), begun.start() + name.end()))
        return sorted(kept)

    def _end_tag(self, text: str, begin: int, end: int, kept: list[Span]) -> int:
        """Read on inside of a tag that began before; return where it ends."""
        if not self._tag:
            return begin
        at = text.find(">", begin, end)
        if at < 0:
            self._tag = (self._tag + text[begin:end])[:_LONGEST_NAME]
            self._quotes += text.count('"', begin, end)
            return end
        whole = self._tag + text[begin : at + 1]
        match = _MARKS.match(whole)
        if match is not None and match.end("tag") > len(self._tag):  # cut within its name
            kept.append(Span(begin, begin + match.end("tag") - len(self._tag)))
        quotes = self._quotes + text.count('"', begin, at)
        first = at - text[:at].endswith("/")
        kept.append(Span(first - (text[:first].endswith('"') and quotes % 2 == 0), at + 1))
        self._tag = ""
        return at + 1

    def _close(
        self,
        mark: str,
        span: Span,
        inner: list[_Open],
        pairs: list[tuple[Span, Span]],
        kept: list[Span],
    ) -> bool:
        """Close the innermost mark that ``mark`` closes; return whether there is one."""
        for at in range(len(inner) - 1, -1, -1):
            if inner[at].closes == mark:
                pairs.append((inner[at].span, span))
                del inner[at:]
                return True
        for at in range(len(self._open) - 1, -1, -1):
            if self._open[at] == mark:
                kept.append(span)
                inner.clear()
                self._open = self._open[:at]
                return True
        return False


def _around(text: str, begin: int, pairs: list[tuple[Span, Span]]) -> list[Span]:
    """Return the pairs of marks around the whole text."""
    kept: list[Span] = []
    first, last = begin, len(text.rstrip(" \t\n,;"))
    first += len(text[first:]) - len(text[first:].lstrip())
    for opened, closed in sorted(pairs):
        if (opened.start, closed.end) == (first, last):
            kept += (opened, closed)
            first, last = opened.end, closed.start
    return kept
