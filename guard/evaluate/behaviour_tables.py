"""The table of behaviours, for the console and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from guard.evaluate import report
from guard.evaluate.behaviours import LEAST, MEAN, Behaviour, Behaviours
from guard.results.estimate import Estimate
from guard.results.table import Table

if TYPE_CHECKING:
    from rich.console import Console


def heading(found: Behaviours) -> str:
    """Return one line: the numbers of behaviours and cases, and the detector."""
    cases = sum(r.n for r in found.rows)
    index = f", index {found.index_version[:12]}" if found.index_version else ""
    return (
        f"Behaviours: {len(found.rows)} with {cases} cases, {found.detector}{index}, operating "
        f"point {found.operating_point}"
    )


def table(found: Behaviours) -> Table:
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
    rows = [_row(r) for r in sorted(found.rows, key=lambda r: (r.passed / r.n, r.name))]
    total = [sum(of) for of in zip(*(_counts(r) for r in found.rows), strict=True)]
    mean = [f"mean of {found.mean.n}", str(total[0]), f"{found.mean.value:.3f}"]
    return Table.of_figures(
        "behaviours", header, [*rows, [*mean, _interval(found.mean), *_shares(*total)]]
    )


def notes(found: Behaviours) -> Iterator[str]:
    """Yield the sentences below the table: weak behaviours, protocol, sampling, skipped lines."""
    if weak := found.weak:
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
    if found.custom_thresholds:
        yield "The settings of this folder have custom thresholds."
    drawn = sum(r.n for r in found.rows)
    if drawn < found.source.total:
        yield f"A random sample of {drawn} of {found.source.total} cases (seed {found.seed})."
    if found.source.skipped:
        first = found.source.skipped[0]
        yield f"{len(found.source.skipped)} bad lines skipped, the first: {first}."
    yield "Intervals of behaviours are exact (Clopper-Pearson, 95 %)" + (
        f", the mean's from {found.draws} bootstrap samples within behaviours (seed {found.seed})."
        if found.draws
        else "."
    )


def show(console: Console, found: Behaviours) -> None:
    """Print the table, and the texts of errors if requested."""
    from rich.text import Text

    console.print(Text(heading(found), "bold"))
    for part in table(found).fitted(console.width):
        console.print(part.rich("ruled"))
    report.show_lines(console, notes(found), report.error_lines(found.errors))


def markdown(found: Behaviours) -> str:
    """Return the table as a section of a Markdown text."""
    lines = ["## Behaviours", "", heading(found) + ".", ""]
    lines += [report.markdown_table(table(found)), "", *(f"- {note}" for note in notes(found)), ""]
    if found.errors:
        errors = report.error_lines(found.errors)
        lines += ["### Errors", "", *(f"- {line}" for line in errors), ""]
    return "\n".join(lines)


def _row(row: Behaviour) -> list[str]:
    share = f"{row.figure.value:.3f}"
    return [
        _name(row), str(row.n), share, _interval(row.figure),
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


def _interval(figure: Estimate) -> str:
    if figure.low != figure.low:
        return ""
    return f"[{figure.low:.3f}, {figure.high:.3f}]"
