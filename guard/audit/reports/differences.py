"""What a report leads with: the differences of two arms, or of a run and its baseline."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from guard.audit.grids import Grid, effect_text, number_text, printed
from guard.audit.reports.charts import axis_text
from guard.audit.reports.content import Content
from guard.audit.score import SuiteResult
from guard.audit.statistics import Effect, Line
from guard.suites.conclusions import ALPHA, p_text

_LEAD = 6  # lines of a suite


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure on two sides. ``reading`` says in a word what the difference means."""

    suite: str
    measure: str
    axis: Mapping[str, str]
    before: float
    after: float
    effect: Effect
    reading: str

    @property
    def place(self) -> str:
        """Where it is, in words."""
        return f"{self.measure}, {axis_text(self.axis)}"


def differences(content: Content) -> list[Difference]:
    """Return those of the baseline where there is one, else those that the guard makes."""
    if content.comparison is not None:
        return [_compared(axis) for axis in ranked(content.comparison)]
    found = [(one.name, line) for one in content.suites for line in lead(one.result)]
    return [_of_arms(name, line) for name, line in found if line.effect is not None]


def lead(result: SuiteResult) -> list[Line]:
    """Return the widest figures of a suite that are tested, or else that its tables begin with."""
    tested = [x for x in result.lines if x.measure.null is not None or not math.isnan(x.plain.p)]
    headline = [x for x in printed(result) if x.measure.name in result.headline]
    pool = tested or headline or printed(result)
    widest = min((len(x.measure.axis) for x in pool), default=0)
    found = [x for x in pool if len(x.measure.axis) == widest]
    # Where they are many, as of associations, the surest.
    order = found if len(found) <= _LEAD else sorted(found, key=lambda x: _last(x.plain.q))
    return order[:_LEAD]


def _last(q: float) -> float:
    return math.inf if math.isnan(q) else q


def stands(effect: Effect) -> bool:
    """Return whether a change is more than chance."""
    if not math.isnan(effect.q):
        return effect.q < ALPHA
    return effect.low > 0 or effect.high < 0


def away(line: Line) -> bool | None:
    """Return whether the guarded figure is further from what is fair; None where nobody can say."""
    measure, effect = line.measure, line.effect
    if effect is None or line.guarded is None or math.isnan(effect.value):
        return None
    if measure.null is not None and not measure.above:
        before, after = (abs(e.value - measure.null) for e in (line.plain, line.guarded))
        return after > before if before != after else None
    if measure.higher_is == "neither" or not effect.value:
        return None
    return (effect.value > 0) == (measure.higher_is == "worse")


def _of_arms(suite: str, line: Line) -> Difference:
    assert line.effect is not None
    assert line.guarded is not None
    worse = away(line)
    reading = "no change stands"
    if math.isnan(line.effect.value):
        reading = "not known"
    elif stands(line.effect):
        reading = {True: "further from fair", False: "closer to fair", None: "changes"}[worse]
    elif math.isnan(line.effect.low):
        reading = "no interval"
    values = line.plain.value, line.guarded.value
    return Difference(suite, line.measure.name, line.measure.axis, *values, line.effect, reading)


def ranked(comparison: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the axes of a comparison: regressions first, then what is undecided."""
    order = {"regression": 0, "inconclusive": 1, "pass": 2}
    return sorted(
        comparison["axes"],
        key=lambda a: (order[a["verdict"]], not a["decides"], 2.0 if a["q"] is None else a["q"]),
    )


def _compared(axis: Mapping[str, Any]) -> Difference:
    def real(name: str) -> float:
        return math.nan if axis[name] is None else float(axis[name])

    effect = Effect(real("difference"), real("low"), real("high"), real("p"), real("q"))
    name = f"{axis['suite']} · {axis['arm']}"
    values = real("base"), real("new")
    return Difference(name, axis["measure"], axis["axis"], *values, effect, axis["verdict"])


def sides(content: Content) -> tuple[str, str]:
    """Return what the two sides of the differences are called."""
    if content.comparison is None:
        return "plain", "guarded"
    return str(content.comparison["base"]), str(content.comparison["new"])


def grid(found: Sequence[Difference], sides: tuple[str, str]) -> Grid:
    """Return differences as a table."""
    table = Grid("Differences, 95 % intervals")
    table.add_columns("suite", "measure", "of")
    table.add_columns(*sides, "difference", "q", figures=True)
    table.add_columns("reading")
    table.rows.extend(_cells(found))
    return table


def _cells(found: Sequence[Difference]) -> Iterator[list[str]]:
    for one in found:
        yield [
            one.suite,
            one.measure,
            axis_text(one.axis),
            number_text(one.before),
            number_text(one.after),
            effect_text(one.effect),
            p_text(one.effect.q),
            one.reading,
        ]


def sentence(content: Content) -> str:
    """Return what the differences amount to, in one sentence with its interval."""
    found = differences(content)
    if content.comparison is not None:
        count = {v: sum(one.reading == v for one in found) for v in ("regression", "inconclusive")}
        told = (
            f"Against the baseline: {content.comparison['outcome']}. Of {len(found):,} axes "
            f"{count['regression']:,} regressed and {count['inconclusive']:,} are undecided."
        )
    elif not found:
        return "One arm alone: there is no guarded arm, and no baseline was given to compare with."
    else:
        worse = sum(one.reading == "further from fair" for one in found)
        better = sum(one.reading == "closer to fair" for one in found)
        told = (
            f"Behind the guard {better:,} of {len(found):,} leading figures are closer to fair, "
            f"{worse:,} further from it, and of the others no change stands."
        )
    if not found:
        return told
    most = max(found, key=_surest) if content.comparison is None else found[0]
    if math.isnan(most.effect.low):
        return told
    return (
        f"{told} The {'surest' if content.comparison is None else 'first'}: {most.suite}, "
        f"{most.place}: {number_text(most.before)} → {number_text(most.after)}, "
        f"{effect_text(most.effect)} ({most.reading})."
    )


def _surest(one: Difference) -> float:
    """Return by how many half widths of its interval a difference is off 0."""
    half = (one.effect.high - one.effect.low) / 2
    return abs(one.effect.value) / half if half > 0 else 0.0
