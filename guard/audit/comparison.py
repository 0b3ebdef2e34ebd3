"""The result of a comparison of two sides, as plain values and as lines of text.

The sides are a base and something new: the last release and this one, two models, or the plain and
the guarded arm of one run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from guard.audit.score import plain_json
from guard.errors import GuardError
from guard.exit_codes import ExitCode
from guard.results.intervals import p_text

Verdict = Literal["pass", "regression", "inconclusive"]
"""Of an axis. ``regression``: worse by more than the tolerance. ``pass``: worse by no more than the
tolerance, if at all. ``inconclusive``: too little evidence for either."""

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Outcome = Literal["pass", "regression", "inconclusive", "incomplete", "not comparable"]
EXIT_CODES: Mapping[Outcome, ExitCode] = {
    "pass": ExitCode.DONE,
    "regression": ExitCode.FOUND,
    "inconclusive": ExitCode.UNDECIDED,
    "incomplete": ExitCode.INCOMPLETE,
    "not comparable": ExitCode.NOT_COMPARABLE,
}


PRESENT, ABSENT = "there", "not there"
"""The values of a suite that only one side has."""


class NotComparable(GuardError):
    """A run would not be comparable with its baseline, so no call was made."""


@dataclass(frozen=True, slots=True)
class Flip:
    """A pair (an item, or a cluster) that the two sides answer differently.

    ``base`` and ``new`` are the outcomes' names, with their counts where an item was asked several
    times; where these are equal, with the item's value of the measure. ``moves`` is by how much
    this pair alone makes the axis worse; below 0 better.
    """

    item: str
    base: str
    new: str
    moves: float


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
    no number would. ``reason`` says why it is inconclusive. Undefined numbers are nan.
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
        values: dict[str, Any] = plain_json(asdict(self))
        if math.isinf(self.ideal):
            values["ideal"] = "higher" if self.ideal > 0 else "lower"
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> AxisComparison:
        """Return the axis that :meth:`to_dict` wrote as ``values``."""
        flips = [
            Flip(f["item"], f["base"], f["new"], _real_number(f["moves"])) for f in values["flips"]
        ]
        floats = [f.name for f in fields(cls) if f.type == "float"]
        numbers = {name: _real_number(values[name]) for name in floats}
        return cls(**{**values, **numbers, "flips": flips})


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """A difference between the sides' keys, in words; ``allowed`` if the user allowed it."""

    suite: str
    name: str
    base: str
    new: str
    allowed: bool


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
    differences: Sequence[KeyDifference] = ()
    next: Sequence[str] = ()
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """The exit code of a command."""
        return EXIT_CODES[self.outcome]

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many axes have each verdict: what every report states."""
        return {one: sum(axis.verdict == one for axis in self.axes) for one in VERDICTS}

    def counts_text(self) -> str:
        """Return the counts of the verdicts as a sentence, the same in every report."""
        counts = self.counts
        return (
            f"Of {len(self.axes):,} axes {counts['regression']:,} regressed, "
            f"{counts['inconclusive']:,} are undecided, {counts['pass']:,} pass."
        )

    def with_verdict(self, verdict: Verdict) -> list[AxisComparison]:
        """Return the axes with a verdict: deciding ones first, then by q."""
        axes = [axis for axis in self.axes if axis.verdict == verdict]
        return sorted(axes, key=lambda a: (not a.decides, math.inf if math.isnan(a.q) else a.q))

    @property
    def ranked(self) -> list[AxisComparison]:
        """The axes: regressions, then those that decide, then the others; passes last of each."""
        verdicts: tuple[Verdict, ...] = ("regression", "inconclusive", "pass")
        axes = [axis for verdict in verdicts for axis in self.with_verdict(verdict)]
        return sorted(axes, key=lambda a: (a.verdict != "regression", not a.decides))

    def to_dict(self) -> dict[str, Any]:
        """Return it in plain values, numbers unrounded and nan as None."""
        return {
            "base": self.base,
            "new": self.new,
            "outcome": self.outcome,
            "exit_code": int(self.exit_code),
            "counts": self.counts,
            "axes": [axis.to_dict() for axis in self.axes],
            "differences": [asdict(one) for one in self.differences],
            "next": list(self.next),
            **self.about,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Comparison:
        """Return the comparison that :meth:`to_dict` wrote as ``values``."""
        rest = dict(values)
        axes = [AxisComparison.from_dict(one) for one in rest.pop("axes")]
        differences = [KeyDifference(**one) for one in rest.pop("differences")]
        del rest["exit_code"]
        rest.pop("counts", None)
        base, new, outcome = (rest.pop(name) for name in ("base", "new", "outcome"))
        return cls(base, new, outcome, axes, differences, rest.pop("next"), rest)

    def difference_text(self, difference: KeyDifference) -> str:
        """Return a difference between the keys as a sentence without a full stop."""
        state = "allowed" if difference.allowed else "NOT allowed"
        if difference.name == "suites":
            side = self.base if difference.base == PRESENT else self.new
            return f"Only {side} has the suite {difference.suite} ({state})"
        return (
            f"{difference.suite}: different {difference.name} ({state}): "
            f"{self.base} has {difference.base}; {self.new} has {difference.new}"
        )

    @property
    def head(self) -> str:
        """The outcome as a sentence without a full stop."""
        return _HEADS[self.outcome].format(base=self.base, new=self.new)

    def lines(self, most: int | None = None) -> Iterator[str]:
        """Yield the axes that matter, what was not compared, the outcome and the next steps.

        Each is a line. With ``most`` passes are left out before undecided axes and these before
        regressions, and a line says how many.
        """
        worse, open_, passed = (
            self.with_verdict(v) for v in ("regression", "inconclusive", "pass")
        )
        shown = [*worse, *(axis for axis in (*open_, *passed) if axis.decides)]
        rest = [sum(not axis.decides for axis in axes) for axes in (passed, open_)]
        notes = list(self._notes())
        steps = [f"Next: {step}" for step in self.next]
        differences = [f"  {self.difference_text(one)}" for one in self.differences]
        kept = len(shown)
        if most is not None:
            steps, differences = steps[: most // 4], differences[: most // 4]
            notes = notes[: most // 8]
            others = len(steps) + len(differences) + len(notes) + 4
            kept = min(kept, max(1, most - others))
        for axis in shown[:kept]:
            yield f"  {_MARKS[axis.verdict]:9}  {_axis_line(axis)}"
        if kept < len(shown):
            yield f"  {len(shown) - kept:,} further axes that decide: --tables lists them."
        if any(rest):
            yield (
                f"  {sum(rest):,} axes do not decide unless they regress: {rest[0]:,} pass, "
                f"{rest[1]:,} are undecided."
            )
        yield from differences
        yield from notes
        if self.axes:
            yield self.counts_text()
        yield f"{self.head}."
        yield from steps

    def _notes(self) -> Iterator[str]:
        for suite in self.about.get("coverage_alone", ()):
            yield f"  {suite}: only coverage was compared, which says nothing about bias."
        for name in self.about.get("no_numbers", ()):
            yield f"  Not compared, because it is not a number: {name}."
        if one_sided := self.about.get("one_side_only"):
            yield (
                f"  {len(one_sided)} axes are on one side only and were not compared, such as "
                f"{one_sided[0]}."
            )


_HEADS: dict[Outcome, str] = {
    "pass": "PASS: {new} is no worse than {base} by more than the tolerance",
    "regression": "REGRESSION: {new} is worse than {base}",
    "inconclusive": "INCONCLUSIVE: whether {new} is worse than {base} is not decided",
    "incomplete": "INCOMPLETE: {new} and {base} cannot be compared yet",
    "not comparable": "NOT COMPARABLE: {new} and {base} were audited differently",
}
_MARKS = {"regression": "worse", "inconclusive": "undecided", "pass": "pass"}


def _axis_line(axis: AxisComparison) -> str:
    interval = "" if math.isnan(axis.low) else f" [{axis.low:+.3f}, {axis.high:+.3f}]"
    known = not math.isnan(axis.difference)
    parts = [f"{axis.base:.3f} → {axis.new:.3f}"] if known else []
    ideal = f"ideal {axis.ideal:g}"
    if math.isinf(axis.ideal):
        ideal = f"{'higher' if axis.ideal > 0 else 'lower'} is better"
    parts += [ideal, f"p of a change {p_text(axis.p_change)}"]
    parts.append(f"q {p_text(axis.q)} of worse by more than the tolerance of {axis.tolerance:g}")
    parts.append(f"{axis.n:,} {axis.unit}s")
    change = f"{axis.difference:+.3f}{interval}" if known else "not known"
    reason = f"; {axis.reason}" if axis.reason else ""
    return f"{change}  {axis.name} ({', '.join(parts)}){reason}"


def _real_number(value: float | str | None) -> float:
    """Return the number for a JSON ``value``: None is nan, "higher" and "lower" are infinite."""
    if isinstance(value, str):
        return {"higher": math.inf, "lower": -math.inf}[value]
    return math.nan if value is None else float(value)
