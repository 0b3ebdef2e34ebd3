"""What an audit could find beside a baseline, before anything is asked."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from guard.audit.audit import Audit
from guard.audit.paired import Pairs
from guard.audit.sides import SHARE
from guard.audit.tolerances import DEFAULT_FRACTION
from guard.suites.conclusions import ALPHA
from guard.suites.reading import share

CHANGE = 0.1
"""The part of the answers that is taken to differ between two runs by chance alone."""


class Detectable(NamedTuple):
    """The least worsening of a share that four of five comparisons with a baseline would find.

    Nan where there are too few clusters. The comparison corrects over ``axes``.
    """

    worse: float
    axes: int
    tolerance: float = DEFAULT_FRACTION
    change: float = CHANGE

    def text(self) -> str:
        """Return it in words."""
        if math.isnan(self.worse):
            return "nothing: too few clusters"
        return (
            f"a share that is worse by {self.worse:.2f} would be found in four of five "
            f"comparisons, if {self.change:.0%} of the answers change by chance"
        )


def detectable(audit: Audit) -> Detectable:
    """Return what ``audit`` could find of a share over all its items.

    As :meth:`guard.audit.paired.Pairs.detectable` says it of two runs of these items, in their
    clusters, of which CHANGE differ at random places, half of them for the worse.
    """
    items = audit.items
    axes = 1 + sum(measure.ideal is not None for measure in audit.suite.measures(()))
    order = np.random.default_rng(audit.seed).permutation(len(items))
    changed = order[: 2 * round(CHANGE * len(items) / 2)]
    base, new = np.zeros((2, len(items), 2))
    base[:, 1] = new[:, 1] = 1.0
    base[changed[::2], 0] = new[changed[1::2], 0] = 1.0
    pairs = Pairs(base, new, [item.cluster for item in items], share, SHARE)
    return Detectable(pairs.detectable(DEFAULT_FRACTION, ALPHA / axes), axes)
