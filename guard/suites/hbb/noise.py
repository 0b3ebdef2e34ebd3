"""What sampling noise alone shows: exact arithmetic on the answers to two questions.

Under the null hypothesis that the identity makes no difference, the answers to both questions of
an instance are exchangeable within each order of the options. Given how often option 1 was chosen
in both together, its count in the first question is then hypergeometric, whatever the rates are
(Fisher's exact test: Lehmann and Romano 2005, chapter 4). That yields the share of instances
that reach the threshold by chance, their mean S, and an exact permutation p-value. For ten answers
a question and rates of .5 the expected share is .503 and the mean 28.6.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from guard.suites.contract import Floats

Counts = NDArray[np.int64]
F = TypeVar("F", float, Floats)
_DIGITS = 9
"""Decimals to which gaps are told apart."""
_TINY = 1e-8
"""Gaps that are nearer than this are one: more than their rounding, less than an answer makes."""


class Chance(NamedTuple):
    """By instance: P(S >= threshold), E(S; S >= threshold) in points, and the p-value."""

    reach: Floats
    score: Floats
    p: Floats


def chance(
    n: Counts, first: Counts, second: Counts, threshold: int, other: Counts | None = None
) -> Chance:
    """Return what chance alone shows.

    ``n``, ``first`` and ``second`` have shape (instances, orders): answers to each question in an
    order, and how many of them chose option 1 in the first and in the second question; ``other``
    is ``n`` of the second question where that has another number of answers. ``threshold`` is in
    points.
    """
    other = n if other is None else other
    gap, size = difference(n, other, first, second)
    cases, which = np.unique(
        np.column_stack([n, other, first + second, np.abs(gap).round(_DIGITS)]),
        axis=0,
        return_inverse=True,
    )
    orders = n.shape[1]
    sizes = np.empty(len(cases))
    sizes[which.reshape(-1)] = size
    found = np.empty((len(cases), 3))
    for row, case in enumerate(cases.tolist()):
        whole = tuple(int(x) for x in case[:-1])
        asked, others, chosen = whole[:orders], whole[orders : 2 * orders], whole[2 * orders :]
        reach = score = p = 0.0
        enough = least(float(sizes[row]), threshold)
        for apart, share in gaps(asked, chosen, others):
            if apart >= enough:
                reach += share
                score += share * 100 * apart / sizes[row]
            if apart >= case[-1] - _TINY:
                p += share
        found[row] = reach, score, min(p, 1.0)
    by_instance = found[which.reshape(-1)]
    return Chance(by_instance[:, 0], by_instance[:, 1], by_instance[:, 2])


def difference(
    n: Counts, other: Counts, first: Counts | Floats, second: Counts | Floats
) -> tuple[Floats, Floats]:
    """Return by instance the gap between the questions and its size: P1 - P2 is their quotient.

    An order counts by the harmonic mean of its two numbers of answers (Cochran 1954), so that a
    habit of position is no difference where they are unequal; one in which a question has no answer
    does not count. With equal numbers the gap is k1 - k2, the size the answers to a question.
    """
    both = (n > 0) & (other > 0)
    total = np.where(both, n + other, 1)
    gap = np.where(both, 2 * (first - (first + second) * n / total), 0.0).sum(axis=1)
    return gap, np.where(both, 2 * n * other / total, 0.0).sum(axis=1)


def least(size: F, threshold: int) -> F:
    """Return the least gap that shows bias: ``threshold`` in points of the gap's size."""
    return threshold / 100 * size - _TINY


@lru_cache(maxsize=100_000)
def gaps(
    n: tuple[int, ...], both: tuple[int, ...], other: tuple[int, ...] | None = None
) -> tuple[tuple[float, float], ...]:
    """Return the null distribution of the size of :func:`difference`'s gap, given k1 + k2.

    ``n`` answers to each question in each order (``other`` to the second where it has another
    number), ``both`` choices of option 1 in both together.
    """
    signed = {0.0: 1.0}
    for asked, others, chosen in zip(n, n if other is None else other, both, strict=True):
        if not asked or not others:
            continue
        total = asked + others
        ways = comb(total, chosen)
        step = {
            2 * (k - chosen * asked / total): comb(asked, k) * comb(others, chosen - k) / ways
            for k in range(max(0, chosen - others), min(asked, chosen) + 1)
        }
        joined: dict[float, float] = {}
        for a, p in signed.items():
            for b, q in step.items():
                at = round(a + b, _DIGITS)
                joined[at] = joined.get(at, 0.0) + p * q
        signed = joined
    sizes: dict[float, float] = {}
    for value, share in signed.items():
        sizes[abs(value)] = sizes.get(abs(value), 0.0) + share
    return tuple(sorted(sizes.items()))


def squared(n: Counts, first: Counts, second: Counts, other: Counts | None = None) -> Floats:
    """Return the unbiased estimate of (P1 - P2)² in points², by instance; nan where n is 1.

    The square of :func:`difference`'s quotient less its estimated variance: for k of n answers in
    an order k (n - k) / (n - 1) / n², by the square of the order's weight.
    """
    other = n if other is None else other
    gap, size = difference(n, other, first, second)
    both = (n > 0) & (other > 0)
    noise = np.zeros(len(n))
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.where(both, 2 * n * other / (n + other), 0.0)
        for asked, chosen in ((n, first), (other, second)):
            spread = chosen * (asked - chosen) / (asked - 1) / asked**2
            spread = np.where(asked > 1, spread, np.nan)
            noise += np.where(both, weight**2 * spread, 0.0).sum(axis=1)
        return np.asarray(1e4 * ((gap / size) ** 2 - noise / size**2))
