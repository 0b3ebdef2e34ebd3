"""Asks every planned request once, recording each answer before the next call; resumes runs.

Both arms come from one set of calls: each answer is replayed through the guard once it is recorded.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from guard.audit.budget import Budget, OverBudget
from guard.audit.calls import Call, Reply
from guard.audit.failures import cause_of
from guard.audit.models import CallError, CallLost, CombinedModel, Model
from guard.audit.outcomes import (
    Asked,
    item_samples,
    outcome_behind_guard,
    outcome_of,
    scores_both_arms,
    sentence_key,
    walk_requests,
)
from guard.audit.pace import Pace, pause
from guard.audit.run_file import RecordedSuite
from guard.errors import GuardError
from guard.suites import Chat, Item, Outcome, Role, Suite

if TYPE_CHECKING:
    from guard.core import Guard

ATTEMPTS = 6
# The audit ends where this many calls failed in a row before any was answered.
_ALL_FAILED = 20
# Answers judged by the guard at a time: waiting for its threads would exceed its time limit.
GUARDED_AT_ONCE = 4
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 60.0
_MOST_TURNED_AWAY = 20  # times that a 429 costs a request no attempt


class Stopped(GuardError):
    """The audit ended early; what was answered is recorded.

    ``resumable``: once the user has fixed the problem, the same command resumes.
    """

    def __init__(self, message: str, resumable: bool = False) -> None:
        super().__init__(message)
        self.resumable = resumable


@dataclass(slots=True)
class Stop:
    """With ``requested`` set no further call begins; those in flight are still recorded."""

    requested: bool = False


class _Draining(Exception):
    """The audit is ending, so no new call begins."""


class Watcher:
    """Observes a run; the methods do nothing unless overridden."""

    def resumed(self, answers: int) -> None:
        """Receive the number of recorded answers before the first call."""

    def called(self, call: Call) -> None:
        """Receive a call that has just been recorded."""

    def failing(self, error: str) -> None:
        """Receive the error of the first failed attempt, while nothing has been answered yet."""

    def read(self, plain: str, guarded: str) -> None:
        """Receive the outcomes of a sample; ``guarded`` is empty where there is one arm."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The limits on concurrent calls, on attempts for each request, and on what all calls cost."""

    concurrency: int = 8
    attempts: int = ATTEMPTS
    first_pause_s: float = _FIRST_PAUSE_S
    budget: Budget = field(default_factory=Budget)


