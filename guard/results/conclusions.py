"""The figures of an arm in words: which tests are significant, with their numbers.

Every suite writes its conclusions with these functions. What is significant is said with its
figures; what is not, by how much of it is not excluded, and never by an estimate that could be
quoted as a finding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from guard.results.estimate import Estimate
from guard.results.intervals import ALPHA as ALPHA
from guard.results.intervals import p_text
from guard.results.measure import Measure

FAMILIES = 2
"""Families of tests that share :data:`ALPHA` if a suite corrects its own tests and others are left:
each q is multiplied by their number (Bonferroni)."""
FOUND, NOT_FOUND, UNKNOWN = "Bias found", "No bias found", "Bias unknown"
"""The beginnings of the first sentence of every suite that tests for bias."""
BiasShown = Literal["found", "not found", "unknown", ""]
_MOST = 3


def is_tested(e: Estimate) -> bool:
    """Return whether the estimate could be tested."""
    return not math.isnan(e.q)


def is_significant(m: Measure, e: Estimate) -> bool:
    """Return whether the test of an estimate shows an effect, of the kind that it looks for."""
    above = not m.above or m.null is None or e.value > m.null
    return e.q < ALPHA and above


def bias_of(sentence: str) -> BiasShown:
    """Return what the first sentence of a suite's conclusions says; empty if it tests nothing."""
    starts: tuple[tuple[str, BiasShown], ...] = (
        (FOUND, "found"),
        (NOT_FOUND, "not found"),
        (UNKNOWN, "unknown"),
    )
    return next((shown for start, shown in starts if sentence.startswith(start)), "")


def bias_conclusions(
    estimates: Sequence[tuple[Measure, Estimate]], meanings: Mapping[str, tuple[str, str]]
) -> list[str]:
    """Return a sentence on the significant tests, or on why there is none.

    ``meanings`` gives by measure the meaning of a value above its null and of one below.
    """
    tested = [(m, e) for m, e in estimates if is_tested(e)]
    if not tested and estimates and all(m.null is None for m, _ in estimates):
        return ["No test for bias: no measure of this suite has the value of a fair model."]
    if not tested:
        return [
            f"{UNKNOWN}: no measure could be tested, because too few clusters have answers that "
            "it counts."
        ]
    significant = [(m, e) for m, e in tested if is_significant(m, e)]
    if not significant:
        small = sum(m.null is not None and not is_tested(e) for m, e in estimates)
        few = f"; {small} more have too few answers to test" if small else ""
        few += _untested_part(untested_identities(estimates))
        smallest = p_text(min(e.q for _, e in tested))
        return [
            f"{NOT_FOUND}: none of {len(tested)} tests is significant (smallest q "
            f"{smallest}){few}{_still_possible(tested)}."
        ]
    significant.sort(key=lambda pair: (len(pair[0].axis), pair[1].q, -abs(pair[1].value)))
    broadest = len(significant[0][0].axis)
    parts = [_significant_part(m, e, meanings) for m, e in significant if len(m.axis) == broadest]
    more = f"; {len(significant)} of {len(tested)} tests are significant" if len(tested) > 1 else ""
    return [f"{FOUND}: {'; '.join(parts[:_MOST])}{more}."]


def untested_identities(
    figures: Sequence[tuple[Measure, Estimate]],
) -> list[tuple[Measure, Estimate]]:
    """Return the widest figures of each label, such as a group, of which none could be tested.

    Only figures with a fair value count; a label's widest ones have the fewest other labels. The
    one furthest from its fair value comes first; those without an answer come last.
    """
    with_null = [(m, e) for m, e in figures if m.null is not None]
    untested: dict[int, tuple[Measure, Estimate]] = {}
    for label in dict.fromkeys((m.name, *kv) for m, _ in with_null for kv in m.axis.items()):
        own = [(m, e) for m, e in with_null if m.name == label[0] and label[1:] in m.axis.items()]
        fewest = min(len(m.axis) for m, _ in own)
        widest = [(m, e) for m, e in own if len(m.axis) == fewest]
        if not any(is_tested(e) for _, e in widest):
            untested |= {id(m): (m, e) for m, e in widest}
    return sorted(untested.values(), key=_distance_from_null, reverse=True)


