"""A whole ``guard audit run``: its suites one after the other, interruptible at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from guard.audit import journal as journals
from guard.audit.audit import FILE, Audit
from guard.audit.cassette import Cassette, keep
from guard.audit.header import Header
from guard.audit.models import check_model
from guard.audit.others import open_model, together
from guard.audit.progress import watching
from guard.audit.runner import Settings, Stop, Stopped
from guard.audit.sample import count
from guard.audit.score import SuiteResult
from guard.audit.sending import Sending
from guard.core import Guard
from guard.errors import GuardError, UsageError
from guard.suites import Suite

OUT = Path("guard-audits")
_SWITCH_S = 0.0005
_SLUG = re.compile(r"[^\w.-]+")
_GOES_ON = "Once that is mended the same command goes on where it stopped."


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. ``guard`` is None for the plain arm alone; folders are None where not given.

    Of several models each has a folder of its own in ``out`` and ``record``.
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
    check: Callable[[Suite, Header], None] | None = None
    """Given what each audit is to be, before the first call; what it raises ends the command."""


@dataclass(slots=True)
class Ran:
    """The results so far, whether the user interrupted, and what ended the audit early if it did.

    ``stopped`` has the sentences of models that could not be asked; ``error`` is what is wrong with
    the command or its files.
    """

    results: list[SuiteResult] = field(default_factory=list)
    interrupted: bool = False
    stopped: list[str] = field(default_factory=list)
    error: GuardError | None = None


class _Task(NamedTuple):
    """One suite and one model; ``model`` is empty for a cassette."""

    model: str
    audit: Audit
    folder: Path
    record: Path | None

    @property
    def path(self) -> Path:
        return self.folder / FILE.format(suite=self.audit.suite.name)


def run_all(command: Command) -> Ran:
    """Run the suites, one model after the other.

    A first interrupt waits for the calls in flight and records them; a second one does not.
    Raises UsageError before the first call where anything about the command is wrong, the journals
    of all its suites included.
    """
    if command.models and command.replay is not None:
        raise UsageError("Give --model or --replay, not both: a cassette is of one model.")
    if not command.models and command.replay is None:
        raise UsageError("Give --model, or --replay with a cassette.")
    if command.replay is not None and command.sending.key():
        raise UsageError(
            "A cassette holds what was sent; leave --set, --drop, --system, --api-base and "
            "--header out."
        )
    tasks = _tasks(command)
    stop, ran = Stop(), Ran()
    try:
        with promptly():
            asyncio.run(_run(command, tasks, stop, ran))
    except KeyboardInterrupt:
        stop.asked = True
    except GuardError as error:
        if not ran.results:
            raise
        ran.error = error
    ran.interrupted = stop.asked
    return ran


def _tasks(command: Command) -> list[_Task]:
    """Return what is to be done, each journal looked at."""
    models = list(dict.fromkeys(command.models)) or [""]
    places = [_SLUG.sub("_", model) for model in models]
    if len(set(places)) < len(places):
        raise UsageError("Two of the models would share a folder; give them one after the other.")
    tasks: list[_Task] = []
    for model, place in zip(models, places, strict=True):
        several = len(models) > 1
        audits, names, digests = [], [], []
        for audit in command.audits:
            if command.replay is not None:
                cassette = Cassette(_cassette(command.replay, audit), audit)
                audits.append(cassette.audit)
                names.append(cassette.name)
                digests.append(cassette.digest)
            else:
                check_model(model)
                audits.append(audit.sent(command.sending.fitted(model, audit.suite)))
                names.append(model)
        folder = _folder(command, names, audits, digests)
        folder = folder / place if several else folder
        record = command.record / place if command.record is not None and several else None
        for audit, name in zip(audits, names, strict=True):
            task = _Task(model, audit, folder, record or command.record)
            _look(task, name, command)
            tasks.append(task)
    return tasks


def _look(task: _Task, name: str, command: Command) -> None:
    """Raise UsageError where a task's journal cannot be gone on with, or not be written."""
    for path in (task.path, *([task.record / task.path.name] if task.record else [])):
        journals.check_writable(path)
    there = journals.header_at(task.path)
    audit = _like(task, there, command.sending)
    wanted = audit.header(name, command.guard)
    if command.check is not None:
        command.check(audit.suite, wanted)
    found = journals.inspect(task.path, journals.agreed(task.path, wanted))
    if found is not None and found.damaged:
        _say(damage(task.path, found.damaged))
    if found is not None and command.replay is not None:
        Cassette(_cassette(command.replay, audit), audit).check(task.path, found.calls)


