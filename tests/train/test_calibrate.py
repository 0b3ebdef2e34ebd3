"""Scale of the scores, operating points and the figures they rest on."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from guard.errors import UsageError
from guard.evaluate.metrics import BINS
from guard.train import forms, pools
from guard.train.rows import fold
from guard.verdict import BIAS_TYPES, BiasType
from tests.train.own_rows import STATEMENTS, own_rows


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Imports here, and not above, what would take seconds of every collection."""
    global \
        ACCURACY_POOLS, \
        calibration_error, \
        calibration_interval, \
        Curves, \
        rate_curves, \
        equal_weights
    global \
        expit, \
        fit_scale, \
        GRID, \
        grid_places, \
        HARMLESS, \
        JudgedTexts, \
        MAX_FALSE_POSITIVE_RATE, \
        measured_rates
    global MIN_TEXTS_OF_TYPE, operating_points, own_thresholds, PLAIN, QUIET_FINDS, QUIET_SHARE
    global reliability_bins, Share
    from scipy.special import expit

    from guard.train.calibrate import (
        ACCURACY_POOLS,
        GRID,
        HARMLESS,
        MAX_FALSE_POSITIVE_RATE,
        MIN_TEXTS_OF_TYPE,
        PLAIN,
        QUIET_FINDS,
        QUIET_SHARE,
        Curves,
        JudgedTexts,
        Share,
        calibration_error,
        calibration_interval,
        equal_weights,
        fit_scale,
        grid_places,
        measured_rates,
        operating_points,
        own_thresholds,
        rate_curves,
        reliability_bins,
    )


Floats = NDArray[np.float64]


def drawn(
    seed: int, n: int = 800, kinds: tuple[str, ...] = BIAS_TYPES
) -> tuple[JudgedTexts, Floats]:
    """Honest scores of comments, low ones of harmless texts; later types are rarer."""
    rng = np.random.default_rng(seed)
    weight = 1 / np.arange(1, len(kinds) + 1)
    pool = np.repeat([*ACCURACY_POOLS, *HARMLESS], n)
    comment = np.isin(pool, ACCURACY_POOLS)
    total = len(pool)
    logit = np.where(comment, rng.normal(0, 2, total), rng.normal(-4, 1.5, total))
    biased = comment & (rng.random(total) < expit(logit))
    kind = rng.choice(kinds, total, p=weight / weight.sum())
    return JudgedTexts(pool, biased, kind, logit), expit(logit)


def rates(texts: JudgedTexts, scores: Floats, chosen: NDArray[np.bool_] | None = None) -> Curves:
    """The rates at every threshold of the grid."""
    return rate_curves(texts, scores[:, None] >= GRID, chosen)


def common_points(texts: JudgedTexts, scores: Floats) -> dict[str, float]:
    """The threshold of each point for a type without texts of its own."""
    return {point: float(GRID[place]) for point, place in grid_places(rates(texts, scores)).items()}


def test_the_scale_of_too_sure_and_shifted_logits_is_found() -> None:
    rng = np.random.default_rng(1)
    honest = rng.normal(0, 2, 20_000)
    labels, even = rng.random(20_000) < expit(honest), np.full(20_000, 1 / 20_000)
    for temperature, offset in ((2, 0), (1, 0), (1.5, 0.8), (0.7, -1)):
        found = fit_scale(honest * temperature + offset, labels, even)
        assert found.temperature == pytest.approx(temperature, rel=0.05)
        assert found.offset == pytest.approx(offset, abs=0.1)
        np.testing.assert_allclose(
            found.scores(honest * temperature + offset), expit(honest), atol=0.03
        )


@pytest.mark.parametrize(
    "case", ["one label", "no number", "far", "unrelated", "against", "separated", "tied"]
)
def test_a_scale_that_the_texts_do_not_determine_is_refused(case: str) -> None:
    rng = np.random.default_rng(2)
    logits = rng.normal(0, 2, 400)
    labels, even = rng.random(400) < expit(logits), np.full(400, 1.0)
    fit_scale(logits, labels, even)
    if case == "one label":
        labels[:] = True
    elif case == "no number":
        logits[7] = np.nan
    elif case == "unrelated":
        labels = rng.permutation(labels)
    elif case == "against":
        labels = ~labels
    elif case == "separated":
        labels = logits > 0
    elif case == "tied":
        logits[:] = 1
    else:
        logits += 15
    with (
        np.errstate(invalid="ignore"),
        pytest.raises(UsageError, match="of 400 validation texts cannot be calibrated"),
    ):
        fit_scale(logits, labels, even)


