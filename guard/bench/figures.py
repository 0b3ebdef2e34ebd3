"""A measured value with its budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Figure(NamedTuple):
    """A measured value; ``bound`` is its budget in words, or the purpose of the value."""

    name: str
    value: float
    unit: str
    bound: str = ""


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which ``share`` of the ascending values lie; nan of none."""
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
