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


class Unjudged:
    """Finds what of a segment is out before its verdict.

    A segment that was interrupted may have been judged as far as it went: that beginning may be out
    when all of it is judged, and so where the segment is cut by force and the next one shares it.
    """

    def __init__(self) -> None:
        self._judged: list[str] = []
        self._out: set[str] = set()

    @property
    def begun(self) -> set[str]:
        """The letters of beginnings that were judged."""
        pairs = ((one, two) for one in self._judged for two in self._judged if one != two)
        return letters("".join(one for one, two in pairs if two.startswith(one)))

    @property
    def out(self) -> set[str]:
        """The letters that were out before a verdict on their segment, or on its beginning."""
        return self._out - self.begun

    def note(self, text: str, seen: str) -> set[str]:
        """Take the text of a window that is about to be judged, and all that was seen so far.

        Returns its letters that were in no beginning of it.
        """
        begun = [one for one in self._judged if text.startswith(one)]
        self._judged.append(text)
        fresh = letters(text) - letters("".join(begun))
        self._out |= fresh & letters(seen)
        return fresh
