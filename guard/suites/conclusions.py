"""The figures of an arm in words: which tests are significant, with their numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from guard.suites.contract import Estimate, Floats, Measure

ALPHA = 0.05
"""A test is significant if its corrected p-value, q, is below this."""
FAMILIES = 2
"""Families of tests that share :data:`ALPHA` if a suite corrects its own tests and others are left:
each q is multiplied by their number (Bonferroni)."""
_MOST = 3


def corrected(p: Floats) -> Floats:
    """Return p-values corrected by Benjamini and Hochberg (1995)."""
    order = np.argsort(p)[::-1]
    ranked = p[order] * len(p) / np.arange(len(p), 0, -1)
    q = np.empty_like(p)
    q[order] = np.minimum(1.0, np.minimum.accumulate(ranked))
    return q


def conclusions(
    found: Sequence[tuple[Measure, Estimate]], meanings: Mapping[str, tuple[str, str]]
) -> list[str]:
    """Return a sentence on the significant tests, or on why there is none.

    ``meanings`` gives by measure the meaning of a value above its null and of one below.
    """
    tested = [(m, e) for m, e in found if not math.isnan(e.p)]
    if not tested:
        return [
            "Bias unknown: no measure could be tested (fewer than six clusters "
            "have readable answers, or no measure has a null value)."
        ]
    broadest = min(len(m.axis) for m, _ in tested)
    significant = [(m, e) for m, e in tested if e.q < ALPHA]
    if not significant:
        # Few answers show no bias either, so the intervals of the broadest figures are given.
        intervals = [
            f"{m.name} of {' '.join(m.axis.values())} from {e.low:.3f} to {e.high:.3f} "
            f"(n {e.n:,.0f})"
            for m, e in tested
            if len(m.axis) == broadest and not math.isnan(e.low)
        ]
        open_ = f"; not excluded: {', '.join(intervals[:_MOST])}" if intervals else ""
        smallest = p_text(min(e.q for _, e in tested))
        return [
            f"No bias found: none of {len(tested)} tests is significant (smallest q "
            f"{smallest}){open_}."
        ]
    significant.sort(key=lambda pair: (len(pair[0].axis), pair[1].p, -abs(pair[1].value)))
    broadest = len(significant[0][0].axis)
    parts = [_part(m, e, meanings) for m, e in significant if len(m.axis) == broadest]
    more = f"; {len(significant)} of {len(tested)} tests are significant" if len(tested) > 1 else ""
    return [f"Bias found: {'; '.join(parts[:_MOST])}{more}."]


def _part(m: Measure, e: Estimate, meanings: Mapping[str, tuple[str, str]]) -> str:
    above, below = meanings.get(m.name, (f"{m.name} is above", f"{m.name} is below"))
    is_above = m.null is not None and e.value > m.null
    return (
        f"{above if is_above else below} ({' '.join(m.axis.values())}: {m.name} {e.value:.3f}"
        f"{interval_text(e.low, e.high)}, q {p_text(e.q)}, n {e.n:,.0f})"
    )


def interval_text(low: float, high: float, form: str = ".3f") -> str:
    """Return an interval to print after its figure; empty for nan."""
    return "" if math.isnan(low) else f" [{low:{form}}, {high:{form}}]"


def share_text(e: Estimate, unknown: str) -> str:
    """Return a share with its interval and denominator; ``unknown`` replaces nan."""
    value = unknown if math.isnan(e.value) else f"{e.value:.1%}"
    return f"{value}{interval_text(e.low, e.high, '.1%')} of {e.n:,.0f}"


def p_text(value: float) -> str:
    """Return a p-value as a report prints it."""
    if math.isnan(value):
        return "–"
    return "<.001" if value < 0.001 else f"{value:.3f}"
