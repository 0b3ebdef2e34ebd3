"""What the attacks take for the truth about the bound, and that they see what breaks it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from guard.gate.turns import Turns
from guard.policy import Policy
from tests.attacks.attacker import Attacker, Tally, attacking
from tests.attacks.bound import Held, Reading, free
from tests.attacks.case import Plant
from tests.attacks.reading import PARTED, Joined, Key

SAID: Key = (0, "content", 0)
THOUGHT: Key = (0, "reasoning", 0)
ELSEWHERE: Key = (1, "content", 0)
CALL: Key = (0, "tool", 0)
LIMIT = Policy().max_segment_chars
ALONE = LIMIT + Policy().overlap + Policy().lookahead
PLANT = Plant(
    0, 0, "Quolab", " men grelksab are lazyab", "grelksab", "lazyab", fits=True, refuted=False
)
HEAD, TAIL = "Fine. Quolab so men grelksab are ", "lazyab indeed. Then more."


def out(*pieces: tuple[Key, str], key: Key = SAID) -> str:
    return free(PLANT, key, pieces, Policy())


class TestFree:
    def test_nothing_until_others_have_said_so_much(self) -> None:
        assert out((SAID, HEAD), (THOUGHT, "x " * LIMIT), (SAID, TAIL)) == ""
        assert out((SAID, HEAD), (THOUGHT, "x " * LIMIT + "x"), (SAID, TAIL)) == HEAD

    def test_others_are_the_channels_of_the_same_choice(self) -> None:
        assert out((SAID, HEAD), (ELSEWHERE, "x" * 999), (SAID, TAIL)) == ""

    def test_what_others_said_before_the_sentence_or_behind_the_phrase_counts_for_nothing(
        self,
    ) -> None:
        more = (THOUGHT, "x" * 999)
        assert out(more, (SAID, HEAD), (SAID, TAIL), more) == ""

    def test_what_follows_what_was_let_out_is_held_as_long_again(self) -> None:
        first, second = HEAD[:12], HEAD[12:]
        much, little = (THOUGHT, "x" * (LIMIT + 1)), (THOUGHT, "x" * LIMIT)
        assert out((SAID, first), much, (SAID, second), little, (SAID, TAIL)) == first
        assert out((SAID, first), much, (SAID, second), much, (SAID, TAIL)) == HEAD

    def test_nothing_of_a_call(self) -> None:
        said = ((CALL, HEAD), (CALL, PARTED), (THOUGHT, "x" * 2 * LIMIT), (CALL, TAIL))
        assert out(*said, key=CALL) == ""

    def test_a_sentence_that_litellm_moved_to_another_text(self) -> None:
        said = ((SAID, "Fine. so men grelksab are "), (SAID, TAIL))
        assert out(*said) == "Quolab"

    def test_a_sentence_into_which_litellm_put_another_text(self) -> None:
        assert (
            out((SAID, "Fine. Quolab so river fields. men grelksab are "), (SAID, TAIL)) == "Quolab"
        )


def test_an_escape_is_read_as_one_character_however_it_is_split() -> None:
    text = r"caf\u00e9 \ud83d\udc69 \\u0057\n"
    whole, split = Reading(), Reading()
    whole.add(text)
    for character in text:
        split.add(character)
    assert (whole.all, whole.printed) == (split.all, split.printed) == (9, 6)


class TestHeld:
    def test_one_channel_alone(self) -> None:
        held = Held(Policy(second_look=False))
        for _ in range(ALONE + 3):
            held.take([(SAID, "x")])
        assert (held.most, held.over) == (ALONE + 2, 1)

    def test_channels_that_take_turns(self) -> None:
        held = Held(Policy(second_look=False))
        for _ in range(ALONE):
            held.take([(SAID, "x")])
        for _ in range(LIMIT + 3):
            held.take([(THOUGHT, "x ")])
        assert (held.most, held.over) == (ALONE + LIMIT + 2, 0)
        held.take([(THOUGHT, "x")])
        assert held.over == 1

    def test_a_segment_that_waits_for_its_second_look(self) -> None:
        held = Held(Policy())
        for _ in range(2 * ALONE + 3):
            held.take([(SAID, "x")])
        assert (held.most, held.over) == (2 * ALONE + 2, 1)

    def test_what_went_out_and_the_chunk_in_hand_are_not_counted(self) -> None:
        held = Held(Policy())
        held.take([(SAID, "x" * 900)])
        held.take([(SAID, "x")])
        assert held.over == 0
        held.release([(SAID, "x" * 901)])
        held.take([(SAID, "x")])
        assert (held.most, held.over) == (900, 0)


def test_blocks_that_a_reader_joins_are_one_text() -> None:
    def begins(index: int, kind: str, **more: str) -> dict[str, object]:
        block = {"type": kind, **more}
        return {"type": "content_block_start", "index": index, "content_block": block}

    def says(index: int, **delta: str) -> dict[str, object]:
        return {"type": "content_block_delta", "index": index, "delta": delta}

    def ends(index: int) -> dict[str, object]:
        return {"type": "content_block_stop", "index": index}

    events = [
        *(begins(0, "text"), says(0, text="a"), ends(0)),
        *(begins(1, "tool_use", name="f"), says(1, partial_json="x"), ends(1)),
        *(begins(2, "text"), says(2, text="b")),
        *(begins(3, "text"), says(3, text="c"), says(2, text="d")),
        *(begins(4, "tool_use", name=""), says(4, partial_json="y"), ends(4)),
    ]
    read = Joined("messages")
    said: dict[Key, str] = {}
    for event in events:
        for key, text in read(event):
            said[key] = said.get(key, "") + text
    assert said == {
        (0, "content", 0): "abd",
        (0, "content", 3): "c",
        (0, "tool", 1): f"x{PARTED}y{PARTED}",
    }


class TestSeen:
    """A guard that breaks the rule is found out."""

    @pytest.fixture(scope="class")
    def attacker(self) -> Iterator[Attacker]:
        with attacking() as attacker:
            yield attacker

    @pytest.mark.parametrize(
        ("limit", "kind", "cases"),
        [(0, "half", (4129, 4997, 5597, 7525)), (10_000, "held", (1600,))],
    )
    @pytest.mark.filterwarnings("ignore")
    def test_a_bound_that_is_not_kept(
        self,
        attacker: Attacker,
        monkeypatch: pytest.MonkeyPatch,
        limit: int,
        kind: str,
        cases: tuple[int, ...],
    ) -> None:
        made = Turns.__init__
        monkeypatch.setattr(Turns, "__init__", lambda self, _: made(self, limit))
        tally = Tally()
        for number in cases:
            attacker.run(str(number), tally)
        assert tally.kinds() == {kind: len(cases)}
