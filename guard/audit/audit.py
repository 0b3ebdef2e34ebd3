"""The audit of one suite: its items, header, both arms and result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from guard.audit import outcomes
from guard.audit.calls import Call
from guard.audit.failures import errors_of
from guard.audit.header import Header, recorded_options
from guard.audit.models import Model
from guard.audit.outcomes import Records
from guard.audit.run_file import RecordedSuite, RunFile, RunWriter, resumed_header
from guard.audit.runner import Runner, Settings, Stop, Watcher
from guard.audit.sample import allocated_sample, quick_size, stratified_sample
from guard.audit.score import SuiteResult, result_of, shard_result
from guard.audit.sending import Other, Sending
from guard.audit.shards import Shard
from guard.errors import GuardError, UsageError
from guard.places import shipped_in
from guard.suites import AdaptsRequests, AsksOtherModels, Capability, Item, Role, Suite
from guard.suites.optional import has_follow_ups, has_spread, part_of

if TYPE_CHECKING:
    from guard.core import Guard

AS_RECEIVED = "as received"
"""The mark, among a header's guard settings, of readings of the answers as users get them; only
suites that complete sentences have it."""
_NO_READINGS: Mapping[str, Any] = {
    "warning": "The guarded arm is left out: in this run the guard judged completed sentences, "
    "which no user gets. guard audit run --replay RUN --out NEW reads the recorded answers "
    "again, without a call."
}
Allocation = Literal["even", "widest"]
PILOT = 0.3
"""The share of a sample that is asked first to allocate the rest."""


@dataclass(frozen=True, slots=True)
class Audit:
    """A suite with the items to ask. ``size`` is None for every item.

    ``others`` has, by role, the models asked besides the audited one. ``shard`` is the part of the
    sample that ``items`` are, None for all of it.
    """

    suite: Suite
    items: list[Item]
    size: int | None = None
    seed: int = 17
    sampling: Mapping[str, Any] = field(default_factory=dict)
    sending: Sending = field(default_factory=Sending)
    others: Mapping[Role, Other] = field(default_factory=dict)
    shard: Shard | None = None

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
        shard: Shard | None = None,
    ) -> Audit:
        """Return the audit of all items of ``suite``, or of a stratified sample by its seed.

        ``widest`` asks a pilot first, then the strata whose intervals are widest; until the pilot
        is answered the items are those of an even sample. ``quick`` is a preset size that takes
        minutes. It is part of the key, so quick runs compare only with quick runs. ``shard`` takes
        its part of the sample. Raises UsageError where the sample depends on the answers, which a
        shard does not have.
        """
        if quick and isinstance(suite, AdaptsRequests):
            suite = suite.for_quick_run()
        seed = suite.options.seed
        if quick:
            size = quick_size(list(suite.items()))
        items = stratified_sample(suite.items(), size, seed)
        if shard is not None:
            items = [item for item in items if shard.has_item(item.id)]
        sampling: dict[str, Any] = {} if size is None else {"size": size, "seed": seed}
        if sampling and allocate == "widest":
            if not has_spread(suite):
                raise UsageError(
                    f"{suite.name} has no spread by stratum, which --allocate widest needs; leave "
                    "--allocate out."
                )
            if shard is not None:
                raise UsageError(
                    "--allocate widest asks where a pilot's answers vary, which no shard has all "
                    "of; leave --allocate or --shard out."
                )
            sampling["allocate"] = allocate
        if quick:
            sampling["preset"] = "quick"
        sending, others = sending or Sending(), others or {}
        bound = sending.bound(suite, others)
        return cls(bound, items, size, seed, sampling, sending, others, shard)

    def with_sending(self, sending: Sending) -> Audit:
        """Return the audit with its requests sent as ``sending`` says."""
        return replace(self, suite=sending.bound(self.suite, self.others), sending=sending)

    def for_model(self, model: str, sending: Sending) -> Audit:
        """Return the audit as sent to ``model``: without settings that it refuses."""
        return self.with_sending(sending.for_model(model, self.suite))

    def as_sent(self, header: Header) -> Audit:
        """Return the audit with its requests as they were sent for the run of ``header``.

        Raises UsageError where an option asks for another reading than the recorded one.
        """
        known, roles = header.others, part_of(self.suite, AsksOtherModels).roles
        others = {role: Other.from_key(known[role]) for role in roles if role in known}
        options = self.suite.options
        names = self.suite.options.reading_only
        reading = {k: v for k, v in known.get("reading", {}).items() if k in names}
        for name in reading.keys() & options.model_fields_set:
            if (wanted := getattr(options, name)) != reading[name]:
                raise UsageError(
                    f"These answers were read with {self.suite.name}.{name} {reading[name]}, not "
                    f"{wanted}; leave the option out, or read the answers again with guard audit "
                    "run."
                )
        suite = type(self.suite)(options.model_copy(update=reading)) if reading else self.suite
        return replace(self, suite=suite, others=others).with_sending(
            Sending.from_key(header.request)
        )

    @property
    def pilot(self) -> list[Item] | None:
        """The items whose answers allocate the rest of the sample; None without allocation."""
        if self.size is None or "allocate" not in self.sampling:
            return None
        size = max(1, round(self.size * PILOT))
        return stratified_sample(self.suite.items(), size, self.seed)

    def allocated(self, calls: Mapping[str, Call]) -> Audit:
        """Return the audit with the items that the pilot's answers in ``calls`` allocate."""
        pilot = self.pilot
        if pilot is None or self.size is None:
            return self
        records = outcomes.read_records(self.suite, pilot, calls, None)
        if records.missing:
            return replace(self, items=pilot)
        spread = part_of(self.suite, AdaptsRequests).spread(records.plain)
        items = allocated_sample(self.suite.items(), pilot, self.size, self.seed, spread)
        return replace(self, items=items)

    def adapted(self, capabilities: frozenset[Capability]) -> Audit:
        """Return the audit with its suite adapted to a model with these ``capabilities``."""
        if not isinstance(self.suite, AdaptsRequests):
            return self
        suite = self.suite.for_capabilities(capabilities)
        if suite is self.suite:
            return self
        allocate: Allocation = "widest" if "allocate" in self.sampling else "even"
        quick = "preset" in self.sampling
        return Audit.of(
            suite, self.size, allocate, self.sending, self.others, quick=quick, shard=self.shard
        )

    def adapted_like(self, options: Mapping[str, Any]) -> Audit:
        """Return the audit adapted as the recorded one with these ``options`` was."""
        uses = part_of(self.suite, AdaptsRequests).uses
        adapted = (self.adapted(has) for has in (frozenset[Capability](), uses))
        return next((a for a in adapted if recorded_options(a.suite) == options), self)

    def header(self, model: str, guard: Guard | None) -> Header:
        """Return the comparability key of this audit of ``model``."""
        others: dict[str, Mapping[str, Any]] = {r: other.key for r, other in self.others.items()}
        options = self.suite.options
        reading = options.model_dump(mode="json", include=set(options.reading_only))
        if reading:
            others["reading"] = reading
        suite = self.suite
        hashes = (suite.version, suite.data_hash, suite.prompt_hash, suite.parser_version)
        guarded = guard_settings(guard)
        if guarded and suite.about.completes_sentences:
            guarded["judged"] = AS_RECEIVED
        return Header(
            suite.name,
            *hashes,
            model,
            recorded_options(suite),
            dict(self.sampling),
            guarded,
            self.sending.key(),
            others,
            "" if self.shard is None else str(self.shard),
        )

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
        """Ask the requests that the run's file at ``path`` does not have; return the result.

        Raises UsageError where the file has another audit or cannot be written, Stopped where no
        call can succeed. The result of what was recorded until then is added to ``ended``.
        """
        header = self.header(model.name, guard)
        with RunWriter(path) as run:
            recorded = run.begin(resumed_header(run.headers.get(header.suite), header))
            recorded.header = header  # the file may hold a larger sample than this run's
            runner = Runner(self.suite, model, recorded, guard, settings, watcher, stop)
            try:
                if self.pilot is not None:
                    await runner.run(self.pilot)
                # If the user stopped the pilot, the rest is not allocated and nothing more begins.
                items = self.allocated(recorded.calls).items
                await runner.run(items)
                await self._ask_further(runner, items, recorded, stop)
            except GuardError:
                if ended is not None and recorded.calls:
                    ended.append(self.score(recorded))
                raise
            return self.score(recorded)

    async def _ask_further(
        self, runner: Runner, items: Sequence[Item], recorded: RecordedSuite, stop: Stop | None
    ) -> None:
        """Ask the items that follow from the answers, until no more follow.

        They follow from all answers together, which a shard does not have.
        """
        if self.shard is not None or not has_follow_ups(self.suite):
            return
        asked: set[str] = set()
        while stop is None or not stop.requested:
            following = outcomes.read_records(self.suite, items, recorded.calls, None).following
            new = [item for item in following if item.id not in asked]
            if not new:
                return
            await runner.run(new)
            asked |= {item.id for item in new}

    def result(self, path: Path) -> SuiteResult:
        """Return the result of the run's file at ``path``; asks nothing and changes nothing."""
        return self.score(RunFile(path).suite(self.suite.name))

    def records(self, recorded: RecordedSuite) -> Records:
        """Return the records of a recorded suite, of both arms where it has a guarded one."""
        items = self.allocated(recorded.calls).items
        readings = recorded.readings if self.has_guarded_arm(recorded.header) else None
        whole = self.shard is None
        return outcomes.read_records(self.suite, items, recorded.calls, readings, further=whole)

    def has_guarded_arm(self, header: Header) -> bool:
        """Return whether a run with ``header`` has readings of what users get."""
        judges = bool(self.suite.about.judged) and "chat" in self.suite.needs
        return bool(header.guard) and judges and not judged_as_sentences(header, self.suite)

    def score(self, recorded: RecordedSuite) -> SuiteResult:
        """Return the result of a recorded suite; that of a shard has no figures."""
        about = self.about(recorded)
        records = self.records(recorded)
        if self.shard is not None:
            model = recorded.header.model
            return shard_result(self.suite, records, self.shard, model=model, about=about)
        return result_of(self.suite, records, model=recorded.header.model, about=about)

    def about(self, recorded: RecordedSuite) -> dict[str, Any]:
        """Return what a result has beside its figures: calls, key, file, detectors."""
        header = recorded.header
        return {
            "calls": usage_of(recorded.calls.values()),
            "key": header.line(),
            "journal": str(recorded.path),
            "damaged_lines": 0,
            "errors": errors_of(recorded.calls.values()),
            **scoring_detectors(header),
            **(_NO_READINGS if judged_as_sentences(header, self.suite) else {}),
        }


