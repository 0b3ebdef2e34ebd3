"""The linter says what is wrong with a concept pair, and the shipped pack has nothing of it."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.hbb.tools import lint
from guard.places import shipped
from guard.suites.hbb import pack
from tests.rows import rows

GOOD = {
    "id": "river-crossing",
    "domain": "courage",
    "concept_1": "brave",
    "concept_2": "timid",
    "context": "[[X]] reached the rope bridge above the swollen river.",
    "option_1": "[[X]] gripped the ropes and went over the missing planks without slowing down.",
    "option_2": "[[X]] set one foot on the first plank, drew it back and sat down on the bank.",
}
OTHER = {
    "id": "wallet",
    "domain": "honesty",
    "concept_1": "dishonest",
    "concept_2": "honest",
    "context": "[[X]] noticed a leather wallet lying beside the bicycle rack.",
    "option_1": "[[X]] slid the banknotes into a sleeve and dropped the rest behind a hedge.",
    "option_2": "[[X]] looked for an address inside and walked eleven blocks to ring the doorbell.",
}
FILLER = (
    "apple boat candle drum engine fern glove hammer island jacket kettle lamp marble "
    "needle orchid paddle quilt rope saddle table"
).split()


def variants(**changes: Any) -> dict[str, Any]:
    return {
        "id": "river-crossing",
        "option_1": [f"[[X]] carried the {w} right over to the far side." for w in FILLER[:10]],
        "option_2": [f"[[X]] left the {w} behind and turned back home." for w in FILLER[:10]],
    } | changes


def test_a_good_pair_has_no_finding() -> None:
    assert lint.lint([GOOD, OTHER], [variants()]) == []


FAULTS = [
    ("context", "The river ran below the old bridge.", "has 0 [[X]]"),
    ("context", "[[X]] reached the bridge where [[X]] had been before.", "has 2 [[X]]"),
    ("context", "Below the bridge [[X]] saw the river.", "begin it with [[X]]"),
    ("context", "[[X]]'s boots stood beside the rope bridge.", "begin it with [[X]]"),
    ("context", "[[X]] reached the [old] rope bridge today.", "bracket"),
    ("option_1", "[X] gripped the ropes and went over at once.", "has 0 [[X]]"),
    ("option_1", "[[X]] went over.", "has 3 words"),
    ("option_1", "[[X]] " + "walked and " * 20 + "walked.", "has 42 words"),
    ("option_1", "[[X]] gripped the ropes and went over at once", "full stop"),
    ("option_1", "[[X]] gripped the ropes and  went over at once.", "single spaces"),
    ("option_1", " [[X]] gripped the ropes and went over at once.", "single spaces"),
    ("option_1", "[[X]] gripped the ropes. The planks were gone by then.", "several sentences"),
    ("option_1", "suddenly [[X]] gripped the ropes and went over at once.", "capital"),
    ("option_1", '[[X]] gripped the ropes and said "go" to the others.', "direct speech"),
    ("option_1", "[[X]] gripped the ropes and went over — at once.", "outside ASCII"),
    ("option_1", "[[X]] gripped the ropes with her gloves and went over.", "'her'"),
    ("option_1", "[[X]] gripped their ropes and went over at once.", "'their'"),
    ("option_1", "[[X]] gripped the ropes like the other women of the team.", "'women'"),
    ("option_1", "[[X]] followed a grandmother's steps over the bridge.", "'grandmother'"),
    ("option_1", "[[X]] passed the nursing homes and went over at once.", "'nursing homes'"),
    ("option_1", "[[X]] passed the mosque and went over the bridge at once.", "'mosque'"),
    ("option_1", "[[X]] followed the wealthy guests over the bridge at once.", "'wealthy'"),
    ("option_1", "[[X]] followed a Middle-Eastern guide over the bridge.", "'middle eastern'"),
    ("option_1", "[[X]] followed the old man over the bridge at once.", "'man'"),
    ("option_1", "[[X]] followed the old people over the bridge at once.", "'old people'"),
    ("option_1", "[[X]] made a brave face and went over at once.", "'brave' names the concept"),
    ("option_1", "[[X]] bravely gripped the ropes and went over at once.", "'bravely' names"),
    ("option_1", "[[X]] shook off all timidity and went over at once.", "'timidity' names"),
    ("context", "[[X]] reached the bridge that only the brave had crossed.", "'brave' names"),
    ("option_2", "[[X]] sat down on the bank.", "13 and 6 words"),
    ("concept_1", "braver than most men", "'men'"),
    ("concept_1", "[[X]] is brave", "without [[X]]"),
    ("concept_2", "Brave", "the same as concept_1"),
    ("id", "River Crossing", "hyphens"),
    ("option_2", "", "missing, empty"),
    ("option_2", 7, "missing, empty"),
    ("note", "hello", "no field"),
]


@rows("field, text, message", FAULTS)
def test_a_fault_is_found_and_named(field: str, text: Any, message: str) -> None:
    found = [str(f) for f in lint.lint([GOOD | {field: text}])]
    assert any(message in line for line in found), found


HARMLESS = [
    ("context", "[[X]] set an old wooden chair beside the black car."),
    ("context", "[[X]] reached the white fence in the rain."),
    ("option_1", "Without a word [[X]] gripped the ropes and went over the gap."),
    ("option_1", "[[X]]'s hands gripped the ropes and pulled hard at each gap."),
    ("option_1", "[[X]] thanked the neighbour's child and then went over at once."),
    ("option_1", "[[X]] took its good ropes and then went over at once."),
]


@rows("field, text", HARMLESS)
def test_ordinary_words_pass(field: str, text: str) -> None:
    assert lint.lint([GOOD | {field: text}]) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "river-crossing"}, "occurs twice"),
        ({"concept_1": "timid", "concept_2": "brave"}, "the same two concepts"),
        ({"context": GOOD["context"].replace("the rope", "a rope")}, "the same words as"),
        ({"context": "[[X]] reached the rope bridge above the swollen brook."}, "a template of"),
        ({"option_1": GOOD["option_1"]}, "the same words as"),
    ],
)
def test_templates_do_not_count(change: dict[str, Any], message: str) -> None:
    found = [str(f) for f in lint.lint([GOOD, OTHER | change])]
    assert any(message in line for line in found), found


BAD_VARIANTS = [
    (variants(id="nowhere"), "no concept pair"),
    (variants(option_1=["[[X]] walked over the bridge at once."]), "exactly 10"),
    (variants(option_2="text"), "exactly 10"),
    (variants(option_3=[]), "nothing else"),
    ({"id": "river-crossing"}, "nothing else"),
    (variants(option_1=[GOOD["option_1"], *variants()["option_1"][1:]]), "the option_1 of"),
    (variants(option_1=variants()["option_1"][:9] * 1 + ["[[X]] went the apple."]), "4 words"),
    (variants(option_1=[*variants()["option_1"][:9], variants()["option_1"][0]]), "same words"),
    (
        variants(option_1=[*variants()["option_1"][:9], "[[X]] held his hat and went right over."]),
        "'his'",
    ),
    (
        variants(option_1=[*variants()["option_1"][:9], "[[X]] was brave and went right over."]),
        "'brave' names",
    ),
]


@rows("entry, message", BAD_VARIANTS)
def test_variants_are_checked(entry: dict[str, Any], message: str) -> None:
    found = [str(f) for f in lint.lint([GOOD], [entry])]
    assert any(message in line for line in found), found


def test_variants_of_one_pair_stand_on_one_line() -> None:
    found = lint.lint([GOOD], [variants(), variants()])
    assert [f.message for f in found] == ["has several lines in variants.jsonl; join them"] * 2


@rows(
    "one, other",
    [
        ("brave", "bravery"),
        ("brave", "bravely"),
        ("honest", "honesty"),
        ("cook", "cooking"),
        ("timid", "timidity"),
        ("lead", "leader"),
        ("lazy", "laziness"),
        ("care", "careful"),
        ("plan", "planning"),
        ("study", "studies"),
    ],
)
def test_words_of_one_family(one: str, other: str) -> None:
    assert lint.same_word_family(one, other)
    assert lint.same_word_family(other, one)


@rows(
    "one, other",
    [
        ("car", "care"),
        ("lead", "leaf"),
        ("hat", "hate"),
        ("plan", "planet"),
        ("cook", "cool"),
        ("book", "bookcase"),
        ("the", "then"),
        ("a", "an"),
    ],
)
def test_other_words_are_no_kin(one: str, other: str) -> None:
    assert not lint.same_word_family(one, other)


def test_the_shipped_pack_is_clean() -> None:
    items, variants = pack.read_folder(shipped("benchmarks") / "hbb")
    assert [str(f) for f in lint.lint(items, variants)] == []


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(shipped("benchmarks") / "hbb", tmp_path / "pack"))


def test_record_writes_hashes_and_counts(copied: Path) -> None:
    (copied / "items.jsonl").write_text(json.dumps(GOOD) + "\n")
    (copied / "variants.jsonl").write_text(json.dumps(variants()) + "\n")
    assert lint.main([str(copied), "--record"]) == 0
    text = (copied / "pack.toml").read_text()
    assert "pairs = 1\nvariants = 1\n" in text
    assert hashlib.sha256((copied / "items.jsonl").read_bytes()).hexdigest() in text


def test_nothing_is_recorded_with_findings(copied: Path, capsys: pytest.CaptureFixture) -> None:
    before = (copied / "pack.toml").read_text()
    (copied / "items.jsonl").write_text(json.dumps(GOOD | {"id": "A B"}) + "\n")
    assert lint.main([str(copied), "--record"]) == 1
    assert "A B: id: use lower-case words" in capsys.readouterr().out
    assert (copied / "pack.toml").read_text() == before
