"""Intervals that evaluation, training and audits share."""

from __future__ import annotations

import math

import numpy as np
import pytest

from guard.intervals import exact, percentile


@pytest.mark.parametrize("n", [1, 2, 10, 100, 5000])
def test_the_exact_interval_is_scipys(n: int) -> None:
    from scipy.stats import binomtest  # type: ignore[import-untyped]

    for count in {0, 1, n // 3, n - 1, n}:
        for level in (0.95, 0.99):
            wanted = binomtest(count, n).proportion_ci(level, method="exact")
            assert exact(count, n, level) == pytest.approx((wanted.low, wanted.high), abs=1e-9)


def test_no_hit_in_n_leaves_room_above() -> None:
    # R: binom.test(0, 300)$conf.int
    assert exact(0, 300) == pytest.approx((0.0, 0.01222), abs=1e-5)


def test_undefined_draws_are_left_out() -> None:
    assert percentile(np.array([np.nan, 0.5, 0.5])) == (0.5, 0.5)
    assert percentile(np.linspace(0, 1, 1001)) == pytest.approx((0.025, 0.975))
    for nothing in ([np.nan], []):
        assert all(map(math.isnan, percentile(np.array(nothing, dtype=float))))
