"""The tables of a suite's result, the same for a terminal, a page and a comment.

Estimates have their 95 % interval, and q where they were tested.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from guard.audit.failures import error_text
from guard.audit.score import SuiteResult
from guard.results.conclusions import ALPHA
from guard.results.figures import in_arm, widest_rows
from guard.results.jackknife import Line
from guard.results.table import Table

_CELL = 60  # characters; longer texts of a suite's own rows are only in the JSON


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


def measure_legend(result: SuiteResult) -> dict[str, str]:
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


def by_identity(result: SuiteResult) -> Iterator[str | Table]:
    """Yield how many tests of withheld answers are significant, and the table of those."""
    if not result.by_identity:
        return
    title, counts = "Refused, unreadable and stopped answers by identity", []
    shown: set[int] = set()
    for arm in result.arms:
        estimates = [in_arm(arm, line) for line in result.by_identity]
        q = [math.nan if e is None else e.q for e in estimates]
        significant = {place for place, value in enumerate(q) if value < ALPHA}
        tests = sum(not math.isnan(value) for value in q)
        counts.append(f"{arm}: {len(significant)} of {tests} tests significant")
        shown |= significant
    yield f"{title}, {'; '.join(counts)} (q < {ALPHA})."
    if shown:
        yield scores_table(result, [result.by_identity[place] for place in sorted(shown)], title)


def findings_tables(result: SuiteResult, most: int | None = None) -> Iterator[tuple[Table, int]]:
    """Yield the suite's own tables, with at most ``most`` rows, and how many are left out."""
    for arm, arm_findings in result.findings.items():
        for name, rows in arm_findings.items():
            if name != "remarks" and rows:
                table = findings_table(f"{name.capitalize()}, {arm} arm", rows[:most])
                yield table, len(rows) - len(table.rows)


def both_arms(title: str, lines: Sequence[Line]) -> Table:
    """Return a table of estimates over both arms."""
    table = Table(title)
    axes = _axis_names(line.measure.axis for line in lines)
    table.add_columns(*axes, "measure")
    table.add_columns("n", unit="count")
    table.add_columns("value", unit="estimate")
    table.add_columns("q", unit="p")
    for line in lines:
        estimate, measure = line.plain, line.measure
        cells = [measure.axis.get(name, "all") for name in axes]
        table.rows.append([*cells, measure.name, estimate.n, estimate, estimate.q])
    return table


def incomplete_reasons(result: SuiteResult, resumable: bool = False) -> list[str]:
    """Return why a result is incomplete; ``resumable``: as for ``terminal.show_result``."""
    again = "; the same command asks them again" if resumable else ""
    failed = result.arms["plain"].outcomes.get("failed", 0)
    missing = [f"{result.missing:,} requests have no outcome"] if result.missing else []
    most = result.about.get("errors", ())[:1]
    why = "".join(f", most often by {error_text(error)}" for error in most)
    missing += [f"{failed:,} samples failed{why}"] if failed else []
    return [f"Incomplete: {what}{again}." for what in missing]


def errors_table(result: SuiteResult) -> Table | None:
    """Return the most frequent errors of an incomplete result; None without one."""
    listed = () if result.complete else result.about.get("errors", ())
    table = Table("Failed calls by error")
    table.add_columns("error", "status")
    table.add_columns("calls", unit="count")
    table.add_columns("first item", "asked", "reason")
    for error in listed:
        status = "–" if error["status"] is None else str(error["status"])
        names = ("calls", "item", "by", "reason")
        table.rows.append([error["error"], status, *(error[name] for name in names)])
    return table if table.rows else None


def result_warnings(result: SuiteResult, resumable: bool = False) -> Iterator[str]:
    """Yield the warnings before any figure."""
    if warning := result.about.get("warning"):
        yield warning
    yield from incomplete_reasons(result, resumable)
    for name, arm in result.arms.items():
        if arm.coverage == 0:
            yield f"No answer of the {name} arm could be read: this does not mean that it is fair."


def judges_sentence(result: SuiteResult) -> str:
    """Return a sentence on which detectors scored and guarded; empty for none."""
    about = result.about
    if not about.get("scored_by"):
        return ""
    guarded = f", guarded by {about['guarded_by']}" if about.get("guarded_by") else ""
    return f"Scored by {about['scored_by']}{guarded}."


def outcomes_table(result: SuiteResult) -> Table:
    """Return the number of each outcome in each arm."""
    table = Table("Outcomes")
    table.add_columns("arm")
    table.add_columns("samples", unit="count")
    table.add_columns("coverage", unit="share")
    table.add_columns(*result.arms["plain"].outcomes, unit="count")
    for name, arm in result.arms.items():
        table.rows.append([name, arm.samples, arm.coverage, *arm.outcomes.values()])
    return table


def printed_lines(result: SuiteResult) -> list[Line]:
    """Return the measures that a table shows: those of the widest axes, and the headline's."""
    return widest_rows(result.lines, result.headline, lambda line: line.measure)


def scores_table(result: SuiteResult, lines: Sequence[Line], title: str) -> Table:
    """Return the estimates of ``lines`` in each arm, and the guard's effect on them.

    A column of q is left out where nothing in it was tested.
    """
    table = Table(title)
    axes = _axis_names(line.measure.axis for line in lines)
    both = "guarded" in result.arms
    table.add_columns(*axes, "measure")
    table.add_columns("n", unit="count")
    tested: set[str] = set()
    for arm in result.arms:
        table.add_columns(arm, unit="estimate")
        if any((e := in_arm(arm, line)) and not math.isnan(e.p) for line in lines):
            tested.add(arm)
            table.add_columns(f"q {arm}" if both else "q", unit="p")
    if both:
        table.add_columns("change", unit="change")
        if any(line.effect and not math.isnan(line.effect.p) for line in lines):
            tested.add("change")
            table.add_columns("q change", unit="p")
    for line in lines:
        cells: list[Any] = [line.measure.axis.get(name, "") for name in axes]
        cells += [line.measure.name, line.plain.n]
        figures = {"plain": line.plain, "guarded": line.guarded, "change": line.effect}
        for name, figure in figures.items():
            if figure is not None:
                cells += [figure, figure.q] if name in tested else [figure]
        table.rows.append(cells)
    return table


def published_table(result: SuiteResult) -> Table:
    """Return the paper's figures beside those of this run."""
    table = Table("Published")
    axes = _axis_names(figure.axis for figure in result.published)
    shown = widest_rows(result.published, result.headline, lambda figure: figure)
    ours = {(x.measure.name, *sorted(x.measure.axis.items())): x.plain for x in result.lines}
    table.add_columns(*axes, "measure", "model")
    table.add_columns("published", "here", unit="number")
    table.add_columns("source")
    for figure in shown:
        mine = ours.get((figure.name, *sorted(figure.axis.items())))
        here = "" if mine is None else mine.value
        texts = [*(figure.axis.get(name, "") for name in axes), figure.name, figure.model]
        table.rows.append([*texts, figure.value, here, figure.source])
    return table


def findings_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a suite's own rows as a table of their numbers and short texts."""
    table = Table(title)
    names = [k for k, v in rows[0].items() if not isinstance(v, dict) and len(str(v)) <= _CELL]
    table.add_columns(*names)
    table.rows.extend([_cell_text(row.get(name)) for name in names] for row in rows)
    return table


def _cell_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    return "–" if value is None or value == "" else str(value)


def _axis_names(axes: Iterable[Mapping[str, str]]) -> list[str]:
    return list(dict.fromkeys(name for axis in axes for name in axis))