class Runner:
    """Runs one suite; ``guard`` is None for the plain arm alone."""

    def __init__(
        self,
        suite: Suite,
        model: Model,
        recorded: RecordedSuite,
        guard: Guard | None,
        settings: Settings,
        watcher: Watcher | None = None,
        stop: Stop | None = None,
    ) -> None:
        self._suite = suite
        self._model = model
        self._recorded = recorded
        self._guard = guard
        self._settings = settings
        self._watcher = watcher or Watcher()
        most = min(settings.concurrency, model.max_concurrency or settings.concurrency)
        models: Mapping[Role, Model] = {"model": model}
        if isinstance(model, CombinedModel):
            models = model.by_role
        self._slots = {
            role: asyncio.Semaphore(one.max_concurrency)
            for role, one in models.items()
            if one.max_concurrency
        }
        self._stop = stop or Stop()
        self._started = False
        self._ended = False  # set by the worker that meets what ends the audit
        self._pace = Pace(most, ending=self._ending)
        self._asking: dict[str, asyncio.Event] = {}
        self._asked: set[str] = set()  # by this run, which asks earlier failures again
        self._doors = asyncio.Semaphore(GUARDED_AT_ONCE)
        self._failure_reported = False
        self._answers: Counter[Role] = Counter({"model": recorded.count_answers()})
        self._failed_in_a_row: Counter[Role] = Counter()
        self._random = random.Random()  # for pauses; nothing recorded depends on it

    async def run(self, items: Iterable[Item]) -> None:
        """Ask until every request of ``items`` has an outcome.

        Raises Stopped where no call can succeed, and the model's GuardErrors. After an error or a
        cancellation the file has everything that was answered.
        """
        if not self._started:
            self._watcher.resumed(self._recorded.count_answers())
        self._ended, self._started = False, True  # a pilot may have run before
        work = item_samples(items)
        workers = [asyncio.create_task(self._work(work)) for _ in range(2 * self._pace.most)]
        try:
            done, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
            # Calls in flight are paid for, so they are recorded even after an error.
            self._ended = True
            await asyncio.gather(*workers, return_exceptions=True)
            for worker in done:
                worker.result()
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    def _ending(self) -> bool:
        return self._ended or self._stop.requested

    async def _work(self, work: Iterator[tuple[Item, int]]) -> None:
        for item, sample in work:
            try:
                outcome, changed = await self._sample(item, sample)
            except _Draining:
                return
            guarded = (changed or outcome.name) if self._guard is not None else ""
            self._watcher.read(outcome.name, guarded)

    async def _sample(self, item: Item, sample: int) -> tuple[Outcome, str]:
        """Ask a sample's missing requests; return its outcome and the guard's, if that differs."""
        changed = ""
        done = 0
        while True:
            asked, answers, failed = walk_requests(self._suite, item, sample, self._recorded.calls)
            if failed is not None and failed.key in self._asked:
                return Outcome("failed"), ""
            missing = asked[-1] if failed is not None or len(asked) > len(answers) else None
            for asked_request in asked[done : len(answers)]:
                changed = changed or await self._guarded(asked_request)
            done = len(answers)
            if missing is None and changed and scores_both_arms(self._suite):
                calls, readings = self._recorded.calls, self._recorded.readings
                _, missing = outcome_behind_guard(self._suite, item, sample, calls, readings)
                if missing is not None and missing.key in self._asked:
                    missing = None  # it failed just now
            if missing is None:
                return outcome_of(self._suite, item, sample, answers), changed
            await self._call(missing)

    async def _call(self, asked: Asked) -> None:
        """Ask and record a request, or wait for the worker that is asking it."""
        if asked.key in self._asking:
            await self._asking[asked.key].wait()
            return
        done = self._asking[asked.key] = asyncio.Event()
        try:
            call = await self._attempts(asked)
            self._recorded.add(call)
            self._asked.add(asked.key)
        finally:
            # Workers that waited look for the outcome, and ask if there is none.
            del self._asking[asked.key]
            done.set()
        self._watcher.called(call)

    async def _attempts(self, asked: Asked) -> Call:
        attempt, turned_away, answers, began = 0, 0, 0, 0.0
        role = asked.request.by
        slot = self._slots.get(role, nullcontext())
        while True:
            attempt += 1
            failure: CallError | None = None
            reply: Reply | None = None
            try:
                # A call that still waits for its slot does not begin once the audit is ending.
                async with slot, self._pace as began:
                    if self._ending():
                        raise _Draining
                    answers = self._answers[role] if attempt == 1 else answers
                    reply = await self._settings.budget.ask(
                        self._model, asked.request, asked.key, asked.slot, self._ending
                    )
            except OverBudget:
                self._ended = True
                raise _Draining from None
            except CallLost:
                attempt -= 1
                continue
            except CallError as error:
                limited = error.status == 429
                if limited and turned_away < _MOST_TURNED_AWAY:
                    # Where others were answered meanwhile, it is no attempt of its own.
                    turned_away += self._answers[role] > answers
                    answers = self._answers[role]
                pause_s = max(error.retry_after_s, self._pause(attempt - turned_away))
                if error.throttled:
                    # All wait, also where a limit says not how long: else other calls take each
                    # place that comes free.
                    self._pace.reduce(began, pause_s if limited else error.retry_after_s)
                answered = self._answers[role] > 0
                if error.fatal or (error.refused and not answered):
                    self._ended = True  # before another call takes the free place
                    raise Stopped(str(error), error.fixable) from error
                if self._ending() and error.retryable:
                    raise _Draining from None
                retry = error.retryable and attempt - turned_away < self._settings.attempts
                if not (answered or self._failure_reported):
                    self._failure_reported = True
                    self._watcher.failing(f"{error}; retrying" if retry else str(error))
                if retry:
                    await pause(pause_s, self._ending)
                    continue
                self._count_failure(role, str(error))
                failure = error
            else:
                self._answers[role] += 1
            seconds = time.monotonic() - began
            call = Call(asked.key, asked.slot, reply, "", attempt, seconds, role)
            if failure is None:
                return call
            cause = cause_of(str(failure)) if failure.cause is None else failure.cause
            return replace(call, error=cause, kind=failure.kind, status=failure.status)

    def _count_failure(self, role: Role, error: str) -> None:
        self._failed_in_a_row[role] += 1
        if self._failed_in_a_row[role] >= _ALL_FAILED and not self._answers[role]:
            self._ended = True
            whose = "" if role == "model" else f" of the {role}"
            raise Stopped(
                f"The first {_ALL_FAILED} calls{whose} all failed, so no more were made; the last "
                f"error: {error}.",
                resumable=True,
            )

    def _pause(self, attempt: int) -> float:
        """Return the seconds before the next attempt: exponential backoff with 25 % jitter."""
        seconds = min(_LONGEST_PAUSE_S, self._settings.first_pause_s * 2.0 ** max(attempt - 1, 0))
        return seconds * self._random.uniform(0.75, 1.25)

    async def _guarded(self, asked: Asked) -> str:
        """Return the guarded arm's outcome of an answered request; empty where nothing changed."""
        if self._guard is None or not isinstance(asked.request, Chat):
            return ""
        if asked.request.by != "model":
            return ""  # users do not see it
        # Imports LiteLLM, which scoring does not need.
        from guard.audit.arms import Door, sentence_through_door, through_door

        key, request, readings = asked.key, asked.request, self._recorded.readings
        async with self._doors:
            doors: list[Door] = [through_door] if key not in readings else []
            if request.completes is not None and sentence_key(key) not in readings:
                doors.append(sentence_through_door)
            for door in doors:
                reply = self._recorded.calls[key].reply
                assert reply is not None
                guarded_answer = await door(self._guard, key, request, reply)
                if guarded_answer is not None and guarded_answer.key not in readings:
                    self._recorded.add(guarded_answer)
            reading = readings[key]
        return "" if reading.reading == "same" else reading.reading
