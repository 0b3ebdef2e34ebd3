"""What a report leads with: what the guard stopped, or how a run differs from its baseline.

Scores of the guarded arm cover the answers that survive the guard, so their difference from the
plain arm is not mitigation. It is where a scorer judged what users saw.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from guard.audit.grids import Grid, effect_text, estimate_text, number_text, printed
from guard.audit.outcomes import judges_both
from guard.audit.reports.charts import axis_text
from guard.audit.reports.content import Content, SuiteContent
from guard.audit.score import SuiteResult
from guard.audit.statistics import Effect, Line
from guard.suites.conclusions import ALPHA, p_text

_LEAD = 6  # lines of a suite


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure on two sides; ``reading`` is a short verdict on the difference."""

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
    """Return the differences from the baseline; without one those between the arms."""
    if content.comparison is not None:
        return [_compared(axis) for axis in ranked(content.comparison)]
    return [
        _between_arms(one, line)
        for one in content.suites
        for line in lead(one.result)
        if line.effect is not None
    ]


def lead(result: SuiteResult) -> list[Line]:
    """Return the widest figures of a suite that are tested, or else that its tables begin with."""
    tested = [x for x in result.lines if x.measure.null is not None or not math.isnan(x.plain.p)]
    headline = [x for x in printed(result) if x.measure.name in result.headline]
    pool = tested or headline or printed(result)
    widest = min((len(x.measure.axis) for x in pool), default=0)
    shown = [x for x in pool if len(x.measure.axis) == widest]
    # If there are many, as associations are, the most significant ones.
    order = shown if len(shown) <= _LEAD else sorted(shown, key=lambda x: _nan_last(x.plain.q))
    return order[:_LEAD]


def _nan_last(q: float) -> float:
    return math.inf if math.isnan(q) else q


def is_significant(effect: Effect) -> bool:
    """Return whether a change is statistically significant."""
    if not math.isnan(effect.q):
        return effect.q < ALPHA
    return effect.low > 0 or effect.high < 0


def is_worse(line: Line) -> bool | None:
    """Return whether the guarded figure is further from fair; None if equal or not defined."""
    measure, effect = line.measure, line.effect
    if effect is None or line.guarded is None or math.isnan(effect.value):
        return None
    if measure.null is not None and not measure.above:
        before, after = (abs(e.value - measure.null) for e in (line.plain, line.guarded))
        return after > before if before != after else None
    if measure.higher_is == "neither" or not effect.value:
        return None
    return (effect.value > 0) == (measure.higher_is == "worse")


def _between_arms(content: SuiteContent, line: Line) -> Difference:
    assert line.effect is not None
    assert line.guarded is not None
    reading = "no change stands"
    if math.isnan(line.effect.value):
        reading = "not known"
    elif math.isnan(line.effect.low):
        reading = "no interval"
    elif is_significant(line.effect):
        more = line.effect.value > 0
        if judges_both(content.suite):
            reading = {True: "worse", False: "better", None: "changes"}[is_worse(line)]
        else:
            reading = f"{'higher' if more else 'lower'} of what survives"
    values = line.plain.value, line.guarded.value
    axis = line.measure.axis
    return Difference(content.name, line.measure.name, axis, *values, line.effect, reading)


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


def title(content: Content) -> str:
    """Return the title of the differences, which says what they are of."""
    if content.comparison is not None:
        return "Differences from the baseline, 95 % intervals"
    seen = "guarded: of answers that survive, in open text of what users saw"
    return f"Scores of both arms, 95 % intervals; {seen}"


def grid(found: Sequence[Difference], sides: tuple[str, str], title: str) -> Grid:
    """Return differences as a table."""
    table = Grid(title)
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


def headlines(content: Content) -> list[str]:
    """Return what a reader should know first, in sentences with their intervals."""
    if content.comparison is not None:
        return [_baseline_headline(content.comparison)]
    sentences = []
    for one in content.suites:
        # Where no answer has a side, the guarded arm says nothing of the guard.
        arm = "guarded" if one.result.stops else "plain"
        sentences.append(f"{one.name}: {one.result.conclusions[arm][0]}")
    return sentences


def _baseline_headline(comparison: Mapping[str, Any]) -> str:
    axes = ranked(comparison)
    worse = sum(axis["verdict"] == "regression" for axis in axes)
    open_ = sum(axis["verdict"] == "inconclusive" and axis["decides"] for axis in axes)
    verdict = (
        f"Against the baseline: {comparison['outcome']}. Of {len(axes):,} axes {worse:,} "
        f"regressed; of those that have to be decided {open_:,} are not."
    )
    if comparison["outcome"] == "not comparable":
        parts = (f"{one['suite']}: another {one['name']}" for one in comparison["differences"])
        return f"Not comparable with the baseline: {'; '.join(parts)}."
    if not axes:
        return verdict
    first = _compared(axes[0])
    return (
        f"{verdict} First: {first.suite}, {first.place}, {number_text(first.before)} → "
        f"{number_text(first.after)}, {effect_text(first.effect)} ({first.reading})."
    )


def stops(content: Content) -> Grid:
    """Return what the guard stopped of the biased answers and of the others, by suite."""
    grid = Grid("What the guard stopped, of the answers that have a side")
    grid.add_columns("suite")
    for name in _STOPS:
        grid.add_columns(name, figures=True)
    for one in content.suites:
        figures = {
            line.measure.name: line.plain for line in one.result.stops if not line.measure.axis
        }
        if figures:
            cells = [estimate_text(figures[name]) if name in figures else "–" for name in _STOPS]
            grid.rows.append([one.name, *cells])
    return grid


_STOPS = ("biased", "biased_shown", "stopped_biased", "stopped_others", "selectivity",
          "mitigation_rate", "over_blocked")  # fmt: skip
