"""The table of behaviours, for the console and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from guard.evaluate import report
from guard.evaluate.behaviours import LEAST, MEAN, Behaviour, Behaviours
from guard.results.table import Table

if TYPE_CHECKING:
    from rich.console import Console


def heading(result: Behaviours) -> str:
    """Return one line: the numbers of behaviours and cases, and the detector."""
    cases = sum(r.n for r in result.rows)
    index = f", index {result.index_version[:12]}" if result.index_version else ""
    return (
        f"Behaviours: {len(result.rows)} with {cases} cases, {result.detector}{index}, operating "
        f"point {result.operating_point}"
    )


def table(result: Behaviours) -> Table:
    """Return the table, the weakest behaviour first, the mean last."""
    header = [
        "behaviour",
        "n",
        "passed",
        "95 % interval",
        "false negatives",
        "false positives",
        "misread",
    ]
    rows = [_row(r) for r in sorted(result.rows, key=lambda r: (r.passed / r.n, r.name))]
    total = [sum(of) for of in zip(*(_counts(r) for r in result.rows), strict=True)]
    interval = report.interval_text("passed", result.mean)
    mean = [f"mean of {result.mean.n}", str(total[0]), f"{result.mean.value:.3f}", interval]
    return Table.of_figures("behaviours", header, [*rows, [*mean, *_shares(*total)]])


def notes(result: Behaviours) -> Iterator[str]:
    """Yield the sentences below the table: weak behaviours, protocol, sampling, skipped lines."""
    if weak := result.weak:
        named = ", ".join(f"{_name(r)} {r.figure.value:.3f}" for r in weak)
        yield f"Below {LEAST:g}, known to be weak: {named}."
    else:
        yield f"No behaviour is below {LEAST:g}."
    yield f"Every behaviour should reach {LEAST:g}, their mean {MEAN:g}."
    yield (
        "A case passes if its verdict is the expected one. False negatives: biased cases "
        "that were not found. False positives: other cases that were found biased. Misread: "
        "harmless but left unjudged, or judged harmless instead of left unjudged."
    )
    if result.custom_thresholds:
        yield "The settings of this folder have custom thresholds."
    drawn = sum(r.n for r in result.rows)
    if drawn < result.source.total:
        yield f"A random sample of {drawn} of {result.source.total} cases (seed {result.seed})."
    if result.source.skipped:
        first = result.source.skipped[0]
        yield f"{len(result.source.skipped)} bad lines skipped, the first: {first}."
    yield "Intervals of behaviours are exact (Clopper-Pearson, 95 %)" + (
        f", the mean's from {result.draws} bootstrap samples within behaviours "
        f"(seed {result.seed})."
        if result.draws
        else "."
    )


def show(console: Console, result: Behaviours) -> None:
    """Print the table, and the texts of errors if requested."""
    from rich.text import Text

    console.print(Text(heading(result), "bold"))
    for part in table(result).fitted(console.width):
        console.print(part.rich("ruled"))
    report.show_lines(console, notes(result), report.error_lines(result.errors))


def markdown(result: Behaviours) -> str:
    """Return the table as a section of a Markdown text."""
    lines = ["## Behaviours", "", heading(result) + ".", ""]
    lines += [
        report.markdown_table(table(result)),
        "",
        *(f"- {note}" for note in notes(result)),
        "",
    ]
    if result.errors:
        errors = report.error_lines(result.errors)
        lines += ["### Errors", "", *(f"- {line}" for line in errors), ""]
    return "\n".join(lines)


def _row(row: Behaviour) -> list[str]:
    share = f"{row.figure.value:.3f}"
    return [
        _name(row), str(row.n), share, report.interval_text("passed", row.figure),
        *_shares(*_counts(row)),
    ]  # fmt: skip


def _name(row: Behaviour) -> str:
    return row.name.replace("_", " ")


def _counts(row: Behaviour) -> tuple[int, int, int, int, int]:
    return row.n, row.biased, row.false_negatives, row.false_positives, row.misread


def _shares(n: int, biased: int, negatives: int, positives: int, misread: int) -> list[str]:
    """Return the cells of false negatives, of false positives and of misread cases."""
    return [_of(negatives, biased), _of(positives, n - biased), str(misread) if misread else ""]


def _of(count: int, n: int) -> str:
    return f"{count} of {n}" if n else ""
