"""One measured value beside what it is held against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Figure(NamedTuple):
    """A measured value; ``bound`` says what it should be, or what it is there for."""

    name: str
    value: float
    unit: str
    bound: str = ""


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which ``share`` of the ascending values lie; nan of none."""
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
