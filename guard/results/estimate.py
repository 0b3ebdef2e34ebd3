"""The value of a measure with its interval."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measure's value with its interval and denominator ``n``; nan where undefined.

    ``p`` is the p-value, ``q`` the p-value corrected over the suite's measures.
    """

    value: float
    low: float
    high: float
    n: float
    p: float = math.nan
    q: float = math.nan
