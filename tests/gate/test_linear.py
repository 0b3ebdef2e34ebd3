"""What a gate does grows with the length of the text, however it comes: counted in lines run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import guard.gate
from guard.gate import ResponseGate
from guard.policy import Policy
from guard.verdict import Channel
from tests.gate.driven import judge_all
from tests.gate.test_fast_path import FastCodec
from tests.gate.test_response import Chunk, ChunkCodec, marked

ROOM = os.path.dirname(guard.gate.__file__)
CONTENT, THOUGHT = Channel(), Channel(0, "reasoning")
OTHER_PAIR = pytest.mark.slow("counts every line that the gate runs")


def words(n: int) -> Iterator[Chunk]:
    for i in range(n):
        yield Chunk({CONTENT: "X. " if i % 40 == 8 else "word. " if i % 8 == 0 else "word "})


def letters(n: int) -> Iterator[Chunk]:
    for _ in range(n):
        yield Chunk({CONTENT: "w"})


def spaces(n: int) -> Iterator[Chunk]:
    for _ in range(n):
        yield Chunk({CONTENT: "   "})


def turns(n: int) -> Iterator[Chunk]:
    for i in range(n):
        yield Chunk({(CONTENT, THOUGHT)[i % 2]: "word "})


def tools(n: int) -> Iterator[Chunk]:
    for i in range(n):
        yield Chunk({Channel(0, "tool", i % 4): '{"a": "word '})


def choices(n: int) -> Iterator[Chunk]:
    for i in range(n):
        yield Chunk({Channel(i % 3): "word. ", Channel((i + 1) % 3): "word "})


def one_chunk(n: int) -> Iterator[Chunk]:
    yield Chunk({CONTENT: "word " * n})


def lines_run(run: Callable[[], None]) -> int:
    """Return how many lines of the gate's room ``run`` runs."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(ROOM):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    "turns_of",
    [words, letters, spaces, turns, tools, choices, one_chunk],
    ids=lambda turns_of: turns_of.__name__,
)
@pytest.mark.parametrize(
    ("hold", "codec"),
    [
        pytest.param("sentence", ChunkCodec, id="sentence-parts"),
        pytest.param("association", FastCodec, id="association-only_text"),
        pytest.param("sentence", FastCodec, id="sentence-only_text", marks=OTHER_PAIR),
        pytest.param("association", ChunkCodec, id="association-parts", marks=OTHER_PAIR),
    ],
)
def test_cost_grows_with_length(turns_of: Any, hold: Any, codec: Any) -> None:
    def cost(n: int) -> int:
        chunks = list(turns_of(n))
        gate = ResponseGate(codec(), Policy(hold=hold, action="redact"), n=3)

        def judge() -> None:
            judge_all(gate, marked)
            gate.emit()

        def run() -> None:
            for chunk in chunks:
                gate.push(chunk)
                gate.emit()
                judge()
            gate.finish()
            judge()

        return lines_run(run)

    first, second, third = map(cost, (120, 240, 480))
    assert third - second <= 2.1 * (second - first) + 100
