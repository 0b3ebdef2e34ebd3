"""A whole ``guard audit run``: the suites one after another, interruptible at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from guard.audit.asked import AskedSuite, write_asked
from guard.audit.audit import Audit
from guard.audit.budget import Budget, OverBudget
from guard.audit.cassette import Cassette
from guard.audit.endpoints import endpoint, endpoint_of
from guard.audit.files import RUN_FILE, check_place, check_writable, run_file_of
from guard.audit.header import Header
from guard.audit.models import LOCAL, check_model
from guard.audit.others import Embedder, Opener, combined_model, open_model
from guard.audit.progress import watching_run
from guard.audit.run_file import (
    RunFile,
    header_at,
    record_cassette,
    resumed_header,
)
from guard.audit.runner import Settings, Stop, Stopped
from guard.audit.sample import sample_count
from guard.audit.score import SuiteResult
from guard.audit.sending import Sending
from guard.core import Guard
from guard.errors import GuardError, UsageError
from guard.suites import AdaptsRequests, Capability, Suite
from guard.suites.optional import part_of

OUT = Path("guard-audits")
_SWITCH_S = 0.0005
_SLUG = re.compile(r"[^\w.-]+")
_RESUMES = "Fix this and run the same command to resume."


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. ``guard`` is None for the plain arm alone; folders are None where not given.

    With several models each has its own folder in ``out`` and ``record``.
    """

    audits: Sequence[Audit]
    models: Sequence[str]
    guard: Guard | None
    concurrency: int = 8
    timeout_s: float = 120.0
    stream: bool = False
    out: Path | None = None
    record: Path | None = None
    replay: Path | None = None
    sending: Sending = field(default_factory=Sending)
    budget: Budget = field(default_factory=Budget)
    workers: int = 0
    """How many workers on Ray ask, each with ``concurrency`` calls; 0 to ask in this process."""
    address: str | None = None
    """That of the cluster; None for one that is found or started on this machine."""
    check: Callable[[Suite, Header], None] | None = None
    """Called for each audit before the first call; its exceptions end the command."""


@dataclass(slots=True)
class RunResult:
    """The results so far, and what ended the run early.

    ``stopped`` has a sentence for each model that could not be asked; ``error`` is a mistake in the
    command or its files. ``skipped`` are the suites that need what their model does not have,
    ``unasked`` those without any answer.
    """

    results: list[SuiteResult] = field(default_factory=list)
    skipped: list[AskedSuite] = field(default_factory=list)
    unasked: list[AskedSuite] = field(default_factory=list)
    interrupted: bool = False
    stopped: list[str] = field(default_factory=list)
    error: GuardError | None = None

    @property
    def complete(self) -> bool:
        """Whether every model was asked to the end, and every request has an answer."""
        ended = not (self.interrupted or self.stopped or self.error)
        return ended and all(result.complete for result in self.results)


class _Task(NamedTuple):
    """One suite and one model; ``model`` is empty for a cassette, ``name`` is the recorded one."""

    model: str
    name: str
    audit: Audit
    folder: Path
    record: Path | None

    @property
    def path(self) -> Path:
        return self.folder / RUN_FILE


def run_all(command: Command) -> RunResult:
    """Run the suites, one model after the other.

    The first interrupt waits for the calls in flight and records them; the second does not.
    Raises UsageError before the first call where the command or one of its files is wrong, and
    WeightsError where an embedder is missing.
    """
    if not command.models and command.replay is None:
        raise UsageError("Give --model, or --replay with a cassette.")
    tasks = _tasks_of(command)
    for task in tasks:
        _check_task(task, command)
    stop, ran = Stop(), RunResult()
    _note_asked(tasks, ran)
    try:
        with short_switch_interval():
            _run_somewhere(command, partial(_run_tasks, command, tasks, stop, ran))
    except KeyboardInterrupt:
        stop.requested = True
    except GuardError as error:
        if not ran.results:
            raise
        ran.error = error
    ran.interrupted = stop.requested
    ended = {(result.suite, result.model) for result in ran.results}
    ended |= {(left_out.suite, left_out.model) for left_out in ran.skipped}
    asked = [AskedSuite(task.audit.suite.name, task.name) for task in tasks]
    ran.unasked = [suite for suite in asked if (suite.suite, suite.model) not in ended]
    return ran


def check_command(command: Command) -> None:
    """Raise what :func:`run_all` would before its first call, whatever its files hold.

    A command without a model lacks one, which is no mistake in a plan.
    """
    for task in _tasks_of(command):
        for path in (task.path, *([task.record / task.path.name] if task.record else [])):
            check_place(path)
        if command.check is not None and task.name:
            command.check(task.audit.suite, task.audit.header(task.name, command.guard))


