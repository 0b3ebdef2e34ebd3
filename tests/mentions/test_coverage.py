"""The shipped words against the groups of the bias index, and against text about other things."""

from __future__ import annotations

import json
from pathlib import Path

from guard.mentions import first_mention, shipped_lexicon
from guard.places import shipped

EVERYDAY = Path(__file__).parents[2] / "benchmarks" / "speed" / "everyday.jsonl"


def test_nearly_every_group_of_the_index_is_seen() -> None:
    """With whole texts and no detector, so that a change of the words shows at once."""
    groups = missed = 0
    lines = (shipped("index") / "statements.jsonl").read_text(encoding="utf-8").splitlines()
    for row in map(json.loads, lines):
        text, group = row["statement"].lower(), row["group"].lower()
        if group in text:
            begin = first_mention(text, shipped_lexicon(), pronouns=False)
            groups += 1
            missed += begin is None or begin >= text.index(group) + len(group)
    assert groups > 2000
    assert missed / groups < 0.02


def test_text_about_other_things_is_hardly_held() -> None:
    held = total = 0
    for line in EVERYDAY.read_text(encoding="utf-8").splitlines():
        for sentence in json.loads(line)["text"].split(". "):
            begin = first_mention(sentence, shipped_lexicon(), pronouns=False)
            total += len(sentence)
            held += 0 if begin is None else len(sentence) - begin
    assert held / total < 0.05
