from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.results.intervals import LEAST_CLUSTERS
from guard.results.jackknife import ClopperPearson, Jackknife, Line, Smooth, TwoShares, estimate
from guard.results.measure import Interval, Measure, column, difference_of_shares, share
from guard.results.samples import Floats, Samples
from guard.results.sign_flips import FEW_CLUSTERS
from tests.rows import examples


def measure(
    rows: Floats, clusters: list[str], name: str = "share", interval: Interval | None = None
) -> Measure:
    samples = Samples(rows, clusters)
    return Measure(name, {"axis": name}, samples, share, column(1), interval=interval)


def of(hits: list[bool], clusters: list[int], read: list[bool] | None = None) -> Measure:
    readable = read or [True] * len(hits)
    rows = np.array([[h and r, r] for h, r in zip(hits, readable, strict=True)], dtype=float)
    return measure(rows.reshape(len(hits), 2), [f"c{c}" for c in clusters])


DATA = st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.booleans()), min_size=1, max_size=40)


@examples(50)
@given(DATA)
def test_equal_arms_have_no_effect(data: list[tuple[bool, int, bool]]) -> None:
    hits, clusters, read = map(list, zip(*data, strict=True))
    one = of(hits, clusters, read)
    (line,) = estimate([one], [one])
    assert line.effect is not None
    if any(read):
        assert (line.effect.value, line.effect.low, line.effect.high) == (0, 0, 0)
        assert line.effect.p == line.effect.q == 1
    else:
        assert math.isnan(line.effect.value)
        assert math.isnan(line.effect.low)
        assert math.isnan(line.effect.p)


@examples(50)
@given(DATA, st.randoms())
def test_the_order_of_rows_does_not_matter(
    data: list[tuple[bool, int, bool]], random: object
) -> None:
    shuffled = list(data)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    (a,), (b,) = (estimate([of(*map(list, zip(*rows, strict=True)))]) for rows in (data, shuffled))
    np.testing.assert_equal([a.plain.value, a.plain.low], [b.plain.value, b.plain.low])


def test_nothing_readable_is_nan_never_0() -> None:
    for one in (of([], []), of([True, False], [0, 1], [False, False])):
        (line,) = estimate([one], [one])
        assert math.isnan(line.plain.value)
        assert math.isnan(line.plain.low)
        assert line.plain.n == 0


def test_an_interval_is_that_of_whole_clusters() -> None:
    # Ten clusters of ten equal rows each say as much as ten rows.
    hits = [c < 4 for c in range(10) for _ in range(10)]
    (wide,) = estimate([of(hits, [c for c in range(10) for _ in range(10)])])
    (narrow,) = estimate([of(hits, list(range(100)))])
    (single,) = estimate([of([c < 4 for c in range(10)], list(range(10)))])
    assert wide.plain.value == narrow.plain.value == 0.4
    expected = (single.plain.low, single.plain.high)
    assert (wide.plain.low, wide.plain.high) == pytest.approx(expected, abs=1e-12)
    assert wide.plain.high - wide.plain.low > 2 * (narrow.plain.high - narrow.plain.low)


@given(st.lists(st.integers(0, 9), min_size=FEW_CLUSTERS, max_size=50))
def test_of_single_rows_it_is_students_interval(values: list[int]) -> None:
    """The jackknife of a mean is the mean's own standard error (Efron 1982, 3.2)."""
    from scipy.stats import t as student
    from scipy.stats import ttest_1samp

    rows = np.column_stack([values, np.ones(len(values))]).astype(float)
    one = replace(measure(rows, [f"c{n}" for n in range(len(values))]), null=3.0)
    (line,) = estimate([one])
    if len(set(values)) == 1:
        assert math.isnan(line.plain.low)
        return
    mean, error = np.mean(values), np.std(values, ddof=1) / math.sqrt(len(values))
    reach = student.ppf(0.975, len(values) - 1) * error
    assert (line.plain.low, line.plain.high) == pytest.approx((mean - reach, mean + reach))
    assert line.plain.p == pytest.approx(ttest_1samp(values, 3.0).pvalue)