def _tasks_of(command: Command) -> list[_Task]:
    """Return the tasks; raises UsageError where the command is wrong."""
    if command.models and command.replay is not None:
        raise UsageError("Give --model or --replay, not both: a cassette has one model.")
    if command.replay is not None and (command.sending.key() or command.sending.key_variable):
        raise UsageError(
            "A replay sends nothing; leave --set, --drop, --system, --api-base and --header out."
        )
    if command.replay is not None and command.workers:
        raise UsageError("A replay asks nobody; leave --on and --workers out.")
    if command.replay is not None and command.budget.has_limit:
        raise UsageError("A replay costs nothing; leave --max-calls and --max-cost out.")
    models = list(dict.fromkeys(command.models)) or [""]
    places = [_SLUG.sub("_", model) for model in models]
    if len(set(places)) < len(places):
        raise UsageError("Two of the models would share a folder; run them one after another.")
    tasks: list[_Task] = []
    for model, place in zip(models, places, strict=True):
        several = len(models) > 1
        audits, names, digests = [], [], []
        for audit in command.audits:
            if command.replay is not None:
                cassette = cassette_of(command.replay, audit)
                audits.append(cassette.audit)
                names.append(cassette.name)
                digests.append(cassette.digest())
            elif not model:
                audits.append(audit)
                names.append(model)
            else:
                check_model(model)
                audits.append(audit.for_model(model, command.sending))
                command.budget.set_payees(model, audits[-1].sending, audit.others)
                names.append(model)
        folder = _run_folder(command, names, audits, digests)
        folder = folder / place if several else folder
        record = command.record / place if command.record is not None and several else None
        for audit, name in zip(audits, names, strict=True):
            tasks.append(_Task(model, name, audit, folder, record or command.record))
    return tasks


def _note_asked(tasks: Sequence[_Task], ran: RunResult) -> None:
    """Write into each folder which suites its run is to ask, and which were skipped so far."""
    skipped = {(left_out.suite, left_out.model): left_out for left_out in ran.skipped}
    asked: dict[Path, list[AskedSuite]] = {}
    for task in tasks:
        key = task.audit.suite.name, task.name
        asked.setdefault(task.folder, []).append(skipped.get(key, AskedSuite(*key)))
    for folder, suites in asked.items():
        write_asked(folder, suites)


def _check_task(task: _Task, command: Command) -> None:
    """Raise GuardError where a task's file or its embedder cannot be used."""
    for path in (task.path, *([task.record / task.path.name] if task.record else [])):
        check_writable(path)
    there = header_at(task.path, task.audit.suite.name)
    audit = _resumed_audit(task, there, command.sending)
    if task.model and (embedder := audit.others.get("embedder")) is not None:
        Embedder(embedder.name)
    wanted = audit.header(task.name, command.guard)
    if task.record is not None:
        cassette = header_at(task.record / task.path.name, audit.suite.name)
        if cassette is not None and cassette.shard != wanted.shard:
            raise UsageError(
                f"{task.record} has the cassette of another shard, or of the whole run; give each "
                "a --record of its own."
            )
    if command.check is not None:
        command.check(audit.suite, wanted)
    if there is None:
        return
    there.check_compatible(resumed_header(there, wanted), task.path)
    if command.replay is not None:
        recorded = RunFile(task.path).suite(audit.suite.name)
        cassette_of(command.replay, audit).check(task.path, recorded.calls)


def _resumed_audit(task: _Task, header: Header | None, sending: Sending) -> Audit:
    """Return a task's audit, adapted as the recorded one with ``header`` was, if any."""
    audit = task.audit if header is None else task.audit.adapted_like(header.options)
    return audit if audit is task.audit or not task.model else audit.for_model(task.model, sending)


def _run_somewhere(command: Command, run: Callable[[Opener], Coroutine[Any, Any, None]]) -> None:
    """Run the tasks with models that workers on Ray ask, or this process."""
    if not command.workers:
        asyncio.run(run(open_model))
        return
    from guard.audit.ray_model import run_with_workers

    _log_line(f"{command.workers} workers on Ray ask, {command.concurrency} calls at a time each.")
    run_with_workers(command.address, command.workers, command.concurrency, run)


async def _run_tasks(
    command: Command, tasks: Sequence[_Task], stop: Stop, ran: RunResult, opener: Opener
) -> None:
    failed_models: set[str] = set()
    with _stops_on_interrupt(stop):
        for task in tasks:
            if stop.requested or command.budget.exhausted:
                break
            if task.model in failed_models:
                continue
            try:
                await _run_task(command, opener, task, stop, ran)
                if ran.skipped:
                    _note_asked(tasks, ran)
            except Stopped as error:
                failed_models.add(task.model)
                answered = any(r.about["calls"]["answered"] for r in ran.results[-1:])
                more = f" {_RESUMES}" if error.resumable and answered else ""
                ran.stopped.append(f"{error}{more}")
    if command.budget.exhausted:
        ran.stopped.append(command.budget.stop_sentence())


