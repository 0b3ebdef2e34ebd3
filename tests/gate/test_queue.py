"""The chunk queue alone: a chunk leaves when all of its text is resolved."""

from __future__ import annotations

from guard.gate.edits import TextEdit
from guard.gate.queue import ChunkQueue
from guard.verdict import Channel
from tests.gate.test_response import Chunk, ChunkCodec

ONE, TWO = Channel(0), Channel(1)


def queue_of(*chunks: Chunk) -> ChunkQueue[Chunk]:
    queue, codec = ChunkQueue(ChunkCodec()), ChunkCodec()
    for chunk in chunks:
        queue.push(chunk, codec.choices(chunk), codec.parts(chunk))
    return queue


def test_a_chunk_waits_for_all_of_its_text() -> None:
    chunk = Chunk({ONE: "abc"})
    queue = queue_of(chunk)
    queue.moved = True
    assert queue.ready() == []
    queue.apply(ONE, [TextEdit(2)])
    assert queue.ready() == []
    queue.apply(ONE, [TextEdit(1)])
    assert [id(c) for c in queue.ready()] == [id(chunk)]


def test_joined_chunks_leave_one_by_one() -> None:
    first, second = Chunk({ONE: "ab"}), Chunk({ONE: "cd"})
    queue = queue_of()
    queue.join(first, ONE, "ab")
    queue.join(second, ONE, "cd")
    queue.apply(ONE, [TextEdit(3)])
    assert queue.ready() == [first]
    queue.apply(ONE, [TextEdit(1)])
    assert queue.ready() == [second]


def test_a_choice_that_is_resolved_first_leaves_as_a_copy() -> None:
    queue = queue_of(Chunk({ONE: "a", TWO: "b"}))
    queue.apply(TWO, [TextEdit(1)])
    assert queue.ready() == [Chunk({TWO: "b"})]
    queue.apply(ONE, [TextEdit(1)])
    assert queue.ready() == [Chunk({ONE: "a"})]


def test_a_replaced_text_leaves_in_a_copy() -> None:
    chunk = Chunk({ONE: "abc"})
    queue = queue_of(chunk)
    queue.apply(ONE, [TextEdit(1), TextEdit(2, "*")])
    assert queue.ready() == [Chunk({ONE: "a*"})]
    assert chunk.texts == {ONE: "abc"}


def test_the_end_of_a_choice_lets_out_its_resolved_text_only() -> None:
    queue = queue_of(Chunk({ONE: "abcd"}), Chunk({ONE: "ef"}))
    queue.apply(ONE, [TextEdit(2)])
    assert queue.end(0) == [Chunk({ONE: "ab"})]


def test_text_of_an_ended_choice_neither_leaves_nor_holds_anything_back() -> None:
    queue = queue_of(Chunk({ONE: "a", TWO: "b"}))
    assert queue.end(0) == []
    codec, later, usage = ChunkCodec(), Chunk({ONE: "c", TWO: "d"}), Chunk({}, usage=True)
    queue.push(later, codec.choices(later), codec.parts(later))
    queue.push(usage, [], [])
    queue.apply(TWO, [TextEdit(2)])
    assert queue.ready() == [Chunk({TWO: "b"}), Chunk({TWO: "d"}), usage]