@pytest.mark.parametrize(
    ("values", "p"),
    [
        # The share of the 2^n signs whose mean is as far from 0, counted by hand.
        ([1.0, 1.0, 1.0, 1.0, 1.0, 0.9], 2 / 64),
        ([1.0] * 7 + [0.9], 2 / 256),
        ([5.0, 4.0, 3.0, 2.0, 1.0, -0.5], 4 / 64),
    ],
)
def test_of_few_clusters_all_signs_are_enumerated(values: list[float], p: float) -> None:
    from scipy.stats import permutation_test, ttest_1samp

    (line,) = estimate([replace(numbers(values), null=0.0)])
    exact = permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=np.inf, vectorized=True
    ).pvalue
    assert line.plain.p == pytest.approx(exact) == pytest.approx(p)
    assert ttest_1samp(values, 0.0).pvalue < exact  # as if agreement were no chance


def numbers(values: list[float]) -> Measure:
    """Return the measure of their mean, each its own cluster."""
    rows = np.column_stack([values, np.ones(len(values))])
    return measure(rows, [f"c{n}" for n in range(len(values))])


def test_an_interval_of_few_clusters_is_of_means_of_parts() -> None:
    """Hartigan's typical values: the means of all parts; a limit is one of the largest."""
    from scipy.stats import t as student

    values = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 256.0]
    (line,) = estimate([replace(numbers(values), null=0.0)])
    means = sorted(np.mean(some) for n in range(1, 9) for some in combinations(values, n))
    reach = student.ppf(0.975, 7) * np.std(values, ddof=1) / math.sqrt(8)
    # At the sixth the p is 2 * (6 + 1) / 256: above .05, with the estimate itself as one more.
    assert line.plain.high == pytest.approx(max(means[-6], np.mean(values) + reach))
    assert line.plain.low == pytest.approx(min(means[5], np.mean(values) - reach))


CLUSTERED = st.lists(
    st.tuples(st.integers(-3, 3), st.integers(0, 24), st.integers(0, 8)), min_size=6, max_size=60
)


@examples(150)
@given(CLUSTERED, st.sampled_from([-1.0, 0.0, 0.5, 2.0]), st.booleans())
def test_with_few_clusters_or_words_the_interval_is_the_tests(
    data: list[tuple[int, int, int]], null: float, has_words: bool
) -> None:
    values, clusters, words = (np.array(column) for column in zip(*data, strict=True))
    rows = np.column_stack([values, np.ones(len(values))]).astype(float)
    one = replace(measure(rows, [f"c{c}" for c in clusters]), null=null)
    if has_words:
        one = with_words(one, [[f"w{w}" for w in words]])
    (line,) = estimate([one])
    e = line.plain
    if not math.isnan(e.low):
        assert e.low <= e.value <= e.high
        assert (e.low > null or e.high < null) == (e.p < 0.05)
        assert e.p >= 2.0 ** (1 - len(set(clusters.tolist()))) - 1e-12


@examples(150)
@given(CLUSTERED, st.floats(0.0, 1.0))
def test_a_test_of_the_suites_own_has_an_interval_that_agrees(
    data: list[tuple[int, int, int]], p: float
) -> None:
    values, clusters, _ = (np.array(column) for column in zip(*data, strict=True))
    rows = np.column_stack([values, np.ones(len(values))]).astype(float)
    one = replace(measure(rows, [f"c{c}" for c in clusters], interval=Jackknife(p=p)), null=0.0)
    (line,) = estimate([one])
    e = line.plain
    assert e.p == p
    if not math.isnan(e.low) and abs(e.value) > 1e-9:
        assert e.low <= e.value <= e.high
        assert (e.low > 0 or e.high < 0) == (p < 0.05)


def test_its_interval_has_the_tests_standard_error_where_all_clusters_agree() -> None:
    (line,) = estimate([replace(numbers([3.0] * 8), interval=Jackknife(p=0.01), null=0.0)])
    from scipy.stats import norm

    reach = 3 * norm.ppf(0.975) / norm.ppf(0.995)  # z is 2.576 at p = .01
    assert (line.plain.low, line.plain.high) == pytest.approx((3 - reach, 3 + reach))
    (line,) = estimate([replace(numbers([3.0] * 8), interval=Jackknife(p=math.nan), null=0.0)])
    assert math.isnan(line.plain.p)  # too few for its test: no other takes its place


