"""Differences between the scores of two processors are found."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from guard.detect.encoder import Encoder
from guard.verdict import BIAS_TYPES
from tests.scripts import load
from tests.small import WEIGHTS

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "speed" / "processors.py"


@pytest.fixture
def processors(monkeypatch: pytest.MonkeyPatch) -> Any:
    return load(SCRIPT, monkeypatch)


def test_differences_and_flips_are_found(processors: Any) -> None:
    points = {
        "strict": dict.fromkeys(BIAS_TYPES, 0.3),
        "balanced": dict.fromkeys(BIAS_TYPES, 0.5) | {"age": 0.6},
    }
    here = [
        processors.Scored(0.295, "race"),
        processors.Scored(0.55, "age"),
        processors.Scored(0.9, "race"),
    ]

    def found(*there: tuple[float, str]) -> Any:
        others = [processors.Scored(*row) for row in there]
        return processors.compare(["one", "two", "three"], here, others, points)

    same = found((0.299, "race"), (0.545, "age"), (0.9, "race"))
    assert same.same
    assert same.greatest == pytest.approx(0.005)
    assert same.sentence == "two"
    # So little a difference, and yet another verdict.
    flipped = found((0.3, "race"), (0.55, "age"), (0.9, "race"))
    assert not flipped.same
    assert flipped.flips == {"strict": ["one"], "balanced": []}
    # The same score of another type meets another threshold.
    assert found((0.295, "race"), (0.55, "race"), (0.9, "race")).flips["balanced"] == ["two"]
    # No flip, and too great a difference.
    assert not found((0.295, "race"), (0.55, "age"), (0.88, "race")).same


def test_a_sentence_that_is_left_unjudged_is_compared(processors: Any) -> None:
    encoder = Encoder(WEIGHTS, use_references=False)
    texts = ["Das Buch liegt auf dem Tisch, und niemand liest es.", "Old people are useless."]
    found = processors.score(encoder, texts)
    assert found[0] == processors.Scored(None, None)
    assert json.loads(json.dumps(found))[0] == [None, None]
    points = encoder.operating_points
    same = processors.compare(texts, found, found, points)
    assert (same.same, same.greatest) == (True, 0.0)
    flipped = processors.compare(texts, found, [processors.Scored(0.0, "race"), found[1]], points)
    assert flipped.flips == {name: [texts[0]] for name in points}
    assert not flipped.same


def test_the_sentences_are_of_every_behaviour(processors: Any) -> None:
    found = processors.sentences(200)
    assert len(set(found)) == len(found) == 200
    folder = SCRIPT.parent / "detector" / "behaviours"
    for file in folder.glob("*.jsonl"):
        texts = [json.loads(line)["text"] for line in file.read_text("utf-8").splitlines()]
        assert set(texts) & set(found)


def test_without_the_emulator_it_says_so(
    processors: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["processors.py"])
    monkeypatch.setenv("PATH", "")
    assert processors.main() == 2
    assert capsys.readouterr().err == "qemu-x86_64 is missing: apt-get install qemu-user.\n"


@pytest.mark.slow("judges hundreds of sentences on an emulated processor", limit_s=3600)
@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="needs qemu-x86_64")
def test_the_shipped_weights_score_alike_with_and_without_vnni() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
