"""Importers: published datasets and files of one's own, as statements for a bias index.

Nothing is downloaded and no dataset is shipped: whoever imports one has it as a file and has read
its licence. The texts are offensive by nature.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from guard.datasets.rows import Row, Values, columns, is_nested, made, nested, rows
from guard.errors import UsageError
from guard.retrieve.importers import emgsd, implicit_hate, plain, sbic, seegull, stereoset
from guard.retrieve.importers.found import Found, LeftOut
from guard.retrieve.statement import Statement

__all__ = ["FORMATS", "read"]


class _Format(NamedTuple):
    """A source: how a row becomes statements, and the columns it needs.

    Of every tuple in ``columns`` a file has at least one name; of those in ``telling``, too, where
    the columns alone are those of any labelled texts and the source is to be guessed. ``optional``
    are further columns; where they are known, whoever gives others is told that these are unused.
    """

    statements: Callable[[Values], Iterator[Found]]
    columns: tuple[tuple[str, ...], ...]
    gathered: Callable[[Iterator[Row]], Iterator[Row]] = iter
    telling: tuple[str, ...] = ()
    optional: tuple[str, ...] | None = None

    def guessed(self, found: Iterable[str]) -> bool:
        """Whether a file with these columns is of this source."""
        there = set(found)
        return not self.lacks(there) and (not self.telling or not there.isdisjoint(self.telling))

    def lacks(self, found: Iterable[str]) -> list[str]:
        """Return which columns are missing from those found."""
        there = set(found)
        return [" or ".join(names) for names in self.columns if not there & set(names)]

    def unused(self, found: Iterable[str]) -> list[str]:
        """Return which of the columns found nobody looks at, none where that is not known."""
        if self.optional is None:
            return []
        used = {*self.optional, *(name for names in self.columns for name in names)}
        return [name for name in found if name not in used]


# How many unused columns are named.
_SHOWN = 8


def _each(names: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    return tuple((name,) for name in names)


_PLAIN = _Format(plain.statements, _each(plain.COLUMNS), optional=plain.OPTIONAL)
# In the order in which they are guessed.
_FORMATS = {
    "sbic": _Format(sbic.statements, _each(sbic.COLUMNS)),
    "implicit-hate": _Format(implicit_hate.statements, _each(implicit_hate.COLUMNS)),
    "csv": _PLAIN,
    "jsonl": _PLAIN,
    "seegull": _Format(seegull.statements, (*_each(seegull.COLUMNS), seegull.COUNTS)),
    "stereoset": _Format(stereoset.statements, _each(stereoset.COLUMNS), stereoset.gathered),
    "emgsd": _Format(emgsd.statements, (emgsd.TEXTS, emgsd.LABELS), telling=emgsd.TELLING),
}

#: The names that ``read`` takes.
FORMATS: tuple[str, ...] = (
    "sbic", "implicit-hate", "seegull", "emgsd", "stereoset", "csv", "jsonl"
)  # fmt: skip


def read(
    path: Path,
    format: str | None = None,
    *,
    skip_bad: bool = False,
    skipped: Callable[[str], None] | None = None,
) -> Iterator[Statement]:
    """Yield the statements of a file, row by row; the file is never held whole.

    Without ``format`` the source is told by the file's columns or keys. Rows that the source does
    not mean as a stereotype are passed over. Statements of which the bias type, the group or what
    is said of it cannot be told are left out, and ``skipped`` gets one sentence a reason with their
    number at the end; so it does where a file of one's own has columns that are not used. The note
    of a statement names its source; files of one's own keep their own.

    Raises:
        UsageError: the file cannot be read, is of no known source or, unless ``skip_bad``, has a
            broken row: the message names file and line and what is wrong. With ``skip_bad`` that
            message goes to ``skipped`` and the row is passed over.

    """
    source, found = _opened(path, format)
    return _statements(path, source, found, skip_bad, skipped or (lambda reason: None))


def _opened(path: Path, format: str | None) -> tuple[_Format, Iterator[Row]]:
    if format is not None and format not in _FORMATS:
        raise UsageError(f"There is no format '{format}'; the formats are {', '.join(FORMATS)}.")
    if format in (None, "stereoset") and is_nested(path):
        return _FORMATS["stereoset"]._replace(gathered=iter), nested(path, stereoset.LIST)
    found = columns(path)
    if format is None:
        fitting = [one for one in _FORMATS.values() if one.guessed(found)]
        if not fitting and plain.COLUMNS[0] in found:
            raise UsageError(
                f"{path} has no column {', no column '.join(_PLAIN.lacks(found))}; statements of "
                f"one's own have the columns {', '.join(plain.COLUMNS)}."
            )
        if not fitting:
            raise UsageError(
                f"{path} is of no known source by its columns ({', '.join(found) or 'none'}); "
                f"give the format: {', '.join(FORMATS)}."
            )
        source = fitting[0]
    else:
        source = _FORMATS[format]
        if missing := source.lacks(found):
            raise UsageError(
                f"{path} is not {format}: it has no {', no '.join(missing)}; its columns are "
                f"{', '.join(found) or 'none'}."
            )
    return source, source.gathered(rows(path))


def _statements(
    path: Path,
    source: _Format,
    found: Iterator[Row],
    skip_bad: bool,
    skipped: Callable[[str], None],
) -> Iterator[Statement]:
    left: Counter[str] = Counter()
    unused: dict[str, None] = {}

    def statements(row: Row) -> list[Found]:
        unused.update(dict.fromkeys(source.unused(row.values)))
        # A row counts as a whole: none of a broken one's statements is kept.
        return list(source.statements(row.values))

    for of_row in made(path, found, statements, skipped if skip_bad else None):
        for one in of_row:
            if isinstance(one, LeftOut):
                left[one.reason] += 1
            else:
                yield one
    if unused:
        shown = ", ".join([*unused][:_SHOWN]) + (", ..." if len(unused) > _SHOWN else "")
        known = ", ".join((*plain.COLUMNS, *plain.OPTIONAL))
        skipped(f"{path}: not used are the columns {shown}; those that are used: {known}")
    for reason, count in left.most_common():
        skipped(f"{path}: {count} of its statements left out: {reason}")