@examples(200)
@given(DATA)
def test_an_interval_leaves_out_the_null_value_exactly_when_p_is_small(
    data: list[tuple[bool, int, bool]],
) -> None:
    one = replace(of(*map(list, zip(*data, strict=True))), null=0.5)  # type: ignore[arg-type]
    (line,) = estimate([one])
    e = line.plain
    if not math.isnan(e.low):
        assert (e.low > 0.5 or e.high < 0.5) == (e.p < 0.05)


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_a_share_of_independent_answers_has_the_exact_interval(hits: list[bool]) -> None:
    from statsmodels.stats.proportion import proportion_confint

    one = replace(of(hits, list(range(len(hits)))), interval=ClopperPearson())
    (line,) = estimate([one])
    want = proportion_confint(sum(hits), len(hits), method="beta")
    want = (want[0] if any(hits) else 0.0, want[1] if not all(hits) else 1.0)
    assert (line.plain.low, line.plain.high) == pytest.approx(want, abs=1e-12)


def test_one_of_clustered_answers_is_of_as_many_as_would_say_as_much() -> None:
    """Korn and Graubard 1998; of few clusters each counts as one answer."""
    from scipy.stats import beta
    from scipy.stats import t as student

    rng = np.random.default_rng(4)
    clusters = rng.integers(0, 40, 150).tolist()
    hits = (rng.random(150) < rng.random(40)[clusters]).tolist()
    (line,) = estimate([replace(of(hits, clusters), interval=ClopperPearson())])
    sizes, sums = (np.bincount(clusters, w) for w in (None, hits))
    sizes, sums = sizes[sizes > 0].astype(float), sums[np.bincount(clusters) > 0]
    g, p = len(sizes), float(np.mean(hits))
    left = (sums.sum() - sums) / (sizes.sum() - sizes)
    error = math.sqrt((g - 1) / g * ((left - left.mean()) ** 2).sum())
    kish = sizes.sum() ** 2 / (sizes**2).sum()
    n = p * (1 - p) / (error * student.ppf(0.975, kish - 1) / student.ppf(0.975, np.inf)) ** 2
    assert kish < n < 150
    want = beta.ppf(0.025, p * n, n - p * n + 1), beta.ppf(0.975, p * n + 1, n - p * n)
    assert (line.plain.low, line.plain.high) == pytest.approx(want, abs=1e-9)
    (few,) = estimate([replace(of([True, True, False], [0, 0, 1]), interval=ClopperPearson())])
    n = 9 / 5
    want = beta.ppf(0.025, 2 / 3 * n, n / 3 + 1), beta.ppf(0.975, 2 / 3 * n + 1, n / 3)
    assert (few.plain.low, few.plain.high) == pytest.approx(want, abs=1e-9)


TWO = st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 20)), min_size=1, max_size=60)


def apart(rows: np.ndarray, clusters: list[str]) -> Line:
    """The difference of two shares, of columns that count each's hits and each's answers."""
    measure = Measure(
        "apart",
        {},
        Samples(rows, clusters),
        difference_of_shares,
        lambda t: t[..., 1] + t[..., 3],
        null=0.0,
        interval=TwoShares(),
    )
    (line,) = estimate([measure])
    return line


@examples(200)
@given(TWO)
def test_a_difference_of_two_shares_leaves_out_0_exactly_when_p_is_small(
    data: list[tuple[bool, bool, int]],
) -> None:
    hit, first, clusters = (np.array(column) for column in zip(*data, strict=True))
    rows = np.column_stack([hit & first, first, hit & ~first, ~first]).astype(float)
    line = apart(rows, [f"c{c}" for c in clusters])
    e = line.plain
    assert math.isnan(e.low) == math.isnan(e.p)
    if not math.isnan(e.low):
        assert -1 <= e.low <= e.value <= e.high <= 1
        assert (e.low > 0 or e.high < 0) == (e.p < 0.05)


def test_of_independent_answers_it_joins_jeffreys_intervals() -> None:
    """Newcombe 1998, method 10: of 8 of 40 and 0 of 25; the t's quantile makes 40 a little less."""
    from scipy.stats import beta
    from scipy.stats import t as student

    rows = np.array([[n < 8, 1, 0, 0] for n in range(40)] + [[0, 0, 0, 1]] * 25, dtype=float)
    line = apart(rows, [f"c{n}" for n in range(65)])
    size = 39 * (student.ppf(0.975, np.inf) / student.ppf(0.975, 39)) ** 2
    size = max(size, 40)  # answers of one cluster each are worth no less than they are
    low, high = beta.ppf([0.025, 0.975], 0.2 * size + 0.5, 0.8 * size + 0.5)
    most = beta.ppf(0.975, 0.5, 25.5)
    want = 0.2 - math.hypot(0.2 - low, most), 0.2 + (high - 0.2)
    assert (line.plain.low, line.plain.high) == pytest.approx(want, abs=1e-9)


