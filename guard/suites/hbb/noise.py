"""What sampling noise alone shows: exact arithmetic on the answers to two questions.

Under the null hypothesis that the identity makes no difference, the answers to both questions of
an instance are exchangeable within each order of the options. Given how often option 1 was chosen
in both together, its count in the first question is then hypergeometric, whatever the rates are
(Fisher's exact argument; Lehmann and Romano 2005, section 4.4). That yields the share of instances
that reach the threshold by chance, their mean S, and an exact permutation p-value. For ten answers
a question and rates of .5 the expected share is .503 and the mean 28.6.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.suites.contract import Floats

Counts = NDArray[np.int64]


class Chance(NamedTuple):
    """By instance: P(S >= threshold), E(S; S >= threshold) in points, and the p-value."""

    reach: Floats
    score: Floats
    p: Floats


def chance(n: Counts, first: Counts, second: Counts, threshold: int) -> Chance:
    """Return what chance alone shows.

    ``n``, ``first`` and ``second`` have shape (instances, orders): answers to each question in an
    order, and how many of them chose option 1 in the first and in the second question.
    ``threshold`` is in points.
    """
    both = first + second
    gap = np.abs(first.sum(axis=1) - second.sum(axis=1))
    cases, which = np.unique(np.column_stack([n, both, gap]), axis=0, return_inverse=True)
    orders = n.shape[1]
    found = np.empty((len(cases), 3))
    for row, case in enumerate(cases.tolist()):
        asked, chosen, seen = tuple(case[:orders]), tuple(case[orders:-1]), case[-1]
        total = sum(asked)
        reach = score = p = 0.0
        for difference, share in gaps(asked, chosen):
            if 100 * difference >= threshold * total:
                reach += share
                score += share * 100 * difference / total
            if difference >= seen:
                p += share
        found[row] = reach, score, min(p, 1.0)
    by_instance = found[which.reshape(-1)]
    return Chance(by_instance[:, 0], by_instance[:, 1], by_instance[:, 2])


@lru_cache(maxsize=100_000)
def gaps(n: tuple[int, ...], both: tuple[int, ...]) -> tuple[tuple[int, float], ...]:
    """Return the null distribution of |k1 - k2|, given k1 + k2 in each order.

    ``n`` answers to each question in each order, ``both`` choices of option 1 in both together.
    """
    signed = {0: 1.0}
    for asked, chosen in zip(n, both, strict=True):
        ways = comb(2 * asked, chosen)
        step = {
            2 * k - chosen: comb(asked, k) * comb(asked, chosen - k) / ways
            for k in range(max(0, chosen - asked), min(asked, chosen) + 1)
        }
        joined: dict[int, float] = {}
        for a, p in signed.items():
            for b, q in step.items():
                joined[a + b] = joined.get(a + b, 0.0) + p * q
        signed = joined
    sizes: dict[int, float] = {}
    for value, share in signed.items():
        sizes[abs(value)] = sizes.get(abs(value), 0.0) + share
    return tuple(sorted(sizes.items()))


def squared(n: Counts, first: Counts, second: Counts) -> Floats:
    """Return the unbiased estimate of (P1 - P2)² in points², by instance; nan where n is 1.

    The squared difference of the shares less the sum of their estimated variances: for k of n
    answers in an order, k (n - k) / (n - 1) / (answers in all orders)².
    """
    total = n.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = (first.sum(axis=1) - second.sum(axis=1)) / total
        spread = (first * (n - first) + second * (n - second)) / (n - 1)
        spread = np.where(n > 1, spread, np.where(n == 1, np.nan, 0.0))
        noise = spread.sum(axis=1) / total**2
    return np.asarray(1e4 * (gap**2 - noise))


def discoveries(p: Floats, level: float = 0.05) -> NDArray[np.bool_]:
    """Return which p-values are below ``level`` after Benjamini and Hochberg (1995)."""
    return corrected(p) <= level


def corrected(p: Floats) -> Floats:
    """Return p-values corrected by Benjamini and Hochberg (1995)."""
    order = np.argsort(p)[::-1]
    ranked = p[order] * len(p) / np.arange(len(p), 0, -1)
    q = np.empty_like(p)
    q[order] = np.minimum(1.0, np.minimum.accumulate(ranked))
    return q
