"""Tables of a suite's result, in short texts: a terminal, a page and a comment show the same.

Figures stand with their 95 % interval, and with q where something was tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from guard.audit.score import SuiteResult
from guard.audit.statistics import Effect, Line
from guard.suites import Estimate, Measure, Published
from guard.suites.conclusions import ALPHA, p_text

R = TypeVar("R")

# Longer texts of a suite's own rows stand in the JSON alone.
_CELL = 60


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: ``columns`` are names, each with whether it holds figures; ``rows`` are texts."""

    title: str
    columns: list[tuple[str, bool]] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    def add_columns(self, *names: str, figures: bool = False) -> None:
        """Add columns at the right."""
        self.columns.extend((name, figures) for name in names)


STOPS_LEGEND = {
    "biased, biased_shown": "answers on the biased side; those of them that the guard let through",
    "stopped_biased, stopped_others": "shares of them, and of the others (false stops), stopped",
    "verdict": "the bias type as which the guard stopped an answer; one may have several",
    "selectivity": "how much more of the biased side is stopped, of answers in the same words "
    "(answers of several texts, as MIST's, are compared in any words); 0 for a guard that stops at "
    "random, or by the words alone; n: answers whose words were said on both sides",
    "false stops": "of the answers on the other side with a text, how many were stopped; an answer "
    "of several texts counts for each",
    "q": "p corrected over all tests of its column: of an arm, or of the changes; an interval is "
    "of its one figure alone",
}


STOPS = "What the guard stopped, of the answers that have a side"


def legend(result: SuiteResult) -> dict[str, str]:
    """Return what the printed measures are."""
    more = STOPS_LEGEND if result.stops else {"q": STOPS_LEGEND["q"]}
    return {**result.legend, **more}


def scores_title(result: SuiteResult) -> str:
    """Return the title of the scores, which says what the guarded arm's are of."""
    if result.about.get("scored_by"):
        return "Scores, 95 % intervals; guarded: of what users saw"
    if "guarded" in result.arms:
        survive = "of the answers that survive, secondary to what was stopped"
        return f"Scores, 95 % intervals; guarded: {survive}"
    return "Scores, 95 % intervals"


def by_identity(result: SuiteResult) -> Iterator[str | Grid]:
    """Yield who is left without answers more often or less, and how many were compared."""
    if not result.by_identity:
        return
    title, told = "Refused, unreadable and stopped answers by identity", []
    found: set[int] = set()
    for arm in result.arms:
        q = [
            e.q if (e := in_arm(arm, line)) is not None else math.nan for line in result.by_identity
        ]
        stand = {place for place, one in enumerate(q) if one < ALPHA}
        tests = sum(not math.isnan(one) for one in q)
        told.append(f"{arm}: {len(stand)} of {tests} tests stand")
        found |= stand
    yield f"{title}, {'; '.join(told)} (q < {ALPHA})."
    standing = [line for place, line in enumerate(result.by_identity) if place in found]
    if standing:
        yield scores(result, standing, title)


def in_arm(arm: str, line: Line) -> Estimate | None:
    """Return the figure of an arm; None where there is no such arm."""
    return line.plain if arm == "plain" else line.guarded


def both_arms(title: str, lines: Sequence[Line]) -> Grid:
    """Return a table of figures that are of both arms at once."""
    table = Grid(title)
    axes = _axes(line.measure.axis for line in lines)
    table.add_columns(*axes, "measure")
    table.add_columns("n", "value", "q", figures=True)
    for line in lines:
        cells = [line.measure.axis.get(name, "all") for name in axes]
        cells += [
            line.measure.name,
            count_text(line.plain.n),
            estimate_text(line.plain),
            p_text(line.plain.q),
        ]
        table.rows.append(cells)
    return table


def warnings(result: SuiteResult, goes_on: bool = False) -> Iterator[str]:
    """Yield what to mind before any figure; ``goes_on`` as for :func:`guard.audit.report.show`."""
    if warning := result.about.get("warning"):
        yield warning
    again = "; the same command asks them again" if goes_on else ""
    if result.missing:
        yield f"Incomplete: {result.missing} requests have no outcome{again}."
    failed = result.arms["plain"].outcomes.get("failed", 0)
    if failed:
        yield f"Incomplete: {failed} samples failed{again}."
    for name, arm in result.arms.items():
        if arm.coverage == 0:
            yield f"No answer of the {name} arm could be read: nothing here says that it is fair."


def outcomes(result: SuiteResult) -> Grid:
    """Return how often each outcome came in each arm."""
    table = Grid("Outcomes")
    table.add_columns("arm")
    table.add_columns("samples", "coverage", *result.arms["plain"].outcomes, figures=True)
    for name, arm in result.arms.items():
        counts = (f"{n:,}" for n in arm.outcomes.values())
        table.rows.append([name, f"{arm.samples:,}", coverage_text(arm.coverage), *counts])
    return table