def _like(task: _Task, there: Header | None, sending: Sending) -> Audit:
    """Return a task's audit as the journal that is there has it, or as it was given."""
    audit = task.audit if there is None else task.audit.like(there.options)
    if audit is task.audit or not task.model:
        return audit
    return audit.sent(sending.fitted(task.model, audit.suite))


def damage(path: Path, lines: int) -> str:
    """Return the sentence that tells of lines which are not what was written."""
    return f"{path} has {lines:,} lines, or runs of bytes, that are not what was written: left out."


async def _run(command: Command, tasks: Sequence[_Task], stop: Stop, ran: Ran) -> None:
    settings = Settings(command.concurrency)
    given_up: set[str] = set()
    with _stopping(stop):
        for task in tasks:
            if stop.asked:
                break
            if task.model in given_up:
                continue
            try:
                await _one(command, task, settings, stop, ran, len(command.audits))
            except Stopped as error:
                given_up.add(task.model)
                kept = error.goes_on and any(_answered(r) for r in ran.results[-1:])
                more = f" {_GOES_ON}" if kept else ""
                ran.stopped.append(f"{error}{more}")


def _answered(result: SuiteResult) -> bool:
    return bool(result.about["calls"]["answered"])


async def _one(
    command: Command, task: _Task, settings: Settings, stop: Stop, ran: Ran, suites: int
) -> None:
    there = journals.header_at(task.path)
    audit = _like(task, there, command.sending)
    if task.model:
        model = open_model(
            task.model, timeout_s=command.timeout_s, stream=command.stream, sending=audit.sending
        )
        model = together(model, audit.others, timeout_s=command.timeout_s)
    else:
        assert command.replay is not None
        model = Cassette(_cassette(command.replay, audit), audit)
    try:
        if there is None or not task.model:
            has = await model.capabilities(audit.suite.needs | audit.suite.uses)
            lacking = audit.suite.needs - has
            if lacking:
                _skip(audit, model.name, sorted(lacking), suites)
                return
            fitted = audit.fitted(has)
            if fitted is not audit:
                audit = fitted
                if task.model:
                    audit = fitted.sent(command.sending.fitted(task.model, fitted.suite))
        _say(f"{audit.suite.name}: {len(audit.items):,} items, journal {task.path}")
        for told in audit.sending.told(model.name):
            _say(f"{audit.suite.name}: {told}")
        for role, other in audit.others.items():
            for told in (f"the {role} is {other.name}.", *other.sending.told(other.name)):
                _say(f"{audit.suite.name}: {told}")
        name = audit.suite.name
        with watching(name, count(audit.items)) as tally:
            result = await audit.run(
                model, task.path, command.guard, settings, tally, stop, ran.results
            )
        ran.results.append(result)
        if tally.before:
            _say(f"{name}: {tally.before:,} answers were there before.")
        if task.record is not None:
            keep(task.path, task.record / task.path.name)
    finally:
        await model.aclose()


def _cassette(folder: Path, audit: Audit) -> Path:
    return folder / FILE.format(suite=audit.suite.name)


def _skip(audit: Audit, model: str, lacking: list[str], suites: int) -> None:
    told = (
        f"{audit.suite.name} was SKIPPED: it needs {', '.join(lacking)}, which {model} does not "
        "give."
    )
    if suites == 1:
        raise UsageError(told)
    _say(told)


def _folder(
    command: Command, names: Sequence[str], audits: Sequence[Audit], cassettes: Sequence[str]
) -> Path:
    """Return the folder of the journals: the same command comes back to the same.

    A larger sample comes back to the answers of a smaller one. ``cassettes`` are the hashes of what
    is replayed.
    """
    if command.out is not None:
        return command.out
    keys: list[object] = []
    for name, audit in zip(names, audits, strict=True):
        line = audit.header(name, command.guard).line()
        del line["others"]  # another analyst goes on with the same answers
        sampling = {k: v for k, v in line["sampling"].items() if k in ("allocate", "preset")}
        size = audit.size if sampling else None
        keys.append(line | {"sampling": sampling | ({"size": size} if size else {})})
    keys += ["replayed", *cassettes] if command.replay is not None else []
    digest = hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()[:12]
    return OUT / digest


@contextlib.contextmanager
def promptly() -> Iterator[None]:
    """Have the event loop get the interpreter back soon from LiteLLM's logging threads.

    Each of a call's turns of the loop could otherwise wait 5 ms for one of them.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _stopping(stop: Stop) -> Iterator[None]:
    """Have the first interrupt set ``stop``; the next is Python's own."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)

    def first() -> None:
        stop.asked = True
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
        _say("Interrupted: waiting for the calls in flight; once more to leave them.")

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
