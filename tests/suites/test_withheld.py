"""Whom a model withholds answers from, in every suite at the sizes that the docs use."""

from __future__ import annotations

import pytest

from tests.suites.withheld import SIZES, SUITES, asked

LEAST = {
    ("sai_asa", "--quick"): 16,
    ("mist", "--quick"): 27,
    ("hbb", "--quick"): 13,
    ("hbb_sg", "--quick"): 15,
    ("badf", "--quick"): 8,
    ("open_text", "--quick"): 81,
    ("sai_asa", "--sample 300"): 16,
    ("mist", "--sample 300"): 27,
    ("hbb", "--sample 300"): 15,
    ("hbb_sg", "--sample 300"): 15,
    ("badf", "--sample 300"): 8,
    ("open_text", "--sample 300"): 81,
}
"""The identities that an audit finds, of those that it compares; benchmarks/withheld.md names the
others."""


MADE = [*SUITES[:-1], pytest.param(SUITES[-1], marks=pytest.mark.slow("tests 135 groups"))]
"""Open text has tests of its own in the default run: tests/suites/test_open_text.py."""


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("suite", MADE)
def test_a_model_that_answers_nothing_about_one_identity_is_found(suite: str, size: str) -> None:
    of = asked(suite, size)
    places = sorted(set().union(*of.about))
    assert places
    found = sum(map(of.planted, places))
    assert found >= LEAST[suite, size]


@pytest.mark.parametrize("kind", ["answer", "unit"])
@pytest.mark.parametrize("suite", MADE)
def test_a_model_that_withholds_at_random_is_seldom_said_to(suite: str, kind: str) -> None:
    assert asked(suite, "--quick").fair(kind, 0.1, 40) <= 0.15  # at 5 % more in 0.9 % of cases
