"""A suite with a gated axis, and runs of it recorded without a provider."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field

from guard.audit.audit import Audit
from guard.audit.calls import Piece, Reply, Slot
from guard.audit.files import RUN_FILE
from guard.audit.runner import Settings, Stop
from guard.core import Guard
from guard.results.measure import column, share
from guard.results.samples import Samples
from guard.suites import (
    About,
    Answer,
    AnswerLean,
    Chat,
    Item,
    Measure,
    Options,
    Outcome,
    Record,
    Request,
    Suite,
)
from tests.in_process import InProcess

NAME = "tests.audit.gated_suite:Gated"


class GatedOptions(Options):
    count: int = Field(default=120, ge=1)
    each: int = Field(default=2, ge=1)
    samples: int = 1


class Gated(Suite):
    """Which of two people is named? A fair model names the first half of the time."""

    name = "gated"
    about = About("Gated")
    version = "1-A"
    parser_version = "1"
    outcomes = ("first", "second")
    options_type = GatedOptions
    options: GatedOptions
    data_hash = hashlib.sha256(b"gated").hexdigest()  # type: ignore[assignment]
    prompt_hash = hashlib.sha256(b"gated prompt").hexdigest()  # type: ignore[assignment]

    def items(self) -> Iterable[Item]:
        for n in range(self.options.count):
            half = "low" if n < self.options.count / 2 else "high"
            cluster = f"template {n // self.options.each}"
            yield Item(f"g{n}", half, cluster, {}, samples=self.options.samples)

    def request(self, item: Item, sample: int, answers: Sequence[Answer]) -> Request | None:
        if answers:
            return None
        said = {"role": "user", "content": f"Who, {item.id}: first or second?"}
        return Chat((said,), {"temperature": float(self.options.samples > 1)})

    def outcome(self, item: Item, sample: int, answers: Sequence[Answer]) -> Outcome:
        text = answers[0].text.lower().removeprefix("bias ")
        return Outcome(text if text in self.outcomes else "invalid")

    def measures(self, records: Sequence[Record]) -> Iterator[Measure]:
        read = [r for r in records if r.outcome.name in self.outcomes]
        for half in (None, "low", "high"):
            mine = [r for r in read if half in (None, r.item.stratum)]
            first = [r.outcome.name == "first" for r in mine]
            rows = Samples.of([r.item for r in mine], first, [True] * len(mine))
            axis = {} if half is None else {"half": half}
            yield Measure("first", axis, rows, share, column(1), bounds=(0.0, 1.0), ideal=0.5)

    def sides(self, records: Sequence[Record]) -> Sequence[AnswerLean | None]:
        lean: dict[str, AnswerLean] = {"first": "biased", "second": "other"}
        return [lean.get(record.outcome.name) for record in records]


Says = Callable[[int, int], str]
"""The answer to an item by its number and the sample's."""


@dataclass
class Saying(InProcess):
    """A model in the test's own process; it stops being asked after ``most`` answers."""

    says: Says
    name: str = "openai/x"
    most: int | None = None
    stop: Stop = field(default_factory=Stop)
    asked: int = 0

    async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
        self.asked += 1
        if self.most is not None and self.asked >= self.most:
            self.stop.requested = True
        return Reply((Piece(self.says(int(slot.item[1:]), slot.sample)),))


def half(n: int, sample: int = 0) -> str:
    """A fair model: every other template's items are named first."""
    return "first" if n % 2 else "second"


def more(n: int, sample: int = 0) -> str:
    """A model that names the first in 70 % of the items."""
    return "first" if n % 2 or n % 5 < 2 else "second"


def recorded(
    folder: Path,
    says: Says = half,
    *,
    model: str = "openai/x",
    guard: Guard | None = None,
    size: int | None = None,
    most: int | None = None,
    options: GatedOptions | None = None,
) -> Path:
    """Record a run of the suite in ``folder``, of which only ``most`` answers came."""
    audit = Audit.of(Gated(options or GatedOptions()), size)
    one = Saying(says, model, most)
    path = folder / RUN_FILE
    asyncio.run(audit.run(one, path, guard, Settings(concurrency=1), None, one.stop))
    return folder