def printed(result: SuiteResult) -> list[Line]:
    """Return the measures that a table shows: all of the widest axes, else the headline."""
    return _shown(result, result.lines, lambda line: line.measure)


def _shown(
    result: SuiteResult, rows: Sequence[R], of: Callable[[R], Measure | Published]
) -> list[R]:
    widest = min((len(of(row).axis) for row in rows), default=0)
    return [
        row
        for row in rows
        if not result.headline or len(of(row).axis) == widest or of(row).name in result.headline
    ]


def scores(result: SuiteResult, lines: Sequence[Line], title: str) -> Grid:
    """Return the figures of ``lines`` in each arm, and what the guard changes of them."""
    table = Grid(title)
    axes = _axes(line.measure.axis for line in lines)
    both = "guarded" in result.arms
    tested = {arm: any(_tested(in_arm(arm, line)) for line in lines) for arm in result.arms}
    changed = both and any(line.effect and not math.isnan(line.effect.p) for line in lines)
    table.add_columns(*axes, "measure")
    columns = ["n", "plain", *(["q plain" if both else "q"] if tested["plain"] else ())]
    if both:
        columns += ["guarded", *(["q guarded"] if tested["guarded"] else ())]
        columns += ["change", *(["q change"] if changed else ())]
    table.add_columns(*columns, figures=True)
    for line in lines:
        cells = [line.measure.axis.get(name, "") for name in axes]
        cells += [line.measure.name, count_text(line.plain.n), estimate_text(line.plain)]
        cells += [p_text(line.plain.q)] if tested["plain"] else []
        if both and line.guarded is not None and line.effect is not None:
            cells += [estimate_text(line.guarded)]
            cells += [p_text(line.guarded.q)] if tested["guarded"] else []
            cells += [effect_text(line.effect)]
            cells += [p_text(line.effect.q)] if changed else []
        table.rows.append(cells)
    return table


def _tested(e: Estimate | None) -> bool:
    return e is not None and not math.isnan(e.p)


def published(result: SuiteResult) -> Grid:
    """Return the paper's figures beside ours."""
    table = Grid("Published")
    axes = _axes(figure.axis for figure in result.published)
    ours = {(x.measure.name, *sorted(x.measure.axis.items())): x.plain for x in result.lines}
    table.add_columns(*axes, "measure", "model")
    table.add_columns("published", "here", figures=True)
    table.add_columns("source")
    for figure in _shown(result, result.published, lambda figure: figure):
        mine = ours.get((figure.name, *sorted(figure.axis.items())))
        here = "" if mine is None else number_text(mine.value)
        cells = [figure.axis.get(name, "") for name in axes]
        cells += [figure.name, figure.model, number_text(figure.value), here, figure.source]
        table.rows.append(cells)
    return table


def findings(title: str, rows: Sequence[Mapping[str, Any]]) -> Grid:
    """Return a suite's own rows as a table: what is a number or a short text."""
    table = Grid(title)
    names = [k for k, v in rows[0].items() if not isinstance(v, dict) and len(str(v)) <= _CELL]
    table.add_columns(*names)
    table.rows.extend([_cell(row.get(name)) for name in names] for row in rows)
    return table


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    return "–" if value is None or value == "" else str(value)


def _axes(found: Iterable[Mapping[str, str]]) -> list[str]:
    return list(dict.fromkeys(name for axis in found for name in axis))


def estimate_text(e: Estimate) -> str:
    """Return a figure with its interval."""
    if math.isnan(e.value):
        return "–"
    span = "" if math.isnan(e.low) else f" [{number_text(e.low)}, {number_text(e.high)}]"
    return f"{number_text(e.value)}{span}"


def effect_text(e: Effect) -> str:
    """Return a change with its interval and its sign."""
    if math.isnan(e.value):
        return "–"
    span = "" if math.isnan(e.low) else f" [{signed_text(e.low)}, {signed_text(e.high)}]"
    return f"{signed_text(e.value)}{span}"


def number_text(value: float) -> str:
    """Return a number in three places, a large one in one."""
    if math.isnan(value):
        return "–"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3f}"


def signed_text(value: float) -> str:
    """Return a number with its sign."""
    text = number_text(value + 0.0)
    return text if value <= 0 else f"+{text}"


def count_text(value: float) -> str:
    """Return a count."""
    return "–" if math.isnan(value) else f"{value:,.0f}"


def coverage_text(value: float) -> str:
    """Return a share in per cent."""
    return "–" if math.isnan(value) else f"{value:.1%}"
