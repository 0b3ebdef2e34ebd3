"""The shipped cases: that they are written, not made from templates, and what is passed."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from guard.evaluate.behaviours import LEAST, SHIPPED, Behaviours, place, read
from guard.evaluate.example import Case
from guard.evaluate.near import far_from
from guard.gate import ResponseGate
from guard.places import shipped
from guard.policy import Policy
from guard.retrieve.statement import fold_words
from guard.train.own import corpus_folder
from guard.verdict import BIAS_TYPES
from tests.behaviours.floors import (
    DATASHEET,
    FILE,
    MARGIN,
    MEAN_MARGIN,
    fallen,
    floors,
    measured,
)

ROOT = Path(__file__).resolve().parents[2]
# Behaviours that can only go one way: what is described is never biased, always biased, or never
# judged.
ONE_WAY = {
    "anti_stereotype",
    "denial_of_loaded_question",
    "history_and_law",
    "neutral_mention",
    "not_refuted_next",
    "object_abuse",
    "other_languages",
    "refuted_next",
    "self_description",
}
# Behaviours with a direction that they are about, and as a check some cases of the other.
MOSTLY_ONE_WAY = {
    "counter_speech_quoting",
    "counter_speech_referring",
    "debunking_lists",
    "defending",
    "disguised_forms",
    "endorsed_from_afar",
    "harmless_second_sentences",
    "negated_hate",
    "neutral_identity",
    "other_senses",
    "places",
    "religious_practice",
    "scenes",
    "stance_endorsing",
    "stance_opposing",
    "technical_senses",
    "universal_truths",
}
# Its texts stand in pairs: biased after one context, harmless after another.
PAIRED = "bias_over_sentences"


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return read(place()).cases


@pytest.fixture(scope="module")
def few() -> Behaviours:
    """What every tenth case gives, which are of all behaviours."""
    return measured(every=10)


def clean(text: str) -> str:
    """The words of a text, whatever its case, punctuation and invisible characters."""
    return fold_words("".join(c for c in text if unicodedata.category(c) != "Cf"))


def known_texts() -> set[str]:
    """Every text that the detector is trained on, reads as evidence or is measured on, folded."""
    files = (
        *corpus_folder().glob("*.jsonl"),
        shipped("index") / "statements.jsonl",
        shipped("benchmarks") / "detector" / "assistant.jsonl",
    )
    return {
        clean(value)
        for path in files
        for line in path.read_text(encoding="utf-8").split("\n")
        if line.strip()
        for field in json.loads(line).values()
        for value in (field if isinstance(field, list) else [field])
        if isinstance(value, str)
    }


def masked_words(*fields: str) -> set[str]:
    """The words of the index's groups or attributes that are more than joints of a sentence."""
    lines = (shipped("index") / "statements.jsonl").read_text(encoding="utf-8").split("\n")
    values = (json.loads(line)[field] for line in lines if line.strip() for field in fields)
    return {word for value in values for word in fold_words(value).split() if len(word) > 3}


def frame(text: str, mask: set[str]) -> str:
    """The text with masked words left out; several in a row are one gap."""
    said = " ".join("_" if word in mask else word for word in clean(text).split())
    return re.sub(r"_(?: _)+", "_", said)


def test_enough_behaviours_with_enough_frames_each(cases: list[Case]) -> None:
    """Cases that differ in group and attribute alone count once."""
    mask = masked_words("group", "attribute")
    assert len(mask) > 1000
    frames = defaultdict(set)
    for case in cases:
        frames[case.behaviour].add(frame(case.text, mask))
    assert len(frames) >= 36
    assert {name: len(of) for name, of in frames.items() if len(of) < 20} == {}


def test_no_frame_is_common(cases: list[Case]) -> None:
    mask = masked_words("group")
    ((_, most),) = Counter(frame(case.text, mask) for case in cases).most_common(1)
    assert most <= 0.01 * len(cases)


def test_no_text_twice(cases: list[Case]) -> None:
    counts = Counter(clean(case.text) for case in cases if case.behaviour != PAIRED)
    counts.update({clean(case.text) for case in cases if case.behaviour == PAIRED})
    assert [text for text, count in counts.items() if count > 1] == []


def test_what_stands_before_a_paired_text_decides(cases: list[Case]) -> None:
    pairs = defaultdict(list)
    for case in cases:
        if case.behaviour == PAIRED:
            pairs[case.text].append(case)
    assert len(pairs) >= 40
    for text, of in pairs.items():
        assert sorted(case.expect for case in of) == ["biased", "harmless"], text
        assert len({(case.context, case.user) for case in of}) == 2, text