def test_too_few_clusters_have_no_interval_and_no_test() -> None:
    hits = [n % 7 > 1 for n in range(60)]
    for clusters in (LEAST_CLUSTERS - 1, LEAST_CLUSTERS):
        one = replace(of(hits, [n % clusters for n in range(60)]), null=0.5)
        (line,) = estimate([one])
        assert math.isnan(line.plain.low) == math.isnan(line.plain.p) == (clusters == 5)
        assert line.plain.value == pytest.approx(sum(hits) / 60)


@pytest.mark.parametrize(("hits", "clusters"), [(1, 8), (4, 10), (3, 50), (240, 250)])
def test_a_share_of_clusters_that_answer_alike_has_jeffreys_interval(
    hits: int, clusters: int
) -> None:
    """Its clusters are as many answers, however many were asked."""
    from statsmodels.stats.proportion import proportion_confint

    said = [c < hits for c in range(clusters) for _ in range(5)]
    one = of(said, [c for c in range(clusters) for _ in range(5)])
    (line,) = estimate([replace(one, bounds=(0.0, 1.0))])
    expected = proportion_confint(hits, clusters, method="jeffreys")
    assert (line.plain.low, line.plain.high) == pytest.approx(expected)
    # As a part of what lies between other bounds it is the same.
    moved = replace(one, bounds=(20.0, 100.0), value=lambda t: 20 + 80 * share(t))
    (line,) = estimate([moved])
    assert ((line.plain.low - 20) / 80, (line.plain.high - 20) / 80) == pytest.approx(expected)


def test_the_interval_of_a_small_share_holds_it() -> None:
    """Fifty clusters that answer alike, a share of .1: a t interval holds it in 88 of 100."""
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(400):
        one = of((rng.random(50) < 0.1).tolist(), list(range(50)))
        (line,) = estimate([replace(one, bounds=(0.0, 1.0))])
        held += not line.plain.low > 0.1 and not line.plain.high < 0.1
    assert 0.93 <= held / 400 <= 0.98


@pytest.mark.parametrize("hits", [False, True])
def test_a_share_of_0_or_1_is_of_as_many_answers_as_clusters(hits: bool) -> None:
    """Jeffreys' interval begins at the bound there: .5 of a tail is on either side elsewhere."""
    from scipy.stats import beta

    one = of([hits] * 500, [n % 20 for n in range(500)])
    (line,) = estimate([replace(one, bounds=(0.0, 1.0))])
    apart = beta.ppf(0.975, 0.5, 20.5)
    expected = (1 - apart, 1.0) if hits else (0.0, apart)
    assert (line.plain.low, line.plain.high) == pytest.approx(expected)
    few = of([hits] * 500, [n % (LEAST_CLUSTERS - 1) for n in range(500)])
    (line,) = estimate([replace(few, bounds=(0.0, 1.0))])
    assert math.isnan(line.plain.low)


@pytest.mark.parametrize(
    ("share_", "alike"),
    [
        (0.01, 0.3),
        (0.97, 1.0),
        *(
            pytest.param(share_, alike, marks=pytest.mark.slow("simulates three hundred audits"))
            for share_, alike in itertools.product((0.01, 0.03, 0.97), (0.0, 0.3, 1.0))
            if (share_, alike) not in ((0.01, 0.3), (0.97, 1.0))
        ),
    ],
)
def test_the_interval_of_a_share_near_a_bound_holds_it(share_: float, alike: float) -> None:
    """Forty clusters of five answers, of which ``alike`` follow the cluster's own."""
    rng = np.random.default_rng(6)
    held = 0
    for _ in range(300):
        own = np.repeat(rng.random(40) < share_, 5)
        hits = np.where(rng.random(200) < alike, own, rng.random(200) < share_)
        one = of(hits.tolist(), np.repeat(np.arange(40), 5).tolist())
        (line,) = estimate([replace(one, bounds=(0.0, 1.0))])
        held += line.plain.low <= share_ <= line.plain.high  # one that is not there holds nothing
    assert held / 300 >= 0.92


