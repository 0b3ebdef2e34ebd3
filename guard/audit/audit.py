"""One audit of one suite: its items, its header, its journal, both arms, its result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from guard.audit import journal as journals
from guard.audit import outcomes
from guard.audit.calls import Call, Guarded
from guard.audit.header import Header, told
from guard.audit.journal import Journal
from guard.audit.models import Model
from guard.audit.runner import Runner, Settings, Stop, Watcher, check
from guard.audit.sample import drawn, widest
from guard.audit.score import SuiteResult, result_of
from guard.audit.statistics import DRAWS
from guard.core import Guard
from guard.errors import GuardError, UsageError
from guard.suites import Capability, Item, Suite

FILE = "{suite}.jsonl.gz"
Allocation = Literal["even", "widest"]
PILOT = 0.3
"""The part of a sample that is asked first where its answers allocate the rest."""


@dataclass(frozen=True, slots=True)
class Audit:
    """A suite with what is to be asked of it. ``size`` is None for every item."""

    suite: Suite
    items: list[Item]
    size: int | None = None
    seed: int = 17
    draws: int = DRAWS
    sampling: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        suite: Suite,
        size: int | None = None,
        draws: int = DRAWS,
        allocate: Allocation = "even",
    ) -> Audit:
        """Return the audit of ``suite`` over all items, or a stratified sample by its seed.

        ``widest`` asks a pilot first, and the rest where the interval is widest; until the pilot is
        answered the items are those of an even sample.
        """
        seed = suite.options.seed
        items = drawn(suite.items(), size, seed)
        sampling: dict[str, Any] = {} if size is None else {"size": size, "seed": seed}
        if sampling and allocate == "widest":
            if type(suite).spread is Suite.spread:
                raise UsageError(
                    f"{suite.name} does not weigh its strata, so its sample is spread evenly; "
                    "leave --allocate out."
                )
            sampling["allocate"] = allocate
        return cls(suite, items, size, seed, draws, sampling)

    @property
    def pilot(self) -> list[Item] | None:
        """What is asked first where the pilot's answers allocate the rest; None where none do."""
        if self.size is None or "allocate" not in self.sampling:
            return None
        return drawn(self.suite.items(), max(1, round(self.size * PILOT)), self.seed)

    def settled(self, calls: Mapping[str, Call]) -> Audit:
        """Return the audit with the items that the pilot's answers in ``calls`` allocate."""
        pilot = self.pilot
        if pilot is None or self.size is None:
            return self
        records = outcomes.read(self.suite, pilot, calls, None)
        if records.missing:
            return replace(self, items=pilot)
        spread = self.suite.spread(records.plain)
        items = widest(self.suite.items(), pilot, self.size, self.seed, spread)
        return replace(self, items=items)

    def fitted(self, has: frozenset[Capability]) -> Audit:
        """Return the audit with its suite fitted to a model that ``has`` these capabilities."""
        suite = self.suite.fitted(has)
        if suite is self.suite:
            return self
        allocate: Allocation = "widest" if "allocate" in self.sampling else "even"
        return Audit.of(suite, self.size, self.draws, allocate)

    def like(self, options: Mapping[str, Any]) -> Audit:
        """Return the audit fitted as it was where a journal has these ``options``."""
        fits = (self.fitted(has) for has in (frozenset[Capability](), self.suite.uses))
        return next((a for a in fits if told(a.suite) == options), self)

    def header(self, model: str, guard: Guard | None) -> Header:
        """Return the comparability key of this audit of ``model``."""
        return Header.for_suite(self.suite, model, self.sampling, guard_settings(guard))

    async def run(
        self,
        model: Model,
        path: Path,
        guard: Guard | None,
        settings: Settings,
        watcher: Watcher | None = None,
        stop: Stop | None = None,
    ) -> SuiteResult:
        """Ask what the journal at ``path`` lacks, and return the result of all of it.

        Raises UsageError where the journal is of another audit, Stopped where no call can succeed,
        GuardError where a request has two outcomes.
        """
        with Journal(path, self.header(model.name, guard)) as journal:
            runner = Runner(self.suite, model, journal, guard, settings, watcher, stop)
            pilot = self.pilot
            if pilot is not None:
                await runner.run(pilot)
            # A run that was told to stop has not answered the pilot, and begins nothing more.
            settled = self.settled(journal.calls)
            await runner.run(settled.items)
        return self.result(path)

    def result(self, path: Path) -> SuiteResult:
        """Return the result of the journal at ``path``; asks nothing and changes nothing."""
        header, records = journals.read(path)
        return self.scored(header, records, path)

    def scored(self, header: Header, records: Iterable[Call | Guarded], path: Path) -> SuiteResult:
        """Return the result of a journal's records."""
        written = list(records)
        calls, readings = journals.latest(written)
        items = self.settled(calls).items
        both = bool(header.guard) and "chat" in self.suite.needs
        found = outcomes.read(self.suite, items, calls, readings if both else None)
        faults: list[str] = []
        check(self.suite, items, (w for w in written if isinstance(w, Call)), faults.append)
        twice = [f for f in faults if f.endswith("answers")]
        if twice:
            raise GuardError(f"{path} has more than one outcome of a request ({twice[0]}).")
        return result_of(
            self.suite,
            found,
            model=header.model,
            draws=self.draws,
            seed=self.seed,
            about={"calls": spent(calls.values()), "key": header.line(), "journal": str(path)},
        )


def guard_settings(guard: Guard | None) -> dict[str, Any]:
    """Return what of a guard decides what the guarded arm shows; empty for none."""
    if guard is None:
        return {}
    policy = guard.policy.model_dump(mode="json")
    index = guard.detector.snapshot().index_version
    return {"detector": guard.detector.name, "index": index, "policy": policy}


def spent(calls: Iterable[Call]) -> dict[str, Any]:
    """Return what the calls took: how many, tokens, cost (None where no price is known)."""
    answered = [call for call in calls if call.reply is not None]
    usages = [call.reply.usage for call in answered if call.reply is not None]
    cost = math.fsum(u.cost for u in usages if not math.isnan(u.cost))
    return {
        "answered": len(answered),
        "prompt_tokens": sum(u.prompt_tokens for u in usages),
        "completion_tokens": sum(u.completion_tokens for u in usages),
        "cost_usd": cost if any(not math.isnan(u.cost) for u in usages) else None,
    }