def judged_as_sentences(header: Header, suite: Suite | type[Suite]) -> bool:
    """Return whether the guard judged completed sentences where users get words or letters.

    So it was until guard told the two apart; such readings are of no guarded arm.
    """
    asked = bool(header.guard) and suite.about.completes_sentences
    return asked and header.guard.get("judged") != AS_RECEIVED


def guard_settings(guard: Guard | None) -> dict[str, Any]:
    """Return the settings of a guard that decide what the guarded arm shows; empty without one."""
    if guard is None:
        return {}
    policy = guard.policy.model_dump(mode="json", exclude={"labels"})
    index = guard.detector.snapshot().index_version or ""
    return {"detector": guard.detector.name, "index": index, "policy": policy}


def scoring_detectors(header: Header) -> dict[str, Any]:
    """Return which detectors scored and guarded, with a warning if they are the same."""
    if "scorer" not in header.others:
        return {}
    scorer = header.others["scorer"]
    name, guarded = scorer.get("detector", scorer["model"]), header.guard.get("detector")
    about: dict[str, Any] = {"scored_by": name, "guarded_by": guarded}
    if guarded == name:
        about["warning"] = (
            f"{name} guarded and scored: it misses the same text in both roles, so mitigation is "
            "overstated. Give another --scorer, or have people check it: guard audit review."
        )
    elif guarded and shipped_in(guarded) and shipped_in(name):
        about["warning"] = (
            f"{guarded} guarded and {name} scored, which learned from the same texts: both miss "
            "some of the same text, so mitigation is overstated. Have people check it: guard audit "
            "review."
        )
    return about


def usage_of(calls: Iterable[Call]) -> dict[str, Any]:
    """Return the number, tokens and cost of answered calls; cost is None where no price is known.

    The totals include all roles; ``others`` has those of the other roles separately.
    """
    usage = {"all": dict(_NO_USAGE)}
    for call in calls:
        if call.reply is None:
            continue
        for role in ("all", call.by):
            sums = usage.setdefault(role, dict(_NO_USAGE))
            sums["answered"] += 1
            sums["prompt_tokens"] += call.reply.usage.prompt_tokens
            sums["completion_tokens"] += call.reply.usage.completion_tokens
            if not math.isnan(call.reply.usage.cost):
                sums["cost_usd"] = (sums["cost_usd"] or 0.0) + call.reply.usage.cost
    others = {role: sums for role, sums in usage.items() if role not in ("all", "model")}
    return usage["all"] | ({"others": others} if others else {})


_NO_USAGE: Mapping[str, Any] = {
    "answered": 0,
    "prompt_tokens": 0,
    "completion_tokens": 0,
    "cost_usd": None,
}
