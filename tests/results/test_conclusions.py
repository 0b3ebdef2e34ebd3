"""Every sentence agrees with the figures that it is written from, whatever these are."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from guard.results.conclusions import ALPHA, bias_conclusions, bias_of
from guard.results.estimate import Estimate
from guard.results.intervals import false_discovery
from guard.results.measure import column, share
from guard.results.samples import Samples
from guard.suites import Measure
from guard.suites.badf import findings as badf
from guard.suites.hbb import findings as hbb
from guard.suites.hbb.descriptors import Identity, Type
from tests.rows import examples

NAN = math.nan
_INTERVAL = re.compile(r"\[([-+]?[\d.]+), ([-+]?[\d.]+)\]")
_Q = re.compile(r"q (<?[\d.]+)")
MEANINGS = {"lean": ("the first are preferred", "the second are preferred")}


class Planted(NamedTuple):
    """A figure, the half-width of its interval (nan for none), its p (nan untested) and n."""

    value: float
    half: float
    p: float
    n: int
    above: bool = False
    null: float | None = 0.0


# Intervals and p-values need not be from one method, so they may disagree.
planted = st.builds(
    Planted,
    st.floats(-0.9, 0.9),
    st.just(NAN) | st.floats(0.001, 0.5),
    st.just(NAN) | st.sampled_from([1e-6, 0.004, 0.03]) | st.floats(0, 1),
    st.integers(0, 5000),
    st.booleans(),
    st.sampled_from([0.0, 0.0, 0.5, None]),
)


def estimates(found: Sequence[Planted], names: Sequence[dict[str, str]], name: str) -> list[Any]:
    """The measures with their estimates, whose q are corrected together as an audit does it."""
    pairs = []
    for one, axis in zip(found, names, strict=True):
        p = 1.0 if one.above and one.value <= (one.null or 0) and one.p == one.p else one.p
        made = Measure(
            name, axis, Samples.total(0, 0), share, column(1), null=one.null, above=one.above
        )
        low, high = one.value - one.half, one.value + one.half
        pairs.append((made, Estimate(one.value, low, high, float(one.n), p)))
    places = [i for i, (_, e) in enumerate(pairs) if e.p == e.p]
    if places:
        q = false_discovery(np.array([pairs[i][1].p for i in places]))
        for place, value in zip(places, q.tolist(), strict=True):
            pairs[place] = (pairs[place][0], replace(pairs[place][1], q=value))
    return pairs


def agrees(sentence: str, nulls: Sequence[float] = (0.0,)) -> None:
    """Assert that a sentence does not contradict its own figures."""
    assert "nan" not in sentence
    assert "inf" not in re.sub(r"\binf\w{2,}", "", sentence)
    quoted = [0.0 if q.startswith("<") else float(q) for q in _Q.findall(sentence)]
    shown = bias_of(sentence.partition(": ")[2] if sentence.startswith("Race") else sentence)
    assert shown
    if shown != "found":
        # No estimate stands beside "No bias found": neither an interval nor a small q.
        assert not _INTERVAL.search(sentence)
        assert all(q >= ALPHA for q in quoted)
        return
    for low, high in _INTERVAL.findall(sentence):
        # To the digits that are printed.
        assert any(not float(low) < null - 0.001 < null + 0.001 < float(high) for null in nulls)
    assert quoted
    assert min(quoted) < ALPHA


@given(st.lists(planted, max_size=8), st.booleans())
@examples(400)
def test_a_conclusion_agrees_with_its_figures(found: list[Planted], wide: bool) -> None:
    axes = [{"of": f"g{n}"} if wide or n % 2 else {"of": f"g{n}", "by": "x"} for n in range(8)]
    pairs = estimates(found, axes[: len(found)], "lean")
    (sentence,) = bias_conclusions(pairs, MEANINGS)
    significant = [
        (m, e)
        for m, e in pairs
        if e.q < ALPHA and (not m.above or m.null is None or e.value > m.null)
    ]
    tested = [e for _, e in pairs if not math.isnan(e.q)]
    expected = "found" if significant else "not found" if tested else "unknown"
    if pairs and not tested and all(m.null is None for m, _ in pairs):
        assert sentence.startswith("No test for bias")
        return
    assert bias_of(sentence) == expected
    agrees(sentence, (0.0, 0.5))
    for m, e in significant:
        told = f"{' '.join(m.axis.values())}: lean {e.value:.3f}"
        if told in sentence and m.null is not None and e.value != m.null:
            before = sentence[: sentence.index(told)].rpartition(" (")[0]
            assert before.endswith(MEANINGS["lean"][0 if e.value > m.null else 1])
    if significant and len(tested) > 1:
        assert f"{len(significant)} of {len(tested)} tests are significant" in sentence
    if expected == "not found":
        assert f"none of {len(tested)} tests" in sentence
        limits = [float(text) for text in re.findall(r"up to ([\d.]+)", sentence)]
        with_interval = [
            (m.null, e) for m, e in pairs if m.null is not None and not math.isnan(e.low)
        ]
        ends = [abs(x - null) for null, e in with_interval for x in (e.low, e.high)]
        assert all(limit == 0 or min(abs(limit - x) for x in ends) <= 0.001 for limit in limits)


def test_an_interval_of_one_test_that_leaves_out_zero_is_no_finding() -> None:
    """One of twelve tests has an interval below 0, and after correction a q of .37."""
    found = [Planted(-0.142, 0.132, 0.031, 40), *[Planted(0.01, 0.2, 0.8, 40)] * 11]
    (sentence,) = bias_conclusions(
        estimates(found, [{"of": f"g{n}"} for n in range(12)], "lean"), {}
    )
    assert sentence.startswith("No bias found: none of 12 tests is significant (smallest q 0.372)")
    assert "lean of g0 up to 0.274 from 0 (n 40)" in sentence
    assert "-0.274" not in sentence
    assert "-0.010" not in sentence


def test_what_has_too_few_answers_to_test_is_counted() -> None:
    found = [Planted(0.0, 0.1, 0.9, 50), Planted(1.0, NAN, NAN, 2), Planted(1.0, NAN, NAN, 3)]
    (sentence,) = bias_conclusions(
        estimates(found, [{"of": f"g{n}"} for n in range(3)], "lean"), {}
    )
    assert "none of 1 tests is significant" in sentence
    assert "2 more have too few answers to test" in sentence


TYPES = (
    Type("Race", "skin", "a", "she", (Identity("one", "x", "she"), Identity("two", "y", "she"))),
)


def hbb_figures(every: Planted, race: Planted) -> list[Any]:
    axes = [{"category": "all"}, {"category": "Race"}]
    figures = [replaced._replace(above=False, null=0.0) for replaced in (every, race)]
    pairs = estimates(figures, axes, "identity")
    for axis in axes:
        for name, value in (("count", 40.0), ("count_noise", 38.0), ("share", 0.1), ("dropped", 0)):
            e = Estimate(value, value, value, 400.0)
            pairs.append((replace(pairs[0][0], name=name, axis=axis, null=None), e))
    return pairs


@given(planted, planted, st.booleans())
@examples(400)
def test_a_conclusion_of_hbb_agrees_with_its_figures(
    every: Planted, race: Planted, exact: bool
) -> None:
    pairs = hbb_figures(every, race)
    (_, over_all), (_, of_race) = pairs[:2]
    first, *more = hbb.bias_conclusions(pairs, TYPES, 20, exact=exact)
    significant = [e for e in (over_all, of_race) if e.q < ALPHA and e.value > 0]
    expected = "found" if significant else "unknown" if math.isnan(over_all.q) else "not found"
    assert bias_of(first) == expected
    assert len(more) == (of_race in significant)
    if over_all not in significant and significant:
        assert first.startswith("Bias found in parts, not shown in all together: ")
    for sentence in (first, *more):
        # The share of instances is no test; its interval goes with it.
        agrees(re.sub(r"a share of [\d.]+\s*\[[^]]*\]", "", sentence))


@given(st.lists(planted, max_size=5), st.integers(0, 9), st.integers(0, 3), st.integers(0, 40))
@examples(400)
def test_a_conclusion_of_badf_agrees_with_its_figures(
    found: list[Planted], published: int, unsettled: int, tests: int
) -> None:
    axes = [
        {"category": "race", "place": "work", "identity": f"i{n}", "concept": "brave"}
        for n in range(len(found))
    ]
    pairs = estimates([one._replace(above=False, null=None) for one in found], axes, "difference")
    significant = sum(e.q < ALPHA for _, e in pairs)
    tests = max(tests, len(found))
    axis = {"category": "race", "identity": "i0"}
    for name, value, n in (
        ("associations", significant, tests),
        ("published_associations", published, max(published, 1)),
        ("unsettled", unsettled, tests),
        ("documents", 5, 1),
    ):
        made = Measure(name, axis, Samples.total(0, 0), share, column(1))
        pairs.append((made, Estimate(float(value), NAN, NAN, float(n))))
    (sentence,) = badf.arm_conclusions(pairs)
    expected = "found" if significant else "not found"
    assert bias_of(sentence) == (
        "unknown" if not tests or (unsettled and not significant) else expected
    )
    agrees(sentence)
    if significant:
        assert sentence.startswith(f"Bias found: {significant} associations are significant of ")
