"""The result of a comparison of two sides, as plain values.

The sides are a base and something new: the last release and this one, two models, or the plain and
the guarded arm of one run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from guard.audit.score import number
from guard.errors import GuardError

Verdict = Literal["pass", "regression", "inconclusive"]
"""Of an axis. ``regression``: worse by more than the tolerance. ``pass``: worse by no more than the
tolerance, if at all. ``inconclusive``: too little evidence for either."""

Outcome = Literal["pass", "regression", "inconclusive", "incomplete", "not comparable"]
EXIT_CODES: Mapping[Outcome, int] = {
    "pass": 0,
    "regression": 1,
    "inconclusive": 3,
    "incomplete": 4,
    "not comparable": 5,
}
"""Exit codes; 2 is a mistake in the command or a file that cannot be used."""


class NotComparable(GuardError):
    """A run would not be comparable with its baseline, so nothing was asked."""


@dataclass(frozen=True, slots=True)
class Flip:
    """A pair (an item, or a cluster) that the two sides answer differently.

    ``base`` and ``new`` are the outcomes' names, with how often each came where an item was asked
    several times. ``moves`` is by how much this pair alone makes the axis worse; below 0 better.
    """

    item: str
    base: str
    new: str
    moves: float

    def to_dict(self) -> dict[str, Any]:
        """Return it in plain values."""
        return {
            "item": self.item,
            "base": self.base,
            "new": self.new,
            "moves": number(self.moves),
        }


@dataclass(frozen=True, slots=True)
class AxisComparison:
    """One measure on one axis of one arm, over the pairs that both sides have.

    ``name`` is ``suite/arm/measure/label=value/...`` and unique. ``base`` and ``new`` are the
    measure's values over these pairs; ``difference`` is new less base, with the 95 % interval
    ``low`` to ``high``. ``ideal`` is the value of a fair model; ``worse`` is by how much further
    from it new is than base, ``at_most`` its upper limit (one-sided, 95 %). ``p`` is the larger of
    two p-values, of "no worse" and of "worse by no more than ``tolerance``"; ``q`` is p corrected
    over every axis of every suite. ``p_change`` is the two-sided p of any change, by the ``method``
    named: McNemar's test for answers of 0 or 1, else a paired permutation test. ``detectable`` is
    the least worsening that such a comparison detects with a power of 0.8.

    ``n`` counts the pairs, which are items or clusters (``unit``), in ``clusters`` clusters.
    ``decides`` says whether the comparison is inconclusive if this axis is. ``more_items`` is how
    many more items on each side would decide it with a power of 0.8; None where it is decided, or
    no number would. ``reason`` says why it is inconclusive. Numbers that do not exist are nan.
    """

    name: str
    suite: str
    arm: str
    measure: str
    axis: Mapping[str, str]
    ideal: float
    base: float
    new: float
    difference: float
    low: float
    high: float
    worse: float
    at_most: float
    tolerance: float
    p: float
    q: float
    p_change: float
    method: str
    detectable: float
    n: int
    unit: Literal["item", "cluster"]
    clusters: int
    verdict: Verdict
    decides: bool
    reason: str = ""
    more_items: int | None = None
    flips: Sequence[Flip] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it in plain values, numbers unrounded and nan as None.

        The ideal of a scale without an end is "higher" or "lower".
        """
        values: dict[str, Any] = {}
        for name in self.__slots__:
            value = getattr(self, name)
            values[name] = number(value) if isinstance(value, float) else value
        if math.isinf(self.ideal):
            values["ideal"] = "higher" if self.ideal > 0 else "lower"
        values["axis"] = dict(self.axis)
        values["flips"] = [flip.to_dict() for flip in self.flips]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> AxisComparison:
        """Return the axis of which :meth:`to_dict` gave ``told``."""
        flips = [Flip(f["item"], f["base"], f["new"], _real(f["moves"])) for f in values["flips"]]
        floats = [f.name for f in fields(cls) if f.type == "float"]
        numbers = {name: _real(values[name]) for name in floats}
        return cls(**{**values, **numbers, "flips": flips})


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between the sides, in words; ``allowed`` if the user said that it is meant."""

    suite: str
    name: str
    base: str
    new: str
    allowed: bool

    def to_dict(self) -> dict[str, Any]:
        """Return it in plain values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every axis, the differences between the keys, the outcome, and what to do next.

    ``base`` and ``new`` name the sides: a folder, a file, or an arm of it. ``next`` are sentences.
    ``about`` has the settings of the comparison and what was not compared.
    """

    base: str
    new: str
    outcome: Outcome
    axes: Sequence[AxisComparison] = ()
    differences: Sequence[Difference] = ()
    next: Sequence[str] = ()
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """The exit code of a command."""
        return EXIT_CODES[self.outcome]

    def with_verdict(self, verdict: Verdict) -> list[AxisComparison]:
        """Return the axes with a verdict: deciding ones first, then by q."""
        found = [axis for axis in self.axes if axis.verdict == verdict]
        return sorted(found, key=lambda a: (not a.decides, math.inf if math.isnan(a.q) else a.q))

    def to_dict(self) -> dict[str, Any]:
        """Return it in plain values, numbers unrounded and nan as None."""
        return {
            "base": self.base,
            "new": self.new,
            "outcome": self.outcome,
            "exit_code": self.exit_code,
            "axes": [axis.to_dict() for axis in self.axes],
            "differences": [one.to_dict() for one in self.differences],
            "next": list(self.next),
            **self.about,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Comparison:
        """Return the comparison of which :meth:`to_dict` gave ``told``."""
        rest = dict(values)
        axes = [AxisComparison.from_dict(one) for one in rest.pop("axes")]
        differences = [Difference(**one) for one in rest.pop("differences")]
        del rest["exit_code"]
        base, new, outcome = (rest.pop(name) for name in ("base", "new", "outcome"))
        return cls(base, new, outcome, axes, differences, rest.pop("next"), rest)


def _real(value: float | str | None) -> float:
    """Return the number that JSON, which has neither nan nor infinity, wrote as ``value``."""
    if isinstance(value, str):
        return {"higher": math.inf, "lower": -math.inf}[value]
    return math.nan if value is None else float(value)
