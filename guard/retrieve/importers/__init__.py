"""Importers: published datasets and custom files, as statements for a bias index.

Nothing is downloaded and no dataset is shipped: the user has the file and has read its licence.
The texts are offensive by nature.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from guard.datasets.rows import (
    FileRow,
    Values,
    column_names,
    convert_rows,
    is_nested,
    nested_objects,
    read_rows,
)
from guard.errors import UsageError
from guard.retrieve.importers import emgsd, implicit_hate, plain, sbic, seegull, stereoset
from guard.retrieve.importers.found import Found, LeftOut
from guard.retrieve.statement import BiasStatement

__all__ = ["FORMATS", "read"]


class _Format(NamedTuple):
    """A source: how its rows become statements, and the columns it needs.

    A file has at least one name of every tuple in ``columns``. To detect the source it must also
    have one of ``distinctive``, if these columns alone could be those of any labelled texts.
    ``optional`` are further columns; if they are known, all others are reported as unused.
    """

    statements: Callable[[Values], Iterator[Found]]
    columns: tuple[tuple[str, ...], ...]
    gathered: Callable[[Iterator[FileRow]], Iterator[FileRow]] = iter
    distinctive: tuple[str, ...] = ()
    optional: tuple[str, ...] | None = None

    def detects(self, columns: Iterable[str]) -> bool:
        """Whether a file with the columns ``found`` is of this source."""
        names = set(columns)
        known = not self.distinctive or not names.isdisjoint(self.distinctive)
        return known and not self.missing(names)

    def missing(self, columns: Iterable[str]) -> list[str]:
        """Return the columns that are not among those ``found``."""
        present = set(columns)
        return [" or ".join(names) for names in self.columns if not present & set(names)]

    def unused(self, columns: Iterable[str]) -> list[str]:
        """Return the columns in ``found`` that are not used; empty if that is not known."""
        if self.optional is None:
            return []
        used = {*self.optional, *(name for names in self.columns for name in names)}
        return [name for name in columns if name not in used]


# At most this many unused columns are named in a message.
_SHOWN = 8


def _each_alone(names: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    return tuple((name,) for name in names)


_PLAIN = _Format(plain.plain_statements, _each_alone(plain.COLUMNS), optional=plain.OPTIONAL)
# In the order of detection.
_FORMATS = {
    "sbic": _Format(sbic.sbic_statements, _each_alone(sbic.COLUMNS)),
    "implicit-hate": _Format(
        implicit_hate.implicit_hate_statements, _each_alone(implicit_hate.COLUMNS)
    ),
    "csv": _PLAIN,
    "jsonl": _PLAIN,
    "seegull": _Format(seegull.seegull_statements, (*_each_alone(seegull.COLUMNS), seegull.COUNTS)),
    "stereoset": _Format(
        stereoset.stereoset_statements, _each_alone(stereoset.COLUMNS), stereoset.gathered_items
    ),
    "emgsd": _Format(
        emgsd.emgsd_statements, (emgsd.TEXTS, emgsd.LABELS), distinctive=emgsd.DISTINCTIVE
    ),
}

#: The names that ``read`` takes.
FORMATS: tuple[str, ...] = (
    "sbic", "implicit-hate", "seegull", "emgsd", "stereoset", "csv", "jsonl"
)  # fmt: skip


def read_dataset(
    path: Path,
    format: str | None = None,
    *,
    skip_bad: bool = False,
    skipped: Callable[[str], None] | None = None,
) -> Iterator[BiasStatement]:
    """Yield the statements of a file, row by row; the file is never held in memory whole.

    Without ``format`` the source is detected by the file's columns or keys. Rows that are not
    labelled a stereotype are ignored. Statements without a recognisable bias type, group or
    attribute are left out; at the end, ``skipped`` is called with one sentence for each reason and
    their number, and with one that names the unused columns of a custom file. The note of a
    statement names its source; custom files keep their own notes.

    Raises:
        UsageError: the file cannot be read, is of no known source or, unless ``skip_bad``, has an
            invalid row: the message names file, line and fault. With ``skip_bad`` that message
            goes to ``skipped`` and the row is ignored.

    """
    source, rows = _open_source(path, format)
    return _statements_of(path, source, rows, skip_bad, skipped or (lambda reason: None))


def _open_source(path: Path, format: str | None) -> tuple[_Format, Iterator[FileRow]]:
    if format is not None and format not in _FORMATS:
        raise UsageError(f"There is no format '{format}'; the formats are {', '.join(FORMATS)}.")
    if format in (None, "stereoset") and is_nested(path):
        return _FORMATS["stereoset"]._replace(gathered=iter), nested_objects(path, stereoset.LIST)
    columns = column_names(path)
    if format is None:
        fitting = [one for one in _FORMATS.values() if one.detects(columns)]
        if not fitting and plain.COLUMNS[0] in columns:
            raise UsageError(
                f"{path} has no column {', no column '.join(_PLAIN.missing(columns))}; a file of "
                f"statements has the columns {', '.join(plain.COLUMNS)}."
            )
        if not fitting:
            raise UsageError(
                f"{path}: the format is not recognised by the columns "
                f"({', '.join(columns) or 'none'}); name the format: {', '.join(FORMATS)}."
            )
        source = fitting[0]
    else:
        source = _FORMATS[format]
        if missing := source.missing(columns):
            raise UsageError(
                f"{path} is not {format}: it has no {', no '.join(missing)}; its columns are "
                f"{', '.join(columns) or 'none'}."
            )
    return source, source.gathered(read_rows(path))


def _statements_of(
    path: Path,
    source: _Format,
    rows: Iterator[FileRow],
    skip_bad: bool,
    skipped: Callable[[str], None],
) -> Iterator[BiasStatement]:
    left: Counter[str] = Counter()
    unused: dict[str, None] = {}

    def statements(row: FileRow) -> list[Found]:
        unused.update(dict.fromkeys(source.unused(row.values)))
        # All or nothing: an invalid row gives no statement.
        return list(source.statements(row.values))

    for of_row in convert_rows(path, rows, statements, skipped if skip_bad else None):
        for statement in of_row:
            if isinstance(statement, LeftOut):
                left[statement.reason] += 1
            else:
                yield statement
    if unused:
        shown = ", ".join([*unused][:_SHOWN]) + (", ..." if len(unused) > _SHOWN else "")
        known = ", ".join((*plain.COLUMNS, *plain.OPTIONAL))
        skipped(f"{path}: unused columns: {shown}; the columns in use are {known}")
    for reason, count in left.most_common():
        skipped(f"{path}: {count} of its statements left out: {reason}")
