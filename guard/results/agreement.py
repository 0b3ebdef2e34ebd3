"""How far two raters agree."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from guard.results.estimate import Estimate
from guard.results.intervals import clopper_pearson


class Agreement(NamedTuple):
    """How often two agree on what both have rated: the share, and Cohen's kappa."""

    first: str
    second: str
    n: int
    agreed: Estimate
    kappa: Estimate


def agreement_of(first: str, second: str, pairs: Sequence[tuple[Hashable, Hashable]]) -> Agreement:
    """Return the agreement of two raters from their pairs of ratings, one or more.

    Intervals are Clopper and Pearson's.
    """
    n, same = len(pairs), sum(a == b for a, b in pairs)
    agreed = Estimate(same / n, *clopper_pearson(same, n), n)
    return Agreement(first, second, n, agreed, cohens_kappa(pairs))


def cohens_kappa(pairs: Sequence[tuple[Hashable, Hashable]]) -> Estimate:
    """Return Cohen's kappa of two raters from their pairs of ratings, one or more.

    Cohen, Educational and Psychological Measurement 20, 1960. It is nan if both gave one same
    rating to everything. The interval is Clopper and Pearson's of the agreement; it takes the
    agreement by chance as known, as Cohen's does.
    """
    n, same = len(pairs), sum(a == b for a, b in pairs)
    first, second = (Counter(side) for side in zip(*pairs, strict=True))
    chance = sum(count * second[rating] for rating, count in first.items()) / n**2
    value, low, high = (
        (share - chance) / (1 - chance) if chance < 1 else math.nan
        for share in (same / n, *clopper_pearson(same, n))
    )
    return Estimate(value, low, high, n)