def test_every_source_weighs_the_same() -> None:
    pool = np.array(["redditbias"] * 6 + ["emgsd"] * 2 + ["statements", "pairs"])
    texts = JudgedTexts(pool, np.ones(10, bool), np.full(10, "age"), np.zeros(10))
    weights = equal_weights(texts)
    for of in (["redditbias"], ["emgsd"], ["statements", "pairs"]):
        assert weights[np.isin(pool, of)].sum() == pytest.approx(1 / 3)
    assert equal_weights(texts._replace(pool=np.full(10, "other"))).sum() == pytest.approx(1)


def upper_bound(count: int, n: int) -> float:
    return Share.of(np.arange(n) < count).bound


def test_the_bound_is_the_exact_binomial_one() -> None:
    for n in (1, 5, 40, 700):
        for count in {0, n // 3, n - 1}:
            p = upper_bound(count, n)
            # At the bound, so few are seen with a chance of 5 %.
            seen = sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(count + 1))
            assert seen == pytest.approx(0.05, rel=1e-6)
    assert upper_bound(3, 3) == 1.0
    assert upper_bound(0, 0) == 1.0
    assert upper_bound(0, 299) == pytest.approx(0.01, abs=5e-5)  # the rule of three


@pytest.mark.parametrize("seed", range(6))
def test_points_are_ordered_and_keep_their_word(seed: int) -> None:
    texts, scores = drawn(seed)
    points = operating_points(texts, scores)
    assert list(points) == ["strict", "balanced", "quiet"]
    for kind in BIAS_TYPES:
        strict, balanced, quiet = (points[p][kind] for p in points)
        assert 0 < strict <= balanced <= quiet < 1
    found = {name: measured_rates(texts, scores, limits) for name, limits in points.items()}
    for name, of in found.items():
        assert of.harmless.hits <= MAX_FALSE_POSITIVE_RATE[name] * of.harmless.n
        assert of.harmless.bound >= of.harmless.hits / of.harmless.n
    assert found["balanced"].accuracy == pytest.approx(0.79, abs=0.03)
    assert found["strict"].recall >= 0.87
    assert found["quiet"].false_positive_rate <= QUIET_SHARE * found["balanced"].false_positive_rate


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_texts_changes_nothing(seed: int) -> None:
    texts, scores = drawn(seed, 300)
    order = np.random.default_rng(seed).permutation(len(scores))
    again = texts.where(order)
    assert operating_points(again, scores[order]) == operating_points(texts, scores)
    assert common_points(again, scores[order]) == common_points(texts, scores)
    one, two = equal_weights(texts), equal_weights(again)
    assert fit_scale(again.logit, again.biased, two) == pytest.approx(
        fit_scale(texts.logit, texts.biased, one), abs=1e-3
    )
    assert calibration_error(reliability_bins(scores[order], again.biased, two)) == pytest.approx(
        calibration_error(reliability_bins(scores, texts.biased, one)), abs=1e-12
    )


def test_a_type_with_few_texts_keeps_the_common_threshold() -> None:
    texts, scores = drawn(3, 400, ("race", "gender"))
    rare = np.flatnonzero(texts.pool == "redditbias")[: MIN_TEXTS_OF_TYPE - 1]
    texts.kind[rare] = "age"
    points, common = operating_points(texts, scores), common_points(texts, scores)
    raised = {name: points[name]["disability"] - common[name] for name in points}
    for name in points:
        # No text at all, and one too few: the same, but for what all types rise together.
        assert points[name]["age"] == points[name]["disability"]
        assert raised[name] >= 0


