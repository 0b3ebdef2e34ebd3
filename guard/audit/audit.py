"""One audit of one suite: its items, its header, its journal, both arms, its result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from guard.audit import journal as journals
from guard.audit import outcomes
from guard.audit.calls import Call
from guard.audit.header import Header, told
from guard.audit.journal import Contents, Journal
from guard.audit.models import Model
from guard.audit.outcomes import Records
from guard.audit.runner import Runner, Settings, Stop, Watcher
from guard.audit.sample import drawn, quick_size, widest
from guard.audit.score import SuiteResult, result_of
from guard.audit.sending import Other, Sending
from guard.errors import GuardError, UsageError
from guard.suites import Capability, Item, Role, Suite

if TYPE_CHECKING:
    from guard.core import Guard

FILE = "{suite}.jsonl.gz"
Allocation = Literal["even", "widest"]
PILOT = 0.3
"""The part of a sample that is asked first where its answers allocate the rest."""


@dataclass(frozen=True, slots=True)
class Audit:
    """A suite with what is to be asked of it. ``size`` is None for every item.

    ``others`` are asked besides the audited model, by role.
    """

    suite: Suite
    items: list[Item]
    size: int | None = None
    seed: int = 17
    sampling: Mapping[str, Any] = field(default_factory=dict)
    sending: Sending = field(default_factory=Sending)
    others: Mapping[Role, Other] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        suite: Suite,
        size: int | None = None,
        allocate: Allocation = "even",
        sending: Sending | None = None,
        others: Mapping[Role, Other] | None = None,
        *,
        quick: bool = False,
    ) -> Audit:
        """Return the audit of ``suite`` over all items, or a stratified sample by its seed.

        ``widest`` asks a pilot first, and the rest where the interval is widest; until the pilot is
        answered the items are those of an even sample. ``quick`` is the preset of a size that takes
        minutes, and part of the key: a quick run compares with quick ones alone.
        """
        seed = suite.options.seed
        if quick:
            size = quick_size(list(suite.items()))
        items = drawn(suite.items(), size, seed, suite.subject)
        sampling: dict[str, Any] = {} if size is None else {"size": size, "seed": seed}
        if sampling and allocate == "widest":
            if type(suite).spread is Suite.spread:
                raise UsageError(
                    f"{suite.name} does not weigh its strata, so its sample is spread evenly; "
                    "leave --allocate out."
                )
            sampling["allocate"] = allocate
        if quick:
            sampling["preset"] = "quick"
        sending, others = sending or Sending(), others or {}
        bound = sending.bound(suite, others)
        return cls(bound, items, size, seed, sampling, sending, others)

    def sent(self, sending: Sending) -> Audit:
        """Return the audit with its requests as ``sending`` has them."""
        return replace(self, suite=sending.bound(self.suite, self.others), sending=sending)

    def recorded(self, header: Header) -> Audit:
        """Return the audit with its requests as they were sent for the journal of ``header``.

        Raises UsageError where the user would have the answers read in another way than they were.
        """
        known = header.others
        others = {role: Other.recorded(known[role]) for role in self.suite.roles if role in known}
        options = self.suite.options
        reading = {k: v for k, v in known.get("reading", {}).items() if k in self.suite.reading}
        for name in reading.keys() & options.model_fields_set:
            if (wanted := getattr(options, name)) != reading[name]:
                raise UsageError(
                    f"These answers were read with {self.suite.name}.{name} {reading[name]}, not "
                    f"{wanted}; leave it out, or have guard audit run read the journal anew."
                )
        suite = type(self.suite)(options.model_copy(update=reading)) if reading else self.suite
        return replace(self, suite=suite, others=others).sent(Sending.recorded(header.request))

    @property
    def pilot(self) -> list[Item] | None:
        """What is asked first where the pilot's answers allocate the rest; None where none do."""
        if self.size is None or "allocate" not in self.sampling:
            return None
        size = max(1, round(self.size * PILOT))
        return drawn(self.suite.items(), size, self.seed, self.suite.subject)

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
        quick = "preset" in self.sampling
        return Audit.of(suite, self.size, allocate, self.sending, self.others, quick=quick)

    def like(self, options: Mapping[str, Any]) -> Audit:
        """Return the audit fitted as it was where a journal has these ``options``."""
        fits = (self.fitted(has) for has in (frozenset[Capability](), self.suite.uses))
        return next((a for a in fits if told(a.suite) == options), self)

    def header(self, model: str, guard: Guard | None) -> Header:
        """Return the comparability key of this audit of ``model``."""
        return Header.for_suite(
            self.suite,
            model,
            self.sampling,
            guard_settings(guard),
            self.sending.key(),
            {role: other.key for role, other in self.others.items()} | self._reading(),
        )

    def _reading(self) -> dict[str, Mapping[str, Any]]:
        told = self.suite.options.model_dump(mode="json", include=set(self.suite.reading))
        return {"reading": told} if told else {}

    async def run(
        self,
        model: Model,
        path: Path,
        guard: Guard | None,
        settings: Settings,
        watcher: Watcher | None = None,
        stop: Stop | None = None,
        ended: list[SuiteResult] | None = None,
    ) -> SuiteResult:
        """Ask what the journal at ``path`` lacks, and return the result of all of it.

        Raises UsageError where the journal is of another audit or cannot be written, Stopped where
        no call can succeed. Where it ends so with anything recorded, ``ended`` is given the result
        of that.
        """
        header = self.header(model.name, guard)
        with Journal(path, journals.agreed(path, header)) as journal:
            runner = Runner(self.suite, model, journal, guard, settings, watcher, stop)
            found = Contents(header, journal.calls, journal.readings, journal.damaged)
            try:
                pilot = self.pilot
                if pilot is not None:
                    await runner.run(pilot)
                # A run that was told to stop has not answered the pilot, and begins nothing more.
                settled = self.settled(journal.calls)
                await runner.run(settled.items)
                await self._follow(runner, settled.items, found, stop)
            except GuardError:
                if ended is not None and journal.calls:
                    ended.append(self.scored(found, path))
                raise
        return self.scored(found, path)

    async def _follow(
        self, runner: Runner, items: Sequence[Item], found: Contents, stop: Stop | None
    ) -> None:
        """Ask what follows from the answers to ``items``, and what follows from that."""
        if type(self.suite).further is Suite.further:
            return
        asked: set[str] = set()
        while stop is None or not stop.asked:
            following = outcomes.read(self.suite, items, found.calls, None).following
            new = [item for item in following if item.id not in asked]
            if not new:
                return
            await runner.run(new)
            asked |= {item.id for item in new}

    def result(self, path: Path) -> SuiteResult:
        """Return the result of the journal at ``path``; asks nothing and changes nothing."""
        return self.scored(journals.load(path), path)

    def records(self, found: Contents) -> Records:
        """Return the records of both arms that a journal has; of one where there is no other."""
        items = self.settled(found.calls).items
        both = bool(found.header.guard) and "chat" in self.suite.needs
        return outcomes.read(self.suite, items, found.calls, found.readings if both else None)

    def scored(self, found: Contents, path: Path) -> SuiteResult:
        """Return the result of what a journal has, which is let go of: ``found`` is then empty."""
        about = self.about(found, path)
        records = self.records(found)
        found.calls.clear()
        found.readings.clear()
        return result_of(self.suite, records, model=found.header.model, about=about)

    def about(self, found: Contents, path: Path) -> dict[str, Any]:
        """Return what a result tells beside its figures: calls, key, journal, who judged."""
        return {
            "calls": spent(found.calls.values()),
            "key": found.header.line(),
            "journal": str(path),
            "damaged_lines": found.damaged,
            **judges(found.header),
        }


