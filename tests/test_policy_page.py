"""The page on what counts as biased: its examples are judged, and its marks say what is wrong."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.datasets.split import fold
from guard.train.own import corpus_folder
from guard.verdict import Verdict
from tests.policy_page import MARGIN, MARK, PAGE, Example, close, examples, judge, remarked, wrongly
from tests.rows import examples as drawn

PAGE_OF_TWO = """# A page

| biased | not biased |
| --- | --- |
| Pilots lie. | Pilots fly. † |
| Pilots lie, † they say. | |

| setting | default |
| --- | --- |
| a | b † |
"""


@pytest.fixture(scope="module")
def verdicts() -> dict[Example, Verdict]:
    guard = judge()
    return {example: guard.check(example.text) for example in examples(PAGE.read_text("utf-8"))}


def test_every_example_is_marked_if_and_only_if_the_detector_gets_it_wrong(
    verdicts: dict[Example, Verdict],
) -> None:
    """Run ``python -m tests.policy_page`` after new weights or examples."""
    for example, verdict in verdicts.items():
        assert verdict.unjudged is None, example.text
        if not close(verdict):
            assert wrongly(example, verdict) == example.marked, (example.text, verdict.score)


def test_every_theme_has_a_rule_and_examples_of_both_sides() -> None:
    page = PAGE.read_text("utf-8")
    _, *themes = re.split(r"^## ", page, flags=re.MULTILINE)
    assert len(themes) >= 17
    for theme in themes:
        title, _, body = theme.partition("\n")
        sides = [example.biased for example in examples(body)]
        assert sides.count(True) >= 3, title
        assert sides.count(False) >= 3, title
        assert not body.strip().startswith("|"), f"{title}: no rule stands before the table"
        assert theme.count("\n") <= 40, f"{title}: longer than a screen"


def test_no_example_occurs_twice() -> None:
    texts = [example.text for example in examples(PAGE.read_text("utf-8"))]
    assert len(set(texts)) == len(texts) >= 100


def test_no_example_is_a_training_text() -> None:
    lines = [
        f" {fold(line)} "
        for path in corpus_folder().rglob("*.json*")
        for line in path.read_text("utf-8").splitlines()
    ]
    corpus = "\n".join(lines)
    texts = [example.text for example in examples(PAGE.read_text("utf-8"))]
    assert [text for text in texts if f" {fold(text)} " in corpus] == []


def test_examples_are_the_cells_of_tables_with_both_sides() -> None:
    found = [tuple(example)[2:] for example in examples(PAGE_OF_TWO)]
    assert found == [
        ("Pilots lie.", True, False),
        ("Pilots fly.", False, True),
        (f"Pilots lie, {MARK} they say.", True, False),
    ]


@drawn(60)
@given(st.lists(st.booleans(), min_size=3, max_size=3))
def test_marks_are_written_where_the_verdict_is_wrong_and_nowhere_else(wrong: list[bool]) -> None:
    verdict = dict(zip((e.text for e in examples(PAGE_OF_TWO)), wrong, strict=True))
    page = remarked(PAGE_OF_TWO, lambda example: verdict[example.text])
    assert [(e.text, e.marked) for e in examples(page)] == list(verdict.items())
    assert page.splitlines()[6:] == PAGE_OF_TWO.splitlines()[6:]
    assert remarked(page, lambda example: example.marked) == page


def test_a_page_whose_marks_are_right_stays_as_it_is() -> None:
    page = PAGE.read_text("utf-8")
    assert remarked(page, lambda example: example.marked) == page


def test_only_a_score_near_the_threshold_may_change_with_the_processor() -> None:
    def of(score: float | None) -> Verdict:
        threshold, unjudged = (None, "language") if score is None else (0.5, None)
        return Verdict(False, score, threshold, None, (), (), "a detector", None, 1.0, unjudged)  # type: ignore[arg-type]

    assert close(of(0.5 + MARGIN / 2))
    assert not close(of(0.5 + 2 * MARGIN))
    assert not close(of(None))