async def _run_task(
    command: Command, opener: Opener, task: _Task, stop: Stop, ran: RunResult
) -> None:
    header = header_at(task.path, task.audit.suite.name)
    audit = _resumed_audit(task, header, command.sending)
    if task.model:
        model = opener(
            task.model, timeout_s=command.timeout_s, stream=command.stream, sending=audit.sending
        )
        model = combined_model(model, audit.others, timeout_s=command.timeout_s, opener=opener)
    else:
        assert command.replay is not None
        model = cassette_of(command.replay, audit)
    name = audit.suite.name
    if task.model:
        command.budget.set_payees(task.model, audit.sending, audit.others)
    try:
        if header is None or not task.model:
            wanted = audit.suite.needs | part_of(audit.suite, AdaptsRequests).uses
            if not _may_probe(command.budget, task.model, wanted, audit.sending):
                return
            has = await model.capabilities(wanted)
            if missing := ", ".join(sorted(audit.suite.needs - has)):
                reason = f"it needs {missing}, which {model.name} does not have"
                sentence = f"{name} was SKIPPED: {reason}."
                if len(command.audits) == 1:
                    raise UsageError(sentence)
                _log_line(sentence)
                ran.skipped.append(AskedSuite(name, task.name, reason))
                return
            adapted = audit.adapted(has)
            if adapted is not audit:
                audit = adapted.for_model(task.model, command.sending) if task.model else adapted
        _log_line(f"{name}: {len(audit.items):,} items, recorded in {task.path}")
        notes = audit.sending.notes(model.name)
        if task.model:
            notes.insert(0, f"{model.name} is asked at {endpoint(task.model, audit.sending)}.")
        for role, other in audit.others.items():
            where = endpoint_of(role, other) if task.model else "recorded"
            notes += [f"the {role} is {other.name}: {where}.", *other.sending.notes(other.name)]
        for note in notes:
            _log_line(f"{name}: {note}")
        with watching_run(name, sample_count(audit.items)) as tally:
            at_once = command.concurrency * max(command.workers, 1)
            settings = Settings(at_once, budget=command.budget)
            result = await audit.run(
                model, task.path, command.guard, settings, tally, stop, ran.results
            )
        ran.results.append(result)
        if tally.before:
            _log_line(f"{name}: resumed with {tally.before:,} earlier answers.")
        if task.record is not None:
            record_cassette(task.path, name, task.record / task.path.name)
    finally:
        await model.aclose()


def _may_probe(budget: Budget, model: str, wanted: frozenset[Capability], sending: Sending) -> bool:
    """Count the call that asks a model for log-probabilities; False where the budget has none."""
    if not model or model.startswith(LOCAL) or "logprobs" not in wanted:
        return True
    from guard.audit.remote_model import may_give_logprobs

    if may_give_logprobs(model, sending):
        try:
            budget.count_probe()
        except OverBudget:
            return False
    return True


def cassette_of(folder: Path, audit: Audit) -> Cassette:
    """Return the cassette of an audit, a run's file or its ``folder``."""
    return Cassette(run_file_of(folder), audit)


def _run_folder(
    command: Command, names: Sequence[str], audits: Sequence[Audit], cassettes: Sequence[str]
) -> Path:
    """Return the folder of the run: the same for the same command, whatever the sample size.

    ``cassettes`` are the hashes of what is replayed.
    """
    if command.out is not None:
        return command.out
    keys: list[object] = []
    for name, audit in zip(names, audits, strict=True):
        line = audit.header(name, command.guard).line()
        del line["others"]  # another analyst reads the same answers
        sampling = {k: v for k, v in line["sampling"].items() if k in ("allocate", "preset")}
        size = audit.size if sampling else None
        keys.append(line | {"sampling": sampling | ({"size": size} if size else {})})
    keys += ["replayed", *cassettes] if command.replay is not None else []
    digest = hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()[:12]
    return OUT / digest


@contextlib.contextmanager
def short_switch_interval() -> Iterator[None]:
    """Let the event loop take the interpreter back sooner from LiteLLM's logging threads.

    Python's default of 5 ms would be a wait of up to 5 ms at each step of a call.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _log_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _stops_on_interrupt(stop: Stop) -> Iterator[None]:
    """Set ``stop`` at the first interrupt; the second interrupts as usual."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)

    def first() -> None:
        stop.requested = True
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
        _log_line("Interrupted: waiting for the calls in flight; interrupt again to abandon them.")

    try:
        loop.add_signal_handler(signal.SIGINT, first)
    except (NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
