"""Tables of a suite's result: both arms, the change, coverage, outcomes, published figures."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from guard.audit import grids
from guard.audit.grids import Grid, printed
from guard.audit.score import SuiteResult

__all__ = ["drawn", "printed", "show"]

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
    for warning in grids.warnings(result, goes_on):
        yield Text(warning, style="bold red")
    for arm, sentences in result.conclusions.items():
        for sentence in sentences:
            yield Text(f"{arm}: {sentence}", style="bold" if sentence == sentences[0] else "")
    yield drawn(grids.outcomes(result))
    for arm, told in result.findings.items():
        for remark in told.get("remarks", ()):
            yield Text(f"{arm}: {remark}")
    if result.stops:
        yield drawn(grids.both_arms(grids.STOPS, result.stops))
    lines = printed(result)
    yield drawn(grids.scores(result, lines, grids.scores_title(result)))
    if len(lines) < len(result.lines):
        more = len(result.lines) - len(lines)
        yield Text(f"{more:,} further measures of these axes: --json has them all.")
    for part in grids.by_identity(result):
        yield Text(part) if isinstance(part, str) else drawn(part)
    for arm, told in result.findings.items():
        for name, rows in told.items():
            if name != "remarks" and rows:
                title = f"{name.capitalize()}, {arm} arm"
                yield drawn(grids.findings(title, rows[:_ROWS]))
                if len(rows) > _ROWS:
                    yield Text(f"{len(rows) - _ROWS:,} further rows: --json has them all.")
    if result.published:
        yield drawn(grids.published(result))
    legend = grids.legend(result)
    yield Text("\n".join(f"{name}: {text}" for name, text in legend.items()), style="dim")
    if result.deviations:
        listed = "\n".join(f"- {line}" for line in result.deviations)
        yield Text(f"Deviations from the paper:\n{listed}", style="dim")


def drawn(grid: Grid) -> Table:
    """Return a table as a terminal shows it."""
    table = Table(title=grid.title, title_justify="left", pad_edge=False)
    for name, figures in grid.columns:
        table.add_column(name, justify="right" if figures else "left")
    for row in grid.rows:
        table.add_row(*row)
    return table