def test_an_estimate_that_noise_puts_below_0_has_the_interval_of_one_at_0() -> None:
    """A root of a mean square: its interval ends neither at 0 nor nowhere."""
    from scipy.stats import t as student

    rng = np.random.default_rng(7)
    noise = rng.normal(-4, 1, 30)  # the whole interval of the mean is below 0
    mean = Smooth(share, lambda x: math.sqrt(max(x, 0.0)) if x == x else x, 0.0)
    one = measure(np.column_stack([noise, np.ones(30)]), [f"c{n}" for n in range(30)])
    interval = Jackknife(smooth=mean)
    root = replace(one, value=lambda t: np.sqrt(np.maximum(share(t), 0.0)), interval=interval)
    (line,) = estimate([root])
    assert line.plain.value == line.plain.low == 0.0
    reach = student.ppf(0.975, 29) * noise.std(ddof=1) / math.sqrt(30)
    assert line.plain.high == pytest.approx(math.sqrt(reach))


def test_the_interval_of_a_share_of_many_is_students() -> None:
    rng = np.random.default_rng(2)
    clusters = np.repeat(np.arange(200), 10)
    hits = rng.random(2000) < rng.beta(4, 6, 200)[clusters]
    one = of(hits.tolist(), clusters.tolist())
    (wide,), (bounded,) = (estimate([m]) for m in (one, replace(one, bounds=(0.0, 1.0))))
    assert (bounded.plain.low, bounded.plain.high) == pytest.approx(
        (wide.plain.low, wide.plain.high), abs=2e-3
    )


@pytest.mark.parametrize(("null", "q"), [(0.9, 1.0), (0.1, 0.001)])
def test_less_than_nothing_is_no_finding_where_only_more_is_one(null: float, q: float) -> None:
    hits = [n % 3 == 0 or n % 7 == 0 for n in range(400)]
    one = replace(of(hits, [n % 40 for n in range(400)]), null=null)
    assert estimate([one])[0].plain.q < 0.001
    (line,) = estimate([replace(one, above=True)])
    assert line.plain.q == 1.0 if q == 1.0 else line.plain.q < q


def test_clusters_that_never_differ_have_a_test_and_no_interval() -> None:
    """Eight that all say 1 have one sign by chance in 2 of 256 cases."""
    (line,) = estimate([replace(of([True] * 8, list(range(8))), null=0.5)])
    assert math.isnan(line.plain.low)
    assert line.plain.p == 2 / 256


def crossed(values: Floats, words: list[tuple[str, ...]], clusters: list[str]) -> Measure:
    """A mean over rows (value, 1) whose words, by row, are ``words``."""
    rows = np.column_stack([values, np.ones(len(values))])
    samples = Samples(rows, clusters, words=list(zip(*words, strict=True)))
    return Measure("mean", {}, samples, share, column(1), null=0.0)


def with_words(one: Measure, words: Sequence[Sequence[str]] = ()) -> Measure:
    return replace(one, samples=replace(one.samples, words=words))


def test_the_variance_over_words_is_that_of_two_way_clusters() -> None:
    import statsmodels.api as sm
    from scipy.stats import t as student

    rng = np.random.default_rng(3)
    template, word = np.divmod(np.arange(600), 20)
    chosen = rng.permutation(600)[:500]
    values = (rng.normal(0, 1, 30)[template] + rng.normal(0, 1, 20)[word])[chosen]
    values += rng.normal(0, 1, 500)
    template, word = template[chosen], word[chosen]
    one = crossed(values, [(f"w{w}",) for w in word], [f"t{t}" for t in template])
    (line,) = estimate([one])
    fit = sm.OLS(values, np.ones(500)).fit(
        cov_type="cluster",
        cov_kwds={"groups": np.column_stack([template, word]), "df_correction": False},
    )
    assert line.plain.value == pytest.approx(fit.params[0])
    # That of statsmodels has one correction for both ways, ours is a jackknife for each.
    (narrow,) = estimate([with_words(one)])
    t = line.plain.value / float(fit.bse[0])
    effective = 1 / np.mean([1 / 30, 1 / 20])
    assert line.plain.p == pytest.approx(2 * student.sf(abs(t), effective), abs=0.02)
    assert line.plain.high - line.plain.low > narrow.plain.high - narrow.plain.low