def guard_settings(guard: Guard | None) -> dict[str, Any]:
    """Return what of a guard decides what the guarded arm shows; empty for none."""
    if guard is None:
        return {}
    policy = guard.policy.model_dump(mode="json", exclude={"labels"})
    index = guard.detector.snapshot().index_version or ""
    return {"detector": guard.detector.name, "index": index, "policy": policy}


def judges(header: Header) -> dict[str, Any]:
    """Return which detector scored and which guarded, and what to mind of that; empty for none."""
    if "scorer" not in header.others:
        return {}
    scorer = header.others["scorer"]
    name = scorer.get("detector", scorer["model"])
    told: dict[str, Any] = {"scored_by": name, "guarded_by": header.guard.get("detector")}
    guarded = told["guarded_by"]
    if guarded == name:
        told["warning"] = (
            f"{name} guarded and scored: what it misses as a guard it misses as a scorer too, so "
            "mitigation is overstated. Give another --scorer, or have people check it: guard audit "
            "review."
        )
    elif guarded and _network(guarded) == _network(name):
        told["warning"] = (
            f"{guarded} guarded and {name} scored, which are the same network: what one misses the "
            "other misses too, so mitigation is overstated. Have people check it: guard audit "
            "review."
        )
    return told


def _network(detector: str) -> str:
    """Return what of a detector's name says which network it is: an embedded one's hash."""
    return detector.rpartition("+")[2]


def spent(calls: Iterable[Call]) -> dict[str, Any]:
    """Return what the calls took: how many, tokens, cost (None where no price is known).

    What others than the audited model took is in these figures too, and stands apart in ``others``.
    """
    found: dict[str, dict[str, Any]] = {}
    for call in calls:
        if call.reply is None:
            continue
        for one in ("all", call.by):
            took = found.setdefault(one, _nothing())
            took["answered"] += 1
            took["prompt_tokens"] += call.reply.usage.prompt_tokens
            took["completion_tokens"] += call.reply.usage.completion_tokens
            if not math.isnan(call.reply.usage.cost):
                took["cost_usd"] = (took["cost_usd"] or 0.0) + call.reply.usage.cost
    others = {role: took for role, took in found.items() if role not in ("all", "model")}
    return found.get("all", _nothing()) | ({"others": others} if others else {})


def _nothing() -> dict[str, Any]:
    return {"answered": 0, "prompt_tokens": 0, "completion_tokens": 0, "cost_usd": None}
