"""A whole ``guard audit run``: its suites one after the other, interruptible at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from guard.audit.audit import FILE, Audit
from guard.audit.cassette import Cassette, keep
from guard.audit.models import Model, open_model
from guard.audit.progress import watching
from guard.audit.runner import Settings, Stop, Stopped
from guard.audit.sample import count
from guard.audit.score import SuiteResult
from guard.core import Guard
from guard.errors import UsageError

OUT = Path("guard-audits")
_SWITCH_S = 0.0005


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. ``guard`` is None for the plain arm alone; folders are None where not given."""

    audits: Sequence[Audit]
    model: str | None
    guard: Guard | None
    concurrency: int = 8
    timeout_s: float = 120.0
    stream: bool = False
    out: Path | None = None
    record: Path | None = None
    replay: Path | None = None


class Ran(NamedTuple):
    """The results so far, whether the user interrupted, and why the audit stopped if it did."""

    results: list[SuiteResult]
    interrupted: bool = False
    stopped: str = ""


def run_all(command: Command) -> Ran:
    """Run the suites.

    A first interrupt waits for the calls in flight and records them; a second one does not.
    Raises UsageError before the first call where anything about the command is wrong.
    """
    if (command.model is None) == (command.replay is None):
        raise UsageError("Give --model, or --replay with a cassette.")
    stop = Stop()
    results: list[SuiteResult] = []
    try:
        with promptly():
            asyncio.run(_run(command, stop, results))
    except KeyboardInterrupt:
        stop.asked = True
    except Stopped as error:
        return Ran(results, stop.asked, str(error))
    return Ran(results, stop.asked)


async def _run(command: Command, stop: Stop, results: list[SuiteResult]) -> None:
    settings = Settings(command.concurrency)
    with _stopping(stop):
        for audit in command.audits:
            model = _model(command, audit)
            try:
                has = await model.capabilities(audit.suite.needs | audit.suite.uses)
                lacking = audit.suite.needs - has
                if lacking:
                    _skip(audit, model.name, sorted(lacking), len(command.audits))
                    continue
                audit = audit.fitted(has)
                path = _folder(command, model.name) / FILE.format(suite=audit.suite.name)
                _say(f"{audit.suite.name}: {len(audit.items):,} items, journal {path}")
                with watching(audit.suite.name, count(audit.items)) as tally:
                    result = await audit.run(model, path, command.guard, settings, tally, stop)
                results.append(result)
                if tally.before:
                    _say(f"{audit.suite.name}: {tally.before:,} answers were there before.")
                if command.record is not None:
                    keep(path, command.record / path.name)
            finally:
                await model.aclose()
            if stop.asked:
                break


def _model(command: Command, audit: Audit) -> Model:
    if command.replay is not None:
        return Cassette(command.replay / FILE.format(suite=audit.suite.name), audit)
    assert command.model is not None
    return open_model(command.model, timeout_s=command.timeout_s, stream=command.stream)


def _skip(audit: Audit, model: str, lacking: list[str], suites: int) -> None:
    told = (
        f"{audit.suite.name} was SKIPPED: it needs {', '.join(lacking)}, which {model} does not "
        "give."
    )
    if suites == 1:
        raise UsageError(told)
    _say(told)


def _folder(command: Command, model: str) -> Path:
    """Return the folder of the journals: the same command comes back to the same."""
    if command.out is not None:
        return command.out
    keys: list[object] = [a.header(model, command.guard).line() for a in command.audits]
    keys += ["replayed"] if command.replay is not None else []
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