@pytest.mark.parametrize(
    ("runs", "most"),
    [
        (100, 12),  # at 5 % more come in 0.1 % of cases
        pytest.param(400, 32, marks=pytest.mark.slow("simulates four hundred audits")),
    ],
)
def test_own_rates_for_each_word_are_no_effect(runs: int, most: int) -> None:
    """Under one-way clusters a test of 40 words in 30 templates would be significant in most."""
    rng, wrong, one_way = np.random.default_rng(4), 0, 0
    template, word = np.divmod(np.arange(1200), 40)
    for _ in range(runs):
        values = rng.normal(0, 1, 40)[word] + rng.normal(0, 1, 1200)
        one = crossed(values, [(f"w{w}",) for w in word], [f"t{t}" for t in template])
        both, narrow = (estimate([m])[0].plain.p for m in (one, with_words(one)))
        wrong, one_way = wrong + (both < 0.05), one_way + (narrow < 0.05)
    assert wrong <= most  # of 400 more come in 0.5 % of cases
    assert one_way > runs / 2


@examples(50)
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 7), st.integers(0, 4)), min_size=1))
def test_words_hardly_narrow_an_interval(rows: list[tuple[int, int, int]]) -> None:
    values, clusters, words = zip(*rows, strict=True)
    one = crossed(
        np.array(values, dtype=float), [(f"w{w}",) for w in words], [f"c{c}" for c in clusters]
    )
    (both,), (narrow,) = estimate([one]), estimate([with_words(one)])
    assert both.plain.value == narrow.plain.value
    if not math.isnan(both.plain.low):
        # The standard error is at least as large; t may have more degrees of freedom.
        width, one_way = (e.high - e.low for e in (both.plain, narrow.plain))
        assert width >= 0.95 * one_way


def test_two_words_for_a_group_are_too_few() -> None:
    values = np.random.default_rng(5).normal(0, 1, 80)
    one = crossed(values, [(f"w{n % 2}",) for n in range(80)], [f"c{n // 8}" for n in range(80)])
    (line,) = estimate([one])
    assert math.isnan(line.plain.low)
    assert math.isnan(line.plain.p)


def test_what_arms_share_cancels() -> None:
    rng = np.random.default_rng(1)
    hits = rng.random(400) < 0.5
    cut = hits & (rng.random(400) < 0.1)
    clusters = list(range(400))
    plain = of(hits.tolist(), clusters)
    guarded = of((hits & ~cut).tolist(), clusters)
    (line,) = estimate([plain], [guarded])
    assert line.effect is not None
    assert line.effect.value == pytest.approx(-cut.mean())
    assert line.effect.high < 0
    assert line.effect.high - line.effect.low < (line.plain.high - line.plain.low) / 1.5
    assert line.effect.p < 0.01


def test_the_interval_of_a_change_lies_on_the_side_of_the_change() -> None:
    before = [n < 30 for n in range(100)]
    after = [n < 5 for n in range(100)]
    one, other = (
        replace(of(hits, list(range(100))), interval=ClopperPearson()) for hits in (before, after)
    )
    for plain, guarded, sign in ((one, other, -1), (other, one, 1)):
        (line,) = estimate([plain], [guarded])
        assert line.effect is not None
        assert line.effect.value == pytest.approx(sign * 0.25)
        # Method 10 of Newcombe (1998) of Jeffreys intervals of 25 and 0 of 100, by scipy.
        low, high = sorted((sign * line.effect.low, sign * line.effect.high))
        assert (low, high) == pytest.approx((0.1691975, 0.3411513), abs=1e-6)
        assert line.effect.p < 0.001


def test_tests_beside_those_that_a_suite_corrected_are_a_second_family() -> None:
    def tested(name: str, p: float, q: float | None = None) -> Measure:
        interval = Jackknife(p=p, q=q)
        return replace(of([True] * 6, list(range(6))), name=name, interval=interval)

    alone = estimate([tested("a", 0.02), tested("b", 0.04)])
    assert [line.plain.q for line in alone] == pytest.approx([0.04, 0.04])
    # Bonferroni over the two families.
    beside = estimate([tested("a", 0.02), tested("b", 0.04), tested("own", 0.001, 0.003)])
    assert [line.plain.q for line in beside] == pytest.approx([0.08, 0.08, 0.003])


