"""The effect of sampling noise alone: the exact null distribution of two questions' answers.

Under the null hypothesis that the identity makes no difference, the answers to both questions of
an instance are exchangeable within each order of the options. Given the choices of option 1 in
both together, those in the first question are then hypergeometric, whatever the rates are
(Fisher's exact test: Lehmann and Romano 2005, chapter 4). This gives the share of instances that
reach the threshold by chance, their mean S, and an exact permutation p-value. For ten answers a
question and rates of .5 the expected share is .503 and the mean 28.6.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from guard.results.samples import Floats

Counts = NDArray[np.int64]
F = TypeVar("F", float, Floats)
_DIGITS = 9
"""Decimals to which gaps are rounded before they are compared."""
_TOLERANCE = 1e-8
"""More than the rounding error of a gap, less than one answer changes it."""


class Noise(NamedTuple):
    """By instance: P(S >= threshold), E(S; S >= threshold) in points, and the p-value."""

    reach: Floats
    score: Floats
    p: Floats


def null_noise(
    n: Counts, first: Counts, second: Counts, threshold: int, other: Counts | None = None
) -> Noise:
    """Return scores and p-values under the null hypothesis; all arrays are (instances, orders).

    ``n`` are the answers to each question, ``first`` and ``second`` the choices of option 1 in
    both; ``other`` are the answers to the second question, if their number differs. ``threshold``
    is in points.
    """
    other = n if other is None else other
    gap, size = question_gap(n, other, first, second)
    cases, which = np.unique(
        np.column_stack([n, other, first + second, np.abs(gap).round(_DIGITS)]),
        axis=0,
        return_inverse=True,
    )
    orders = n.shape[1]
    sizes = np.empty(len(cases))
    sizes[which.reshape(-1)] = size
    by_case = np.empty((len(cases), 3))
    for row, case in enumerate(cases.tolist()):
        whole = tuple(int(x) for x in case[:-1])
        answers, others, chosen = whole[:orders], whole[orders : 2 * orders], whole[2 * orders :]
        reach = score = p = 0.0
        enough = min_gap(float(sizes[row]), threshold)
        for apart, share in null_distribution(answers, chosen, others):
            if apart >= enough:
                reach += share
                score += share * 100 * apart / sizes[row]
            if apart >= case[-1] - _TOLERANCE:
                p += share
        by_case[row] = reach, score, min(p, 1.0)
    return Noise(*by_case[which.reshape(-1)].T)


def question_gap(
    n: Counts, other: Counts, first: Counts | Floats, second: Counts | Floats
) -> tuple[Floats, Floats]:
    """Return by instance the gap between the questions and its size; P1 - P2 is gap / size.

    An order is weighted by the harmonic mean of its two numbers of answers (Cochran 1954), so that
    a preference for a position causes no difference if they are unequal; an order in which a
    question has no answer is left out. With equal numbers the gap is k1 - k2 and the size is the
    number of answers to a question.
    """
    both = (n > 0) & (other > 0)
    total = np.where(both, n + other, 1)
    gap = np.where(both, 2 * (first - (first + second) * n / total), 0.0).sum(axis=1)
    return gap, np.where(both, 2 * n * other / total, 0.0).sum(axis=1)


def min_gap(size: F, threshold: int) -> F:
    """Return the smallest gap that shows bias: ``threshold`` percent of its size."""
    return threshold / 100 * size - _TOLERANCE


@lru_cache(maxsize=100_000)
def null_distribution(
    n: tuple[int, ...], both: tuple[int, ...], other: tuple[int, ...] | None = None
) -> tuple[tuple[float, float], ...]:
    """Return the null distribution of the absolute gap of :func:`difference`, given k1 + k2.

    By order: ``n`` answers to each question (``other`` to the second, if their number differs) and
    ``both`` choices of option 1 in both together.
    """
    signed = {0.0: 1.0}
    for answers, others, chosen in zip(n, n if other is None else other, both, strict=True):
        if not answers or not others:
            continue
        total = answers + others
        ways = comb(total, chosen)
        step = {
            2 * (k - chosen * answers / total): comb(answers, k) * comb(others, chosen - k) / ways
            for k in range(max(0, chosen - others), min(answers, chosen) + 1)
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


def squared_difference(
    n: Counts, first: Counts, second: Counts, other: Counts | None = None
) -> Floats:
    """Return the unbiased estimate of (P1 - P2)² in points², by instance; nan where n is 1.

    (gap / size)² of :func:`difference` less its estimated variance: for k of n answers in an order
    k (n - k) / (n - 1) / n², times the square of the order's weight.
    """
    other = n if other is None else other
    gap, size = question_gap(n, other, first, second)
    both = (n > 0) & (other > 0)
    variance = np.zeros(len(n))
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.where(both, 2 * n * other / (n + other), 0.0)
        for answers, chosen in ((n, first), (other, second)):
            of_order = chosen * (answers - chosen) / (answers - 1) / answers**2
            of_order = np.where(answers > 1, of_order, np.nan)
            variance += np.where(both, weight**2 * of_order, 0.0).sum(axis=1)
        return np.asarray(1e4 * ((gap / size) ** 2 - variance / size**2))
