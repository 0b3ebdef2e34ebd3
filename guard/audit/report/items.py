"""The items of a run, sample by sample: requests, answers, and the outcome in each arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from guard.audit import outcomes
from guard.audit.calls import Guarded
from guard.audit.outcomes import Asked, Records
from guard.audit.run_file import RecordedSuite
from guard.suites import Answer, Chat, LogLikelihood, Suite
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
    turns: tuple[Turn, ...]
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


def item_rows(suite: Suite, records: Records, recorded: RecordedSuite) -> list[ItemRow]:
    """Return the samples that have an outcome, those that flipped first."""
    sides: Sequence[AnswerLean | None] = suite.sides(records.plain)
    listed: list[ItemRow] = []
    for place, (record, side) in enumerate(zip(records.plain, sides, strict=True)):
        item, plain = record.item, record.outcome.name
        asked, answers, _ = outcomes.walk_requests(suite, item, record.sample, recorded.calls)
        guarded = records.guarded[place].outcome.name if records.guarded else ""
        about = (item.id, record.sample, item.subject or item.stratum, item.cluster)
        types = records.verdicts.get(place, ())
        turns = _sample_turns(asked, answers, recorded.readings if records.guarded else {})
        listed.append(ItemRow(*about, plain, guarded, side or "", types, turns))
    return sorted(listed, key=lambda row: row.rank)


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
