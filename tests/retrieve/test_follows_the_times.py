"""Statements about a group that nobody knew yesterday are enough for guard to know it today.

``python -m tests.retrieve.times`` prints the figures that the limits here leave room beside.
"""

from __future__ import annotations

import asyncio
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from guard import Guard
from guard.detect.encoder import Encoder
from guard.places import shipped_index
from guard.retrieve.index import BiasIndex
from guard.retrieve.statement import fold_words
from tests.retrieve.times import ADDED, KINDS, POINTS, SENTENCES, Change, Measured, extend, measure

every_sentence = pytest.mark.slow("judges 500 sentences by the default detector")

# Of how many sentences more may be called biased after the addition: 40 neutral ones, 20 that
# deny, report or question a stereotype, 30 that are not about the group at all. `strict` pays for
# what it finds with denials it takes for claims.
MOST = {
    "strict": {"neutral": 2, "opposed": 4, "elsewhere": 3},
    "balanced": {"neutral": 1, "opposed": 2, "elsewhere": 2},
    "quiet": {"neutral": 1, "opposed": 1, "elsewhere": 0},
}


@pytest.fixture(scope="module")
def found() -> Measured:
    return measure()


@pytest.fixture(scope="module")
def few() -> Measured:
    """The added statements and the neutral sentences alone."""
    return measure([s for s in SENTENCES if s.kind in ("statement", "neutral")])


@pytest.fixture
def loop() -> Iterator[None]:
    """Own the loop that LiteLLM otherwise makes in synchronous calls and never closes."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


def test_the_sentences() -> None:
    counts = Counter(s.kind for s in SENTENCES)
    assert counts == dict(zip(KINDS, (20, 60, 60, 20, 40, 20, 30), strict=True))
    assert len({fold_words(s.text) for s in SENTENCES}) == len(SENTENCES)
    for sentence in SENTENCES:
        assert ("Ondwel" in sentence.text) == (sentence.kind not in ("renamed", "elsewhere"))
    of = Counter(s.of for s in SENTENCES if s.kind == "paraphrase")
    assert of == dict.fromkeys((s.statement for s in ADDED), 3)


def test_the_shipped_index_does_not_know_the_group(few: Measured) -> None:
    shipped = BiasIndex.load(shipped_index("encoder"), None)
    assert not any("ondwel" in fold_words(s.statement) for s in shipped.statements)
    assert few.encoder.index is not None
    assert len(few.encoder.index) == len(shipped) + len(ADDED)


def test_the_added_statements_are_found(few: Measured) -> None:
    change = few.change("balanced", "statement")
    assert change.before <= 4
    assert change.after >= 18


# Measured 8 and 10 gained, 48 and 33 found afterwards: at `strict` 40 are found without them.
LEAST = {"strict": 6, "balanced": 9}
AFTER = {"strict": 47, "balanced": 32}


@every_sentence
@pytest.mark.parametrize("point", ["strict", "balanced"])
def test_recall_rises(found: Measured, point: str) -> None:
    change = found.change(point, "paraphrase")
    assert change.rise >= LEAST[point]
    assert change.after >= AFTER[point]
    assert change.p < (0.05 if point == "balanced" else 0.1)


@every_sentence
def test_recall_does_not_fall_at_quiet(found: Measured) -> None:
    assert found.change("quiet", "paraphrase").rise >= 0


@every_sentence
def test_the_reference_is_the_statement_that_was_paraphrased(found: Measured) -> None:
    assert found.own_first() >= 47


@pytest.mark.parametrize("point", POINTS)
def test_neutral_sentences_are_hardly_found(few: Measured, point: str) -> None:
    assert few.change(point, "neutral").rise <= MOST[point]["neutral"]


@every_sentence
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("kind", ["opposed", "elsewhere"])
def test_false_positives_do_not_increase(found: Measured, point: str, kind: str) -> None:
    assert found.change(point, kind).rise <= MOST[point][kind]


@every_sentence
@pytest.mark.parametrize(("point", "most"), [("strict", 3), ("balanced", 7), ("quiet", 5)])
def test_statements_about_one_group_do_not_match_another(
    found: Measured, point: str, most: int
) -> None:
    assert abs(found.change(point, "renamed").rise) <= most


@every_sentence
@pytest.mark.parametrize("point", POINTS)
def test_other_stereotypes_are_found_as_before(found: Measured, point: str) -> None:
    """Knowing twenty stereotypes about a group is no reason to see others everywhere, or fewer."""
    change = found.change(point, "unlisted")
    assert -1 <= change.rise <= 4


@pytest.mark.usefixtures("loop")
def test_a_running_guard_uses_the_added_statements() -> None:
    encoder = Encoder()
    guard = Guard(detector=encoder)
    first = "The valley has four villages and a railway station. "
    claim = "Ondwels take the hotel towels with them when they check out."

    def answer() -> tuple[Any, str]:
        stream = guard.completion(
            model="openai/x",
            messages=[{"role": "user", "content": "Tell me about the valley."}],
            mock_response=f"{first}{claim} The train leaves at nine.",
            stream=True,
        )
        return stream, "".join(c.choices[0].delta.content or "" for c in stream)

    stream, text = answer()
    assert text == f"{first}{claim} The train leaves at nine."
    assert not stream.guard.findings

    extend(encoder)
    stream, text = answer()
    assert text == first + guard.policy.message
    (finding,) = stream.guard.findings
    reference = finding.verdict.references[0]
    assert reference.statement == "Ondwels pack the hotel towels before they check out."
    assert (reference.group, reference.bias_type) == ("Ondwels", "culture")


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [(0, 0, 1.0), (5, 0, 0.0625), (6, 0, 0.03125), (10, 2, 0.03857421875), (3, 3, 1.0)],
)
def test_mcnemar(gained: int, lost: int, p: float) -> None:
    assert Change(20, 9, 9 + gained - lost, gained, lost).p == pytest.approx(p, abs=1e-12)
