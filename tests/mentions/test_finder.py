"""What the finder holds of a text that grows: never less than could begin a mention."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.mentions import Finder, Lexicon, first_mention, shipped_lexicon
from tests.mentions.words import disguises, listed

LEAD = "It rained all the while, "


def fed(pieces: list[str], words: Lexicon | None = None, *, pronouns: bool = False) -> Finder:
    finder = Finder(words or shipped_lexicon(), pronouns=pronouns)
    for piece in pieces:
        finder.feed(piece)
    return finder


def found(text: str, *, pronouns: bool = False) -> int | None:
    return first_mention(text, shipped_lexicon(), pronouns=pronouns)


AFTER = [" are", ".", "'s", "!", "\n\nNext"]


@pytest.mark.parametrize(
    "part",
    [*range(5), pytest.param(None, marks=pytest.mark.slow("reads every name before every end"))],
)
def test_of_every_mention_nothing_is_clear_wherever_it_is_split(part: int | None) -> None:
    names = listed("name")
    for name, after in (
        product(names, AFTER) if part is None else product(names[part::5], [AFTER[part]])
    ):
        text = LEAD + name + after
        finder = Finder(shipped_lexicon(), pronouns=False)
        for char in text:
            finder.feed(char)
            assert finder.clear <= len(LEAD), name
        finder.feed(" So it goes on.")
        assert finder.found == finder.clear == len(LEAD) == found(text), name


def test_of_a_disguised_mention_nothing_is_clear_either() -> None:
    for name in listed("name")[::7]:
        for disguised in disguises(name):
            text = f"{LEAD}{disguised} are"
            finder = Finder(shipped_lexicon(), pronouns=False)
            for char in text:
                finder.feed(char)
                assert finder.clear <= len(LEAD), disguised
            assert finder.found == len(LEAD) == found(text), disguised


@pytest.mark.parametrize(
    ("held", "free"),
    [
        ("wom", "I saw "),
        ("people of ", "I saw "),
        ("old ", "I saw "),
        ("poor old ne", "I saw "),
        ("gen", "I saw "),
        ("w o m", "I saw "),
        ("w0", "I saw "),
        ("t", "They sell "),
    ],
)
def test_the_longest_end_that_could_begin_a_mention_is_held(held: str, free: str) -> None:
    assert fed([free + held]).clear == len(free)


@pytest.mark.parametrize(
    "text", ["wombat ", "old table ", "genial ", "a b c", "w0rd ", "It is 3.14 ", "mp3 files "]
)
def test_what_turns_out_to_be_none_is_clear(text: str) -> None:
    finder = fed([text, "so"])
    assert finder.found is None
    assert finder.clear >= len(text)


@pytest.mark.parametrize(
    ("text", "mention"),
    [
        ("Lazy is what all women are.", "women"),
        ("so stupid, these women", "women"),
        ("the old neighbours talk", "old"),
        ("My poor, old neighbours", "old"),
        ("a single-parent household", "single"),
        ("those of Gen Z say", "Gen"),
        ("two **Black** men", "Black"),
        ("anti-women talk", "women"),
        ("#women", "women"),
        ("women!So it is", "women"),
        ("So!women it is", "!women"),
        ("the !nd!ans", "!nd"),
        ("on WOMEN!!", "WOMEN"),
        ("Jehovah’s Witnesses", "Jehovah"),
    ],
)
def test_a_mention_begins_with_its_first_word(text: str, mention: str) -> None:
    assert found(text) == text.index(mention)


def test_pronouns_count_only_where_a_group_has_been_named() -> None:
    assert found("Then they left.") is None
    assert found("Then they left.", pronouns=True) == 5
    assert fed(["Then they"]).clear == len("Then they")
    assert fed(["Then they"], pronouns=True).clear == len("Then ")


def test_emoji_hide_nothing() -> None:
    assert found("I ❤️ this 👨‍👩‍👧 so ⚠️ much") is None
    assert found("I ❤️ w\u200bords") == 5


def test_other_scripts_are_held_from_their_first_word_on() -> None:
    assert found("And then: это не так") == 10


UNITS = ["women", "wom", "en", "old ", "neighbours", "gen", " z", "they ", "w", " o", " m ", "e n",
         "table", "x", "! ", "!", ". ", " ", "-", "\n", "0", "3", "@", "ооо", "\u200b", "é", "❤️",
         "people", " of ", "colour", "fooo", "$", "'", "jehovah", "1 "]  # fmt: skip
texts = st.lists(st.sampled_from(UNITS), max_size=25).map("".join)
cuts = st.lists(st.integers(1, 9), max_size=40)


def pieces(text: str, sizes: list[int]) -> list[str]:
    out, at = [], 0
    for size in [*sizes, len(text) or 1]:
        out.append(text[at : at + size])
        at += size
    return out


@given(texts, cuts, st.booleans())
def test_no_chunking_clears_what_the_whole_text_holds(
    text: str, sizes: list[int], pronouns: bool
) -> None:
    begin = found(text, pronouns=pronouns)
    finder = fed(pieces(text, sizes), pronouns=pronouns)
    one = fed([text], pronouns=pronouns)
    assert finder.clear <= (len(text) if begin is None else begin)
    assert (finder.found, finder.clear) == (one.found, one.clear)


class Counted(Lexicon):
    """Counts the characters it is asked about."""

    def __init__(self) -> None:
        super().__init__({"name": listed("name"), "opener": listed("opener")})
        self.read = 0

    def kinds(self, word: str) -> frozenset[str]:  # type: ignore[override]
        self.read += len(word)
        return super().kinds(word)

    def may_begin(self, part: str, *, pronouns: bool) -> bool:
        self.read += len(part)
        return super().may_begin(part, pronouns=pronouns)


@pytest.mark.parametrize("unit", ["rain and wind ", "old poor ", "gggg", "a b cd ", "3", "w o x!"])
def test_the_work_grows_with_the_text(unit: str) -> None:
    def work(length: int) -> int:
        words = Counted()
        finder = Finder(words, pronouns=False)
        for char in (unit * length)[:length]:
            finder.feed(char)
        return words.read

    few, more, many = (work(length) for length in (1000, 2000, 4000))
    # One character at a time, each may be read again for as long as a mention could be.
    assert many - more <= 1.1 * (more - few) * 2 + 200
    assert many <= 60 * 4000
