"""The tests of pairs, beside those of statsmodels and SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.results.measure import ratio, share
from guard.results.paired import DRAWS, Aim, Pairs
from guard.results.samples import Floats
from guard.suites.sai_asa.association import tau_c
from tests.rows import examples

SHARE = Aim(0.0, (0.0, 1.0))
SIGNED = Aim(0.0, (-1.0, 1.0))
BINARY = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=300)


def mean(totals: Floats) -> Floats:
    return ratio(totals[..., 1], totals[..., 0])


def shares(base: Floats, new: Floats, aim: Aim = SHARE, each: int = 1) -> Pairs:
    rows = [np.column_stack([side, np.ones(len(side))]).astype(float) for side in (base, new)]
    return Pairs(rows[0], rows[1], [f"c{n // each}" for n in range(len(base))], share, aim)


def scores(base: Floats, new: Floats, aim: Aim = SIGNED, each: int = 1) -> Pairs:
    rows = [np.column_stack([np.ones(len(side)), side]).astype(float) for side in (base, new)]
    return Pairs(rows[0], rows[1], [f"c{n // each}" for n in range(len(base))], mean, aim)


def columns(data: list[tuple[bool, bool]]) -> tuple[Floats, Floats]:
    base, new = np.array(data, dtype=float).T
    return base, new


@examples(150)
@given(BINARY)
def test_of_0_and_1_it_is_statsmodels_exact_mcnemar(data: list[tuple[bool, bool]]) -> None:
    from scipy.stats import binomtest
    from statsmodels.stats.contingency_tables import mcnemar

    base, new = columns(data)
    found = shares(base, new).permutation_test()
    went, came = int(((base == 1) & (new == 0)).sum()), int(((base == 0) & (new == 1)).sum())
    want = mcnemar([[0, went], [came, 0]], exact=True).pvalue
    assert found.p_change == pytest.approx(want, abs=1e-9)
    if went + came:
        assert found.method == "exact McNemar"
        more = binomtest(came, went + came, alternative="greater").pvalue
        assert found.p_worse == pytest.approx(more, abs=1e-9)
    else:
        assert found.p_worse == 1


def test_mcnemar_holds_of_thousands_of_changes() -> None:
    from statsmodels.stats.contingency_tables import mcnemar

    rng = np.random.default_rng(3)
    base, new = (rng.random((2, 20_000)) < [[0.5], [0.51]]).astype(float)
    went, came = int(((base == 1) & (new == 0)).sum()), int(((base == 0) & (new == 1)).sum())
    want = mcnemar([[0, went], [came, 0]], exact=True).pvalue
    assert shares(base, new).permutation_test().p_change == pytest.approx(want, abs=1e-9)


@examples(25)
@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=2, max_size=9))
def test_of_scores_it_is_scipys_permutation_of_pairs(data: list[tuple[int, int]]) -> None:
    from scipy.stats import permutation_test

    # Eighths and their sums have no rounding error, which SciPy would take for a difference.
    base, new = np.array(data, dtype=float).T / 8
    found = scores(base, new).permutation_test()

    def apart(x: Floats, y: Floats, axis: int = 0) -> Floats:
        return np.asarray(y.sum(axis=axis) - x.sum(axis=axis))

    def worse(x: Floats, y: Floats, axis: int = 0) -> Floats:
        return np.abs(y.sum(axis=axis)) - np.abs(x.sum(axis=axis))

    options = {"permutation_type": "samples", "n_resamples": np.inf, "vectorized": True}
    want = permutation_test((base, new), apart, **options)
    assert found.p_change == pytest.approx(want.pvalue, abs=1e-9)
    one = permutation_test((base, new), worse, alternative="greater", **options)
    assert found.p_worse == pytest.approx(one.pvalue, abs=1e-9)


def test_kendalls_tau_is_permuted_exactly_too() -> None:
    from scipy.stats import permutation_test

    rng = np.random.default_rng(8)
    given_ = np.arange(10) % 2
    chosen = rng.integers(0, 3, (2, 10))
    rows = np.zeros((2, 10, 6))
    for side in (0, 1):
        rows[side, np.arange(10), 3 * given_ + chosen[side]] = 1
    pairs = Pairs(rows[0], rows[1], [f"c{n}" for n in range(10)], tau_c, SIGNED)

    def apart(x: Floats, y: Floats) -> float:
        sums = [rows_.sum(axis=0) for rows_ in (as_rows(x), as_rows(y))]
        return float(tau_c(sums[1]) - tau_c(sums[0]))

    def as_rows(places: Floats) -> Floats:
        return np.eye(6)[places.astype(int)]

    places = tuple((3 * given_ + chosen[side]).astype(float) for side in (0, 1))
    want = permutation_test(places, apart, permutation_type="samples", n_resamples=np.inf)
    assert pairs.permutation_test().p_change == pytest.approx(want.pvalue, abs=1e-9)


def test_where_there_are_too_many_ways_some_are_drawn_and_1_is_added() -> None:
    from scipy.stats import permutation_test

    rng = np.random.default_rng(5)
    base = rng.normal(0, 0.2, 200)
    far = scores(base, base + 0.3).permutation_test()
    assert far.method == f"permutation, {DRAWS:,} draws"
    assert far.p_change == far.p_worse / 1 == 1 / (DRAWS + 1)
    new = base + rng.normal(0.01, 0.1, 200)
    found = scores(base, new).permutation_test()
    assert found == scores(base, new).permutation_test()  # drawn by a seed

    def apart(x: Floats, y: Floats, axis: int = 0) -> Floats:
        return np.asarray(y.mean(axis=axis) - x.mean(axis=axis))

    want = permutation_test((base, new), apart, permutation_type="samples", vectorized=True, rng=1)
    assert found.p_change == pytest.approx(want.pvalue, abs=0.02)


@given(BINARY)
@examples(60)
def test_the_interval_of_independent_items_joins_jeffreys_of_both_shares(
    data: list[tuple[bool, bool]],
) -> None:
    """Newcombe 1998, method 10, with Zou's correlation, by SciPy's beta."""
    from scipy.stats import beta

    base, new = columns(data)
    found = shares(base, new)
    n = len(base)
    came, went = float((new > base).mean()), float((new < base).mean())
    if n < 6:
        assert math.isnan(found.interval[0])
        return
    if not came and not went:
        assert found.interval == (0, 0)
        return

    def jeffreys(p: float) -> tuple[float, float]:
        low, high = beta.ppf((0.025, 0.975), p * n + 0.5, n - p * n + 0.5)
        return (low if p else 0.0), (high if p < 1 else 1.0)

    (a_low, a_high), (b_low, b_high) = jeffreys(came), jeffreys(went)
    inner = (1 - came) * (1 - went)
    r = -math.sqrt(came * went / inner) if inner and came and went else 0.0
    low = math.hypot(came - a_low, b_high - went)
    high = math.hypot(a_high - came, went - b_low)
    low = math.sqrt(max(low**2 - 2 * r * (came - a_low) * (b_high - went), 0))
    high = math.sqrt(max(high**2 - 2 * r * (a_high - came) * (went - b_low), 0))
    if came == 1 or went == 1:  # every pair changed alike: no cluster differs from another
        return
    want = came - went - low, came - went + high
    assert found.interval == pytest.approx(want, abs=1e-9)


def test_the_interval_of_scores_is_that_of_redrawn_clusters() -> None:
    from scipy.stats import bootstrap

    rng = np.random.default_rng(2)
    alike = rng.normal(0, 0.1, 150).repeat(4)
    base = rng.normal(0, 0.1, 600)
    new = base + 0.02 + alike + rng.normal(0, 0.1, 600)
    low, high = scores(base, new, each=4).interval
    apart = (new - base).reshape(150, 4).mean(axis=1)
    want = bootstrap((apart,), np.mean, method="percentile", rng=1).confidence_interval
    assert (low, high) == pytest.approx((want.low, want.high), abs=0.1 * (high - low))


@examples(60)
@given(BINARY, st.floats(0, 0.3))
def test_exchanging_the_sides_turns_the_difference_round(
    data: list[tuple[bool, bool]], tolerance: float
) -> None:
    base, new = columns(data)
    one, other = shares(base, new, each=2), shares(new, base, each=2)
    assert one.difference == pytest.approx(-other.difference)
    assert one.permutation_test().p_change == pytest.approx(other.permutation_test().p_change)
    if math.isnan(one.interval[0]):
        assert math.isnan(other.p_beyond_tolerance(tolerance))
        return
    assert one.interval == pytest.approx((-other.interval[1], -other.interval[0]), abs=1e-9)
    if one.worse > 0:
        assert one.p_beyond_tolerance(tolerance) >= one.p_beyond_tolerance(0) - 1e-9
        assert one.detectable(tolerance, 0.01) > tolerance
    # What is shown to be worse by more than the tolerance is not shown to be no worse.
    assert not (one.p_beyond_tolerance(tolerance) < 0.05 and one.at_most <= tolerance)


def spread_out(centre: float, n: int = 200, seed: int = 1) -> Floats:
    return centre + np.random.default_rng(seed).normal(0, 0.1, n)


@pytest.mark.parametrize(
    ("ideal", "bounds", "base", "new", "worse"),
    [
        (0.0, (-1.0, 1.0), 0.1, 0.3, 0.2),
        (0.0, (-1.0, 1.0), 0.1, -0.3, 0.2),  # corrected too far
        (0.0, (-1.0, 1.0), 0.3, -0.3, 0.0),  # as far, on the other side
        (0.0, (-1.0, 1.0), 0.3, 0.1, -0.2),
        (0.5, (0.0, 1.0), 0.5, 0.3, 0.2),
        (0.5, (0.0, 1.0), 0.4, 0.9, 0.3),
        (1.0, (0.0, 1.0), 0.9, 0.6, 0.3),
        (1.0, (0.0, 1.0), 0.6, 0.9, -0.3),
        (0.0, (0.0, 1.0), 0.2, 0.5, 0.3),
    ],
)
def test_worse_is_further_from_the_ideal_whichever_way(
    ideal: float, bounds: tuple[float, float], base: float, new: float, worse: float
) -> None:
    pairs = scores(spread_out(base), spread_out(new, seed=2), Aim(ideal, bounds))
    assert pairs.worse == pytest.approx(worse, abs=0.03)
    assert (pairs.p_beyond_tolerance(0.05) < 0.001) == (worse > 0.1)
    assert (pairs.at_most <= 0.05) == (worse < 0.02)


def test_less_than_an_ideal_that_is_a_limit_is_not_worse() -> None:
    above = Aim(0.0, (-1.0, 1.0), above=True)
    assert scores(spread_out(0.1), spread_out(-0.5, seed=2), above).at_most <= 0
    assert scores(spread_out(-0.5), spread_out(-0.1, seed=2), above).p_beyond_tolerance(0.0) > 0.5
    assert scores(spread_out(-0.5), spread_out(0.3, seed=2), above).p_beyond_tolerance(0.05) < 0.001


def test_clusters_and_not_items_say_how_far_a_difference_may_be_off() -> None:
    rng = np.random.default_rng(4)
    base = (rng.random(200) < 0.3).astype(float)
    together = np.where(np.arange(200) // 20 < 4, 1.0, base)  # four of ten templates changed
    wide, narrow = shares(base, together, each=20), shares(base, together)
    assert wide.difference == narrow.difference
    assert wide.permutation_test() == narrow.permutation_test()
    assert wide.p_beyond_tolerance(0.05) > 3 * narrow.p_beyond_tolerance(0.05)
    assert math.isnan(shares(base, together, each=50).p_beyond_tolerance(0.05))


def test_where_every_cluster_changed_alike_the_sign_of_all_says_it() -> None:
    base, new = np.tile([1.0, 0.0], 60), np.zeros(120)
    falls = shares(base, new, Aim(1.0, (0.0, 1.0)), each=2)
    assert falls.interval == (-0.5, -0.5)
    assert falls.p_beyond_tolerance(0.05) < 1e-9
    assert shares(new, base, Aim(1.0, (0.0, 1.0)), each=2).p_beyond_tolerance(0.05) == 1


def test_what_no_side_has_is_nan() -> None:
    nothing = Pairs(np.zeros((0, 2)), np.zeros((0, 2)), [], share, SHARE)
    assert math.isnan(nothing.worse)
    assert math.isnan(nothing.p_beyond_tolerance(0.1))
    assert math.isnan(nothing.at_most)
    assert math.isnan(nothing.detectable(0.1, 0.05))
    assert math.isnan(nothing.permutation_test().p_change)
