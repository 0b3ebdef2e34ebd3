"""Asks every planned request once, records each answer before the next, and goes on where it was.

Both arms come from one set of calls: what the model said is replayed through the guard as soon as
it is recorded.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from guard.audit.calls import Call, Reply
from guard.audit.journal import Journal
from guard.audit.models import CallError, Model, Together
from guard.audit.outcomes import Asked, judges_both, outcome_of, samples, seen, walk
from guard.audit.pace import Pace, pause
from guard.errors import GuardError
from guard.suites import Chat, Item, Outcome, Role, Suite

if TYPE_CHECKING:
    from guard.core import Guard

ATTEMPTS = 6
# When so many calls in a row failed and none had an answer, the fault is not the single call's.
_HOPELESS = 20
# Answers behind the guard at a time: those that waited for its threads would run out of its time
# limit, which no user's stream does.
_DOORS = 4
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 60.0


class Stopped(GuardError):
    """The audit ended before every request had its outcome; what was answered is recorded.

    ``goes_on`` says whether the same command does, once what the text says is mended.
    """

    def __init__(self, message: str, goes_on: bool = False) -> None:
        super().__init__(message)
        self.goes_on = goes_on


@dataclass(slots=True)
class Stop:
    """Set ``asked``, and no further call begins; those in flight are still recorded."""

    asked: bool = False


class _Draining(Exception):
    """Nothing new is to be begun."""


class Watcher(Protocol):
    """Is told what happens while it happens."""

    def resumed(self, answers: int) -> None:
        """Take how many answers the journal has before the first call."""
        ...

    def called(self, call: Call) -> None:
        """Take a call that has just been recorded."""
        ...

    def failing(self, error: str) -> None:
        """Take what the first failed attempt met, while nothing has been answered yet."""
        ...

    def read(self, plain: str, guarded: str) -> None:
        """Take the outcomes of a sample; ``guarded`` is empty where there is one arm."""
        ...


@dataclass(frozen=True, slots=True)
class Settings:
    """How to ask: at most so many calls at a time, and so many attempts each."""

    concurrency: int = 8
    attempts: int = ATTEMPTS
    first_pause_s: float = _FIRST_PAUSE_S


class Runner:
    """Runs one suite; ``guard`` is None for the plain arm alone."""

    def __init__(
        self,
        suite: Suite,
        model: Model,
        journal: Journal,
        guard: Guard | None,
        settings: Settings,
        watcher: Watcher | None = None,
        stop: Stop | None = None,
    ) -> None:
        self._suite = suite
        self._model = model
        self._journal = journal
        self._guard = guard
        self._settings = settings
        self._watcher = watcher
        most = min(settings.concurrency, model.most or settings.concurrency)
        asked: Mapping[Role, Model] = {"model": model}
        if isinstance(model, Together):
            asked = model.asked
        self._turns = {who: asyncio.Semaphore(one.most) for who, one in asked.items() if one.most}
        self._stop = stop or Stop()
        self._over = self._begun = False  # over: a worker has met what ends the audit
        self._pace = Pace(most, ending=self._ending)
        self._asking: dict[str, asyncio.Event] = {}
        self._fresh: set[str] = set()  # asked by this run: an earlier failure is asked again
        self._doors = asyncio.Semaphore(_DOORS)
        self._told = False  # the first failure has been
        self._heard: set[Role] = {"model"} if journal.calls.answers else set()
        self._failed_in_a_row: Counter[Role] = Counter()
        self._random = random.Random()  # spreads pauses; nothing recorded depends on it

    async def run(self, items: Iterable[Item]) -> None:
        """Ask until every request of ``items`` has an outcome.

        Raises Stopped where no call can succeed, and what the model raises as GuardError; what was
        answered until then is in the journal. A cancellation likewise loses nothing answered.
        """
        if self._watcher is not None and not self._begun:
            self._watcher.resumed(self._journal.calls.answers)
        self._over, self._begun = False, True  # a pilot may have been run before
        work = samples(items)
        workers = [asyncio.create_task(self._work(work)) for _ in range(2 * self._pace.most)]
        try:
            done, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
            # Whatever ended one of them, what the others are asking is paid for.
            self._over = True
            await asyncio.gather(*workers, return_exceptions=True)
            for worker in done:
                worker.result()
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    def _ending(self) -> bool:
        return self._over or self._stop.asked

    async def _work(self, work: Iterator[tuple[Item, int]]) -> None:
        for item, sample in work:
            try:
                outcome, changed = await self._sample(item, sample)
            except _Draining:
                return
            if self._watcher is not None:
                guarded = (changed or outcome.name) if self._guard is not None else ""
                self._watcher.read(outcome.name, guarded)

    async def _sample(self, item: Item, sample: int) -> tuple[Outcome, str]:
        """Ask what a sample still lacks; return its outcome and what the guard made of it."""
        changed = ""
        done = 0
        while True:
            asked, answers, failed = walk(self._suite, item, sample, self._journal.calls)
            if failed is not None and failed.key in self._fresh:
                return Outcome("failed"), ""
            missing = asked[-1] if failed is not None or len(asked) > len(answers) else None
            for one in asked[done : len(answers)]:
                changed = changed or await self._guarded(one)
            done = len(answers)
            if missing is None and changed and judges_both(self._suite):
                journal = self._journal
                _, missing = seen(self._suite, item, sample, journal.calls, journal.readings)
                if missing is not None and missing.key in self._fresh:
                    missing = None  # it failed just now
            if missing is None:
                return outcome_of(self._suite, item, sample, answers), changed
            await self._call(missing)

    async def _call(self, asked: Asked) -> None:
        """Have a request answered and recorded, by whoever asks it first."""
        if asked.key in self._asking:
            await self._asking[asked.key].wait()
            return
        done = self._asking[asked.key] = asyncio.Event()
        try:
            call = await self._attempts(asked)
            self._journal.add(call)
            self._fresh.add(asked.key)
        finally:
            # Whoever waited looks for the outcome, and asks where there is none.
            del self._asking[asked.key]
            done.set()
        if self._watcher is not None:
            self._watcher.called(call)

    async def _attempts(self, asked: Asked) -> Call:
        attempt, began = 0, 0.0
        turn = self._turns.get(asked.request.by, nullcontext())
        while True:
            attempt += 1
            try:
                # Who waits for a turn has not begun, and does not once the audit is ending.
                async with turn, self._pace as began:
                    if self._ending():
                        raise _Draining
                    reply = await self._model.ask(asked.request, asked.key, asked.slot)
            except CallError as error:
                if error.slower:
                    self._pace.reduce(began, error.pause_s)
                answered = asked.request.by in self._heard
                if error.fatal or (error.refused and not answered):
                    self._over = True  # before the next one takes the place that is free now
                    raise Stopped(str(error), error.mendable) from error
                if self._ending() and error.again:
                    raise _Draining from None
                if not (answered or self._told or self._watcher is None):
                    self._told = True
                    again = error.again and attempt < self._settings.attempts
                    self._watcher.failing(f"{error}; it is asked again" if again else str(error))
                if not error.again or attempt >= self._settings.attempts:
                    self._note_failure(asked.request.by, str(error))
                    return self._called(asked, None, attempt, began, str(error))
                await pause(max(error.pause_s, self._pause(attempt)), self._ending)
            else:
                self._heard.add(asked.request.by)
                return self._called(asked, reply, attempt, began)

    def _called(
        self, asked: Asked, reply: Reply | None, attempt: int, began: float, error: str = ""
    ) -> Call:
        took = time.monotonic() - began
        return Call(asked.key, asked.slot, reply, error, attempt, took, asked.request.by)

    def _note_failure(self, role: Role, error: str) -> None:
        self._failed_in_a_row[role] += 1
        if self._failed_in_a_row[role] >= _HOPELESS and role not in self._heard:
            self._over = True
            whose = "" if role == "model" else f" of the {role}"
            raise Stopped(
                f"The first {_HOPELESS} calls{whose} all failed, the last with {error}; nothing "
                "more was asked.",
                goes_on=True,
            )

    def _pause(self, attempt: int) -> float:
        """Return the seconds before the next attempt: doubled each time, spread over a half."""
        seconds = min(_LONGEST_PAUSE_S, self._settings.first_pause_s * 2.0 ** (attempt - 1))
        return seconds * self._random.uniform(0.75, 1.25)

    async def _guarded(self, asked: Asked) -> str:
        """Return what the guarded arm makes of an answered request, empty where it is the same."""
        if self._guard is None or not isinstance(asked.request, Chat):
            return ""
        if asked.request.by != "model":
            return ""  # no user is shown that
        from guard.audit.arms import through_door  # LiteLLM: what is only scored needs none of it

        async with self._doors:
            reading = self._journal.readings.get(asked.key)
            if reading is None:
                reply = self._journal.calls[asked.key].reply
                assert reply is not None
                reading = await through_door(self._guard, asked.key, asked.request, reply)
                if asked.key not in self._journal.readings:
                    self._journal.add(reading)
        return "" if reading.reading == "same" else reading.reading


def check(
    suite: Suite, items: Sequence[Item], records: Iterable[Call], report: Callable[[str], None]
) -> int:
    """Return how many planned requests have not exactly one outcome, reporting each.

    ``records`` are the calls of a journal as they were written: a request has one answer, or the
    failure of its last attempt; a failure before an answer was mended by it. What another analyst
    was asked before is no fault.
    """
    answered: dict[str, int] = {}
    calls: dict[str, Call] = {}
    for call in records:
        answered[call.key] = answered.get(call.key, 0) + (call.reply is not None)
        if call.reply is not None or call.key not in calls:
            calls[call.key] = call
    faults = 0
    planned_keys: set[str] = set()
    for item, sample in samples(items):
        asked, answers, failed = walk(suite, item, sample, calls)
        planned_keys |= {one.key for one in asked}
        if failed is None and len(asked) > len(answers):
            faults += 1
            slot = asked[-1].slot
            report(f"{slot.item}, sample {slot.sample}, turn {slot.turn}: no outcome")
    for key, times in answered.items():
        if times > 1 or (key not in planned_keys and calls[key].by == "model"):
            faults += 1
            report(f"{key}: " + (f"{times} answers" if times > 1 else "was never planned"))
    return faults