def _distance_from_null(figure: tuple[Measure, Estimate]) -> float:
    measure, estimate = figure
    distance = abs(estimate.value - (measure.null or 0.0))
    return -1.0 if math.isnan(distance) else distance


def untested_text(untested: Sequence[tuple[Measure, Estimate]]) -> str:
    """Return the figures that :func:`untested_identities` returns, those furthest apart in full."""
    texts = [
        f"{' '.join(m.axis.values())} {m.name} "
        + ("without an answer" if math.isnan(e.value) else f"{e.value:.3f} (n {e.n:,.0f})")
        for m, e in untested
    ]
    more = f" and {len(texts) - _MOST:,} further" if len(texts) > _MOST else ""
    return ", ".join(texts[:_MOST]) + more


def _untested_part(untested: Sequence[tuple[Measure, Estimate]]) -> str:
    if not untested:
        return ""
    return f"; not tested, so any bias against them is possible: {untested_text(untested)}"


def _still_possible(tested: Sequence[tuple[Measure, Estimate]]) -> str:
    """Return how much bias the broadest figures leave possible: few answers show none either."""
    broadest = min(len(m.axis) for m, _ in tested)
    texts = [
        f"{m.name} of {' '.join(m.axis.values()) or 'all'} {text} (n {e.n:,.0f})"
        for m, e in tested
        if len(m.axis) == broadest and (text := _limit_text(m, e))
    ]
    return f"; not excluded over all of them: {', '.join(texts[:_MOST])}" if texts else ""


def not_excluded(m: Measure, e: Estimate) -> float:
    """Return how far from the null value the interval of a test still reaches; nan without one.

    An interval of one test may leave out the null value though its q does not reject it. So a
    result that is not significant is stated by this distance, which is right for both.
    """
    if m.null is None or math.isnan(e.low):
        return math.nan
    return max(e.high - m.null, 0.0 if m.above else m.null - e.low, 0.0)


def _limit_text(m: Measure, e: Estimate) -> str:
    limit = not_excluded(m, e)
    if not math.isfinite(limit):
        return ""
    return f"up to {limit:.3f} {'above' if m.above else 'from'} {m.null:g}"


def _significant_part(m: Measure, e: Estimate, meanings: Mapping[str, tuple[str, str]]) -> str:
    meaning = meaning_of(m, e, meanings)
    return (
        f"{meaning} ({' '.join(m.axis.values()) or 'all'}: {m.name} {significant_text(e, m.null)})"
    )


def meaning_of(m: Measure, e: Estimate, meanings: Mapping[str, tuple[str, str]]) -> str:
    """Return in words what a significant estimate means."""
    if m.null is None or e.value == m.null or math.isnan(e.value):
        return f"{m.name} differs"
    above, below = meanings.get(m.name, (f"{m.name} is above", f"{m.name} is below"))
    return above if e.value > m.null else below


def significant_text(
    e: Estimate, null: float | None, form: str = ".3f", scale: float = 1.0, unit: str = ""
) -> str:
    """Return a significant estimate with its interval, q and n.

    An exact or permutation test may reject where the interval, which is from another method, still
    includes the null value. Beside "found" it would say the opposite, so only tables have it then.
    """
    contradicts = e.low <= (0.0 if null is None else null) <= e.high
    interval = "" if contradicts else interval_text(scale * e.low, scale * e.high, form)
    return f"{scale * e.value:{form}}{interval}{unit}, q {p_text(e.q)}, n {e.n:,.0f}"


def interval_text(low: float, high: float, form: str = ".3f") -> str:
    """Return an interval to print after its figure; empty for nan."""
    return "" if math.isnan(low) else f" [{low:{form}}, {high:{form}}]"


def share_text(e: Estimate, unknown: str) -> str:
    """Return a share with its interval and denominator; ``unknown`` replaces nan."""
    value = unknown if math.isnan(e.value) else f"{e.value:.1%}"
    return f"{value}{interval_text(e.low, e.high, '.1%')} of {e.n:,.0f}"
