"""Tables of a suite's result: both arms, the change, coverage, outcomes, published figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from guard.audit.score import SuiteResult
from guard.audit.statistics import Effect, Line
from guard.suites import Estimate, Measure, Published
from guard.suites.conclusions import ALPHA, p_text

R = TypeVar("R")

# Longer texts of a suite's own rows stand in the JSON alone.
_CELL = 60
_ROWS = 20


def show(console: Console, result: SuiteResult, *, goes_on: bool = False) -> None:
    """Print the tables of ``result``.

    ``goes_on`` says whether the command that made it, run again, asks what it lacks.
    """
    # What models and users wrote is no markup.
    console.print(Group(*_parts(result, goes_on)), markup=False)
    spent = result.about.get("calls")
    if spent:
        cost = spent["cost_usd"]
        console.print(
            f"{spent['answered']:,} answers, {spent['prompt_tokens']:,} prompt tokens, "
            f"{spent['completion_tokens']:,} answer tokens, "
            + ("no price known" if cost is None else f"${cost:,.4f}")
        )
        for role, took in spent.get("others", {}).items():
            price = "" if took["cost_usd"] is None else f", ${took['cost_usd']:,.4f}"
            console.print(f"of these the {role}: {took['answered']:,} answers{price}")


def _parts(result: SuiteResult, goes_on: bool) -> Iterator[Text | Table]:
    title = f"\n{result.title} ({result.suite} {result.version})"
    yield Text(f"{title} · {result.model}" if result.model else title, style="bold")
    if scorer := result.about.get("scored_by"):
        guarded = result.about["guarded_by"]
        yield Text(f"scored by {scorer}" + (f", guarded by {guarded}" if guarded else ""))
    for warning in _warnings(result, goes_on):
        yield Text(warning, style="bold red")
    for arm, sentences in result.conclusions.items():
        for sentence in sentences:
            yield Text(f"{arm}: {sentence}", style="bold" if sentence == sentences[0] else "")
    yield _outcomes(result)
    for arm, told in result.findings.items():
        for remark in told.get("remarks", ()):
            yield Text(f"{arm}: {remark}")
    if result.stops:
        yield _table("What the guard stopped, of the answers that have a side", result.stops)
    lines = printed(result)
    title = "Scores, 95 % intervals"
    if result.about.get("scored_by"):
        title += "; guarded: of what users saw"
    elif "guarded" in result.arms:
        title += "; guarded: of the answers that survive, secondary to what was stopped"
    yield _scores(result, lines, title)
    if len(lines) < len(result.lines):
        more = len(result.lines) - len(lines)
        yield Text(f"{more:,} further measures of these axes: --json has them all.")
    yield from _by_identity(result)
    for arm, told in result.findings.items():
        for name, rows in told.items():
            if name != "remarks" and rows:
                yield _found(f"{name.capitalize()}, {arm} arm", rows[:_ROWS])
                if len(rows) > _ROWS:
                    yield Text(f"{len(rows) - _ROWS:,} further rows: --json has them all.")
    if result.published:
        yield _published(result)
    more_legend = _LEGEND if result.stops else {"q": _LEGEND["q"]}
    legend = {**result.legend, **more_legend}
    yield Text("\n".join(f"{name}: {text}" for name, text in legend.items()), style="dim")
    if result.deviations:
        listed = "\n".join(f"- {line}" for line in result.deviations)
        yield Text(f"Otherwise than in the paper:\n{listed}", style="dim")


_LEGEND = {
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


def _by_identity(result: SuiteResult) -> Iterator[Text | Table]:
    """Yield who is left without answers more often or less, and how many were compared."""
    if not result.by_identity:
        return
    title, told = "Refused, unreadable and stopped answers by identity", []
    found: set[int] = set()
    for arm in result.arms:
        q = [e.q if (e := _in(arm, line)) is not None else math.nan for line in result.by_identity]
        stand = {place for place, one in enumerate(q) if one < ALPHA}
        tests = sum(not math.isnan(one) for one in q)
        told.append(f"{arm}: {len(stand)} of {tests} tests stand")
        found |= stand
    yield Text(f"{title}, {'; '.join(told)} (q < {ALPHA}).")
    standing = [line for place, line in enumerate(result.by_identity) if place in found]
    if standing:
        yield _scores(result, standing, title)


def _in(arm: str, line: Line) -> Estimate | None:
    return line.plain if arm == "plain" else line.guarded


def _table(title: str, lines: Sequence[Line]) -> Table:
    """Return a table of figures that are of both arms at once."""
    table = Table(title=title, title_justify="left", pad_edge=False)
    axes = _axes(line.measure.axis for line in lines)
    for name in (*axes, "measure"):
        table.add_column(name)
    for name in ("n", "value", "q"):
        table.add_column(name, justify="right")
    for line in lines:
        cells = [line.measure.axis.get(name, "all") for name in axes]
        cells += [
            line.measure.name,
            _count(line.plain.n),
            _estimate(line.plain),
            p_text(line.plain.q),
        ]
        table.add_row(*cells)
    return table


def _warnings(result: SuiteResult, goes_on: bool) -> Iterator[str]:
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


def _outcomes(result: SuiteResult) -> Table:
    table = Table(title="Outcomes", title_justify="left", pad_edge=False)
    table.add_column("arm")
    for name in ("samples", "coverage", *result.arms["plain"].outcomes):
        table.add_column(name, justify="right")
    for name, arm in result.arms.items():
        counts = (f"{n:,}" for n in arm.outcomes.values())
        table.add_row(name, f"{arm.samples:,}", _share(arm.coverage), *counts)
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


def _scores(result: SuiteResult, lines: Sequence[Line], title: str) -> Table:
    table = Table(title=title, title_justify="left", pad_edge=False)
    axes = _axes(line.measure.axis for line in lines)
    both = "guarded" in result.arms
    tested = {arm: any(_tested(_in(arm, line)) for line in lines) for arm in result.arms}
    changed = both and any(line.effect and not math.isnan(line.effect.p) for line in lines)
    for name in (*axes, "measure"):
        table.add_column(name)
    columns = ["n", "plain", *(["q plain" if both else "q"] if tested["plain"] else ())]
    if both:
        columns += ["guarded", *(["q guarded"] if tested["guarded"] else ())]
        columns += ["change", *(["q change"] if changed else ())]
    for name in columns:
        table.add_column(name, justify="right")
    for line in lines:
        cells = [line.measure.axis.get(name, "") for name in axes]
        cells += [line.measure.name, _count(line.plain.n), _estimate(line.plain)]
        cells += [p_text(line.plain.q)] if tested["plain"] else []
        if both and line.guarded is not None and line.effect is not None:
            cells += [_estimate(line.guarded)]
            cells += [p_text(line.guarded.q)] if tested["guarded"] else []
            cells += [_effect(line.effect)]
            cells += [p_text(line.effect.q)] if changed else []
        table.add_row(*cells)
    return table


def _tested(e: Estimate | None) -> bool:
    return e is not None and not math.isnan(e.p)


def _published(result: SuiteResult) -> Table:
    table = Table(title="Published", title_justify="left", pad_edge=False)
    axes = _axes(figure.axis for figure in result.published)
    ours = {(x.measure.name, *sorted(x.measure.axis.items())): x.plain for x in result.lines}
    for name in (*axes, "measure", "model"):
        table.add_column(name)
    for name in ("published", "here"):
        table.add_column(name, justify="right")
    table.add_column("source")
    for figure in _shown(result, result.published, lambda figure: figure):
        mine = ours.get((figure.name, *sorted(figure.axis.items())))
        here = "" if mine is None else _number(mine.value)
        cells = [figure.axis.get(name, "") for name in axes]
        cells += [figure.name, figure.model, _number(figure.value), here, figure.source]
        table.add_row(*cells)
    return table


def _found(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a suite's own rows as a table: what is a number or a short text."""
    table = Table(title=title, title_justify="left", pad_edge=False)
    names = [k for k, v in rows[0].items() if not isinstance(v, dict) and len(str(v)) <= _CELL]
    for name in names:
        table.add_column(name)
    for row in rows:
        cells = (row.get(name) for name in names)
        table.add_row(*map(_cell, cells))
    return table


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    return "–" if value is None or value == "" else str(value)


def _axes(found: Iterable[Mapping[str, str]]) -> list[str]:
    return list(dict.fromkeys(name for axis in found for name in axis))


def _estimate(e: Estimate) -> str:
    if math.isnan(e.value):
        return "–"
    span = "" if math.isnan(e.low) else f" [{_number(e.low)}, {_number(e.high)}]"
    return f"{_number(e.value)}{span}"


def _effect(e: Effect) -> str:
    if math.isnan(e.value):
        return "–"
    span = "" if math.isnan(e.low) else f" [{_signed(e.low)}, {_signed(e.high)}]"
    return f"{_signed(e.value)}{span}"


def _number(value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3f}"


def _signed(value: float) -> str:
    text = _number(value + 0.0)
    return text if value <= 0 else f"+{text}"


def _count(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:,.0f}"


def _share(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.1%}"
