"""Intervals that evaluation, training and audits share."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.results.intervals import clopper_pearson, false_discovery, percentile


@pytest.mark.parametrize("n", [1, 2, 10, 100, 5000])
def test_the_exact_interval_is_scipys(n: int) -> None:
    from scipy.stats import binomtest  # type: ignore[import-untyped]

    for count in {0, 1, n // 3, n - 1, n}:
        for level in (0.95, 0.99):
            wanted = binomtest(count, n).proportion_ci(level, method="exact")
            assert clopper_pearson(count, n, level) == pytest.approx(
                (wanted.low, wanted.high), abs=1e-9
            )


def test_no_hit_in_n_leaves_room_above() -> None:
    # R: binom.test(0, 300)$conf.int
    assert clopper_pearson(0, 300) == pytest.approx((0.0, 0.01222), abs=1e-5)


def test_undefined_draws_are_left_out() -> None:
    assert percentile(np.array([np.nan, 0.5, 0.5])) == (0.5, 0.5)
    assert percentile(np.linspace(0, 1, 1001)) == pytest.approx((0.025, 0.975))
    for nothing in ([np.nan], []):
        assert all(map(math.isnan, percentile(np.array(nothing, dtype=float))))


# Of numbers below 1e-307 floats hold too few digits to compare.
P_VALUES = st.one_of(st.floats(0, 1, allow_subnormal=False), st.just(math.nan))


@given(st.lists(P_VALUES, min_size=1, max_size=30))
def test_corrected_p_values_are_those_of_benjamini_and_hochberg(p: list[float]) -> None:
    from statsmodels.stats.multitest import multipletests

    found = false_discovery(p)
    tested = [x for x in p if not math.isnan(x)]
    assert [math.isnan(x) for x in p] == [math.isnan(q) for q in found]
    if tested:
        expected = multipletests(tested, method="fdr_bh")[1]
        np.testing.assert_allclose([q for q in found if not math.isnan(q)], expected)
        # By the definition of 1995: the smallest n p(k) / k from k on.
        ranked = np.sort(tested)
        n = len(ranked)
        steps = np.minimum.accumulate((ranked * n / np.arange(1, n + 1))[::-1])[::-1]
        np.testing.assert_allclose(np.sort(expected), np.minimum(steps, 1))
