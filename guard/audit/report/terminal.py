"""A run on a terminal: its conclusions, last and in few lines, or all tables before them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.text import Text

from guard.audit.asked import with_model
from guard.audit.report import tables
from guard.audit.report.tables import printed_lines
from guard.audit.score import SuiteResult
from guard.results.table import coverage_text

LINES = 40
"""The most lines that a command prints without --tables."""
ALL_TABLES = "All tables: the same command with --tables."
FRAME = 5
"""The lines of a printed table besides its rows."""
_ROWS = 20


def show_result(console: Console, result: SuiteResult, *, resumable: bool = False) -> None:
    """Print all tables of ``result``, then its conclusions.

    ``resumable`` says whether the same command, run again, asks what is missing.
    """
    # Texts of models and users are not markup.
    console.print(Group(*_result_parts(result, resumable)), markup=False)


class _Line(NamedTuple):
    """A paragraph; those of the lowest ``rank`` are kept where there is no room for all."""

    rank: int
    text: Text


def show_short(
    console: Console,
    results: Sequence[SuiteResult],
    *,
    resumable: bool = False,
    most: int = LINES,
) -> None:
    """Print the conclusions of a run in at most ``most`` lines of the console's width.

    Warnings and the first sentence of each suite come before details. Where there are too many
    suites even for those, each has one line.
    """
    lines = [line for result in results for line in _short_lines(result, resumable)]
    first = [line for line in lines if line.rank == 0]
    if sum(_text_height(console, line.text) for line in first) > most - 1:
        lines = [_Line(0, Text(_one_line(result, console.width))) for result in results]
    kept: set[int] = set()
    left = most - 1  # the last line says how to see the rest
    for place in sorted(range(len(lines)), key=lambda place: lines[place].rank):
        height = _text_height(console, lines[place].text)
        if height <= left:
            kept.add(place)
            left -= height
    for place in sorted(kept):
        console.print(lines[place].text, markup=False)
    more = len(lines) - len(kept)
    console.print(f"{more:,} lines are left out. {ALL_TABLES}" if more else ALL_TABLES)


def _text_height(console: Console, text: Text) -> int:
    return len(text.wrap(console, console.width))


def _one_line(result: SuiteResult, width: int) -> str:
    text = f"{_result_title(result)}: {result.conclusions['plain'][0]}"
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _result_title(result: SuiteResult) -> str:
    return with_model(f"{result.title} ({result.suite} {result.version})", result.model)


def _short_lines(result: SuiteResult, resumable: bool) -> Iterator[_Line]:
    yield _Line(0, Text(_result_title(result), style="bold"))
    if judges := tables.judges_sentence(result):
        yield _Line(1, Text(judges))
    for warning in tables.result_warnings(result, resumable):
        yield _Line(0, Text(warning, style="bold red"))
    for arm, counts in result.arms.items():
        outcomes = ", ".join(f"{name} {n:,}" for name, n in counts.outcomes.items() if n)
        read = f"coverage {coverage_text(counts.coverage)}"
        yield _Line(3, Text(f"{arm}: {counts.samples:,} samples, {read}: {outcomes or 'none'}"))
    for text in _usage_lines(result):
        yield _Line(4, Text(text))
    for arm, sentences in result.conclusions.items():
        for place, sentence in enumerate(sentences):
            rank = 2 if place else int(arm != "plain")
            yield _Line(rank, Text(f"{arm}: {sentence}", style="" if place else "bold"))


def _usage_lines(result: SuiteResult) -> Iterator[str]:
    usage = result.about.get("calls")
    if not usage:
        return
    cost = usage["cost_usd"]
    yield (
        f"{usage['answered']:,} answers, {usage['prompt_tokens']:,} prompt tokens, "
        f"{usage['completion_tokens']:,} answer tokens, "
        + ("no price known" if cost is None else f"${cost:,.4f}")
    )
    for role, part in usage.get("others", {}).items():
        price = "" if part["cost_usd"] is None else f", ${part['cost_usd']:,.4f}"
        yield f"of these the {role}: {part['answered']:,} answers{price}"


def _result_parts(result: SuiteResult, resumable: bool) -> Iterator[RenderableType]:
    yield Text(f"\n{_result_title(result)}", style="bold")
    if judges := tables.judges_sentence(result):
        yield Text(judges)
    for warning in tables.result_warnings(result, resumable):
        yield Text(warning, style="bold red")
    yield tables.outcomes_table(result).rich()
    if failed := tables.errors_table(result):
        yield failed.rich()
    for arm, findings in result.findings.items():
        for remark in findings.get("remarks", ()):
            yield Text(f"{arm}: {remark}")
    if result.stops:
        yield tables.both_arms(tables.STOPS, result.stops).rich()
    lines = printed_lines(result)
    yield tables.scores_table(result, lines, tables.scores_title(result)).rich()
    if len(lines) < len(result.lines):
        more = len(result.lines) - len(lines)
        yield Text(f"{more:,} further measures of these axes: --json has them all.")
    for part in tables.by_identity(result):
        yield Text(part) if isinstance(part, str) else part.rich()
    for table, more in tables.findings_tables(result, _ROWS):
        yield table.rich()
        if more:
            yield Text(f"{more:,} further rows: --json has them all.")
    if result.published:
        yield tables.published_table(result).rich()
    legend = tables.measure_legend(result)
    yield Text("\n".join(f"{name}: {text}" for name, text in legend.items()), style="dim")
    if result.deviations:
        listed = "\n".join(f"- {line}" for line in result.deviations)
        yield Text(f"Deviations from the paper:\n{listed}", style="dim")
    yield from map(Text, _usage_lines(result))
    # The end of a log is read first.
    for arm, sentences in result.conclusions.items():
        for place, sentence in enumerate(sentences):
            yield Text(f"{arm}: {sentence}", style="" if place else "bold")
