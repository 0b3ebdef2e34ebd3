"""Numbers computed from sums of additive rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Value = Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True)
class Smooth:
    """A smooth function of the same totals, on whose scale the interval is computed.

    ``back`` is increasing and maps its value to the measure's; nan gives nan. ``least`` is the
    smallest true value: an estimate below it, due to noise, gets the interval of one at ``least``.
    """

    value: Callable[[Floats], Floats]
    back: Callable[[float], float]
    least: float = -math.inf


@dataclass(frozen=True, slots=True)
class Measure:
    """A number computed from sums: ``value(totals)`` over rows of additive statistics.

    ``rows`` (r, k) are what each record, or each instance made of several records, adds;
    ``clusters`` (r,) are their clusters. ``value`` and ``n``, the denominator, map totals
    (..., k) to (...); ``value`` is nan where a denominator is 0.

    *Interval.* By the jackknife over clusters and Student's t; of a tested value with fewer than 30
    effective clusters it holds what either t or flipping the clusters' signs allows. With
    ``words``, by multiway clustering over them too: ``words[i]`` (r,) is the i-th word of each
    row's item. Words widen the interval and the test of one arm only: ``two_shares``, changes
    between arms and comparisons of runs use ``clusters``. The ``level`` is above 0.95 where only
    selected results are shown. There is no interval if ``interval`` is False. ``bounds`` are the
    smallest and largest possible value: with a lower bound of 0 or more and a finite upper one the
    value is treated as a mean of numbers between them, such as a share, or as a count out of a
    fixed number. ``exact``: the value is a share of ``n`` answers and gets the interval of Clopper
    and Pearson for the effective number of independent answers. ``two_shares``: it is the
    difference of two shares, with totals (above, below, above, below). ``smooth`` is for a value
    with a kink, such as a root.

    *Test.* ``null`` is the value without an effect; with it the measure gets a p-value, one-sided
    if ``above``: that of Student's t, with few clusters the larger of it and of the sign flips. A
    suite with an exact test of its own gives ``p`` instead. One whose few answers allow only some
    p-values gives the least of them as ``least_p``. Where such a p and the interval disagree about
    the null value, the interval is the test's. The audit corrects all p-values of one suite and arm
    together, except where the suite gives ``q``, corrected over tests that are no measures.
    ``higher_is`` is the direction of a change.

    *Comparing runs.* ``ideal`` is the value of a fair model: the test is whether the measure moved
    away from it (upwards only, if ``above``). Measures without one are not compared. Such a value
    must not depend on the scale of the totals and is the same function on every axis. ``items``
    (r,) are the rows' items if a row is one sample's: runs are then paired by item, otherwise by
    cluster.
    """

    name: str
    axis: Mapping[str, str]
    rows: Floats
    clusters: Sequence[str]
    value: Callable[[Floats], Floats]
    n: Callable[[Floats], Floats]
    p: float | None = None
    q: float | None = None
    least_p: float | None = None
    higher_is: Literal["worse", "better", "neither"] = "neither"
    null: float | None = None
    above: bool = False
    bounds: tuple[float, float] = (-math.inf, math.inf)
    interval: bool = True
    level: float = 0.95
    exact: bool = False
    two_shares: bool = False
    smooth: Smooth | None = None
    ideal: float | None = None
    items: Sequence[str] | None = None
    words: Sequence[Sequence[str]] = ()


def ratio(above: Floats, below: Floats) -> Floats:
    """Return ``above / below`` by element, broadcast; nan where ``below`` is not above 0."""
    above, below = np.broadcast_arrays(above, below)
    nothing = np.full(below.shape, np.nan)
    return np.asarray(np.divide(above, below, out=nothing, where=below > 0), dtype=np.float64)


def share(totals: Floats) -> Floats:
    """Return the first over the second column of ``totals``, (..., 2 or more) -> (...)."""
    return ratio(totals[..., 0], totals[..., 1])


def column(place: int) -> Value:
    """Return the function that takes column ``place`` of totals (..., k)."""
    return lambda totals: totals[..., place]


def quotient(above: int, below: int) -> Value:
    """Return the function that divides two columns of totals (..., k); nan over 0."""
    return lambda totals: ratio(totals[..., above], totals[..., below])