def test_few_texts_are_held_to_the_common_threshold_and_many_are_not() -> None:
    def moved(n: int) -> float:
        texts, _ = drawn(5, 3000, ("race", "gender"))
        chosen = np.concatenate([np.flatnonzero(texts.pool == p)[: n // 2] for p in ACCURACY_POOLS])
        texts.kind[chosen] = "age"
        # Logits of this type lie 2 too high.
        logit = np.where(texts.kind == "age", texts.logit + 2, texts.logit)
        scores = expit(logit)
        at = operating_points(texts, scores)["balanced"]["age"]
        return at - common_points(texts, scores)["balanced"]

    assert 0 <= moved(60) <= 0.12
    assert moved(1500) >= 0.2


def test_alarms_of_one_type_raise_its_threshold() -> None:
    texts, _ = drawn(7, 1500, ("race", "gender"))
    loud = (texts.kind == "race") & np.isin(texts.pool, HARMLESS)
    logit = np.where(loud, texts.logit + 3, texts.logit)
    points = operating_points(texts, expit(logit))
    assert points["balanced"]["race"] > points["balanced"]["gender"] + 0.05


def stating(height: dict[str, float], seed: int, n: int = 24) -> tuple[JudgedTexts, Floats]:
    """Texts, and ``n`` plain statements a type of logits about ``height``.

    The harmless texts are hard ones: they, not comments, bound quiet.
    """
    rng = np.random.default_rng(seed)
    texts, _ = drawn(seed)
    texts = texts._replace(logit=texts.logit + np.where(np.isin(texts.pool, HARMLESS), 2, 0))
    kind = np.repeat(list(height), n)
    logit = np.repeat(list(height.values()), n) + rng.normal(0, 0.5, len(kind))
    more = JudgedTexts(np.full(len(kind), PLAIN), np.ones(len(kind), bool), kind, logit)
    both = JudgedTexts(*(np.concatenate(pair) for pair in zip(texts, more, strict=True)))
    return both, expit(both.logit)


def plain(texts: JudgedTexts, scores: Floats, limits: dict[BiasType, float]) -> dict[str, int]:
    """How many of its plain statements are found, of each predicted type."""
    found = (texts.pool == PLAIN) & (scores >= np.array([limits[k] for k in texts.kind]))
    return {kind: int((found & (texts.kind == kind)).sum()) for kind in BIAS_TYPES}


@pytest.mark.parametrize("seed", range(4))
def test_quiet_finds_three_in_four_plain_statements_of_every_type(seed: int) -> None:
    # Of one type they are said less surely than quiet asks of the others.
    texts, scores = stating(dict.fromkeys(BIAS_TYPES, 4.0) | {"disability": 2.0}, seed)
    points = operating_points(texts, scores)
    known = texts.pool != PLAIN
    without = operating_points(texts.where(known), scores[known])
    found = plain(texts, scores, points["quiet"])
    for kind in BIAS_TYPES:
        assert found[kind] >= QUIET_FINDS * 24
        assert points["balanced"][kind] <= points["quiet"][kind] <= without["quiet"][kind]
    # Only that type's threshold falls, and no further than it must.
    assert plain(texts, scores, without["quiet"])["disability"] < 16
    assert found["disability"] <= QUIET_FINDS * 24 + 1
    changed = {k for k in BIAS_TYPES if points["quiet"][k] != without["quiet"][k]}
    assert changed == {"disability"}
    assert {p: points[p] for p in ("strict", "balanced")} == {
        p: without[p] for p in ("strict", "balanced")
    }


@pytest.mark.parametrize("seed", range(4))
def test_where_alarms_forbid_it_quiet_finds_less_of_all_types_alike(seed: int) -> None:
    texts, scores = stating(dict.fromkeys(BIAS_TYPES, 1.5), seed)
    points = operating_points(texts, scores)
    balanced = measured_rates(texts, scores, points["balanced"])

    def halved_false_positives(limits: dict[BiasType, float]) -> bool:
        of = measured_rates(texts, scores, limits)
        few = max(
            MAX_FALSE_POSITIVE_RATE["quiet"] * of.harmless.n, QUIET_SHARE * balanced.harmless.hits
        )
        return (
            of.harmless.hits <= few
            and of.false_positive_rate <= QUIET_SHARE * balanced.false_positive_rate
        )

    assert halved_false_positives(points["quiet"])
    shares = [found / 24 for found in plain(texts, scores, points["quiet"]).values()]
    assert 0.2 < min(shares) < QUIET_FINDS
    assert max(shares) - min(shares) <= 3.01 / 24
    # What would find a little more of all of them gives too many false positives.
    lower = {k: max(at - 0.04, points["balanced"][k]) for k, at in points["quiet"].items()}
    assert not halved_false_positives(lower)


def test_one_loud_text_does_not_silence_a_rare_type() -> None:
    texts, scores = drawn(2)
    # Of 62 harmless texts of the type one is scored above all others.
    some = np.flatnonzero(np.isin(texts.pool, HARMLESS))[:62]
    texts.kind[texts.kind == "disability"] = "race"
    texts.kind[some] = "disability"
    scores[some[0]] = 0.995
    quiet = operating_points(texts, scores)["quiet"]
    assert set(quiet.values()) == {quiet["disability"]}
    assert quiet["disability"] < 0.95


def test_a_type_with_few_plain_statements_is_held_to_those_of_all() -> None:
    texts, _ = stating(dict.fromkeys([k for k in BIAS_TYPES if k != "age"], 2.2), 6)
    # Three that nobody could find say nothing of the type.
    few = np.flatnonzero(texts.pool == ACCURACY_POOLS[0])[:3]
    texts.pool[few], texts.kind[few], texts.logit[few] = PLAIN, "age", -3.0
    quiet = operating_points(texts, expit(texts.logit))["quiet"]
    others = [at for kind, at in quiet.items() if kind != "age"]
    assert quiet["age"] == pytest.approx(np.mean(others), abs=0.02)
    known = texts.pool != PLAIN
    without = operating_points(texts.where(known), expit(texts.logit[known]))["quiet"]
    assert quiet["age"] < without["age"] - 0.02


@pytest.mark.parametrize("seed", range(6))
def test_the_threshold_of_a_source_is_about_its_most_accurate(seed: int) -> None:
    texts, scores = drawn(seed)
    # Scores of one source lie too high, so that its own threshold does.
    scores = np.where(texts.pool == "emgsd", expit(texts.logit + 1), scores)
    found = own_thresholds(texts, scores)
    assert found.keys() == set(ACCURACY_POOLS)
    assert found["redditbias"] == pytest.approx(0.5, abs=0.12)
    assert found["emgsd"] == pytest.approx(expit(np.array(1.0)), abs=0.12)
    for pool, threshold in found.items():
        inside = texts.pool == pool
        right = [((scores[inside] >= t) == texts.biased[inside]).mean() for t in GRID]
        mine = ((scores[inside] >= threshold) == texts.biased[inside]).mean()
        assert mine >= max(right) - 0.02


def test_of_equally_accurate_thresholds_the_one_with_fewer_alarms_is_taken() -> None:
    # Every threshold above .2 and up to .8 is right on all texts: the highest so far inside that
    # those within .1 are, too.
    texts = JudgedTexts(
        np.full(4, "emgsd"), np.array([0, 0, 1, 1]) > 0, np.full(4, "age"), np.zeros(4)
    )
    assert own_thresholds(texts, np.array([0.1, 0.2, 0.8, 0.9])) == {"emgsd": 0.7}
    assert own_thresholds(texts.where(np.zeros(4, bool)), np.array([])) == {}


def test_without_harmless_texts_there_are_no_points() -> None:
    texts, scores = drawn(0)
    biased = texts.where(texts.biased)
    with pytest.raises(UsageError, match="no harmless text"):
        operating_points(biased, scores[texts.biased])


def test_a_detector_that_finds_everything_has_no_points() -> None:
    texts, _ = drawn(0)
    with pytest.raises(UsageError, match="No threshold keeps the false positives of 'strict'"):
        operating_points(texts, np.full(len(texts.pool), 0.999))


def test_rates_of_types_add_up_to_those_of_all() -> None:
    texts, scores = drawn(9, 200)
    whole = rates(texts, scores).harmless
    parts = [rates(texts, scores, texts.kind == kind).harmless for kind in BIAS_TYPES]
    assert sum(p.n for p in parts) == whole.n == 200 * len(HARMLESS)
    together = sum(p.rate * p.n for p in parts) / whole.n
    assert together == pytest.approx(whole.rate, abs=1e-12)
    at = int(np.argmin(np.abs(GRID - 0.5)))
    assert whole.rate[at] == pytest.approx((scores[np.isin(texts.pool, HARMLESS)] >= 0.5).mean())


def test_honest_scores_have_little_calibration_error_and_sure_ones_much() -> None:
    texts, _ = drawn(11, 2000)
    comments = texts.where(np.isin(texts.pool, ACCURACY_POOLS))
    even = equal_weights(comments)
    honest = reliability_bins(expit(comments.logit), comments.biased, even)
    assert len(honest) == BINS
    assert sum(b.weight for b in honest) == pytest.approx(1)
    assert all(a.score < b.score for a, b in pairwise(honest))
    assert calibration_error(honest) < 0.03
    sure = reliability_bins(expit(3 * comments.logit), comments.biased, even)
    assert calibration_error(sure) > 0.1
    # By hand: 2 texts at .2, one biased, 2 at .8, both biased: (.3 + .2) / 2.
    two = reliability_bins(np.array([0.2, 0.2, 0.8, 0.8]), np.array([1, 0, 1, 1]) > 0, np.ones(4))
    assert calibration_error(two) == pytest.approx(0.25)
    low, high = calibration_interval(comments, expit(comments.logit), draws=40)
    assert 0 < low < high < 0.05


def test_texts_without_weight_make_no_bin() -> None:
    scores, weights = np.array([0.1, 0.5, 0.9]), np.array([0.5, 0.0, 0.5])
    bins = reliability_bins(scores, np.array([False, True, True]), weights)
    assert [b.score for b in bins] == [0.1, 0.9]


def test_texts_that_training_nearly_knows_are_left_out() -> None:
    def text(said: str) -> pools.WholeText:
        return pools.WholeText("emgsd", said, False, "")

    training = ["The old pilot was late again today.", "Short one."]
    known = ("The old pilot was late.", "Short one!")
    new = (
        "The old pilot was rude to us today",
        "short two",
        "Short one. Nothing like it is there.",
    )
    found = pools.far_from_training([text(t) for t in (*known, *new)], training)
    assert [t.text for t in found] == list(new)


def test_validation_texts_are_those_that_training_leaves_out() -> None:
    texts = list(pools.all_own_texts(STATEMENTS))
    found = [t for t in texts if pools.in_validation(t.family) and t.pool != "unseen"]
    assert {t.pool for t in found} == {"statements", "implicit", "negatives", "pairs", "forms"}
    of_forms = {r.family for r in forms.form_rows(17, 1)}
    trained = {r.family for r in own_rows()} | of_forms
    trained = {family for family in trained if not pools.in_validation(family)}
    assert not trained & {t.family for t in found}
    known = {t.family for t in texts if t.pool != "unseen"}
    assert {r.family for r in own_rows()} <= known <= {r.family for r in own_rows()} | of_forms


def test_unseen_texts_decide_nothing_and_are_read_by_no_run() -> None:
    unseen = {fold(t.text) for t in pools.all_own_texts(STATEMENTS) if t.pool == "unseen"}
    assert len(unseen) >= 500
    assert not unseen & {fold(r.text) for r in own_rows()}
    texts, scores = drawn(12, 300)
    more = JudgedTexts(*(np.concatenate([c, c[:100]]) for c in texts))
    more.pool[-100:] = "unseen"
    assert operating_points(more, np.concatenate([scores, scores[:100]])) == operating_points(
        texts, scores
    )


def test_every_harmless_text_weighs_the_same() -> None:
    pool = np.array(["redditbias"] * 4 + ["negatives"] * 3 + ["bold"])
    biased = np.array([1, 1, 0, 0, 0, 0, 0, 0]) > 0
    scores = np.array([0.9, 0.8, 0.1, 0.2, 0.9, 0.9, 0.1, 0.1])
    texts = JudgedTexts(pool, biased, np.full(8, "age"), np.log(scores / (1 - scores)))
    at = int(np.argmin(np.abs(GRID - 0.5)))
    assert rates(texts, scores).harmless.rate[at] == pytest.approx(2 / 4)
