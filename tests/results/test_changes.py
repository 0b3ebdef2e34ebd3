"""Changes of level: how rarely a steady series has one, how surely a true one is found; where."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from guard.audit.history import axis_estimate
from guard.audit.trends import Point
from guard.results.changes import Change, SeriesChanges, changes
from guard.results.samples import Floats
from tests.audit.paired_runs import World, answered, axis
from tests.rows import examples

LOW = 0.07


def one(values: Floats, errors: Floats) -> SeriesChanges:
    (found,) = changes([(values, errors)])
    return found


def uneven(rng: np.random.Generator, size: int) -> Floats:
    """Errors of which the largest are some ten times the least."""
    return np.exp(rng.normal(0, 0.6, size))


MANY = pytest.mark.slow("simulates hundreds of series")


@pytest.mark.parametrize("size", [2, 8, *(pytest.param(n, marks=MANY) for n in (3, 20, 60))])
def test_a_steady_series_is_flagged_in_at_most_seven_per_cent(size: int) -> None:
    rng = np.random.default_rng(size)
    flagged = 0
    for _ in range(500):
        errors = uneven(rng, size)
        flagged += bool(one(rng.normal(0.3, errors), errors).changes)
    assert 0.02 < flagged / 500 <= LOW


@MANY
def test_a_hundred_points_and_many_axes_are_no_more_often_flagged() -> None:
    rng = np.random.default_rng(7)
    long = [one(rng.normal(0, e), e).changes for e in (uneven(rng, 100) for _ in range(300))]
    assert sum(map(bool, long)) / 300 <= LOW
    looks = 0
    for _ in range(150):
        errors = [uneven(rng, 12) for _ in range(15)]
        looks += any(found.changes for found in changes([(rng.normal(0, e), e) for e in errors]))
    assert looks / 150 <= 0.08


@pytest.mark.slow("simulates 150 series of audits")
@pytest.mark.parametrize("kind", ["share", "rare", "mean", "tau"])
@pytest.mark.parametrize("drawn", [True, False])
def test_figures_of_steady_models_with_their_own_intervals(kind: str, drawn: bool) -> None:
    """Items drawn anew for each run, and the same items asked again."""
    rng = np.random.default_rng(11)
    clusters = np.arange(200) % 40
    of = "share" if kind == "rare" else kind
    world = World(base={of: 0.03 if kind == "rare" else 0.12}, items=200, clusters=40)
    flagged = 0
    for _ in range(150):
        chances = world._chances(of, rng, clusters)
        points = []
        for _ in range(12):
            if drawn:
                chances = world._chances(of, rng, clusters)
            asked = axis(of, 0, answered(of, chances, 1, rng), clusters)
            assert asked.value is not None
            found = axis_estimate(asked, asked.value)
            point = Point(None, found.value, found.low, found.high, found.n, 1.0)  # type: ignore[arg-type]
            points.append((point.value, point.error))
        flagged += bool(one(*np.array(points).T).changes)
    assert flagged / 150 <= LOW


def changed(rng: np.random.Generator, by: float) -> SeriesChanges:
    errors = np.exp(rng.normal(0, 0.4, 20))
    values = rng.normal(0, errors)
    values[10:] += by * errors.mean()
    return one(values, errors)


def test_a_change_of_three_errors_is_found_where_it_is() -> None:
    rng = np.random.default_rng(5)
    found = [changed(rng, 3).changes for _ in range(300)]
    assert sum(map(bool, found)) >= 297
    nearest = [min(some, key=lambda c: abs(c.at - 10)) for some in found if some]
    off = [abs(change.at - 10) for change in nearest]
    assert np.mean(np.array(off) == 0) >= 0.75
    assert np.mean(np.array(off) <= 1) >= 0.95
    assert np.mean([change.first <= 10 <= change.last for change in nearest]) >= 0.95
    assert np.mean([len(some) > 1 for some in found]) <= LOW


@pytest.mark.parametrize("by", [*(pytest.param(by, marks=MANY) for by in (1.0, 1.5)), 2.0])
def test_the_place_of_a_smaller_change_is_told_with_what_may_be_off(by: float) -> None:
    rng = np.random.default_rng(int(10 * by))
    found = [some.changes for some in (changed(rng, by) for _ in range(300)) if some.changes]
    nearest: list[Change] = [min(some, key=lambda c: abs(c.at - 10)) for some in found]
    assert np.mean([change.first <= 10 <= change.last for change in nearest]) >= 0.93


def test_two_changes_are_told_apart() -> None:
    rng = np.random.default_rng(3)
    errors = np.full(30, 0.1)
    right = 0
    for _ in range(100):
        values = rng.normal(0, errors) + np.repeat([0.0, 1.0, 0.4], 10)
        found = one(values, errors).changes
        if [change.at for change in found] != [10, 20]:
            continue
        right += 1
        assert found[0].before == pytest.approx(values[:10].mean())
        assert found[0].after == pytest.approx(values[10:20].mean())
        assert found[0].error == pytest.approx(0.1 * math.sqrt(2 / 10))
    assert right >= 85


def test_of_two_points_it_is_the_test_of_their_difference() -> None:
    from scipy.stats import norm

    for apart in (0.5, 1.5, 3.0, 8.0):
        p = one(np.array([0.0, apart]), np.array([0.6, 0.8])).q
        exact = 2 * norm.sf(apart)
        assert p == pytest.approx(exact, abs=4 * math.sqrt(exact / 1_000), rel=1e-9)
    assert math.isnan(one(np.array([0.5]), np.array([0.1])).q)
    assert math.isnan(one(np.array([]), np.array([])).q)


series = st.integers(2, 15).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(-5, 5), min_size=n, max_size=n),
        st.lists(st.floats(0.1, 2), min_size=n, max_size=n),
    )
)


@examples(60)
@given(series, st.floats(-100, 100), st.floats(0.01, 100))
def test_units_and_direction_do_not_matter(
    given_: tuple[list[float], list[float]], shift: float, scale: float
) -> None:
    values, errors = map(np.array, given_)
    found = one(values, errors)
    # Where two places are as good to the last digit, rounding decides.
    assume(all(change.p < 0.02 or change.p > 0.03 for change in found.changes))
    assume(len({round(v, 6) for v in values}) == len(values))
    other = one(shift - scale * values, scale * errors)
    assert other.q == pytest.approx(found.q, rel=1e-6, abs=2e-3)
    assert [c.at for c in other.changes] == [c.at for c in found.changes]
    for change, same in zip(found.changes, other.changes, strict=True):
        assert same.after - same.before == pytest.approx(
            -scale * (change.after - change.before), rel=1e-6, abs=1e-6 * scale
        )


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_an_error_that_is_none_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="errors above 0"):
        one(np.array([1.0, 2.0]), np.array([0.1, wrong]))
