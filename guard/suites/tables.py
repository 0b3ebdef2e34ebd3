"""Recorded answers from plain tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from guard.errors import UsageError
from guard.suites.contract import Item, Suite
from guard.suites.requests import Answer

_MOST_DIGITS = 18  # of the number of a sample
_MOST_SHOWN = 40  # characters of a value that a message quotes


class ReadsTables(ABC):
    """A suite that reads tables of a form of its own, or none."""

    @abstractmethod
    def answers_from_table(
        self, rows: Iterable[Mapping[str, Any]]
    ) -> Iterable[tuple[Item, int, Sequence[Answer]]]:
        """Read recorded answers from the rows of a table, by column name.

        Raises UsageError that names a missing column or what else is wrong.
        """


def recorded_answers(
    suite: Suite, rows: Iterable[Mapping[str, Any]]
) -> Iterable[tuple[Item, int, Sequence[Answer]]]:
    """Return item, sample and answers of a table's rows, by :func:`by_id` if not by the suite."""
    if isinstance(suite, ReadsTables):
        return suite.answers_from_table(rows)
    return by_id(suite, rows)


def by_id(
    suite: Suite, rows: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[Item, int, Sequence[Answer]]]:
    """Yield item, sample and answers of rows with ``id``, ``response`` and optionally ``sample``.

    Rows of one id and sample are the turns of one conversation, in order; ``finish_reason`` is read
    if it is there. Raises UsageError that names the line and what is missing, unknown or too much.
    """
    items = {item.id: item for item in suite.items()}
    turns: dict[tuple[str, int], list[Answer]] = {}
    for line, row in enumerate(rows, start=2):
        for column in ("id", "response"):
            if row.get(column) is None:
                where = f"Line {line} ends before" if column in row else "The table has no column"
                raise UsageError(
                    f"{where} {column!r}; it needs id and response, and sample if an item is "
                    "asked several times."
                )
            if not isinstance(row[column], str):
                raise UsageError(f"Line {line}: {column} must be a text, got {row[column]!r}.")
        name = row["id"]
        if name not in items:
            raise UsageError(
                f"Line {line}: {suite.name} has no item {name!r} with this data, protocol "
                "and seed; use those of the run that gave the answers."
            )
        sample = str(row.get("sample") or 0)  # JSON lines have numbers too
        # A longer number is out of range, and int() refuses one of 4,300 digits.
        short = sample.isdecimal() and len(sample) <= _MOST_DIGITS
        if not short or int(sample) >= items[name].samples:
            shown = sample if len(sample) <= _MOST_SHOWN else f"{sample[:_MOST_SHOWN]}…"
            raise UsageError(
                f"Line {line}: sample must be a whole number from 0 to "
                f"{items[name].samples - 1}, got {shown!r}."
            )
        before = turns.setdefault((name, int(sample)), [])
        # Every sample has a first turn; the number of turns does not depend on the answers.
        if before and suite.request(items[name], int(sample), before) is None:
            raise UsageError(
                f"Line {line}: {suite.name} asks {name!r} no turn {len(before) + 1} in sample "
                f"{sample}; number the samples of an item in a column 'sample'."
            )
        before.append(Answer(row["response"], str(row.get("finish_reason") or "stop")))
    for (name, number), answers in turns.items():
        yield items[name], number, answers
