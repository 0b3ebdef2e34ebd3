"""A suite's result on a terminal: both arms, the change, coverage, outcomes, published figures."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from guard.audit import grids
from guard.audit.grids import Grid, printed
from guard.audit.score import SuiteResult

__all__ = ["printed", "rich_table", "show"]

_ROWS = 20


def show(console: Console, result: SuiteResult, *, resumable: bool = False) -> None:
    """Print the tables of ``result``.

    ``resumable`` says whether the same command, run again, asks what is missing.
    """
    # Texts of models and users are not markup.
    console.print(Group(*_parts(result, resumable)), markup=False)
    usage = result.about.get("calls")
    if usage:
        cost = usage["cost_usd"]
        console.print(
            f"{usage['answered']:,} answers, {usage['prompt_tokens']:,} prompt tokens, "
            f"{usage['completion_tokens']:,} answer tokens, "
            + ("no price known" if cost is None else f"${cost:,.4f}")
        )
        for role, part in usage.get("others", {}).items():
            price = "" if part["cost_usd"] is None else f", ${part['cost_usd']:,.4f}"
            console.print(f"of these the {role}: {part['answered']:,} answers{price}")


def _parts(result: SuiteResult, resumable: bool) -> Iterator[Text | Table]:
    title = f"\n{result.title} ({result.suite} {result.version})"
    yield Text(f"{title} · {result.model}" if result.model else title, style="bold")
    if judges := grids.judges(result):
        yield Text(judges)
    for warning in grids.warnings(result, resumable):
        yield Text(warning, style="bold red")
    for arm, sentences in result.conclusions.items():
        for sentence in sentences:
            yield Text(f"{arm}: {sentence}", style="bold" if sentence == sentences[0] else "")
    yield rich_table(grids.outcomes(result))
    if failed := grids.errors(result):
        yield rich_table(failed)
    for arm, found in result.findings.items():
        for remark in found.get("remarks", ()):
            yield Text(f"{arm}: {remark}")
    if result.stops:
        yield rich_table(grids.both_arms(grids.STOPS, result.stops))
    lines = printed(result)
    yield rich_table(grids.scores(result, lines, grids.scores_title(result)))
    if len(lines) < len(result.lines):
        more = len(result.lines) - len(lines)
        yield Text(f"{more:,} further measures of these axes: --json has them all.")
    for part in grids.by_identity(result):
        yield Text(part) if isinstance(part, str) else rich_table(part)
    for grid, more in grids.findings_tables(result, _ROWS):
        yield rich_table(grid)
        if more:
            yield Text(f"{more:,} further rows: --json has them all.")
    if result.published:
        yield rich_table(grids.published(result))
    legend = grids.legend(result)
    yield Text("\n".join(f"{name}: {text}" for name, text in legend.items()), style="dim")
    if result.deviations:
        listed = "\n".join(f"- {line}" for line in result.deviations)
        yield Text(f"Deviations from the paper:\n{listed}", style="dim")


def rich_table(grid: Grid) -> Table:
    """Return the table for a terminal."""
    table = Table(title=grid.title, title_justify="left", pad_edge=False)
    for name, figures in grid.columns:
        table.add_column(name, justify="right" if figures else "left")
    for row in grid.rows:
        table.add_row(*row)
    return table
