"""Random responses whose characters are all different, so that any leak can be seen."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import strategies as st
from litellm.types.utils import ModelResponseStream

from tests.doors.replay import Said, chunk_of

TRIGGER = "Ω"
# What texts are made of; "w" is a word of new characters, "l" a long one.
UNITS = ["w", "w ", "w ", "w ", "l", TRIGGER, ". ", ".", "! ", ", ", "\n", "\n\n", " ", "Dr. "]


class Run(tuple[str, int, str]):
    """What one channel says in a row: kind, tool number, text."""


def _text(units: Sequence[str], letters: list[int]) -> str:
    out = []
    for unit in units:
        for symbol in unit:
            length = {"w": 4, "l": 90}.get(symbol)
            if length is None:
                out.append(symbol)
            else:
                out.append("".join(chr(letters[0] + i) for i in range(length)))
                letters[0] += length
    return "".join(out)


@st.composite
def choices_(
    draw: st.DrawFn, most: int = 1, kinds: Sequence[str] = ("content",), ordered: bool = False
) -> list[list[tuple[str, int, str]]]:
    """Choices, each a list of runs (kind, tool number, text); all letters differ.

    ``ordered`` gives each kind at most once, in the order in which a whole answer is read.
    """
    letters = [0x4E00]
    choices = []
    for _ in range(draw(st.integers(1, most))):
        if ordered:
            spoken = [
                k for k in ("reasoning", "content", "tool") if k in kinds and draw(st.booleans())
            ]
            spoken = spoken or ["content"]
        else:
            spoken = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4))
        runs = []
        for number, kind in enumerate(spoken):
            units = draw(st.lists(st.sampled_from(UNITS), min_size=1, max_size=25))
            tool = (0 if ordered else number) if kind == "tool" else 0
            runs.append((kind, tool, _text(units, letters)))
        choices.append(runs)
    return choices


# How a response is cut into chunks: sizes of pieces, in turns, and how choices interleave.
chunkings = st.tuples(
    st.one_of(st.just([1]), st.just([10**6]), st.lists(st.integers(1, 60), min_size=1, max_size=6)),
    st.integers(0, 2**16),
)


def saids(
    choices: Sequence[Sequence[tuple[str, int, str]]], chunking: tuple[Sequence[int], int]
) -> list[list[Said]]:
    """Return the pieces of each choice, in order."""
    sizes, _ = chunking
    out = []
    for index, runs in enumerate(choices):
        pieces, turn = [], 0
        begun: set[int] = set()
        for kind, tool, text in runs:
            at = 0
            while at < len(text):
                size = sizes[turn % len(sizes)]
                turn += 1
                header = kind == "tool" and tool not in begun
                begun.add(tool) if header else None
                pieces.append(Said(index, kind, text[at : at + size], tool, header))
                at += size
        out.append(pieces)
    return out


def chunks(
    choices: Sequence[Sequence[tuple[str, int, str]]],
    chunking: tuple[Sequence[int], int],
    finish: str = "stop",
) -> list[ModelResponseStream]:
    """Return the provider's chunks: choices interleave, now and then within one chunk."""
    rng = random.Random(chunking[1])
    lines = [list(reversed(pieces)) for pieces in saids(choices, chunking)]
    out = []
    while any(lines):
        ready = [line for line in lines if line]
        together = rng.sample(ready, rng.randint(1, len(ready)))
        out.append(chunk_of(*sorted(line.pop() for line in together)))
    return [*out, chunk_of(finish=finish)]


def letters(text: str) -> set[str]:
    """The characters of ``text`` that stand nowhere else."""
    return {c for c in text if "\u4e00" <= c <= "\u9fff"}


def _letters(first: int, count: int) -> str:
    return "".join(chr(0x4E00 + i) for i in range(first, first + count))


# A biased sentence between two others.
SPOKEN = [[("content", 0, f"{_letters(0, 8)}. {TRIGGER}{_letters(8, 8)}. {_letters(16, 8)}.")]]
# A segment that could end where another channel speaks, goes on, and is cut by force.
INTERRUPTED = [
    [
        ("reasoning", 0, _letters(0, 180) + "."),
        ("content", 0, _letters(180, 8)),
        ("reasoning", 0, _letters(188, 90)),
    ]
]
# One that ends before the white space with which it was judged when another channel spoke.
ENDED = [
    [
        ("content", 0, _letters(0, 12) + "\n" + _letters(12, 4) + ". "),
        ("reasoning", 0, _letters(20, 280)),
        ("content", 0, _letters(300, 40)),
    ]
]


class SecondLooks:
    """Tells second looks from the windows of segments, by a text that repeats none of its letters.

    They begin with a segment found biased, and what follows it has a verdict of its own.
    """

    def __init__(self) -> None:
        self.biased: list[str] = []

    def has(self, text: str) -> bool:
        """Whether a window's text is one; takes note of it otherwise."""
        if any(text.startswith(one) and text.strip() != one for one in self.biased):
            return True
        if TRIGGER in text:
            self.biased.append(text.strip())
        return False


class Unjudged:
    """Finds what of a segment is out before its verdict.

    A segment that was interrupted may have been judged as far as it went, and behind the sentence
    before it where the end of that was not clear yet: so much may be out when all of it is judged,
    and so where the segment is cut by force and the next one shares it.
    """

    def __init__(self) -> None:
        self._judged: list[str] = []
        self.begun: set[str] = set()  # letters that were judged as a beginning, and then again
        self.out: set[str] = set()

    def note(self, text: str, seen: str) -> set[str]:
        """Take the text of a window that is about to be judged, and all that was seen so far.

        Returns its letters that were in no beginning of it.
        """
        begun = max((_shared(one, text) for one in self._judged), default=0)
        self._judged.append(text)
        self.begun |= letters(text[:begun])
        fresh = letters(text) - self.begun
        self.out |= fresh & letters(seen)
        return fresh


def _shared(one: str, other: str) -> int:
    """How many characters at the end of ``one`` are the beginning of ``other``.

    All of them where ``one`` has the whole of ``other``: an interrupted segment was judged with
    white space that turned out to belong to nobody.
    """
    at = one.find(other[:1])
    while at >= 0 and not other.startswith(one[at:]):
        at = one.find(other[0], at + 1)
    return len(one) - at if at >= 0 else 0
