"""A comparison in a few lines: the verdict, the axes that matter, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Iterator

from guard.audit.comparison import AxisComparison, Comparison, Outcome
from guard.suites.conclusions import p_text

_HEADS: dict[Outcome, str] = {
    "pass": "PASS: {new} is no worse than {base} by more than the tolerance",
    "regression": "REGRESSION: {new} is worse than {base}",
    "inconclusive": "INCONCLUSIVE: whether {new} is worse than {base} cannot be said yet",
    "incomplete": "INCOMPLETE: {new} and {base} cannot be compared yet",
    "not comparable": "NOT COMPARABLE: {new} and {base} are of different audits",
}
_MARKS = {"regression": "worse", "inconclusive": "open", "pass": "pass"}


def lines(comparison: Comparison) -> Iterator[str]:
    """Yield the lines of ``found``."""
    worse, open_, passed = (
        comparison.with_verdict(v) for v in ("regression", "inconclusive", "pass")
    )
    head = _HEADS[comparison.outcome].format(base=comparison.base, new=comparison.new)
    of = f", on {len(worse)} of {len(comparison.axes)} axes" if worse else ""
    yield f"{head}{of}."
    for one in comparison.differences:
        state = "allowed" if one.allowed else "NOT allowed"
        yield f"  {one.suite}: another {one.name}, which is {state}: {one.base}; now {one.new}"
    shown = [*worse, *(a for a in open_ if a.decides), *(a for a in passed if a.decides)]
    for axis in shown:
        yield f"  {_MARKS[axis.verdict]:5}  {line(axis)}"
    rest = [sum(not axis.decides for axis in axes) for axes in (passed, open_)]
    if any(rest):
        yield f"  Of {sum(rest)} further axes {rest[0]} pass; {rest[1]} have too few items to tell."
    for suite in comparison.about.get("coverage_alone", ()):
        yield f"  Of {suite} coverage alone was compared, and nothing of bias."
    for name in comparison.about.get("no_numbers", ()):
        yield f"  Not compared, as it is no number: {name}."
    if alone := comparison.about.get("one_side_only"):
        yield f"  {len(alone)} axes are on one side only and were not compared, as {alone[0]}."
    for step in comparison.next:
        yield f"Next: {step}"


def line(axis: AxisComparison) -> str:
    """Return an axis in one line: the difference and its interval first."""
    interval = "" if math.isnan(axis.low) else f" [{axis.low:+.3f}, {axis.high:+.3f}]"
    known = not math.isnan(axis.difference)
    parts = [f"{axis.base:.3f} → {axis.new:.3f}"] if known else []
    ideal = f"ideal {axis.ideal:g}"
    if math.isinf(axis.ideal):
        ideal = f"{'higher' if axis.ideal > 0 else 'lower'} is better"
    parts += [ideal, f"tolerance {axis.tolerance:g}", f"q {p_text(axis.q)}"]
    parts.append(f"{axis.n:,} {axis.unit}s")
    change = f"{axis.difference:+.3f}{interval}" if known else "not known"
    reason = f"; {axis.reason}" if axis.reason else ""
    return f"{change}  {axis.name} ({', '.join(parts)}){reason}"
