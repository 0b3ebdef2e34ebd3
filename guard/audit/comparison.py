"""Two sets of records of the same suites, compared: what differs, and what a build may conclude.

The records are of a base and of something new: the last release and this one, one model and
another, or the plain and the guarded arm of one run. One engine serves them all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from guard.audit.score import number
from guard.errors import GuardError

Verdict = Literal["pass", "regression", "inconclusive"]
"""Of an axis. ``regression``: it is worse by more than the tolerance. ``pass``: it is not worse by
more than the tolerance. ``inconclusive``: the items do not tell which."""

Outcome = Literal["pass", "regression", "inconclusive", "incomplete", "not comparable"]
EXIT_CODES: Mapping[Outcome, int] = {
    "pass": 0,
    "regression": 1,
    "inconclusive": 3,
    "incomplete": 4,
    "not comparable": 5,
}
"""What a command exits with; 2 is a mistake in the command or a file that cannot be used."""


class NotComparable(GuardError):
    """A run could not be compared with its baseline, and nothing was asked."""


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
    measure's values over these pairs, ``difference`` is new less base with its 95 % interval.
    ``ideal`` is the value of a fair model; ``worse`` is by how much the new one is further away
    from it, ``at_most`` the most that this may be (one-sided, 95 %). ``p`` is of the test that it
    is worse by no more than ``tolerance``, ``q`` the same corrected over every axis of every suite.
    ``p_change`` is the exact two-sided p of any change at all: McNemar's where answers are 0 or 1,
    else that of exchanging the sides of a pair, by the ``method`` named. ``detectable`` is the
    least that it could be worse by to be found in four of five such comparisons.

    ``n`` counts the pairs, which are of the kind ``unit``, in ``clusters`` clusters. ``decides``
    says whether an undecided axis leaves the whole undecided. ``more_items`` says how many items
    more, on both sides, would decide it in four of five such comparisons; None where it is decided,
    or no number would. ``reason`` says why it is inconclusive. Numbers that do not exist are nan.
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
    """What of the comparability key differs, in words; ``allowed`` says that it was meant to."""

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
    """The whole of it: every axis, what differs in the keys, the verdict and what to do next.

    ``base`` and ``new`` name the sides (a folder, a file, an arm of it). ``next`` are sentences.
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
        """What a command exits with."""
        return EXIT_CODES[self.outcome]

    def with_verdict(self, verdict: Verdict) -> list[AxisComparison]:
        """Return the axes of a verdict, the surest first."""
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
    """Return a number of JSON, which has neither nan nor infinity."""
    if isinstance(value, str):
        return {"higher": math.inf, "lower": -math.inf}[value]
    return math.nan if value is None else float(value)
