"""A tool call leaves the gate whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from guard.gate import Codec, Part, ResponseGate
from guard.policy import Policy
from guard.verdict import Channel
from tests.doors import replay as r
from tests.scripted import Scripted

CALL, CONTENT = Channel(0, "tool", 0), Channel(0)


class Piece(NamedTuple):
    channel: Channel
    text: str
    ends: bool = False


class Pieces(Codec[Piece]):
    def parts(self, chunk: Piece) -> list[Part]:
        return [Part(chunk.channel, chunk.text)] if chunk.text else []

    def choices(self, chunk: Piece) -> list[int]:
        return [0]

    def finished(self, chunk: Piece) -> list[int]:
        return [0] if chunk.ends else []

    def calls(self, chunk: Piece) -> list[Channel]:
        return [chunk.channel] if chunk.channel.kind == "tool" else []

    def cut(
        self, chunk: Piece, choice: int, texts: Mapping[Channel, str], *, ends: bool = False
    ) -> Piece | None:
        return Piece(chunk.channel, texts.get(chunk.channel, ""))

    def last(self, template: Piece, choice: int, message: str) -> Piece:
        return Piece(CONTENT, message)


def emitted(*pieces: Piece, judge: bool = True) -> list[list[Any]]:
    """Return what each piece lets out."""
    gate = ResponseGate(Pieces(), Policy())
    s = r.session(Policy(), Scripted())
    out = []
    for piece in pieces:
        gate.push(piece)
        if judge:
            s.judge_pending(gate)
        out.append(gate.emit())
    return out


def test_a_call_waits_for_its_end_and_leaves_in_the_providers_own_chunks() -> None:
    pieces = [
        Piece(CALL, ""),
        Piece(CALL, "Fine. So. "),
        Piece(CALL, "Well."),
        Piece(CALL, "", True),
    ]
    assert emitted(*pieces) == [[], [], [], pieces]


def test_its_end_alone_does_not_let_it_out() -> None:
    pieces = [Piece(CALL, ""), Piece(CALL, "Fine. So."), Piece(CALL, "", True)]
    assert emitted(*pieces, judge=False) == [[], [], []]


@pytest.mark.parametrize("between", ["", "Well. "])
def test_nothing_of_a_stopped_call_leaves(between: str) -> None:
    pieces = [Piece(CALL, "Fine. "), Piece(CONTENT, between), Piece(CALL, "BIAS is.")]
    out = emitted(*pieces, Piece(CONTENT, "", True))
    left = [piece for step in out for piece in step]
    assert [piece.channel for piece in left if piece.text and piece.channel == CALL] == []
    assert left[-1].text == Policy().message


def test_nor_does_a_part_of_one_that_came_at_once() -> None:
    (out,) = emitted(Piece(CALL, "Fine. BIAS is.", True))
    assert [piece.text for piece in out] == [Policy().message]
