"""Tables of a suite's result as texts, the same for a terminal, a page and a comment.

Estimates have their 95 % interval, and q where they were tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from guard.audit.failures import error_text
from guard.audit.score import SuiteResult
from guard.results.conclusions import ALPHA
from guard.results.estimate import Estimate
from guard.results.intervals import p_text
from guard.results.jackknife import Line
from guard.results.measure import Measure
from guard.suites import Published

R = TypeVar("R")

_CELL = 60  # characters; longer texts of a suite's own rows are only in the JSON


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: ``columns`` are names with whether they hold figures; ``rows`` are texts."""

    title: str
    columns: list[tuple[str, bool]] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    def add_columns(self, *names: str, figures: bool = False) -> None:
        """Add columns at the right."""
        self.columns.extend((name, figures) for name in names)


STOPS_LEGEND = {
    "biased, biased_shown": "share of answers on the biased side; of those the guard let through",
    "stopped_biased, stopped_others": "shares stopped of the answers on the biased side, and of "
    "others with a side (false stops)",
    "verdict": "the bias type for which the guard stopped an answer; an answer may have several",
    "selectivity": "how much more of the biased side is stopped, of answers in the same words "
    "(answers of several texts, as MIST's, are compared in any words); 0 for a guard that stops at "
    "random, or by the words alone; n: answers whose words are on both sides",
    "false stops": "of the answers on the other side with a text, how many were stopped; an answer "
    "of several texts counts for each",
    "q": "p corrected over all tests of its column (of an arm, or of the changes); intervals are "
    "not corrected",
}


STOPS = "What the guard stopped, of the answers that have a side"


def legend(result: SuiteResult) -> dict[str, str]:
    """Return explanations of the printed measures."""
    more = STOPS_LEGEND if result.stops else {"q": STOPS_LEGEND["q"]}
    return {**result.legend, **more}


def scores_title(result: SuiteResult) -> str:
    """Return the title of the scores, which says what the guarded arm's cover."""
    title = "Scores, 95 % intervals"
    if result.about.get("scored_by"):
        return f"{title}; guarded: of what users saw"
    if "guarded" in result.arms:
        return f"{title}; guarded: of the answers let through, secondary to what was stopped"
    return title


def by_identity(result: SuiteResult) -> Iterator[str | Grid]:
    """Yield how many tests of withheld answers are significant, and the table of those."""
    if not result.by_identity:
        return
    title, counts = "Refused, unreadable and stopped answers by identity", []
    shown: set[int] = set()
    for arm in result.arms:
        estimates = [in_arm(arm, line) for line in result.by_identity]
        q = [math.nan if e is None else e.q for e in estimates]
        significant = {place for place, one in enumerate(q) if one < ALPHA}
        tests = sum(not math.isnan(one) for one in q)
        counts.append(f"{arm}: {len(significant)} of {tests} tests significant")
        shown |= significant
    yield f"{title}, {'; '.join(counts)} (q < {ALPHA})."
    if shown:
        yield scores(result, [result.by_identity[place] for place in sorted(shown)], title)


def findings_tables(result: SuiteResult, most: int | None = None) -> Iterator[tuple[Grid, int]]:
    """Yield the suite's own tables, with at most ``most`` rows, and how many are left out."""
    for arm, found in result.findings.items():
        for name, rows in found.items():
            if name != "remarks" and rows:
                grid = findings(f"{name.capitalize()}, {arm} arm", rows[:most])
                yield grid, len(rows) - len(grid.rows)


def in_arm(arm: str, line: Line) -> Estimate | None:
    """Return the estimate of an arm; None where there is no such arm."""
    return line.plain if arm == "plain" else line.guarded


def both_arms(title: str, lines: Sequence[Line]) -> Grid:
    """Return a table of estimates over both arms."""
    table = Grid(title)
    axes = _axes(line.measure.axis for line in lines)
    table.add_columns(*axes, "measure")
    table.add_columns("n", "value", "q", figures=True)
    for line in lines:
        e, measure = line.plain, line.measure
        cells = [measure.axis.get(name, "all") for name in axes]
        cells += [measure.name, count_text(e.n), estimate_text(e), p_text(e.q)]
        table.rows.append(cells)
    return table


