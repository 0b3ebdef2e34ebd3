"""The leak test that the peers fail: a biased phrase anywhere in a long stream, split anywhere.

Sampled here; the slow lane runs every position of 500 chunks on every door, and every split.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import litellm
import pytest

from guard.errors import BiasFound
from guard.policy import Policy
from tests.doors import replay as r
from tests.doors.table import TABLE, Row, World, arun, guard_of
from tests.rows import rows
from tests.scripted import Scripted

# LiteLLM's own, when it counts a response: it puts the usage of a chat into it.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")

CHUNKS = 500
PHRASE = "quagmire BIAS zephyr"
WORDS = "the old stone bridge near a quiet river has stood for ages.".split()
every = pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
PARTS = 8  # of the slow tests; no multiple of 3 or 7, so each part has every action and split


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out LiteLLM's reports of single chunks, which cost more than all else here."""
    monkeypatch.setattr(litellm, "disable_streaming_logging", True)


def chunks(position: int, pieces: Sequence[str]) -> list[str]:
    """500 chunks and more, one word each, with ``pieces`` from ``position`` on."""
    words = [(" " if n else "") + WORDS[n % len(WORDS)] for n in range(CHUNKS)]
    words[position:position] = [(" " if position else "") + pieces[0], *pieces[1:]]
    return words


def splits() -> list[list[str]]:
    """The phrase whole, split once at every point, and letter by letter."""
    once = [[PHRASE[:at], PHRASE[at:]] for at in range(1, len(PHRASE))]
    return [[PHRASE], *once, list(PHRASE)]


def play(row: Row, world: World, words: Sequence[str]) -> None:
    sizes = [len(word) for word in words]
    row.play(world, [[("content", 0, "".join(words))]], (sizes, 0))


def emitted(row: Row, world: World, asynchronous: bool, action: str) -> str:
    """All that goes out, serialised: chunks, errors, events.

    A finding names the group and the attribute, which is the word that the detector looks for.
    """
    events: list[Any] = []
    guard = guard_of(Policy(action=action), Scripted(), [events.append])  # type: ignore[arg-type]

    async def run() -> r.Outcome:
        return await row.adrained(await row.astream(world, guard))

    outcome = arun(run()) if asynchronous else row.drained(row.stream(world, guard))
    assert [d.action for d in outcome.trail if d.verdict.biased] == [action]
    assert (outcome.error is None) != isinstance(outcome.error, BiasFound)
    out = r.serialised(*outcome.chunks) + repr(outcome.error) + str(outcome.error)
    return out + str(events).replace("BIAS", "")


def leaks(out: str) -> list[str]:
    """The parts of the phrase that stand in ``out``: any three letters of its own in a row."""
    runs = {PHRASE[i : i + 3] for i in range(len(PHRASE) - 2)}
    return sorted(run for run in runs if run in out)


def test_the_words_around_hold_nothing_of_the_phrase() -> None:
    policy = Policy()
    around = " ".join([*WORDS, policy.message, policy.replacement, repr(r.chunk_of(finish="stop"))])
    assert leaks(around) == []
    assert leaks(f"so {PHRASE[4:9]} it is") != []


@rows("row, asynchronous", product(TABLE, [False, True]))
def test_nothing_of_a_phrase_goes_out_wherever_it_stands(
    row: Row, world: World, asynchronous: bool
) -> None:
    ways = splits()
    positions = [0, 11, 12, 251, 499, 500]
    # Each door has a third of them one way and a third the other way.
    turn = (TABLE.index(row) + asynchronous) % 3
    for number, position in list(enumerate(positions))[turn::3]:
        play(row, world, chunks(position, ways[(number * 3) % len(ways)]))
        action = ("terminate", "redact", "raise")[(number + number // 3) % 3]
        assert leaks(emitted(row, world, asynchronous, action)) == [], (position, number)


@rows("row", TABLE)
def test_nothing_of_a_phrase_goes_out_however_it_is_split(row: Row, world: World) -> None:
    for number, pieces in list(enumerate(splits()))[TABLE.index(row) % 3 :: 3]:
        words = chunks(7 + number, pieces)[:40]
        play(row, world, words)
        assert leaks(emitted(row, world, number % 2 == 0, "redact")) == [], pieces


@rows("row, asynchronous, part", product(TABLE, [False, True], range(PARTS)))
@pytest.mark.slow("500 streams of 500 chunks on every door")
def test_nothing_goes_out_at_any_position(
    row: Row, world: World, asynchronous: bool, part: int
) -> None:
    ways = splits()
    for position in range(part, CHUNKS + 1, PARTS):
        play(row, world, chunks(position, ways[position % len(ways)]))
        action = ("terminate", "redact", "raise")[position % 3]
        assert leaks(emitted(row, world, asynchronous, action)) == [], position


@rows("part", range(PARTS))
@pytest.mark.slow("every tenth of a phrase at every fifth position of 500 chunks")
def test_nothing_goes_out_at_any_position_and_split(world: World, part: int) -> None:
    row = TABLE[0]
    for pieces in splits()[part::PARTS]:
        for position in range(0, CHUNKS + 1, 5):
            play(row, world, chunks(position, pieces))
            assert leaks(emitted(row, world, False, "terminate")) == [], (position, pieces)
