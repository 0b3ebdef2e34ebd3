"""The items of a run, sample by sample: what was asked and said, its outcome in each arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from guard.audit import outcomes
from guard.audit.calls import Guarded
from guard.audit.journal import Contents
from guard.audit.outcomes import Asked, Records
from guard.suites import Answer, Chat, LogLikelihood, Suite
from guard.suites.contract import Side

Change = Literal["biased", "other", ""]
"""What the guard changed: an answer on the biased side, another one, or nothing."""


class Turn(NamedTuple):
    """A request and its answer.

    ``shown`` is what a user behind the guard saw; None where that is the answer itself.
    """

    by: str
    asked: str
    said: str
    shown: str | None


class Row(NamedTuple):
    """One sample of an item.

    ``about`` is the suite's subject of it. ``side`` is that of the plain answer, empty where it has
    none; ``guarded`` is empty where there is one arm. ``base`` are the outcomes that a baseline has
    of the item where they differ, in words.
    """

    id: str
    sample: int
    about: str
    cluster: str
    plain: str
    guarded: str
    side: str
    types: tuple[str, ...]
    turns: tuple[Turn, ...]
    base: str = ""

    @property
    def name(self) -> str:
        """The item, with which of its samples it is but for the first."""
        return f"{self.id} (sample {self.sample})" if self.sample else self.id

    @property
    def changed(self) -> bool:
        """Whether the guard changed the outcome."""
        return self.guarded not in ("", self.plain)

    @property
    def rank(self) -> tuple[bool, bool, bool]:
        """Where it stands in a list: what flipped first, and of that what is biased."""
        return not self.base, not self.changed, self.side != "biased"


def rows(suite: Suite, records: Records, contents: Contents) -> list[Row]:
    """Return the samples that have an outcome, those that flipped first."""
    sides: Sequence[Side | None] = suite.sides(records.plain)
    listed: list[Row] = []
    for place, (record, side) in enumerate(zip(records.plain, sides, strict=True)):
        item = record.item
        asked, answers, _ = outcomes.walk(suite, item, record.sample, contents.calls)
        guarded = records.guarded[place].outcome.name if records.guarded else ""
        listed.append(
            Row(
                item.id,
                record.sample,
                suite.subject(item),
                item.cluster,
                record.outcome.name,
                guarded,
                side or "",
                records.verdicts.get(place, ()),
                _turns(asked, answers, contents.readings if records.guarded else {}),
            )
        )
    return sorted(listed, key=lambda row: row.rank)


def _turns(
    asked: Sequence[Asked], answers: Sequence[Answer], readings: Mapping[str, Guarded]
) -> tuple[Turn, ...]:
    """Return what was said; of what a scorer or an embedder was asked the outcome says enough.

    Behind an answer that the guard changed a user saw none of the model's.
    """
    turns: list[Turn] = []
    over = False
    for one, answer in zip(asked, answers, strict=False):
        request = one.request
        if not isinstance(request, Chat | LogLikelihood):
            continue
        reading = readings.get(one.key)
        changed = reading is not None and reading.reading != "same"
        shown = reading.text if reading is not None and changed else None
        by = request.by
        if by == "model":
            shown, over = ("", True) if over else (shown, changed)
        prompt = request.messages[-1]["content"] if request.messages else ""
        prompt = prompt or (request.context if isinstance(request, LogLikelihood) else "")
        turns.append(Turn(by, prompt, answer.text, shown))
    return tuple(turns)
