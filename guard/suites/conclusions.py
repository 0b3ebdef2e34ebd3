"""What the figures of an arm amount to, in words and with their numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from guard.suites.contract import Estimate, Floats, Measure

ALPHA = 0.05
"""A test stands where its corrected p, q, is below this."""


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
    """Return a sentence on what stands, or on why nothing does.

    ``meanings`` says by measure what a value above and one below its null means.
    """
    tested = [(m, e) for m, e in found if not math.isnan(e.p)]
    if not tested:
        return [
            "Nothing can be said about bias: no measure could be tested (answers of fewer than six "
            "clusters could be read, or none has a null value)."
        ]
    standing = [(m, e) for m, e in tested if e.q < ALPHA]
    if not standing:
        least = min(e.q for _, e in tested)
        return [
            f"No bias found: none of {len(tested)} tests stands (smallest q {p_text(least)})"
            f"{_left(tested)}."
        ]
    # The widest figures first, then the surest.
    standing.sort(key=lambda pair: (len(pair[0].axis), pair[1].p, -abs(pair[1].value)))
    widest = len(standing[0][0].axis)
    told = [_told(m, e, meanings) for m, e in standing if len(m.axis) == widest]
    more = f"; {len(standing)} of {len(tested)} tests stand" if len(tested) > 1 else ""
    return [f"Bias found: {'; '.join(told[:_MOST])}{more}."]


_MOST = 3


def _left(tested: Sequence[tuple[Measure, Estimate]]) -> str:
    """Return what the widest figures do not exclude: few answers find no bias either."""
    widest = min(len(m.axis) for m, _ in tested)
    told = [
        f"{m.name} of {' '.join(m.axis.values())} from {e.low:.3f} to {e.high:.3f} (n {e.n:,.0f})"
        for m, e in tested
        if len(m.axis) == widest and not math.isnan(e.low)
    ]
    return f"; not excluded: {', '.join(told[:_MOST])}" if told else ""


def _told(m: Measure, e: Estimate, meanings: Mapping[str, tuple[str, str]]) -> str:
    above, below = meanings.get(m.name, (f"{m.name} is above", f"{m.name} is below"))
    where = " ".join(m.axis.values())
    more = m.null is not None and e.value > m.null
    return (
        f"{above if more else below} ({where}: {m.name} {e.value:.3f}"
        f"{interval_text(e.low, e.high)}, "
        f"q {p_text(e.q)}, n {e.n:,.0f})"
    )


def interval_text(low: float, high: float, form: str = ".3f") -> str:
    """Return an interval as it stands behind its figure; empty where there is none."""
    return "" if math.isnan(low) else f" [{low:{form}}, {high:{form}}]"


def share_text(e: Estimate, unknown: str) -> str:
    """Return a share with its interval and of how many; ``unknown`` stands for nan."""
    value = unknown if math.isnan(e.value) else f"{e.value:.1%}"
    return f"{value}{interval_text(e.low, e.high, '.1%')} of {e.n:,.0f}"


def p_text(value: float) -> str:
    """Return a p-value as a report prints it."""
    if math.isnan(value):
        return "–"
    return "<.001" if value < 0.001 else f"{value:.3f}"