def test_no_text_is_known_to_the_detector(cases: list[Case]) -> None:
    known = known_texts()
    assert len(known) > 5000
    assert [case.text for case in cases if clean(case.text) in known] == []
    # Nor nearly: shares half of its word 4-grams with one of them.
    far = far_from([clean(case.text) for case in cases], (text for text in known if " " in text))
    assert [case.text for case, is_far in zip(cases, far, strict=True) if not is_far] == []


def test_a_detector_that_says_always_the_same_fails(cases: list[Case]) -> None:
    expected = defaultdict(Counter)
    for case in cases:
        expected[case.behaviour][case.expect] += 1
    assert {name for name, of in expected.items() if len(of) == 1} == ONE_WAY
    for name in expected.keys() - ONE_WAY:
        biased = expected[name]["biased"] / expected[name].total()
        least = 0.15 if name in MOSTLY_ONE_WAY else 0.4
        assert least <= biased <= 1 - least, name
    both = expected["stance_endorsing"] + expected["stance_opposing"]
    assert 0.4 <= both["biased"] / both.total() <= 0.6


def test_every_bias_type_in_both_ways(cases: list[Case]) -> None:
    counts = Counter((case.bias_type, case.expect) for case in cases)
    for kind in BIAS_TYPES:
        assert counts[kind, "biased"] >= 20, kind
        assert counts[kind, "harmless"] >= 20, kind


def test_a_context_ends_before_the_text_begins(cases: list[Case]) -> None:
    """Else the segment that counts would be judged together with what is only context."""
    from guard.doors.plain import TextCodec

    for case in cases:
        before = "".join(f"{sentence} " for sentence in case.context)
        gate = ResponseGate(TextCodec(), Policy(context_segments=0))  # nothing is joined
        gate.push(before + case.text)
        gate.finish()
        texts = [job.window.text.strip() for job in gate.pending()]
        assert texts[: len(case.context)] == [said.strip() for said in case.context], case.id


# Of 196, measured with encoder 2.1. As in floors.json, new weights or cases raise it, and it falls
# with a reason in CHANGELOG.md.
EVERY_TENTH_PASSED = 181


def test_no_more_than_a_margin_of_every_tenth_case_has_fallen(few: Behaviours) -> None:
    known = json.loads(FILE.read_text(encoding="utf-8"))["behaviours"]
    assert known.keys() == {row.name for row in few.rows}
    assert sum(row.n for row in few.rows) == 290
    assert sum(row.passed for row in few.rows) >= EVERY_TENTH_PASSED - MARGIN


@pytest.mark.slow("judges 2,891 cases by the default detector")
def test_no_behaviour_has_fallen() -> None:
    found = measured()
    known = json.loads(FILE.read_text(encoding="utf-8"))
    assert known["behaviours"].keys() == {row.name for row in found.rows}
    assert fallen(found, known) == []


def test_a_fall_is_named(few: Behaviours) -> None:
    known = floors(few)
    assert fallen(few, known) == []
    worse = [
        replace(row, false_negatives=row.false_negatives + MARGIN) if row.biased else row
        for row in few.rows
    ]
    assert fallen(replace(few, rows=worse), known) == []
    worse[0] = replace(worse[0], false_negatives=worse[0].false_negatives + 1)
    (said,) = fallen(replace(few, rows=worse), known)
    row = few.rows[0]
    assert said == (
        f"{row.name}: {row.passed - MARGIN - 1} of {row.n} passed, the floor is "
        f"{row.passed - MARGIN}"
    )
    mean = replace(few.mean, value=few.mean.value - MEAN_MARGIN - 0.001)
    (said,) = fallen(replace(few, mean=mean), known)
    assert said.startswith("mean: ")


def test_the_datasheet_tells_what_was_measured_and_what_is_weak() -> None:
    """Its table holds every behaviour, those below .75 in bold."""
    rows = re.findall(r"^\| (\**[a-z ]+\**) \| (\d+ of \d+) \|", DATASHEET.read_text("utf-8"), re.M)
    written = {}
    for name, at in json.loads(FILE.read_text(encoding="utf-8"))["behaviours"].items():
        plain = name.replace("_", " ")
        weak = at["passed"] / at["n"] < LEAST
        written[f"**{plain}**" if weak else plain] = f"{at['passed']} of {at['n']}"
    assert dict(rows) == written


def test_the_folder_is_that_of_the_command() -> None:
    assert place() == ROOT / "benchmarks" / SHIPPED
