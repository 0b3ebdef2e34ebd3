"""Which texts teach a cascade's head, what the head learns of them, and where its bound lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.detect.cascade_files import Member, read_head, rounded_head, write_head
from guard.detect.deferral import STRICT_TO_QUIET
from guard.errors import UsageError
from guard.places import shipped
from guard.verdict import BIAS_TYPES, Window
from tests.cli.test_train import run
from tests.data import DATA, needs_data
from tests.rows import examples
from tests.small import WEIGHTS

LAST: Any = {
    point: dict.fromkeys(BIAS_TYPES, limit)
    for point, limit in zip(STRICT_TO_QUIET, (0.2, 0.5, 0.8), strict=True)
}


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Imports here, and not above, what would take seconds of every collection."""
    global \
        CascadeCase, \
        JudgedRow, \
        CaseTable, \
        cascade_cases, \
        choose_bound, \
        decides_otherwise, \
        fit_head, \
        judged_table, \
        weights_of, \
        says_any, \
        eval_folds
    pytest.importorskip("torch")
    from guard.train.cascade import (
        CascadeCase,
        CaseTable,
        JudgedRow,
        cascade_cases,
        choose_bound,
        decides_otherwise,
        fit_head,
        judged_table,
        weights_of,
    )
    from guard.train.corpus import eval_folds, says_any


def table_of(mapped: Any, score: Any) -> Any:
    n = len(mapped)
    kind = np.zeros(n, np.int64)
    features = np.zeros((n, 2), np.float32)
    return CaseTable(features, np.array(mapped), kind, np.array(score), kind, np.ones(n, bool))


def cases_of(n: int, source: str = "bold", biased: bool = False) -> Any:
    return [CascadeCase(Window(str(i)), source, biased, "choose") for i in range(n)]


def test_they_differ_where_a_threshold_lies_between_their_scores() -> None:
    found = decides_otherwise(table_of([0.1, 0.3, 0.3, 0.9], [0.15, 0.4, 0.6, 0.1]), LAST)
    assert found.tolist() == [
        [False, False, False],
        [False, False, False],
        [False, True, False],
        [True, True, True],
    ]


scores = st.floats(0.01, 0.99)


@examples(100)
@given(
    st.lists(st.tuples(scores, scores, st.floats(0, 1)), min_size=1, max_size=40),
    st.floats(0, 0.5),
)
def test_the_bound_leaves_at_most_the_share_that_was_asked_for(
    texts: list[tuple[float, float, float]], most: float
) -> None:
    mapped, score, probability = map(np.array, zip(*texts, strict=True))
    found = table_of(mapped, score)
    choice = choose_bound(probability, found, cases_of(len(texts)), LAST, most)
    different = decides_otherwise(found, LAST).any(axis=1)
    kept = probability < choice.bound
    assert (different & kept).mean() <= most
    assert choice.deferred == round(float((~kept).mean()), 4)
    # A higher bound, by one text, leaves more; but for rounding and equal probabilities.
    higher = np.unique(probability[probability > choice.bound + 2e-5])
    if len(higher) > 1:
        assert (different & (probability < higher[1])).mean() > most or not kept.all()


def test_without_a_text_there_is_no_bound() -> None:
    with pytest.raises(UsageError, match="no validation text"):
        choose_bound(np.zeros(0), table_of([], []), [], LAST, 0.1)


def test_endorsing_texts_that_would_be_lost_weigh_most() -> None:
    of = [*cases_of(1, "framed", True), *cases_of(1, "framed", True), *cases_of(2)]
    lost, stance, fair, _ = weights_of(of, np.array([True, False, False, False]))
    assert lost > stance > 1
    assert fair > 1


def test_a_head_learns_when_they_differ_and_is_read_as_it_was_written(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(600, 5)).astype(np.float32)
    target = features[:, 0] + features[:, 1] > 0.5
    head = rounded_head(fit_head(features, target, np.ones(600, np.float32)))
    probability = np.array([head.probability(x) for x in features])
    assert ((probability > 0.5) == target).mean() > 0.9
    members = Member("encoder-small-1+0", "a"), Member("encoder-1+0", "b")
    write_head(tmp_path, "3", *members, head, figures={"n": 600})
    found = read_head(tmp_path)
    assert (found.first, found.last) == members
    assert found.name.startswith("cascade-3+")
    assert [found.deferral.probability(x) for x in features[:9]] == probability[:9].tolist()
    again = rounded_head(fit_head(features, target, np.ones(600, np.float32)))
    assert (again.hidden == head.hidden).all()


class Counted:
    """A pair of detectors that judge at no cost."""

    class _Encoder:
        folder = WEIGHTS

        @staticmethod
        def threads() -> Any:
            from concurrent.futures import ThreadPoolExecutor

            return ThreadPoolExecutor(1)

    first = last = _Encoder()

    def __init__(self) -> None:
        self.judgements = 0

    def judged(self, window: Window) -> Any:
        self.judgements += 1
        if window.text == "7":
            return None
        return JudgedRow(np.full(2, float(window.text), np.float32), 0.3, 1, 0.6, 2)


def test_what_was_judged_is_not_judged_again(tmp_path: Path) -> None:
    pair, of = Counted(), cases_of(900)
    first = judged_table(pair, of, tmp_path, lambda done, total: None)
    assert pair.judgements == 900
    (folder,) = tmp_path.iterdir()
    sorted(folder.iterdir())[-1].unlink()  # as if it had been interrupted
    told: list[int] = []
    again = judged_table(pair, of, tmp_path, lambda done, total: told.append(done))
    assert pair.judgements == 1000
    assert told == [400, 800, 900]
    assert all((one == other).all() for one, other in zip(first, again, strict=True))
    assert not again.known[7]
    assert again.known.sum() == 899
    # Other windows are another run.
    judged_table(pair, of[:5], tmp_path, lambda done, total: None)
    assert pair.judgements == 1005


@needs_data
def test_no_case_is_of_an_evaluation_file_and_neither_detector_knows_those_held_back() -> None:
    statements = shipped("index") / "statements.jsonl"
    found = cascade_cases(DATA, statements, 3000)
    assert len(found) == 3000
    assert found == cascade_cases(DATA, statements, 6000)[:3000]
    forbidden = eval_folds(DATA)
    assert not any(says_any(c.window.text, forbidden) for c in found)
    trained = {c.source for c in found if c.part == "train"}
    assert trained == {"framed", "listed", "carried", "negatives", "bold"}
    assert {c.part for c in found} == {"train", "fit", "choose"}


def test_the_command_names_what_is_missing() -> None:
    assert "--data is missing" in run("cascade", "--work", "w").stderr
    assert "does not exist" in run("cascade", "--work", "w", "--small", "nowhere").stderr