def test_the_suites_own_tests_are_corrected_together() -> None:
    rows = np.ones((4, 2))
    intervals = [Jackknife(p=p) for p in (0.01, 0.02, 0.5)]
    some = [measure(rows, list("abcd"), f"m{i}", how) for i, how in enumerate(intervals)]
    found = estimate([*some, measure(rows, list("abcd"), "untested")])
    assert [round(line.plain.q, 4) for line in found[:3]] == [0.03, 0.03, 0.5]
    assert math.isnan(found[3].plain.q)


def test_arms_with_other_measures_are_refused() -> None:
    rows = np.ones((1, 2))
    with pytest.raises(ValueError, match="different measures"):
        estimate([measure(rows, ["a"])], [measure(rows, ["a"], "other")])


@pytest.mark.slow("simulates three hundred audits")
def test_intervals_cover_the_truth_where_clusters_differ() -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(300):
        rates = rng.beta(4, 4, size=60)  # mean .5
        hits = (rng.random((60, 10)) < rates[:, None]).ravel().tolist()
        clusters = np.repeat(np.arange(60), 10).tolist()
        (line,) = estimate([of(hits, clusters)])
        covered += line.plain.low <= 0.5 <= line.plain.high
    assert 0.91 <= covered / 300 <= 0.98


@pytest.mark.slow("simulates three hundred audits")
def test_exchanging_arms_without_effect_errs_as_often_as_it_says() -> None:
    rng = np.random.default_rng(4)
    wrong = 0
    for _ in range(300):
        arms = [of((rng.random(120) < 0.4).tolist(), list(range(120))) for _arm in range(2)]
        (line,) = estimate([arms[0]], [arms[1]])
        assert line.effect is not None
        wrong += line.effect.p <= 0.05
    assert wrong / 300 <= 0.09


def bounded_mean(values: Floats, null: float) -> Measure:
    """Return the share of a value in 0..1 of each cluster, against ``null``."""
    return replace(numbers(list(values)), null=null, bounds=(0.0, 1.0))


@pytest.mark.parametrize("kind", ["all or nothing", "alike", "answers"])
@pytest.mark.parametrize(("clusters", "null"), [(6, 0.05), (10, 0.05), (10, 0.7), (30, 0.1)])
def test_a_fair_model_near_a_bound_is_rarely_found_biased(
    clusters: int, null: float, kind: str
) -> None:
    """The error rate of a test at .05; without its least p it is up to 73 %, of six clusters."""
    rng, runs, errors = np.random.default_rng(5), 600, 0
    for _ in range(runs):
        values = rng.beta(null, 1 - null, clusters)
        if kind == "all or nothing":
            values = (rng.random(clusters) < null).astype(float)
        elif kind == "answers":
            values = rng.binomial(20, values) / 20
        plain = estimate([bounded_mean(values, null)])[0].plain
        errors += plain.p < 0.05
        if not math.isnan(plain.low):
            assert (plain.low <= null <= plain.high) == (plain.p >= 0.05)
    assert errors / runs <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / runs)


@pytest.mark.parametrize(
    ("value", "null", "p"),
    [
        (0.0, 0.1, 0.9**6 + 0.1**6),  # all six at the bound, or all at the other one
        (1.0, 0.9, 0.9**6 + 0.1**6),
        (0.0, 0.5, 2**-5),  # in the middle it is the sign test
        (1.0, 0.1, 2**-5),  # towards the far bound, too
        (0.2, 0.0, 2**-5),  # a fair model has no value but 0
        (0.0, 0.0, 1.0),
    ],
)
def test_clusters_that_agree_have_the_p_of_their_chance(
    value: float, null: float, p: float
) -> None:
    plain = estimate([bounded_mean(np.full(6, value), null)])[0].plain
    assert plain.p == pytest.approx(p, rel=1e-12)


def test_a_null_in_the_middle_has_the_same_p_with_bounds_and_without() -> None:
    values = np.random.default_rng(2).beta(1, 3, 12)
    bounded = bounded_mean(values, 0.5)
    (with_bounds,), (without,) = (
        estimate([m]) for m in (bounded, replace(bounded, bounds=(-math.inf, math.inf)))
    )
    assert with_bounds.plain.p == without.plain.p < 0.05


def test_many_clusters_below_a_null_near_a_bound_are_found() -> None:
    values = np.random.default_rng(2).binomial(20, 0.03, 100) / 20
    plain = estimate([bounded_mean(values, 0.1)])[0].plain
    assert plain.p < 0.001
    assert plain.high < 0.1