def incomplete(result: SuiteResult, resumable: bool = False) -> list[str]:
    """Return why a result is incomplete; ``resumable`` as for :func:`guard.audit.report.show`."""
    again = "; the same command asks them again" if resumable else ""
    failed = result.arms["plain"].outcomes.get("failed", 0)
    missing = [f"{result.missing:,} requests have no outcome"] if result.missing else []
    most = result.about.get("errors", ())[:1]
    why = "".join(f", most often by {error_text(one)}" for one in most)
    missing += [f"{failed:,} samples failed{why}"] if failed else []
    return [f"Incomplete: {one}{again}." for one in missing]


def errors(result: SuiteResult) -> Grid | None:
    """Return the most frequent errors of an incomplete result; None without one."""
    listed = () if result.complete else result.about.get("errors", ())
    table = Grid("Failed calls by error")
    table.add_columns("error", "status")
    table.add_columns("calls", figures=True)
    table.add_columns("first item", "asked", "reason")
    for one in listed:
        status = "–" if one["status"] is None else str(one["status"])
        cells = [one["error"], status, f"{one['calls']:,}", one["item"], one["by"], one["reason"]]
        table.rows.append(cells)
    return table if table.rows else None


def warnings(result: SuiteResult, resumable: bool = False) -> Iterator[str]:
    """Yield the warnings before any figure."""
    if warning := result.about.get("warning"):
        yield warning
    yield from incomplete(result, resumable)
    for name, arm in result.arms.items():
        if arm.coverage == 0:
            yield f"No answer of the {name} arm could be read: this does not mean that it is fair."


def judges(result: SuiteResult) -> str:
    """Return a sentence on which detectors scored and guarded; empty for none."""
    about = result.about
    if not about.get("scored_by"):
        return ""
    guarded = f", guarded by {about['guarded_by']}" if about.get("guarded_by") else ""
    return f"Scored by {about['scored_by']}{guarded}."


def outcomes(result: SuiteResult) -> Grid:
    """Return the number of each outcome in each arm."""
    table = Grid("Outcomes")
    table.add_columns("arm")
    table.add_columns("samples", "coverage", *result.arms["plain"].outcomes, figures=True)
    for name, arm in result.arms.items():
        counts = (f"{n:,}" for n in arm.outcomes.values())
        table.rows.append([name, f"{arm.samples:,}", coverage_text(arm.coverage), *counts])
    return table


def printed(result: SuiteResult) -> list[Line]:
    """Return the measures that a table shows: those of the widest axes, and the headline's."""
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
    """Return the estimates of ``lines`` in each arm, and the guard's effect on them."""
    table = Grid(title)
    axes = _axes(line.measure.axis for line in lines)
    both = "guarded" in result.arms
    tested = {
        arm: any((e := in_arm(arm, line)) and not math.isnan(e.p) for line in lines)
        for arm in result.arms
    }
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


def published(result: SuiteResult) -> Grid:
    """Return the paper's figures beside those of this run."""
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
    """Return a suite's own rows as a table of their numbers and short texts."""
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


def with_interval(
    value: float, low: float, high: float, text: Callable[[float], str] | None = None
) -> str:
    """Return a value with its interval, each number by ``text``."""
    text = text or number_text
    if math.isnan(value):
        return "–"
    span = "" if math.isnan(low) else f" [{text(low)}, {text(high)}]"
    return f"{text(value)}{span}"


def estimate_text(e: Estimate) -> str:
    """Return an estimate with its interval."""
    return with_interval(e.value, e.low, e.high)


def effect_text(e: Estimate) -> str:
    """Return a change with its interval and signs."""
    return with_interval(e.value, e.low, e.high, signed_text)


def number_text(value: float) -> str:
    """Return a number with three decimals, from 100 with one."""
    if math.isnan(value):
        return "–"
    text = f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3f}"
    return text.removeprefix("-") if text == "-0.000" else text


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
