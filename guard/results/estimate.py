"""A number with its interval: the only type for it in guard."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with the ends of its interval and its denominator ``n``; nan where undefined.

    ``p`` is the p-value of its test, ``q`` the same corrected over all tests of its family.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    n: float = math.nan
    p: float = math.nan
    q: float = math.nan

    def parts(self, *names: str) -> dict[str, float]:
        """Return the fields named, in this order: who writes an estimate says which it writes."""
        return {name: getattr(self, name) for name in names}


UNDEFINED = Estimate(math.nan)
"""The estimate of a share without a denominator."""
