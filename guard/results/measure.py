"""Numbers computed from sums of additive rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from guard.results.estimate import Estimate
from guard.results.intervals import LEVEL
from guard.results.samples import Floats, Samples

Value = Callable[[Floats], Floats]


class Interval(Protocol):
    """How the interval of a measure follows from its samples, and the p-value of its test.

    The implementations are in :mod:`guard.results.jackknife`. ``level`` is that of the interval.
    """

    @property
    def level(self) -> float:
        """The confidence level."""

    def estimate(self, measure: Measure) -> Estimate:
        """Return the measure's value with interval, p, and q where the suite gives it."""

    def change(self, plain: Measure, guarded: Measure) -> Estimate:
        """Return the guarded arm's value less the plain one's, with interval and p."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A number computed from sums: ``value(totals)`` over samples of additive numbers.

    ``value`` and ``n``, the denominator, map totals (..., k) to (...); ``value`` is nan where a
    denominator is 0. ``axis`` has its labels, such as a category or a group. ``bounds`` are the
    smallest and largest possible value: with a lower bound of 0 or more and a finite upper one the
    value is treated as a mean of numbers between them, such as a share, or as a count out of a
    fixed number. ``higher_is`` is the direction of a change.

    *Test.* ``null`` is the value without an effect; with it the measure gets a p-value, one-sided
    if ``above``. The audit corrects all p-values of one suite and arm together.

    *Interval.* None is the usual one (:func:`guard.results.jackknife.interval_of`): of a tested
    value by the jackknife over clusters, of an untested one between bounds Jeffreys'.

    *Comparing runs.* ``ideal`` is the value of a fair model: the test is whether the measure moved
    away from it (upwards only, if ``above``). Measures without one are not compared. Such a value
    must not depend on the scale of the totals and is the same function on every axis.
    """

    name: str
    axis: Mapping[str, str]
    samples: Samples
    value: Value
    n: Value
    null: float | None = None
    above: bool = False
    ideal: float | None = None
    bounds: tuple[float, float] = (-math.inf, math.inf)
    higher_is: Literal["worse", "better", "neither"] = "neither"
    interval: Interval | None = None

    @property
    def level(self) -> float:
        """The confidence level of its interval."""
        return LEVEL if self.interval is None else self.interval.level

    def weights(self, sums: Floats) -> Floats:
        """Return the weight of each cluster: its part of the measure's n, (clusters,)."""
        return np.nan_to_num(np.asarray(self.n(sums), dtype=np.float64))


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


def difference_of_shares(totals: Floats) -> Floats:
    """Return the difference of two shares, of totals (..., 4): above, below, above, below."""
    return ratio(totals[..., 0], totals[..., 1]) - ratio(totals[..., 2], totals[..., 3])


def evaluate(value: Value, totals: Floats) -> Floats:
    """Return ``value`` of totals (..., k) as (...), silently nan where it divides by 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(value(totals), dtype=np.float64)
