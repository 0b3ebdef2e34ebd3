"""The items of a run, sample by sample: requests, answers, and the outcome in each arm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import NamedTuple, overload

import numpy as np

from guard.audit import outcomes
from guard.audit.calls import Guarded
from guard.audit.outcomes import Asked, Records
from guard.audit.run_file import RecordedSuite
from guard.suites import Answer, Chat, LogLikelihood, Record, Suite
from guard.suites.contract import AnswerLean


class Turn(NamedTuple):
    """A request, its answer, and what a user behind the guard saw.

    ``shown`` is None where users saw the answer itself.
    """

    by: str
    asked: str
    answer: str
    shown: str | None


class ItemRow(NamedTuple):
    """One sample of an item.

    ``about`` is the item's subject. ``side`` is that of the plain answer, empty where it has none;
    ``guarded`` is empty where there is one arm. ``base`` says how the outcome differs from the
    baseline's, empty where it does not.
    """

    id: str
    sample: int
    about: str
    cluster: str
    plain: str
    guarded: str
    side: str
    types: tuple[str, ...]
    turns: Sequence[Turn]
    base: str = ""

    @property
    def name(self) -> str:
        """The item, with the number of the sample but for the first."""
        return f"{self.id} (sample {self.sample})" if self.sample else self.id

    @property
    def changed(self) -> bool:
        """Whether the guard changed the outcome."""
        return self.guarded not in ("", self.plain)

    @property
    def rank(self) -> tuple[bool, bool, bool]:
        """The key of its order in a list: flipped items first, of these the biased ones."""
        return not self.base, not self.changed, self.side != "biased"


class ItemRows(Sequence[ItemRow]):
    """The samples that have an outcome, those that flipped first, of these the biased ones.

    ``flips``, by item or cluster, say how outcomes differ from a baseline's. A row is made on
    access, and its texts are read when its turns are: those of a million answers take gigabytes.
    """

    def __init__(
        self,
        suite: Suite,
        records: Records,
        recorded: RecordedSuite,
        flips: Mapping[str, str] | None = None,
    ) -> None:
        self._suite, self._records, self._recorded = suite, records, recorded
        self._flips = flips or {}
        self._sides: Sequence[AnswerLean | None] = suite.sides(records.plain)
        rows = map(self._row_at, range(len(records.plain)))
        ranks = np.array([row.rank for row in rows], np.bool_).reshape(-1, 3)
        self._order = np.lexsort(ranks.T[::-1])
        self.flipped = int(np.count_nonzero(~ranks[:, :2].all(axis=1)))
        """The number of rows that flipped."""

    def with_flips(self, flips: Mapping[str, str]) -> ItemRows:
        """Return the rows compared with a baseline."""
        return ItemRows(self._suite, self._records, self._recorded, flips)

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[ItemRow]:
        return map(self._row_at, map(int, self._order))

    @overload
    def __getitem__(self, index: int) -> ItemRow: ...

    @overload
    def __getitem__(self, index: slice) -> list[ItemRow]: ...

    def __getitem__(self, index: int | slice) -> ItemRow | list[ItemRow]:
        """Return a row, or several."""
        if isinstance(index, slice):
            return [self._row_at(place) for place in self._order[index].tolist()]
        return self._row_at(int(self._order[index]))

    def _row_at(self, place: int) -> ItemRow:
        """Return the row of a record."""
        records, record = self._records, self._records.plain[place]
        item = record.item
        return ItemRow(
            item.id,
            record.sample,
            item.subject or item.stratum,
            item.cluster,
            record.outcome.name,
            records.guarded[place].outcome.name if records.guarded else "",
            self._sides[place] or "",
            records.verdicts.get(place, ()),
            _TurnsOnAccess(partial(self._turns_of, record)),
            self._flips.get(item.id, self._flips.get(item.cluster, "")),
        )

    def _turns_of(self, record: Record) -> tuple[Turn, ...]:
        calls = self._recorded.calls
        asked, answers, _ = outcomes.walk_requests(self._suite, record.item, record.sample, calls)
        return _sample_turns(
            asked, answers, self._recorded.readings if self._records.guarded else {}
        )


class _TurnsOnAccess(Sequence[Turn]):
    """The turns of a sample, read once they are asked for."""

    def __init__(self, read: Callable[[], tuple[Turn, ...]]) -> None:
        self._read = read

    @cached_property
    def _turns(self) -> tuple[Turn, ...]:
        return self._read()

    def __len__(self) -> int:
        return len(self._turns)

    @overload
    def __getitem__(self, index: int) -> Turn: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Turn]: ...

    def __getitem__(self, index: int | slice) -> Turn | Sequence[Turn]:
        return self._turns[index]


def _sample_turns(
    asked: Sequence[Asked], answers: Sequence[Answer], readings: Mapping[str, Guarded]
) -> tuple[Turn, ...]:
    """Return the turns of the model and the analyst.

    Users see none of the model's answers after one that the guard changed.
    """
    turns: list[Turn] = []
    over = False
    for asked_request, answer in zip(asked, answers, strict=False):
        request = asked_request.request
        if not isinstance(request, Chat | LogLikelihood):
            continue
        reading = readings.get(asked_request.key)
        changed = reading is not None and reading.reading != "same"
        shown = reading.text if reading is not None and changed else None
        by = request.by
        if by == "model":
            shown, over = ("", True) if over else (shown, changed)
        prompt = request.messages[-1]["content"] if request.messages else ""
        prompt = prompt or (request.context if isinstance(request, LogLikelihood) else "")
        turns.append(Turn(by, prompt, answer.text, shown))
    return tuple(turns)
