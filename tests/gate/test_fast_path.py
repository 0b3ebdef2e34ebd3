"""The fast path for chunks that only continue one text gives the same output as the full path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.gate import Codec, ResponseGate, Segmenter
from guard.policy import Policy
from guard.verdict import Channel
from tests.gate.driven import judge_all
from tests.gate.test_response import Chunk, ChunkCodec, marked
from tests.rows import examples


class FastCodec(ChunkCodec):
    """Offers the fast path for chunks that carry one content text and nothing else."""

    def __init__(self) -> None:
        self.taken = 0

    def only_text(self, chunk: Chunk, channel: Channel) -> str:
        text = chunk.texts.get(channel, "")
        if len(chunk.texts) > 1 or chunk.done or not text:
            return ""
        self.taken += 1
        return text


words = st.sampled_from(
    ["ab", " ", "X", ".", ". ", "! ", "\n", "word ", " women", "lo" * 40, " " * 40, "``` ", "e.g"]
)
channels = st.sampled_from(
    [Channel()] * 8 + [Channel(1)] * 2 + [Channel(0, "reasoning"), Channel(1, "tool", 1)]
)
single = st.tuples(channels, words).map(lambda one: Chunk({one[0]: one[1]}))
several = st.dictionaries(channels, words, min_size=2, max_size=3).map(Chunk)
ends = st.sampled_from([0, 1]).map(lambda choice: Chunk({}, [choice]))
usage = st.just(Chunk({}, usage=True))
streams = st.lists(
    st.one_of(*[single] * 12, several, ends, usage), max_size=60
)  # most chunks say one text
policies = st.sampled_from(
    [
        *(Policy(action=a) for a in ("terminate", "redact", "flag", "raise")),
        *(Policy(action=a, scope="response") for a in ("terminate", "redact")),
        *(Policy(action=a, hold="association") for a in ("terminate", "redact", "flag")),
        Policy(hold="none"),
    ]
)


def played(chunks: list[Chunk], policy: Policy, codec: Codec[Any], lazy: bool) -> Iterator[Any]:
    """Yield what is seen after each chunk; with ``lazy`` the gate is asked only where it says."""
    gate = ResponseGate(codec, policy, n=2)

    def step() -> list[Any]:
        out = gate.emit() if policy.hold != "sentence" else []
        judge_all(gate, marked)
        return [*out, *gate.emit()]

    for chunk in chunks:
        if gate.ended_by_guard:
            break
        more = gate.push(chunk)
        yield step() if more or not lazy else []
    if not gate.ended_by_guard:
        gate.finish()
    yield step()
    yield list(gate.trail), gate.ended_by_guard, repr(gate.error)


@examples(300)
@given(streams, policies)
def test_the_fast_path_emits_the_same_at_the_same_time(chunks: list[Chunk], policy: Policy) -> None:
    with patch.object(Segmenter, "takes", return_value=False):
        full = list(played(chunks, policy, ChunkCodec(), lazy=False))
    fast = list(played(chunks, policy, FastCodec(), lazy=True))
    assert fast == full
    for a, b in zip(full[:-1], fast[:-1], strict=True):  # the provider's own objects in both
        assert [any(x is c for c in chunks) for x in a] == [any(x is c for c in chunks) for x in b]


def test_most_chunks_take_the_fast_path() -> None:
    codec = FastCodec()
    chunks = [Chunk({Channel(): f" word{n}" + "." * (n % 12 == 0)}) for n in range(200)]
    list(played(chunks, Policy(), codec, lazy=True))
    assert codec.taken == 199


@pytest.mark.parametrize("pieces", [["\\u0058", " here"], ["\\u00", "58", " here"]])
def test_the_fast_path_leaves_no_escape_undecoded(pieces: list[str]) -> None:
    gate = ResponseGate(FastCodec(), Policy())
    for text in ["A quiet ", *pieces]:
        gate.push(Chunk({Channel(): text}))
    gate.finish()
    assert [job.window.text for job in gate.pending()] == ["A quiet X here"]
