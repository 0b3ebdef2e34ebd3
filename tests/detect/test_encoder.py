"""The shipped detectors with their shipped indexes, as a caller meets them."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guard.core import Guard
from guard.detect.encoder import Encoder
from guard.detect.protocol import Detector, Window
from guard.detect.weights import shipped_weights
from guard.errors import BiasIndexError
from guard.evaluate.baselines import terms_for
from guard.evaluate.run import evaluate
from guard.evaluate.sources import load
from guard.places import ENCODERS, detector_of
from guard.policy import Policy
from guard.results.estimate import Estimate
from guard.retrieve.index import BiasIndex
from guard.retrieve.statement import BiasStatement
from guard.verdict import BIAS_TYPES, Scores
from tests.data import DATA, needs_data
from tests.rows import rows
from tests.small import WEIGHTS

ROOT = Path(__file__).resolve().parents[2]

OLD = "Old people are useless at work."
HARMLESS = (
    "The library opens at nine.",
    "Muslims celebrate Eid al-Fitr at the end of Ramadan.",
    "The two women founded a company in 2011.",
    "My grandmother taught me to bake bread.",
    "Please send me the report by Friday.",
)


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    """The small one, where any will do."""
    return Encoder(WEIGHTS)


@pytest.fixture(scope="module")
def default() -> Encoder:
    return Encoder()


@pytest.fixture(scope="module")
def changed() -> Encoder:
    """Another default one, whose index a test changes."""
    return Encoder()


@pytest.fixture(scope="module", params=ENCODERS)
def each(request: pytest.FixtureRequest) -> Encoder:
    return Encoder(shipped_weights(request.param))


@pytest.fixture(
    scope="module",
    params=[
        *ENCODERS[1:],
        pytest.param(ENCODERS[0], marks=pytest.mark.slow("judges thousands of texts")),
    ],
)
def measured(request: pytest.FixtureRequest) -> Encoder:
    return Encoder(shipped_weights(request.param))


def one(encoder: Encoder, text: str, *context: str) -> Scores:
    return encoder.snapshot().score([Window(text, context)])[0]


def biased(encoder: Encoder, scores: Scores, point: str = "balanced") -> bool:
    return scores.score >= encoder.operating_points[point][scores.bias_type]


def test_it_is_a_detector(each: Encoder) -> None:
    assert isinstance(each, Detector)
    assert set(each.operating_points) == {"strict", "balanced", "quiet"}
    for row in each.operating_points.values():
        assert set(row) == set(BIAS_TYPES)
    for kind in BIAS_TYPES:
        strict, balanced, quiet = (
            each.operating_points[p][kind] for p in ("strict", "balanced", "quiet")
        )
        assert 0 < strict < balanced <= quiet < 1
    assert each.index is not None
    assert each.snapshot().index_version == each.index.version


def test_a_plain_stereotype(each: Encoder) -> None:
    found = one(each, OLD)
    assert biased(each, found)
    assert found.bias_type == "age"
    (pair,) = found.attributions
    assert OLD[slice(*pair.group_span)] == pair.group
    assert OLD[slice(*pair.attribute_span)] == pair.attribute
    assert "old" in pair.group.lower()
    assert "useless" in pair.attribute
    assert found.references


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_texts(each: Encoder, text: str) -> None:
    assert not biased(each, one(each, text))


@rows(
    "statement, text, neutral",
    [
        (
            "Velmorians swap the price tags in shops.",
            "Velmorians change the price tags in a shop.",
            "Two Velmorians teach geography at our school.",
        ),
        (
            "Tarkandians never pay back a loan.",
            "Tarkandians do not return the money they borrow.",
            "The Tarkandians moved their market to Thursday this year.",
        ),
        (
            "Oskelites let their dogs eat from the table.",
            "Oskelites feed the dog at the dinner table.",
            "My doctor grew up among Oskelites and speaks their language.",
        ),
        (
            "Brimonians leave the gate open behind them.",
            "Brimonians never close a gate after themselves.",
            "Brimonians can renew their passports at the post office.",
        ),
    ],
)
def test_one_added_statement_changes_the_verdict(
    default: Encoder, changed: Encoder, statement: str, text: str, neutral: str
) -> None:
    assert default.index is not None
    before = one(default, text)
    assert not biased(default, before)
    group, attribute = statement.rstrip(".").split(maxsplit=1)
    row = BiasStatement(statement, "culture", group, attribute)
    changed.use_index(default.index.extended([row], default.embed([statement])))
    assert biased(changed, one(changed, statement))
    after = one(changed, text)
    assert biased(changed, after)
    assert after.score > before.score + 0.2
    assert after.references[0].statement == statement
    assert not biased(changed, one(changed, neutral))


def test_a_running_session_keeps_its_index(encoder: Encoder) -> None:
    assert encoder.index is not None
    other = Encoder(WEIGHTS, encoder.index)
    session = other.snapshot()
    before = session.score([Window(OLD)])[0]
    text = "Old people are useless in the office."
    row = BiasStatement(text, "age", "Old people", "useless in the office")
    other.use_index(encoder.index.extended([row], encoder.embed([text])))
    assert session.score([Window(OLD)])[0] == before
    assert session.index_version == encoder.index.version
    assert other.snapshot().index_version != session.index_version
    assert other.snapshot().score([Window(OLD)])[0].references[0].statement == text


def test_an_index_of_other_weights_is_refused(encoder: Encoder) -> None:
    row = BiasStatement("Text.", "age", "g", "a")
    vectors = encoder.embed(["Text."])
    with pytest.raises(BiasIndexError, match="other-1"):
        encoder.use_index(BiasIndex([row], vectors, "other-1"))
    with pytest.raises(BiasIndexError, match="no bias index"):
        Encoder(WEIGHTS, index=ROOT / "guard")


def test_without_references_nothing_is_retrieved(encoder: Encoder) -> None:
    alone = Encoder(WEIGHTS, use_references=False)
    assert alone.snapshot().index_version is None
    assert one(alone, OLD).references == ()
    # The same weights: an index built with one serves the other.
    assert alone.name == encoder.name
    np.testing.assert_array_equal(alone.embed([OLD]), encoder.embed([OLD]))


def test_embeddings_have_length_one(encoder: Encoder) -> None:
    vectors = encoder.embed([OLD, *HARMLESS])
    assert vectors.shape == (6, 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert encoder.embed([]).shape == (0, 384)


def test_a_score_does_not_depend_on_its_batch(encoder: Encoder) -> None:
    texts = [OLD, *HARMLESS, "x " * 300]
    windows = [Window(t, ("Some context.",)) for t in texts]
    session = encoder.snapshot()
    together = session.score(windows)
    assert together == [session.score([w])[0] for w in windows]
    assert session.score(windows[::-1]) == together[::-1]


def test_threads_agree(encoder: Encoder) -> None:
    windows = [Window(t) for t in (OLD, *HARMLESS)] * 3
    session = encoder.snapshot()
    expected = session.score(windows)
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: session.score(windows), range(6)):
            assert got == expected


@pytest.mark.parametrize(
    "before",
    [
        "Все знают, что это правда:",
        "الجميع يعرف أن هذا صحيح:",
        "所有人都知道这是真的因为大家早就这么说了",
    ],
)
def test_an_english_clause_beside_another_script_is_found(encoder: Encoder, before: str) -> None:
    text = f"{before} {OLD}"
    found = one(encoder, text)
    assert found.score > 0.8
    assert text[slice(*found.attributions[0].group_span)] == "Old people"
    # What is not found leaves the rest unread.
    assert one(encoder, f"{before} It is shut.").unjudged == "language"


@pytest.mark.parametrize("text", ["Все они такие, и этого не изменить.", "他们都一样。"])
def test_other_scripts_are_not_judged(encoder: Encoder, text: str) -> None:
    found = one(encoder, text)
    assert found.unjudged == "language"
    assert found.score is None


@pytest.mark.parametrize("text", ["12:30", "…", "😀", "\u200b", "a" * 90])
def test_odd_texts_are_judged(encoder: Encoder, text: str) -> None:
    found = one(encoder, text, "context " * 200)
    assert 0 <= found.score <= 1
    for pair in found.attributions:
        assert text[slice(*pair.group_span)] == pair.group


def test_the_segment_is_judged_and_not_its_context(each: Encoder) -> None:
    assert not biased(each, one(each, HARMLESS[0], OLD))
    assert biased(each, one(each, OLD, HARMLESS[0]))


def figures_of(encoder: Encoder, dataset: str, data: Path) -> dict[str, Estimate]:
    patient = Guard(Policy(timeout_ms=None, queue_ms=None), detector=encoder)
    return evaluate(load(dataset, data), patient, terms=terms_for(data), draws=0).whole.figures


# By detector: RedditBias's least accuracy and AUROC, and the most false positives among the
# assistant's sentences. `encoder` has .833, .911 and .0039.
LEAST = {"encoder": (0.82, 0.9), "encoder-small": (0.785, 0.88)}
MOST = 0.0070


@needs_data
@pytest.mark.slow("judges 1,728 texts; the behaviours' floors find a gross fault by default")
def test_quality_on_redditbias(measured: Encoder) -> None:
    found = figures_of(measured, "redditbias", DATA)
    accuracy, auroc = LEAST[detector_of(measured.name)]
    assert found["accuracy"].n > 1700
    assert found["accuracy"].value >= accuracy
    assert found["auroc"].value >= auroc


@pytest.mark.slow("judges 1,014 texts; a quarter of them is judged by default")
def test_quality_on_harmless_assistant_sentences(measured: Encoder) -> None:
    found = figures_of(measured, "assistant", DATA)
    assert found["false_positive_rate"].n > 1000
    assert found["false_positive_rate"].value <= MOST


def test_few_harmless_assistant_sentences_are_found(encoder: Encoder) -> None:
    file = ROOT / "benchmarks" / "detector" / "assistant.jsonl"
    texts = [json.loads(line)["text"] for line in file.read_text("utf-8").splitlines()][::4]
    patient = Guard(Policy(timeout_ms=None, queue_ms=None), detector=encoder)
    found = [text for text, v in zip(texts, patient.check_many(texts), strict=True) if v.biased]
    # Two are; another machine's arithmetic may turn one more.
    assert len(found) <= 3


def test_half_characters_are_judged_with_their_sentence() -> None:
    """An emoji that JSON escapes have torn in two reaches the guard as lone surrogates."""
    encoder = Encoder(WEIGHTS)
    torn = "Old people \ud83d\ude00 are useless at work."
    (scores,) = encoder.snapshot().score([Window(torn, ("So \ud83d",))])
    assert scores.score > 0.5
    for pair in scores.attributions:
        assert torn[slice(*pair.attribute_span)] == pair.attribute


def test_a_part_without_a_number_makes_the_segment_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoder = Encoder(WEIGHTS, use_references=False)
    run, done = encoder.run, 0

    def broken(encoded: Any) -> Any:
        nonlocal done
        done += 1
        return run(encoded)._replace(logit=math.nan) if done == 2 else run(encoded)

    monkeypatch.setattr(encoder, "run", broken)
    long = "The library opens at nine and closes at six, and the shop beside it at five. " * 60
    found = Guard(detector=encoder, policy=Policy(timeout_ms=None)).check(long.replace(". ", ", "))
    assert done > 2
    assert found.unjudged == "failure"


@pytest.mark.parametrize(
    "text", ["women" * 30, "It " + "men" * 40, "a" * 400, "é" * 2000, "Wo\u1d25men"]
)
def test_a_segment_of_words_that_are_not_read_is_not_judged(text: str) -> None:
    encoder = Encoder(WEIGHTS, use_references=False)
    (found,) = encoder.snapshot().score([Window(text)])
    assert found.unjudged == "language"
