"""One table and its five formats: text, Markdown, HTML, CSV, JSON.

A column knows its unit, so a cell may be a number or an estimate: formats for people round it, with
its interval, CSV and JSON have it whole. A table knows its notes.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict as fields_of
from dataclasses import dataclass, field, is_dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from guard.results.intervals import p_text
from guard.texts import for_markdown, printable

if TYPE_CHECKING:
    from markupsafe import Markup
    from rich.table import Table as RichTable

    from guard.results.estimate import Estimate

Unit = Literal["text", "figure", "number", "count", "share", "p", "estimate", "change"]
"""What the cells of a column are. ``figure`` is a text that stands at the right, as figures do."""
Frame = Literal["framed", "ruled", "open", "listed"]
"""Lines of a table on a terminal: around it, below its header, none; ``listed``: no header."""

_BETWEEN = 3  # characters that rich puts between two cells
_INTERVAL = re.compile(r"(?<=\S) \[[^]]*\]$")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # beginnings of cells that spreadsheets execute


def with_interval(
    value: float, low: float, high: float, text: Callable[[float], str] | None = None
) -> str:
    """Return a value with its interval, each number by ``text``."""
    text = text or number_text
    if math.isnan(value):
        return "–"
    span = "" if math.isnan(low) else f" [{text(low)}, {text(high)}]"
    return f"{text(value)}{span}"


def estimate_text(estimate: Estimate) -> str:
    """Return an estimate with its interval."""
    return with_interval(estimate.value, estimate.low, estimate.high)


def effect_text(effect: Estimate) -> str:
    """Return a change with its interval and signs."""
    return with_interval(effect.value, effect.low, effect.high, signed_text)


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


_TEXTS: Mapping[Unit, Callable[[Any], str]] = {
    "number": number_text,
    "count": count_text,
    "share": coverage_text,
    "p": p_text,
    "estimate": estimate_text,
    "change": effect_text,
}


class Column(NamedTuple):
    """A column: its name, and what its cells are."""

    name: str
    unit: Unit = "text"

    @property
    def figures(self) -> bool:
        """Whether its cells stand at the right."""
        return self.unit != "text"

    def text(self, cell: Any) -> str:
        """Return a cell for people; a text is shown as it is, in a column of numbers too."""
        return cell if isinstance(cell, str) else _TEXTS.get(self.unit, str)(cell)


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a title; ``notes`` are sentences that explain it."""

    title: str
    columns: list[Column] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)
    notes: Sequence[str] = ()

    @classmethod
    def of_figures(cls, title: str, header: Sequence[str], rows: Iterable[list[str]]) -> Table:
        """Return a table with names in its first column and figures, as texts, in the others."""
        columns = [Column(name, "figure" if place else "text") for place, name in enumerate(header)]
        return cls(title, columns, list(rows))

    @classmethod
    def of_records(cls, title: str, records: Iterable[Mapping[str, Any]]) -> Table:
        """Return records as a table with the columns of all of them.

        A mapping in a record becomes columns of its own, such as ``prevalence_low``. What a
        terminal would act upon is removed from texts.
        """
        flat = [_flat_record(record) for record in records]
        names = list(dict.fromkeys(name for record in flat for name in record))
        rows = [[_printable_cell(record.get(name)) for name in names] for record in flat]
        return cls(title, [Column(printable(name)) for name in names], rows)

    def add_columns(self, *names: str, unit: Unit = "text") -> None:
        """Add columns at the right."""
        self.columns.extend(Column(name, unit) for name in names)

    @property
    def header(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    def texts(self) -> list[list[str]]:
        """Return the rows as people read them."""
        return [
            [column.text(cell) for column, cell in zip(self.columns, row, strict=False)]
            for row in self.rows
        ]

    def rich(self, frame: Frame = "framed") -> RichTable:
        """Return the table for a terminal of any width; its texts are not markup."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        frames: Mapping[Frame, Mapping[str, Any]] = {
            "framed": {"pad_edge": False},
            "ruled": {"pad_edge": False, "box": SIMPLE_HEAD},
            "open": {"padding": (0, 2, 0, 0), "box": None},
            "listed": {"show_header": False},
        }
        table = RichTable(title=Text(self.title, "italic"), title_justify="left", **frames[frame])
        overflow: Literal["fold", "ellipsis"] = "fold" if frame == "open" else "ellipsis"
        for column in self.columns:
            justify: Literal["left", "right"] = "right" if column.figures else "left"
            table.add_column(Text(column.name), justify=justify, overflow=overflow)
        for row in self.texts():
            table.add_row(*map(Text, row))
        return table

    def lines(self) -> Iterator[str]:
        """Yield the header and the rows for a pipe, their cells separated by tabs."""
        yield "\t".join(self.header)
        yield from ("\t".join(row) for row in self.texts())

    def fitted(self, width: int) -> list[Table]:
        """Split the table into tables no wider than ``width``; no figure is truncated.

        Intervals after figures are dropped first; then columns move to another table below.
        """
        if self._width <= width:
            return [self]
        rows = [[_INTERVAL.sub("", cell) for cell in row] for row in self.texts()]
        narrow = replace(self, rows=rows)
        pieces: list[Table] = []
        places = [0]
        for place in range(1, len(self.columns)):
            if len(places) > 1 and narrow._part([*places, place])._width > width:
                pieces.append(narrow._part(places))
                places = [0]
            places.append(place)
        return [*pieces, narrow._part(places)]

    @property
    def _width(self) -> int:
        cells = zip(self.header, *self.texts(), strict=True)
        return sum(max(map(len, column)) + _BETWEEN for column in cells)

    def _part(self, places: Sequence[int]) -> Table:
        title = self.title if 1 in places else f"{self.title}, continued"
        columns = [self.columns[place] for place in places]
        return Table(title, columns, [[row[place] for place in places] for row in self.rows])

    def markdown(
        self,
        most: int | None = None,
        *,
        escape: Callable[[str], str] = for_markdown,
        rule: str = " --- ",
    ) -> str:
        """Return a table of at most ``most`` rows, with a note on the others."""
        rows = [self.header, *self.texts()[:most]]
        lines = ["| " + " | ".join(map(escape, row)) + " |" for row in rows]
        rules = (rule.replace("---", "---:") if c.figures else rule for c in self.columns)
        lines.insert(1, "|" + "|".join(rules) + "|")
        if most is not None and len(self.rows) > most:
            lines.append(f"\n{len(self.rows) - most:,} further rows are in the page.")
        return "\n".join(lines)

    def html(self, *, folded: bool = False, most: int = 300) -> Markup:
        """Return the table, of at most ``most`` rows, for a page with guard's style sheet."""
        from guard.results.pages import page_macros

        html: Markup = page_macros().table(self, folded, most)
        return html

    def csv(self, *, lineterminator: str = "\n", exact: bool = False) -> str:
        """Return the cells, unrounded, as :func:`csv_text` does."""
        return csv_text(self.header, self.rows, lineterminator=lineterminator, exact=exact)

    def records(self) -> list[dict[str, Any]]:
        """Return the rows for JSON: cells by column, unrounded, estimates as mappings."""
        return [dict(zip(self.header, map(_plain_cell, row), strict=True)) for row in self.rows]


def csv_text(
    header: Sequence[str],
    rows: Iterable[Iterable[object]],
    *,
    lineterminator: str = "\n",
    exact: bool = False,
) -> str:
    """Return a CSV table.

    A text that a spreadsheet would execute begins with an apostrophe, in the header too: users
    choose names. ``exact`` keeps every text as it is, for a table that guard reads again.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=lineterminator)
    for row in chain((header,), rows):
        writer.writerow(row if exact else map(_not_executed, row))
    return out.getvalue()


def json_text(value: object) -> str:
    """Return JSON with null for nan and infinity, which JSON does not have."""
    return json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None))


def _not_executed(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell


def _printable_cell(cell: Any) -> Any:
    return printable(cell) if isinstance(cell, str) else cell


def _plain_cell(cell: Any) -> Any:
    return fields_of(cell) if is_dataclass(cell) and not isinstance(cell, type) else cell


def _flat_record(record: Mapping[str, Any]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            columns |= {_column_name(name, key): cell for key, cell in value.items()}
        else:
            columns[name] = value
    return columns


def _column_name(name: str, key: str) -> str:
    if key == "value" or key.startswith("label."):
        return name if key == "value" else key
    return f"{name}_{key}"
