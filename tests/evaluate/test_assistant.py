"""Our own harmless sentences: their make-up, and that none of them is trained on or indexed."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

from guard.evaluate.columns import Prediction, columns
from guard.evaluate.example import Example
from guard.evaluate.metrics import figures
from guard.evaluate.sources import SOURCES, load, place, present
from guard.places import shipped
from guard.results.intervals import clopper_pearson
from guard.train.own import corpus_folder
from guard.verdict import BIAS_TYPES

NOWHERE = Path("nowhere")
# Words that name groups, masked to see whether sentences differ in the group alone.
_GROUPS = frozenset(
    "women men woman man girl girls boy boys mother mothers father fathers trans black white asian "
    "african hispanic latino latina muslim muslims jew jews jewish christian christians catholic "
    "hindu hindus sikh sikhs buddhists irish polish turkish german germans french indian indians "
    "chinese gay lesbian lesbians bisexual queer straight asexual blind deaf autistic disabled "
    "old older young teenagers tall short fat bald nurses teachers farmers lawyers she he".split()
)


def rows() -> list[dict[str, str | None]]:
    lines = place(SOURCES["assistant"], NOWHERE).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def folded(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def test_make_up() -> None:
    found = rows()
    assert len(found) >= 1000
    assert all(set(row) == {"text", "topic", "bias_type"} for row in found)
    types = Counter(row["bias_type"] for row in found)
    assert set(types) == {None, *BIAS_TYPES}
    assert len(found) - types[None] >= 0.4 * len(found)
    assert all(len(str(row["text"]).split()) <= 40 for row in found)


def test_sentences_are_distinct_and_no_frame_is_common() -> None:
    texts = [folded(str(row["text"])) for row in rows()]
    assert len(set(texts)) == len(texts)
    frames = Counter(" ".join("#" if w in _GROUPS else w for w in t.split()) for t in texts)
    assert max(frames.values()) <= 0.01 * len(texts)


def test_no_sentence_is_trained_on_or_indexed() -> None:
    seen = {
        folded(value)
        for path in (*corpus_folder().glob("*.jsonl"), shipped("index") / "statements.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip()
        for value in json.loads(line).values()
        if isinstance(value, str)
    }
    assert len(seen) > 1000
    assert not [row["text"] for row in rows() if folded(str(row["text"])) in seen]


def test_it_is_a_set_of_its_own_without_a_data_folder() -> None:
    dataset = load("assistant", NOWHERE)
    assert len(dataset.examples) == len(rows())
    assert {e.biased for e in dataset.examples} == {False}
    assert present(NOWHERE)["assistant"]
    for example, row in zip(dataset.examples, rows(), strict=True):
        assert example.axes == {"topic": row["topic"], "bias_type": row["bias_type"] or "none"}
        assert example.parts == (("a" if row["bias_type"] else "no") + " group named",)


def test_the_false_positive_rate_has_the_exact_interval() -> None:
    examples = [Example("some words", False, f"t:{i}") for i in range(100)]
    answers = [Prediction(0.9, True) if i < 5 else Prediction(0.1, False) for i in range(100)]
    rate = figures(columns(examples, answers), draws=20, seed=0)["false_positive_rate"]
    assert (rate.low, rate.high) == clopper_pearson(5, 100)
    # Variants of one unit are not independent: drawn together.
    paired = [Example("some words", False, f"t:{i}", unit=f"u{i // 2}") for i in range(100)]
    rate = figures(columns(paired, answers), draws=20, seed=0)["false_positive_rate"]
    assert (rate.low, rate.high) != clopper_pearson(5, 100)
